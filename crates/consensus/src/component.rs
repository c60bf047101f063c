//! Recognising a consensus log: by its app metadata, or by its records if those are lost.
//!
//! Creating a log stores its component durably before the first record (see
//! [`esker_log::Options::component`]). Otherwise the app metadata hold only the location of the
//! last checkpoint, which is optional. So a log that lost them is still opened if its first durable
//! record is one of a consensus log, and they are stored again. This check takes no lock and
//! changes nothing.

use std::path::Path;

use esker_log::{Component, Log, ReadOnlyLog, ReadOptions, Start};

use crate::outcome::{Error, Result};
use crate::record::Record;

/// The component of consensus logs.
pub const COMPONENT: Component = Component(*b"ESKRCONS");

/// Opens the underlying log. Refuses a plain log, or one of another component, before any change.
pub(crate) fn open(dir: &Path, options: esker_log::Options) -> Result<Log> {
    match Log::builder(dir).options(options.clone()).open() {
        Err(esker_log::Error::WrongComponent { found: None, .. }) if is_one(dir, &options) => {
            tracing::warn!(dir = %dir.display(), "app metadata of the consensus log missing or corrupt");
            let mut plain = options;
            plain.component = None;
            let log = Log::builder(dir).options(plain).open()?;
            log.put_app_metadata(COMPONENT, &[])?;
            Ok(log)
        }
        outcome => Ok(outcome?),
    }
}

/// Opens the underlying log to read it, without its lock. Refuses a plain log, or one of another
/// component. Returns whether its app metadata say that it is a consensus log.
pub(crate) fn open_read_only(dir: &Path, options: ReadOptions) -> Result<(ReadOnlyLog, bool)> {
    let found = match esker_log::component(dir, options.clone()) {
        // Corrupt app metadata is ignored, as opening does.
        Err(error @ esker_log::Error::UnsupportedVersion { .. }) => return Err(error.into()),
        found => found.unwrap_or(Some(COMPONENT)),
    };
    let reader = ReadOnlyLog::builder(dir).options(options).open().map_err(Error::Log)?;
    if found.is_some_and(|found| found != COMPONENT) {
        let (dir, expected) = (dir.into(), Some(COMPONENT));
        return Err(esker_log::Error::WrongComponent { dir, found, expected }.into());
    }
    Ok((reader, found.is_some()))
}

/// Whether the first durable record, if there is one, is that of a consensus log.
fn is_one(dir: &Path, options: &esker_log::Options) -> bool {
    let first = || -> esker_log::Result<Option<bool>> {
        let mut stream =
            ReadOnlyLog::builder(dir).options(options.clone()).open()?.stream(Start::Oldest)?;
        loop {
            match stream.try_next() {
                Ok(batch) => {
                    let first = batch.as_ref().and_then(|batch| batch.iter().next());
                    return Ok(first.map(|record| Record::decode(record.payload).is_ok()));
                }
                Err(esker_log::Error::Quarantined { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    };
    // If it cannot be read, opening reports the error.
    !matches!(first(), Ok(Some(false)))
}

/// The error for a plain log.
pub(crate) fn plain(dir: &Path) -> Error {
    let (dir, found, expected) = (dir.into(), None, Some(COMPONENT));
    Error::Log(esker_log::Error::WrongComponent { dir, found, expected })
}

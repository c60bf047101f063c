//! How a consensus log is recognised: by its app metadata, and by its records where those are lost.
//!
//! A log that is created here says so durably before its first record (see
//! [`esker_log::Options::component`]). What the app metadata hold otherwise, the place of the last
//! checkpoint, is an aid; so a log that lost them is opened, too, if its first durable record is one of a
//! consensus log, and gets them anew. That look takes no lock and changes nothing.

use std::path::Path;

use esker_log::{Component, Log, Reader, Start};

use crate::outcome::{Error, Result};
use crate::record::Record;

/// The component that consensus logs belong to.
pub const COMPONENT: Component = Component(*b"ESKRCONS");

/// Opens the log below. That of another component, or a plain log, is refused before anything changes.
pub(crate) fn open(dir: &Path, options: esker_log::Options) -> Result<Log> {
    match Log::open(dir, options.clone()) {
        Err(esker_log::Error::WrongComponent { found: None, .. }) if is_one(dir, &options) => {
            tracing::warn!(dir = %dir.display(), "the app metadata of the consensus log are lost");
            let mut plain = options;
            plain.component = None;
            let log = Log::open(dir, plain)?;
            log.put_app_metadata(COMPONENT, &[])?;
            Ok(log)
        }
        outcome => Ok(outcome?),
    }
}

/// Whether the first durable record, if there is one, is that of a consensus log.
fn is_one(dir: &Path, options: &esker_log::Options) -> bool {
    let first = || -> esker_log::Result<Option<bool>> {
        let mut stream = Reader::open(dir, options.clone())?.stream(Start::Oldest)?;
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
    // Opening says what is wrong where it cannot be read.
    !matches!(first(), Ok(Some(false)))
}

/// The refusal of a plain log.
pub(crate) fn plain(dir: &Path) -> Error {
    let (dir, found, expected) = (dir.into(), None, Some(COMPONENT));
    Error::Log(esker_log::Error::WrongComponent { dir, found, expected })
}

//! Recognising a consensus log: by its app metadata, or by its records if those are lost.
//!
//! Creating a log stores its component durably before the first record (see
//! [`esker_log::Options::component`]). Otherwise the app metadata hold only the location of the
//! last checkpoint, which is optional. So a log that lost them is still opened if its first durable
//! record is one of a consensus log, and they are stored again. This check takes no lock and
//! changes nothing.
//!
//! A complete backup is a consensus log with a component of its own: see
//! [`read_only`](crate::read_only).

use std::path::Path;

use esker_log::{Component, Log, ReadError, ReadOnlyLog, ReadOptions, Start};

use crate::errors::manager_errors::OpenError;
use crate::record::Record;
use crate::storage_error::StorageError;

/// The component of consensus logs.
pub const COMPONENT: Component = Component(*b"ESKRCONS");
/// The component of a complete backup of a consensus log. It opens read-only until its node has a
/// new number: see [`ConsensusLogBuilder::renumber`](crate::ConsensusLogBuilder::renumber).
pub const COPY_COMPONENT: Component = Component(*b"ESKRCNCP");
/// The component of a backup that is not complete, and of each log in it.
pub const UNFINISHED_BACKUP: Component = Component(*b"ESKRCNBU");
/// The component of the registry of keys of a [`LogManager`](crate::LogManager).
pub const REGISTRY_COMPONENT: Component = Component(*b"ESKRKEYS");
/// The component of the registry of a backup, until its node has a new number: see
/// [`LogManagerBuilder::renumber`](crate::LogManagerBuilder::renumber).
pub const REGISTRY_COPY_COMPONENT: Component = Component(*b"ESKRKYCP");

/// Opens the underlying log, and returns the component that it has: [`COMPONENT`] or
/// [`COPY_COMPONENT`]. Refuses a plain log, or one of another component, before any change.
pub(crate) fn open(dir: &Path, options: esker_log::Options) -> Result<(Log, Component), OpenError> {
    match Log::builder(dir).options(options.clone()).open() {
        Err(esker_log::OpenError::WrongComponent { found: Some(COPY_COMPONENT), .. }) => {
            let mut own = options;
            own.component = Some(COPY_COMPONENT);
            Ok((Log::builder(dir).options(own).open().map_err(refined)?, COPY_COMPONENT))
        }
        Err(esker_log::OpenError::WrongComponent { found: None, .. }) if is_one(dir, &options) => {
            tracing::warn!(dir = %dir.display(), "app metadata of the consensus log missing or corrupt");
            let mut plain = options;
            plain.component = None;
            let log = Log::builder(dir).options(plain).open().map_err(StorageError::from_log)?;
            log.component().put_app_metadata(COMPONENT, &[]).map_err(StorageError::from_log)?;
            Ok((log, COMPONENT))
        }
        outcome => Ok((outcome.map_err(refined)?, COMPONENT)),
    }
}

/// The app metadata of the consensus log in `dir`, if there is one.
pub(crate) fn app_metadata(
    dir: &Path,
    options: &ReadOptions,
) -> Result<Option<Vec<u8>>, StorageError> {
    let of = |component| {
        esker_log::component::app_metadata(dir, component, options.clone())
            .map_err(StorageError::from_log)
    };
    Ok(match of(COMPONENT)? {
        None => of(COPY_COMPONENT)?,
        found => found,
    })
}

/// The error for the log of another component, in the words of this one.
fn refined(error: impl Into<esker_log::Error>) -> OpenError {
    match error.into() {
        esker_log::Error::WrongComponent { dir, found: Some(UNFINISHED_BACKUP), .. } => {
            OpenError::UnfinishedBackup { dir }
        }
        error => StorageError::from_log(error).into(),
    }
}

/// Opens the underlying log to read it, without its lock. Refuses a plain log, or one of another
/// component. Returns the component that its app metadata name, if they name one.
pub(crate) fn open_read_only(
    dir: &Path,
    options: ReadOptions,
) -> Result<(ReadOnlyLog, Option<Component>), OpenError> {
    let found = match esker_log::component::identify(dir, options.clone()) {
        // Corrupt app metadata is ignored, as opening does.
        Err(error @ esker_log::OpenError::UnsupportedVersion { .. }) => {
            return Err(StorageError::from_log(error).into());
        }
        found => found.unwrap_or(Some(COMPONENT)),
    };
    let reader =
        ReadOnlyLog::builder(dir).options(options).open().map_err(StorageError::from_log)?;
    if found.is_some_and(|found| found != COMPONENT && found != COPY_COMPONENT) {
        let (dir, expected) = (dir.into(), Some(COMPONENT));
        return Err(refined(esker_log::Error::WrongComponent { dir, found, expected }));
    }
    Ok((reader, found))
}

/// As [`open_read_only`], and refuses a log that lost its app metadata and has no record that shows
/// whose it is, as a plain log without records.
pub(crate) fn open_known(dir: &Path, options: ReadOptions) -> Result<ReadOnlyLog, OpenError> {
    let (reader, found) = open_read_only(dir, options)?;
    match first_is_one(&reader) {
        Ok(None | Some(false)) if found.is_none() => Err(plain(dir)),
        // If the record cannot be read, snapshots still can.
        _ => Ok(reader),
    }
}

/// Whether the first durable record, if there is one, is that of a consensus log.
fn is_one(dir: &Path, options: &esker_log::Options) -> bool {
    let reader = ReadOnlyLog::builder(dir).options(options.clone()).open();
    // If it cannot be read, opening reports the error.
    !reader.is_ok_and(|reader| matches!(first_is_one(&reader), Ok(Some(false))))
}

/// Whether the first durable record is that of a consensus log; `None` if there is none.
fn first_is_one(reader: &ReadOnlyLog) -> Result<Option<bool>, ReadError> {
    let mut stream = reader.stream(Start::Oldest)?;
    loop {
        match stream.try_next() {
            Ok(batch) => {
                let first = batch.as_ref().and_then(|batch| batch.iter().next());
                return Ok(first.map(|record| Record::decode(record.payload).is_ok()));
            }
            Err(ReadError::Quarantined(_)) => {}
            Err(error) => return Err(error),
        }
    }
}

/// The error for a plain log.
pub(crate) fn plain(dir: &Path) -> OpenError {
    let (dir, found, expected) = (dir.into(), None, Some(COMPONENT));
    StorageError::Log(esker_log::Error::WrongComponent { dir, found, expected }).into()
}

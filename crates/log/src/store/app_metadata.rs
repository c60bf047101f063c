//! App metadata: small data that a component keeps beside its log, and the identity of that
//! component.
//!
//! App metadata are a sealed file, as the manifest is: replaced as a whole, durable when the call
//! returns, and after a crash the old content or the new. The magic number is that of the component
//! that the log belongs to; a plain log has no such file. The content should hold nothing that the
//! records do not, because it may be older than they are.
//!
//! # The crash argument
//!
//! A log that a component creates gets its app metadata, durably, before its manifest and its first
//! segment. So wherever a crash interrupts the creation:
//!
//! * A directory with a manifest or a segment but without app metadata is a plain log (or a user
//!   removed the file).
//! * A directory with app metadata alone is no log yet, and only its component continues the
//!   creation.
//!
//! Opening checks before it creates a file, takes the lock or raises the session. It checks again
//! under the lock, because another process may have created a log in between.

use std::path::Path;

use esker_disk::{Dir, Disk};

use crate::base::component::Component;
use crate::base::error::{Error, Result, with_causes};
use crate::base::log_error::LogError;
use crate::base::operation_errors::OpenError;
use crate::base::options::Options;
use crate::base::read_options::ReadOptions;
use crate::store::paths;
use crate::store::sealed_file;

/// The largest app metadata in bytes.
pub(crate) const APP_METADATA_BYTES_MAX: usize = 64 << 10;

/// Returns the component that the log in `dir` belongs to; `None` for a plain log, and where there
/// is no log. Takes no lock and changes nothing.
///
/// # Errors
/// [`OpenError::Corrupted`] where the app metadata is corrupt, [`OpenError::UnsupportedVersion`],
/// [`LogError::Io`].
pub fn identify(
    dir: impl AsRef<Path>,
    options: impl Into<ReadOptions>,
) -> Result<Option<Component>, OpenError> {
    let found = read_if_there(dir.as_ref(), &*options.into().disk)?;
    Ok(found.map(|(component, _)| component))
}

fn read_if_there(dir: &Path, disk: &dyn Disk) -> Result<Option<(Component, Vec<u8>)>, OpenError> {
    match disk.open_dir(dir) {
        Ok(dir) => read(&*dir).map_err(OpenError::narrow),
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(LogError::from(cause).into()),
    }
}

/// Returns the app metadata of the log in `dir`, if that log belongs to this component. Takes no
/// lock and changes nothing.
///
/// # Errors
/// As [`identify`].
pub fn app_metadata(
    dir: impl AsRef<Path>,
    component: Component,
    options: impl Into<ReadOptions>,
) -> Result<Option<Vec<u8>>, OpenError> {
    let found = read_if_there(dir.as_ref(), &*options.into().disk)?;
    Ok(found.and_then(|(found, content)| (found == component).then_some(content)))
}

pub(crate) fn read(dir: &dyn Dir) -> Result<Option<(Component, Vec<u8>)>> {
    match sealed_file::read_any(dir, paths::APP_METADATA) {
        Ok((magic, content)) => Ok(Some((Component(magic), content))),
        Err(Error::Io(cause)) if cause.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn write(dir: &dyn Dir, component: Component, content: &[u8]) -> Result<()> {
    sealed_file::write(dir, paths::APP_METADATA, component.0, content)
}

/// The component found where `expected` is expected. App metadata are optional for a component: if
/// they cannot be read, it continues without them. A plain log has none, so there that is an error.
pub(crate) fn owner(dir: &dyn Dir, expected: Option<Component>) -> Result<Option<Component>> {
    match read(dir) {
        Ok(found) => Ok(found.map(|(found, _)| found)),
        Err(error @ Error::UnsupportedVersion { .. }) => Err(error),
        Err(error) if expected.is_some() => {
            tracing::warn!(error = with_causes(&error), "failed to read the app metadata");
            Ok(expected)
        }
        Err(error) => Err(error),
    }
}

/// Refuses a directory, which holds these names, if it has the log of another component.
pub(crate) fn check(dir: &dyn Dir, names: &[String], options: &Options) -> Result<()> {
    let expected = options.component;
    let found = owner(dir, expected)?;
    let begun = found.is_some() || paths::is_a_log(names);
    if begun && found != expected {
        return Err(Error::WrongComponent { dir: dir.path().into(), found, expected });
    }
    Ok(())
}

/// Durably stores the component of the log that is about to be created.
pub(crate) fn create(dir: &dyn Dir, options: &Options) -> Result<()> {
    match options.component {
        Some(component) => write(dir, component, &[]),
        None => Ok(()),
    }
}

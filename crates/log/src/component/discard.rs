//! Removing the files of a log that its component gave up.

use std::path::Path;

use esker_disk::{Dir, Disk};

use crate::base::component::Component;
use crate::base::error::{Error, Result};
#[cfg(doc)]
use crate::base::log_error::LogError;
use crate::base::operation_errors::OpenError;
use crate::store::{app_metadata, directory, paths};

/// Removes the files of a log of this component, durably: for a component that gives up a log that
/// it just created. Removes the remains of a creation that failed, too. The directory stays, and is
/// empty unless it holds other files.
///
/// After a crash, the directory is not a log of another component: its app metadata go last.
///
/// # Errors
/// [`OpenError::WrongComponent`], [`OpenError::Locked`], [`OpenError::NotALog`] when there is no
/// directory, [`OpenError::Corrupted`], [`LogError::Io`].
pub fn discard(
    dir: impl AsRef<Path>,
    component: Component,
    disk: &dyn Disk,
) -> Result<(), OpenError> {
    remove_files(dir.as_ref(), component, disk).map_err(OpenError::narrow)
}

fn remove_files(dir: &Path, component: Component, disk: &dyn Disk) -> Result<()> {
    let dir = directory::open(dir, disk)?;
    refuse_another(&*dir, component)?;
    let _lock = directory::lock(&*dir)?;
    // Another process may have created one in between.
    refuse_another(&*dir, component)?;
    let names = dir.list()?;
    let (last, first): (Vec<_>, Vec<_>) = names
        .iter()
        .filter(|name| paths::classify(name) != paths::Name::Unknown)
        .filter(|name| *name != paths::QUARANTINE)
        .partition(|name| *name == paths::APP_METADATA);
    for names in [first, last] {
        for name in names {
            dir.unlink(name)?;
        }
        dir.sync()?;
    }
    Ok(())
}

/// Refuses the log of another component.
fn refuse_another(dir: &dyn Dir, component: Component) -> Result<()> {
    let found = app_metadata::read(dir)?.map(|(found, _)| found);
    let mut names = dir.list()?;
    // It stays when everything else is removed.
    names.retain(|name| name != paths::QUARANTINE);
    let begun = found.is_some() || paths::is_a_log(&names);
    if begun && found != Some(component) {
        let expected = Some(component);
        return Err(Error::WrongComponent { dir: dir.path().into(), found, expected });
    }
    Ok(())
}

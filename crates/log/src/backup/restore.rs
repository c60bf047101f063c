//! Restore: makes a log of a backup, in a directory of its own.
//!
//! # What a crash leaves
//!
//! A restore is the first backup to an empty directory. Killed at any moment, it leaves one of:
//!
//! 1. no directory, an empty one, or one with the temporary file of the app metadata alone;
//! 2. the directory of an unfinished backup, which only another restore or backup opens;
//! 3. the complete copy: the process died after its last step and before it could report that.
//!
//! The next call continues the first two and finds the third complete. It changes nothing else, and
//! nothing that has a record the backup lacks.

use std::io::ErrorKind;
use std::path::Path;

use esker_disk::Dir;

use super::lineage::{self, Earlier};
use super::origin::Origin;
use super::{Backup, back_up};
use crate::base::component::UNFINISHED_BACKUP;
use crate::base::error::{Error, Result};
use crate::base::operation_errors::BackupError;
use crate::base::position::{Position, Seq};
use crate::follower::ReadOnlyLog;
use crate::follower::reader_storage::ReadOnlyStorage;
use crate::store::app_metadata;
use crate::store::manifest::Manifest;
use crate::store::paths::{self, Name};

/// The contents of its directory, as a restore found it.
enum TargetState {
    /// Nothing, or an interrupted restore.
    Unfinished,
    /// A copy that was complete once.
    Complete,
}

impl ReadOnlyStorage<'_> {
    /// Copies the log to a directory that is empty or does not exist, as
    /// [`ReadOnlyStorage::backup`] does. The copy is a log that continues with the next number.
    ///
    /// If an earlier call was interrupted there, even by a power cut, this one continues it. If the
    /// directory holds this very copy and was not opened for writing since, the call changes
    /// nothing.
    ///
    /// # Durability
    /// Durable when it returns. Nothing else opens the copy before it is complete.
    ///
    /// # Errors
    /// [`BackupError::NotThisBackup`] if the directory holds anything else; otherwise as
    /// [`ReadOnlyStorage::backup`].
    ///
    /// # Examples
    /// ```
    /// use esker_log::{Log, ReadOnlyLog, Seq};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (dir, copy) = (dir.path().join("log"), dir.path().join("copy"));
    /// # let restored = dir.with_file_name("restored");
    /// let log = Log::open(&dir)?;
    /// log.append("a record")?.blocking_wait()?;
    /// log.storage().backup(&copy)?;
    ///
    /// ReadOnlyLog::open(&copy)?.storage().restore(&restored)?;
    /// let restored = Log::open(&restored)?;
    /// assert_eq!(restored.append("the next")?.seq(), Seq(2));
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn restore(self, dir: impl AsRef<Path>) -> Result<Backup, BackupError> {
        self.restore_to(dir.as_ref()).map_err(BackupError::narrow)
    }

    fn restore_to(self, path: &Path) -> Result<Backup> {
        let log = self.reader;
        log.refresh()?;
        let metadata = self.metadata();
        let now = || log.source();
        let stream = |start| Ok(log.stream(start)?);
        let (id, session) = (metadata.id, metadata.session);
        let origin = Origin { dir: log.dir(), id, session, now: &now, stream: &stream };
        let dir = match log.options().disk.open_dir(path) {
            Err(cause) if cause.kind() == ErrorKind::NotFound => None,
            opened => Some(opened?),
        };
        match dir {
            Some(dir) => match find(&*dir, &origin)? {
                TargetState::Complete => self.complete(&*dir, &origin),
                TargetState::Unfinished => back_up(&origin, log.options(), path),
            },
            None => back_up(&origin, log.options(), path),
        }
    }

    /// Checks that a complete copy is that of this log.
    fn complete(self, dir: &dyn Dir, origin: &Origin<'_>) -> Result<Backup> {
        let path = dir.path();
        let options = self.reader.options();
        let copy = ReadOnlyLog::builder(path).options(options.clone()).open()?;
        let (ours, theirs) = ((origin.now)()?, copy.source()?);
        let (position, durable) = theirs.limit();
        let is_same = (theirs.limit(), theirs.low().seq) == (ours.limit(), ours.low().seq);
        if !is_same {
            return refuse(dir, "it is another copy of this log".into());
        }
        let last = Seq(durable);
        let lineage = Manifest::of_log(dir)?.lineage;
        let earlier = Earlier { lineage, last, is_interrupted: false, last_there: last };
        let manifest = Manifest::of_log(origin.dir)?;
        if let Some(found) = lineage::differs(origin, options, path, earlier, &manifest)? {
            return refuse(dir, found);
        }
        // The interrupted call may not have come to its last sync.
        dir.sync()?;
        let segments = copy.storage().metadata().segments;
        Ok(Backup { durable: last, position: Position(position), segments, copied: 0, bytes: 0 })
    }
}

fn find(dir: &dyn Dir, origin: &Origin<'_>) -> Result<TargetState> {
    let names = dir.list()?;
    let component = app_metadata::read(dir)?.map(|(component, _)| component);
    let manifest = Manifest::read(dir)?;
    if names.iter().any(|name| name == paths::LOCK) {
        return refuse(dir, "it was opened for writing".into());
    }
    match (component, manifest) {
        (Some(component), _) if component != UNFINISHED_BACKUP => {
            refuse(dir, format!("it is of the component {component}"))
        }
        (_, Some(found)) if found.log != origin.id => {
            refuse(dir, format!("it is of the log {}, and this is {}", found.log, origin.id))
        }
        (_, Some(found)) if !found.is_copy => refuse(dir, "it was opened for writing".into()),
        (None, Some(_)) => Ok(TargetState::Complete),
        // A later backup that was interrupted.
        (Some(_), Some(found)) if found.durable_bound() > (origin.now)()?.limit().1 => {
            refuse(dir, "it has records that the backup does not have".into())
        }
        (Some(_), _) => Ok(TargetState::Unfinished),
        (None, None) => {
            let next = paths::next(paths::APP_METADATA);
            let is_left =
                |name: &String| *name == next || matches!(paths::classify(name), Name::Temporary);
            match names.iter().all(is_left) {
                true => Ok(TargetState::Unfinished),
                false => refuse(dir, "it holds other files".into()),
            }
        }
    }
}

fn refuse<T>(dir: &dyn Dir, found: String) -> Result<T> {
    Err(Error::NotThisBackup { dir: dir.path().into(), found })
}

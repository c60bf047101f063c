//! Backup: copies all logs, as of one moment, to a new manager.
//!
//! # Why it is one moment
//!
//! The last accepted record of each open log is read while all of them are locked. No log is
//! opened, created or removed at that time, so those that are not open do not change. So a record
//! that was accepted before another one of the backup, in whichever log, is in the backup.
//!
//! These records are durable before they are copied. Until the end of the backup no log drops
//! segments or snapshots. So each copy has all records from the oldest one of that moment on. The
//! snapshots are listed before that moment and after it, until both lists are the same: each is of
//! slots that the copy has as committed, and what was truncated is in one of them.
//!
//! # What a crash leaves
//!
//! The registry of the copy belongs to a component of its own until every log is durable, so no
//! manager opens it. One durable step then makes it a registry. Each log has its own: see
//! [`backup`](crate::backup).
//!
//! # Why no key can be added to a copy
//!
//! The log of a key that the copy does not have may exist in the original, with votes. So until its
//! node has a new number, the copy is read-only as a whole: a log without a record is copied as an
//! empty one, and a key that is not there is refused.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use esker_disk::planted::{Bug, is_planted};
use esker_disk::{DirDisk, Lock};
use esker_log::component::{DeferredWakes, accepted_at_one_moment};
use esker_log::{Component, Log, ReadOnlyLog, ReadOptions, Seq};

use crate::backup::{self, BackupSummary, Extent, LogCopy};
use crate::component::{COPY_COMPONENT, REGISTRY_COPY_COMPONENT};
use crate::errors::manager_errors::{BackupError, OpenError};
use crate::manager::directory_names::{REGISTRY_DIR, directory_of};
use crate::manager::log_guard::LogGuard;
use crate::manager::open_manager::{LogManager, ManagerInner};
use crate::manager::registry;
use crate::options::Options;
use crate::storage_error::StorageError;

/// The most attempts to find a moment at which every log that is not open was closed cleanly.
const MOMENT_TRIES: u32 = 16;

/// A log as of the moment.
#[derive(Debug)]
struct KeyedExtent {
    key: Arc<[u8]>,
    extent: Extent,
}

impl LogManager {
    /// Copies all logs, as of one moment between the call and its return, to a new manager in
    /// `dest`: what was accepted before that moment, and all snapshots. In volatile mode, a value
    /// that is only accepted is in the copy if it was accepted before the call. Opens the logs that
    /// were not closed cleanly. Blocks; one backup runs at a time.
    ///
    /// Other operations continue, except that no log is opened or closed while that moment is
    /// looked for, which takes a few reads for each log that is not open. Until the backup ends, no
    /// log returns space: [`Maintenance::reclaim`](crate::Maintenance::reclaim) and
    /// [`Snapshots::keep`](crate::Snapshots::keep) do nothing, and
    /// [`LogManager::remove`] waits.
    ///
    /// A node that continues with a backup has forgotten what it promised after that moment. So the
    /// copy opens read-only, and takes no other key: see
    /// [`ReadOnlyReason::Copied`](crate::ReadOnlyReason::Copied).
    ///
    /// # Durability
    /// Durable when it returns. Until then no manager opens `dest`. After a crash, delete `dest`.
    ///
    /// # Errors
    /// [`BackupError::NotEmpty`] for a `dest` that holds something; [`BackupError::Open`], as
    /// [`LogManager::get`]; [`BackupError::Storage`], with [`StorageError::Closed`] also when the
    /// manager is closed meanwhile, with [`Corrupted`](esker_log::Error::Corrupted) and
    /// [`Quarantined`](esker_log::Error::Quarantined) for a log with records that cannot be read,
    /// and [`NoSpace`](esker_log::Error::NoSpace). What was copied is removed.
    ///
    /// # Examples
    /// ```
    /// use esker_consensus::{Ballot, LogManager, Slot};
    /// # fn main() -> Result<(), esker_consensus::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (dir, copy) = (dir.path().join("tables"), dir.path().join("copy"));
    /// let manager = LogManager::open(&dir)?;
    /// let users = manager.get("users")?;
    /// users.learn(Slot(0), Ballot { number: 1, node: 7 }, b"a row")?.blocking_wait()?;
    /// assert_eq!(manager.backup(&copy)?.logs, 1);
    ///
    /// let copy = LogManager::open(&copy)?;
    /// let users = copy.get("users")?;
    /// assert_eq!(users.read_committed(Slot(0), &users.pin())?.value(), b"a row");
    /// # Ok(())
    /// # }
    /// ```
    pub fn backup(&self, dest: impl AsRef<Path>) -> Result<BackupSummary, BackupError> {
        let (inner, dest) = (self.inner()?, dest.as_ref());
        let _nothing_is_removed = inner.shared.removals.write();
        inner.refuse_if_closed()?;
        let to = inner.root.create_dir(dest).map_err(StorageError::from_log)?;
        let disk = DirDisk::new(to);
        // While it has the lock, no other backup goes to this directory.
        let _lock = claim(&disk)?;
        let parts = inner.parts()?;
        let mut options = inner.options.clone();
        options.log.disk = Arc::new(disk.clone());
        let copied = registry::begin_copy(&disk, &options)
            .and_then(|registry| inner.copy(&parts, &options, &registry));
        if copied.is_err() {
            for part in &parts {
                discard(&directory_of(&part.key), COPY_COMPONENT, &disk);
            }
            discard(REGISTRY_DIR, REGISTRY_COPY_COMPONENT, &disk);
        }
        copied
    }
}

impl ManagerInner {
    fn copy(
        &self,
        parts: &[KeyedExtent],
        options: &Options,
        registry: &Log,
    ) -> Result<BackupSummary, BackupError> {
        let keys: Vec<_> = parts.iter().map(|part| Arc::clone(&part.key)).collect();
        if is_planted(Bug::BackupRegistryTooEarly) {
            registry::finish_copy(registry, &keys)?;
        }
        let mut backup = BackupSummary::default();
        let proceed = || self.refuse_if_closed();
        for KeyedExtent { key, extent } in parts {
            proceed()?;
            let log = backup::begin_log(directory_of(key).as_ref(), options)?;
            if extent.is_empty() {
                // Its own directory may not exist yet.
                backup.logs += 1;
            } else {
                let reader = self.reader(key)?;
                let copy = LogCopy { reader: &reader, extent, proceed: &proceed };
                copy.run(&log, key, &mut backup)?;
            }
            backup::finish(&log, key)?;
        }
        if !is_planted(Bug::BackupRegistryTooEarly) {
            registry::finish_copy(registry, &keys)?;
        }
        Ok(backup)
    }

    fn reader(&self, key: &[u8]) -> Result<ReadOnlyLog, StorageError> {
        let options = ReadOptions::on(Arc::new(self.disk.clone()));
        let reader = ReadOnlyLog::builder(directory_of(key)).options(options).open();
        reader.map_err(StorageError::from_log)
    }

    /// All logs as of one moment, with everything durable that was accepted before.
    fn parts(&self) -> Result<Vec<KeyedExtent>, OpenError> {
        for _ in 0..MOMENT_TRIES {
            for key in self.registry.keys()? {
                if self.logs.open_log(&key).is_none() && self.at_rest(&key)?.is_none() {
                    drop(self.get_or_open(&key)?);
                }
            }
            if let Some(parts) = self.try_parts()? {
                return Ok(parts);
            }
        }
        Err(StorageError::Log(esker_log::Error::Timeout).into())
    }

    /// As [`ManagerInner::parts`]; `None` if a log that is not open was not closed cleanly, or a
    /// snapshot was published meanwhile.
    fn try_parts(&self) -> Result<Option<Vec<KeyedExtent>>, OpenError> {
        // Dropped after the lock: a waker may call the manager.
        let wakes = DeferredWakes::new();
        let no_opening = self.openings.write();
        let (mut parts, mut open) = (Vec::new(), Vec::<(usize, LogGuard)>::new());
        for key in self.registry.keys()? {
            let extent = match self.logs.open_log(&key) {
                Some(guard) => {
                    guard.inner.save_uncommitted()?;
                    let log = &guard.inner.log;
                    let snapshots = log.snapshots().list().map_err(StorageError::from_log)?;
                    let oldest = log.oldest();
                    open.push((parts.len(), guard));
                    Extent { oldest, last: Seq::ZERO, snapshots }
                }
                None => match self.at_rest(&key)? {
                    Some(extent) => extent,
                    None => return Ok(None),
                },
            };
            parts.push(KeyedExtent { key, extent });
        }
        let logs: Vec<&Log> = open.iter().map(|(_, guard)| &guard.inner.log).collect();
        let accepted = accepted_at_one_moment(&logs);
        drop(no_opening);
        drop(wakes);
        for (part, guard) in &open {
            // A newer one may cover slots that were truncated at that moment; an older one does
            // not.
            let now = guard.inner.log.snapshots().list().map_err(StorageError::from_log)?;
            if now != parts[*part].extent.snapshots {
                return Ok(None);
            }
        }
        let mut tickets = Vec::new();
        debug_assert_eq!(accepted.len(), open.len(), "a log has no position at the moment");
        for ((part, guard), mut last) in open.iter().zip(accepted) {
            if is_planted(Bug::BackupOfManyMoments) {
                last = guard.inner.log.accepted();
                let barrier = guard.inner.log.barrier().map_err(StorageError::from_log)?;
                barrier.blocking_wait().map_err(StorageError::from_log)?;
            }
            parts[*part].extent.last = last;
            match guard.inner.log.barrier() {
                Ok(ticket) => tickets.push(ticket),
                // Closing made everything durable.
                Err(esker_log::LogError::Closed) if guard.inner.log.durable() >= last => {}
                Err(error) => return Err(StorageError::from_log(error).into()),
            }
        }
        for ticket in tickets {
            ticket.blocking_wait().map_err(StorageError::from_log)?;
        }
        Ok(Some(parts))
    }

    /// The extent of a log that is not open; `None` if it was not closed cleanly.
    fn at_rest(&self, key: &[u8]) -> Result<Option<Extent>, OpenError> {
        let dir = self.disk.dir().open_dir(&directory_of(key));
        let files = match dir.and_then(|dir| dir.list()) {
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => 0,
            names => names.map_err(StorageError::from_log)?.len(),
        };
        if files == 0 && self.registry.is_created(key) {
            return Err(self.missing(key));
        }
        if files == 0 {
            // It was registered, and then a crash came, or creating it failed.
            let (oldest, last) = (Seq::ZERO, Seq::ZERO);
            return Ok(Some(Extent { oldest, last, snapshots: Vec::new() }));
        }
        self.check_label::<OpenError>(key)?;
        let reader = self.reader(key)?;
        if !reader.storage().is_closed_cleanly() {
            return Ok(None);
        }
        let (oldest, last) = (reader.oldest(), backup::durable(&reader)?);
        let snapshots = reader.snapshots().list().map_err(StorageError::from_log)?;
        Ok(Some(Extent { oldest, last, snapshots }))
    }
}

/// Takes the lock of a directory for a backup. Refuses one that holds something.
fn claim(disk: &DirDisk) -> Result<Box<dyn Lock>, BackupError> {
    let used = || BackupError::NotEmpty { dir: disk.dir().path().into() };
    let lock = disk.dir().lock().map_err(|cause| match cause.kind() {
        ErrorKind::WouldBlock => used(),
        _ => StorageError::from_log(cause).into(),
    })?;
    match disk.dir().list() {
        Ok(names) if names.is_empty() => Ok(lock),
        Ok(_) => Err(used()),
        Err(cause) => Err(StorageError::from_log(cause).into()),
    }
}

/// Removes a part of a backup that failed, with its directory.
fn discard(name: &str, finished: Component, disk: &DirDisk) {
    backup::discard(name.as_ref(), finished, disk);
    // It was not created, or something else is in it.
    let _ = disk.dir().remove_dir(name);
}

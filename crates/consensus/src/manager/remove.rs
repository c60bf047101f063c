//! Removing the log of a key.

use std::io::ErrorKind;
use std::sync::Arc;

use esker_disk::planted::{Bug, is_planted};
use esker_log::ReadOptions;
use esker_log::component::DeferredWakes;

use crate::component::{COMPONENT, COPY_COMPONENT};
use crate::errors::manager_errors::{ManagerError, WrongLabel};
use crate::manager::directory_names::{directory_of, label_of};
use crate::manager::log_guard::OpenLog;
use crate::manager::open_log_table::{Claim, KeyLookup};
use crate::manager::open_manager::{LogManager, ManagerInner};
use crate::read_only::ReadOnlyReason;
use crate::storage_error::StorageError;

impl LogManager {
    /// Removes the log of a key with everything in it, durably: **its promises and votes, too**. Do
    /// that only when no node will ever use this log again, as after its table was dropped. Returns
    /// whether there was a log. Blocks.
    ///
    /// Waits while a backup runs. After a crash the log is there as before, or the next opening
    /// completes the removal.
    ///
    /// # Errors
    /// [`ManagerError::InUse`] while there are references to it; [`ManagerError::WrongLabel`] when
    /// its directory has the log of another key; [`ManagerError::Storage`], with:
    ///
    /// - [`StorageError::ReadOnly`] for a log of which corrupt records were quarantined: remove its
    ///   directory by hand; and for a backup, until
    ///   [`LogManagerBuilder::renumber`](crate::LogManagerBuilder::renumber).
    /// - [`Locked`](esker_log::Error::Locked) while a guard of a manager that was closed has it
    ///   open.
    /// - [`NoSpace`](esker_log::Error::NoSpace), and nothing changed.
    /// - [`StorageError::Log`] when its files cannot be removed: call it again; also when its file
    ///   `note` is corrupt, see [`LogManager::get`], or lost, which `get` mends: then nothing
    ///   changed.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool, ManagerError> {
        let (inner, key) = (self.inner()?, key.as_ref());
        // Dropped after claim and lock: a waker may call the manager.
        let _wakes = DeferredWakes::new();
        let _no_backup = inner.shared.removals.read();
        loop {
            inner.refuse_unremovable(key)?;
            match inner.logs.claim_idle(key) {
                Some(Err(references)) => return Err(ManagerError::InUse { references }),
                Some(Ok((claim, open))) => return inner.remove_claimed(claim, Some(open)),
                None => {}
            }
            match inner.logs.get_or_claim(key, || inner.refuse_if_closed())? {
                KeyLookup::Open(guard) => drop(guard),
                KeyLookup::Busy(busy) => busy.wait(),
                KeyLookup::Claimed(claim) => return inner.remove_claimed(claim, None),
            }
        }
    }
}

impl ManagerInner {
    /// Removes a log that no caller opens meanwhile, and that is closed or idle.
    fn remove_claimed(
        &self,
        claim: Claim<'_>,
        open: Option<Arc<OpenLog>>,
    ) -> Result<bool, ManagerError> {
        let key = Arc::clone(&claim.key);
        // A removal that failed is announced again. After an announcement that may be lost, the
        // registry refuses another one.
        if !self.registry.is_known(&key)? {
            return Ok(false);
        }
        self.registry.refuse_if_copied()?;
        if open.is_none() {
            self.refuse_unremovable(&key)?;
            self.refuse_in_use(&key)?;
        }
        if !is_planted(Bug::RemovalNotAnnounced) {
            match (self.registry.begin_removal(&key), open.clone()) {
                (Err(error), Some(open)) if error.is_no_space() => {
                    // Nothing was announced, and closing might lose what only memory has.
                    claim.keep_open(open);
                    return Err(error.into());
                }
                (announced, _) => announced?,
            }
        }
        if let Some(open) = open {
            // What it has no room for is removed anyway.
            let _ = open.log.close();
        }
        self.complete_removal::<ManagerError>(&key)?;
        Ok(true)
    }

    /// Refuses what the removal of files would refuse or leave, while nothing is announced: what
    /// `repair` quarantined, and a log whose app metadata do not say that it is one of this crate.
    fn refuse_unremovable(&self, key: &[u8]) -> Result<(), ManagerError> {
        let name = directory_of(key);
        let dir = match self.disk.dir().open_dir(&name) {
            Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(()),
            dir => dir.map_err(StorageError::from_log)?,
        };
        let names = dir.list().map_err(StorageError::from_log)?;
        let has = |wanted| names.iter().any(|name| name == wanted);
        if has("quarantine") {
            return Err(StorageError::ReadOnly { reason: ReadOnlyReason::Repaired }.into());
        }
        let options = ReadOptions::on(Arc::new(self.disk.clone()));
        match esker_log::component::identify(&name, options).map_err(StorageError::from_log)? {
            Some(COMPONENT) => self.check_label(key),
            Some(COPY_COMPONENT) => {
                Err(StorageError::ReadOnly { reason: ReadOnlyReason::Copied }.into())
            }
            // A crash interrupted its creation.
            None if !has("manifest") => Ok(()),
            found => {
                let (dir, expected) = (dir.path().into(), Some(COMPONENT));
                Err(StorageError::Log(esker_log::Error::WrongComponent { dir, found, expected })
                    .into())
            }
        }
    }

    /// Refuses a log that is still open, by a guard that outlived its manager or in another
    /// process, while nothing is announced: its accepts would be acknowledged, and then removed.
    fn refuse_in_use(&self, key: &[u8]) -> Result<(), StorageError> {
        let dir = match self.disk.dir().open_dir(&directory_of(key)) {
            Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(()),
            dir => dir.map_err(StorageError::from_log)?,
        };
        match dir.lock() {
            Ok(_free) => Ok(()),
            Err(cause) if cause.kind() == ErrorKind::WouldBlock => {
                let dir = dir.path().into();
                Err(StorageError::Log(esker_log::Error::Locked { dir, pid: None }))
            }
            Err(cause) => Err(StorageError::from_log(cause)),
        }
    }

    /// Refuses a directory that has the log of another key. One that has lost its app metadata
    /// takes the key at its next opening.
    pub(super) fn check_label<E: From<WrongLabel> + From<StorageError>>(
        &self,
        key: &[u8],
    ) -> Result<(), E> {
        let options = ReadOptions::on(Arc::new(self.disk.clone()));
        match label_of(&directory_of(key), &options)? {
            Some(found) if *found != *key => Err(WrongLabel { found, expected: key.into() }.into()),
            _ => Ok(()),
        }
    }

    /// Removes the files of a log whose removal was announced.
    pub(super) fn complete_removal<E: From<WrongLabel> + From<StorageError>>(
        &self,
        key: &[u8],
    ) -> Result<(), E> {
        let name = directory_of(key);
        let disk = Arc::new(self.disk.clone());
        // Its directory may have been replaced by that of another key. Without a label it is what a
        // removal left.
        if let Err(ManagerError::WrongLabel { found, expected }) = self.check_label(key) {
            return Err(WrongLabel { found, expected }.into());
        }
        match esker_log::component::discard(&name, COMPONENT, &*disk) {
            // There is no directory: a crash came before its creation, or after its removal.
            Ok(()) | Err(esker_log::OpenError::NotALog { .. }) => {}
            Err(error) => return Err(StorageError::from_log(error).into()),
        }
        // One that holds something else stays.
        let _ = self.disk.dir().remove_dir(&name);
        Ok(self.registry.end_removal(key)?)
    }
}

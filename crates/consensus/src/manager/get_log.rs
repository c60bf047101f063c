//! Finding the log of a key, and opening it if it is not open.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use esker_disk::planted::{Bug, is_planted};
use esker_disk::process;
use esker_log::component::DeferredWakes;

use crate::errors::manager_errors::OpenError;
use crate::errors::snapshot_errors::SnapshotError;
use crate::manager::directory_names::directory_of;
use crate::manager::log_guard::LogGuard;
use crate::manager::open_log_table::{Claim, KeyLookup};
use crate::manager::open_manager::{LogManager, ManagerInner};
use crate::memory::entry::Entry;
use crate::options::{ConsensusLogBuilder, LABEL_LIMIT, Options};
use crate::read_only::ReadOnlyReason;
use crate::snapshots::restore::RestoreSummary;
use crate::snapshots::stored::Snapshot;
use crate::state::inner::ConsensusLog;
use crate::storage_error::{StorageError, refuse_if_forked};

/// References per open log above which some are probably leaked.
const LEAKED_REFERENCES_PER_LOG: usize = 10;

/// The most attempts to lock a log, and the pauses between: a quarter of a second in all.
const LOCK_TRIES_MAX: u32 = 26;
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// The logs that a manager has open. From [`LogManager::stats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ManagerStats {
    /// Keys, with or without an open log.
    pub total_logs: usize,
    /// Logs that are open.
    pub open_logs: usize,
    /// References to them.
    pub active_references: usize,
    /// Why no log can be added or removed: the manager is a backup.
    pub read_only: Option<ReadOnlyReason>,
}

impl ManagerStats {
    /// Whether there are more than ten references for each open log: then some guards are probably
    /// never dropped. An alarm, and no proof.
    pub fn looks_leaked(&self) -> bool {
        self.active_references > LEAKED_REFERENCES_PER_LOG * self.open_logs
    }
}

impl Drop for LogManager {
    fn drop(&mut self) {
        if process::is_forked() {
            // Another thread may have been changing what this would free.
            std::mem::forget(Arc::clone(&self.inner));
        }
    }
}

impl LogManager {
    /// The state, unless `fork` made this process.
    #[inline]
    pub(super) fn inner(&self) -> Result<&ManagerInner, StorageError> {
        refuse_if_forked()?;
        Ok(&self.inner)
    }

    /// Returns the log of a key: opens it if it is not open, and creates it if there is none. Above
    /// the limit, closes an idle log first.
    ///
    /// # Errors
    /// [`StorageError::Closed`] after [`LogManager::close_all`]; [`OpenError::EntryTooLarge`] for a
    /// key above [`LABEL_LIMIT`]; as [`ConsensusLogBuilder::open`]: every log has its key as its
    /// label, so a corrupt file `note` is an error; [`OpenError::MissingLog`] for a log whose
    /// directory was removed by hand; [`StorageError::ReadOnly`] for a key that a backup does not
    /// have. Other keys are not affected.
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<LogGuard, OpenError> {
        let key = key.as_ref();
        let inner = self.inner()?;
        match inner.logs.get(key, || inner.refuse_if_closed())? {
            Some(guard) => Ok(guard),
            None => inner.get_or_open(key),
        }
    }

    /// Returns the log of a key if it is open. Does no I/O.
    pub fn get_if_open(&self, key: impl AsRef<[u8]>) -> Option<LogGuard> {
        let inner = self.inner().ok()?;
        inner.logs.get(key.as_ref(), || inner.refuse_if_closed()).ok().flatten()
    }

    /// Initialises the state machine of a key: [`Snapshots::restore`](crate::Snapshots::restore) on
    /// its log, which it opens or creates. The callbacks run whether the log was open or not, for
    /// one caller of a key at a time: they must not initialise the same key.
    ///
    /// # Errors
    /// As [`LogManager::get`] and [`Snapshots::restore`](crate::Snapshots::restore). After an
    /// error, initialise it again.
    pub fn init<E: From<OpenError> + From<SnapshotError>>(
        &self,
        key: impl AsRef<[u8]>,
        on_snapshot: impl FnOnce(&mut Snapshot) -> Result<(), E>,
        on_entry: impl FnMut(&Entry<'_>) -> Result<(), E>,
    ) -> Result<(LogGuard, RestoreSummary), E> {
        let guard = self.get(key)?;
        let restored = {
            let _one_at_a_time = guard.0.initialising.lock();
            guard.snapshots().restore(on_snapshot, on_entry)?
        };
        Ok((guard, restored))
    }

    /// Returns all keys, in order.
    ///
    /// # Errors
    /// [`StorageError::Closed`] after [`LogManager::close_all`].
    pub fn keys(&self) -> Result<Vec<Vec<u8>>, StorageError> {
        Ok(self.inner()?.registry.keys()?.iter().map(|key| key.to_vec()).collect())
    }

    /// Returns the number of keys.
    ///
    /// # Errors
    /// As [`LogManager::keys`].
    pub fn key_count(&self) -> Result<usize, StorageError> {
        self.inner()?.registry.count()
    }

    /// Whether there is a log of this key.
    ///
    /// # Errors
    /// As [`LogManager::keys`].
    pub fn has(&self, key: impl AsRef<[u8]>) -> Result<bool, StorageError> {
        self.inner()?.registry.has(key.as_ref())
    }

    /// Returns the keys that a pattern matches, in order: `*` any characters, `?` one, `[abc]` and
    /// `[a-z]` one of a set, `[!x]` one outside it; everything else itself. A pattern with a `[`
    /// that is not closed matches nothing. Takes time proportional at most to the length of the
    /// pattern times that of the keys; from 1,000 keys on, several threads share the work.
    ///
    /// # Errors
    /// As [`LogManager::keys`].
    pub fn glob(&self, pattern: impl AsRef<[u8]>) -> Result<Vec<Vec<u8>>, StorageError> {
        let keys = self.inner()?.registry.glob(pattern.as_ref())?;
        Ok(keys.iter().map(|key| key.to_vec()).collect())
    }

    /// Drops the records of keys that were removed from the registry. Happens by itself when they
    /// exceed the others by far.
    ///
    /// # Errors
    /// [`StorageError::Log`]; as [`LogManager::keys`].
    pub fn compact_registry(&self) -> Result<(), StorageError> {
        self.inner()?.registry.compact()
    }

    /// Returns what is open. Visits every open log.
    ///
    /// # Errors
    /// As [`LogManager::keys`].
    pub fn stats(&self) -> Result<ManagerStats, StorageError> {
        let inner = self.inner()?;
        let (open_logs, active_references) = inner.logs.statistics();
        let total_logs = inner.registry.count()?;
        let read_only = ReadOnlyReason::from_origin(false, inner.registry.is_copied());
        Ok(ManagerStats { total_logs, open_logs, active_references, read_only })
    }
}

impl ManagerInner {
    #[inline]
    pub(super) fn refuse_if_closed(&self) -> Result<(), StorageError> {
        if self.closed.load(Relaxed) { Err(StorageError::Closed) } else { Ok(()) }
    }

    #[cold]
    pub(super) fn get_or_open(&self, key: &[u8]) -> Result<LogGuard, OpenError> {
        if key.len() > LABEL_LIMIT {
            let (size, limit) = (key.len() as u64, LABEL_LIMIT as u64);
            return Err(OpenError::EntryTooLarge { size, limit });
        }
        // Dropped after the lock: a waker may call the manager.
        let _wakes = DeferredWakes::new();
        // Before a claim: a backup that holds this waits for claims.
        let _opening = self.openings.read();
        loop {
            match self.logs.get_or_claim(key, || self.refuse_if_closed())? {
                KeyLookup::Open(guard) => return Ok(guard),
                // Each turn waits for one opening or closing, which ends.
                KeyLookup::Busy(busy) => busy.wait(),
                KeyLookup::Claimed(claim) => return self.open_claimed(claim),
            }
        }
    }

    fn open_claimed(&self, claim: Claim<'_>) -> Result<LogGuard, OpenError> {
        if !self.registry.is_created(&claim.key) {
            // The original may have this log, with votes.
            self.registry.refuse_if_copied()?;
        }
        self.make_room();
        if self.registry.is_removing(&claim.key) {
            // It failed before; what it left is no log.
            self.complete_removal::<OpenError>(&claim.key)?;
        }
        if !is_planted(Bug::KeyAddedAfterItsLog) {
            self.registry.add(&claim.key)?;
        }
        let mut options = self.options.clone();
        options.label = claim.key.to_vec();
        // An empty log in place of one that is gone would have forgotten its promises.
        options.log.must_exist = self.registry.is_created(&claim.key);
        let must_exist = options.log.must_exist;
        let log = self.open_after_lock(&claim.key, &options).map_err(|error| match error {
            OpenError::Storage(StorageError::Log(esker_log::Error::NotALog { .. }))
                if must_exist =>
            {
                self.missing(&claim.key)
            }
            error => error,
        })?;
        if is_planted(Bug::KeyAddedAfterItsLog) {
            self.registry.add(claim.key.as_ref())?;
        }
        self.registry.note_created(&claim.key);
        Ok(claim.opened(log, || self.refuse_if_closed())?)
    }

    /// Opens the log of a key. A process that was killed may keep the lock of a log a little longer
    /// than that of the registry, which is ours.
    fn open_after_lock(&self, key: &[u8], options: &Options) -> Result<ConsensusLog, OpenError> {
        for _ in 1..LOCK_TRIES_MAX {
            match self.open_log(key, options) {
                Err(OpenError::Storage(StorageError::Log(esker_log::Error::Locked { .. }))) => {
                    std::thread::sleep(LOCK_RETRY_INTERVAL);
                }
                opened => return opened,
            }
        }
        self.open_log(key, options)
    }

    fn open_log(&self, key: &[u8], options: &Options) -> Result<ConsensusLog, OpenError> {
        self.builder_of(key, options).open()
    }

    pub(super) fn builder_of(&self, key: &[u8], options: &Options) -> ConsensusLogBuilder {
        let mut builder = ConsensusLog::builder(directory_of(key)).options(options.clone());
        builder.shared = self.shared.clone();
        builder
    }

    /// The error for the log of a key whose directory has none any more.
    pub(super) fn missing(&self, key: &[u8]) -> OpenError {
        let dir = self.disk.dir().path_of(&directory_of(key));
        OpenError::MissingLog { key: key.into(), dir }
    }
}

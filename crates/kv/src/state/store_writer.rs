//! A store that this process writes: its state, and what writing adds.

use std::path::PathBuf;
use std::sync::Arc;

use esker_log::Log;
use esker_log::component::DeferredWakes;
use parking_lot::{Mutex, MutexGuard, ReentrantMutex, ReentrantMutexGuard};

use crate::base::options::Options;
use crate::base::store_error::StoreError;
use crate::state::cleaning::Cleaning;
use crate::state::store_state::StoreState;

/// A store that this process writes: the state that reading needs, and what writing adds.
pub(crate) struct StoreWriter {
    dir: PathBuf,
    options: Options,
    pub(crate) log: Log,
    state: Arc<StoreState>,
    /// Held while keyspaces are created or dropped.
    catalog_lock: Mutex<()>,
    cleaning: Cleaning,
    /// Held while a checkpoint is written. That waits for commits, so it wakes tasks meanwhile.
    checkpoint_lock: ReentrantMutex<()>,
    checkpoint: Mutex<LastCheckpoint>,
    replayed: u64,
}

/// The lock of the catalog, held.
#[derive(Debug)]
pub(crate) struct HeldCatalog<'a> {
    _lock: MutexGuard<'a, ()>,
    // Dropped after the lock.
    _wakes: DeferredWakes,
}

/// The last checkpoint, as a store remembers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LastCheckpoint {
    /// The offset of the end of the log at its replay point.
    pub(crate) offset: u64,
    /// Its size in bytes.
    pub(crate) bytes: u64,
}

impl std::fmt::Debug for StoreWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("dir", &self.dir)
            .field("durable", &self.log.durable())
            .finish_non_exhaustive()
    }
}

impl StoreWriter {
    /// Creates the writer of a store that was opened with this checkpoint, after it replayed this
    /// many records.
    pub(crate) fn new(
        dir: PathBuf,
        options: Options,
        log: Log,
        state: StoreState,
        checkpoint: LastCheckpoint,
        replayed: u64,
    ) -> Self {
        Self {
            dir,
            options,
            log,
            state: Arc::new(state),
            catalog_lock: Mutex::new(()),
            cleaning: Cleaning::default(),
            checkpoint_lock: ReentrantMutex::default(),
            checkpoint: Mutex::new(checkpoint),
            replayed,
        }
    }

    #[inline]
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    #[inline]
    pub(crate) fn state(&self) -> &Arc<StoreState> {
        &self.state
    }

    #[inline]
    pub(crate) fn cleaning(&self) -> &Cleaning {
        &self.cleaning
    }

    /// Keeps other threads from creating or dropping keyspaces. Tasks that the caller wakes
    /// meanwhile are woken after the release, since their wakers may do so.
    pub(crate) fn lock_catalog(&self) -> HeldCatalog<'_> {
        HeldCatalog { _lock: self.catalog_lock.lock(), _wakes: DeferredWakes::new() }
    }

    /// Keeps other checkpoints from beginning. Where another thread writes one, it waits, or
    /// returns `None`: async writers may wait for the background, and so may that thread, where a
    /// waker closes the store.
    ///
    /// # Errors
    /// [`Busy`](esker_log::Error::Busy) on a thread that cleans or writes a checkpoint: a waker
    /// called the store.
    pub(crate) fn lock_checkpoint(
        &self,
        waits: bool,
    ) -> Result<Option<ReentrantMutexGuard<'_, ()>>, StoreError> {
        // A thread that has this lock takes that of a pass.
        self.cleaning.refuse_in_pass()?;
        if self.checkpoint_lock.is_owned_by_current_thread() {
            return Err(esker_log::Error::Busy { what: "this thread writes a checkpoint" }.into());
        }
        Ok(if waits { Some(self.checkpoint_lock.lock()) } else { self.checkpoint_lock.try_lock() })
    }

    pub(crate) fn last_checkpoint(&self) -> LastCheckpoint {
        *self.checkpoint.lock()
    }

    pub(crate) fn set_last_checkpoint(&self, checkpoint: LastCheckpoint) {
        *self.checkpoint.lock() = checkpoint;
    }

    /// The number of records that opening applied: those after its checkpoint, or all.
    pub(crate) fn replayed(&self) -> u64 {
        self.replayed
    }

    /// Whether cleaning runs, and more space is used than twice the live bytes and four segments.
    pub(crate) fn is_behind(&self) -> bool {
        if !self.cleaning.request().is_made() {
            return false;
        }
        let log = self.log.storage().metadata();
        self.cleaning.is_behind(log.position.0, log.disk_bytes, self.options.log.segment_size)
    }
}

//! The handle of a store that another process writes.

use std::path::Path;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use esker_disk::process;
use esker_log::{ReadOnlyLog, Seq, SeqRange, Start};
use parking_lot::Mutex;

use crate::base::operation_errors::{OpenError, ReadError};
use crate::base::read_only_options::{ReadOnlyOptions, ReadOnlyStoreBuilder};
use crate::base::stats::ReadOnlyStats;
use crate::base::store_error::StoreError;
use crate::durability::open::{self, OpeningStats, ReadOnlyState};
use crate::health::FailOnPanic;
use crate::read::snapshot::Snapshot;
use crate::state::handle::KeyspaceReader;
use crate::state::store_state::StoreState;

/// The time between two checks of a thread that follows a log whether its store is gone.
const FOLLOW_WAIT: Duration = Duration::from_millis(500);
/// The pause of that thread after an error.
const FOLLOW_PAUSE: Duration = Duration::from_millis(100);

/// A store that is open for reading, beside the process that writes it, or without one. Takes no
/// lock and changes nothing on the disk. Cheap to clone; all clones are the same reader.
///
/// It follows the directory that it opened through crashes and restarts of the writer. After a
/// repair of the log, which may take durable records away, open it again.
///
/// It has an index of its own in memory, as [`Store`](crate::Store) has.
///
/// # Staleness
/// It sees durable writes only, and of these a prefix: every `get`, `scan` and snapshot shows the
/// state of the last [`refresh`](ReadOnlyStore::refresh). An atomic batch is visible whole or not
/// at all. With [`ReadOnlyOptions::follow`], a thread refreshes when more became durable. A `get`
/// refreshes by itself when the writer's cleaning dropped the record that it reads.
///
/// # Snapshots
/// A snapshot cannot hold up the cleaning of another process. When the writer dropped a value that
/// a snapshot or scan reads and that was overwritten since, the call returns
/// [`ReadError::SnapshotExpired`]. When it dropped records before they were applied here, all
/// snapshots expire.
///
/// # Examples
/// ```
/// use esker_kv::{ReadOnlyStore, Store};
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path().join("store");
/// let store = Store::open(&dir)?; // often in another process
/// store.keyspace().put("colour", "blue")?.blocking_wait()?;
///
/// let reader = ReadOnlyStore::open(&dir)?;
/// let keys = reader.keyspace();
/// assert_eq!(keys.get("colour")?.as_deref(), Some(&b"blue"[..]));
///
/// store.keyspace().put("colour", "red")?.blocking_wait()?;
/// assert_eq!(keys.get("colour")?.as_deref(), Some(&b"blue"[..]));
/// reader.refresh()?;
/// assert_eq!(keys.get("colour")?.as_deref(), Some(&b"red"[..]));
/// # Ok::<(), esker_kv::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ReadOnlyStore {
    reader: Arc<Reader>,
}

/// The state of a store that another process writes.
#[derive(Debug)]
struct Reader {
    log: ReadOnlyLog,
    state: Arc<StoreState>,
    options: ReadOnlyOptions,
    opening: OpeningStats,
    /// The thread that follows the log, if there is one.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Reader {
    fn close(&self) {
        if process::is_forked() {
            return;
        }
        self.state.close();
        self.log.close();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic has failed the store.
            let _panicked = thread.join();
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.close();
        if process::is_forked() {
            // Another thread may have been changing what this would free.
            std::mem::forget(Arc::clone(&self.state));
        }
    }
}

impl ReadOnlyStoreBuilder {
    /// Opens the store for reading. Blocks: it loads the last checkpoint, and reads what came
    /// after.
    ///
    /// # Errors
    /// [`OpenError`]. In [`OpenError::Store`], for example [`StoreError::Corrupted`]; and in
    /// [`StoreError::Log`], [`esker_log::Error::NotALog`] for a directory that is empty or does not
    /// exist, and [`esker_log::Error::WrongComponent`] for one that holds something else.
    pub fn open(self) -> Result<ReadOnlyStore, OpenError> {
        let Self { dir, options } = self;
        let opened = open::open_read_only(dir, &options)?;
        let ReadOnlyState { log, state, opening } = opened;
        let follow = options.follow;
        let reader = Reader { log, state, options, opening, thread: Mutex::default() };
        if follow {
            let (log, state) = (reader.log.clone(), Arc::downgrade(&reader.state));
            let builder = std::thread::Builder::new().name("esker-kv-follow".into());
            let invariant = "the thread that follows a log does not panic";
            let fail_on_panic = FailOnPanic::new(reader.state.health(), invariant);
            let thread = builder.spawn(move || {
                let _fail_on_panic = fail_on_panic;
                follow_log(&log, &state);
            });
            let thread = thread.map_err(|cause| esker_log::Error::NoThread(Arc::new(cause)))?;
            *reader.thread.lock() = Some(thread);
        }
        Ok(ReadOnlyStore { reader: Arc::new(reader) })
    }
}

/// Refreshes the store when more is durable, until it is closed.
fn follow_log(log: &ReadOnlyLog, state: &Weak<StoreState>) {
    let mut stream = None;
    loop {
        let more = match &mut stream {
            None => log.stream(Start::Tip).map(|tip| stream = Some(tip)),
            Some(tip) => tip.blocking_next_timeout(FOLLOW_WAIT).map(drop),
        };
        let Some(state) = state.upgrade() else { return };
        let outcome = match more {
            Ok(()) => state.refresh().map_err(ReadError::from),
            Err(esker_log::ReadError::Timeout) => continue,
            Err(error) => Err(error.into()),
        };
        match outcome {
            Ok(()) => {}
            Err(ReadError::Store(error)) if error.ends_store() => return,
            Err(error) => {
                tracing::warn!(%error, "failed to follow the log of a store");
                stream = None;
                drop(state);
                std::thread::sleep(FOLLOW_PAUSE);
            }
        }
    }
}

impl ReadOnlyStore {
    /// Opens a store for reading, with the default options.
    ///
    /// # Errors
    /// [`OpenError`], as [`ReadOnlyStoreBuilder::open`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::builder(dir).open()
    }

    /// Returns a builder that opens a store for reading with options.
    pub fn builder(dir: impl AsRef<Path>) -> ReadOnlyStoreBuilder {
        ReadOnlyStoreBuilder::new(dir.as_ref().into())
    }

    /// Returns the options that the store was opened with.
    pub fn options(&self) -> &ReadOnlyOptions {
        &self.reader.options
    }

    /// Shows what is durable now. Returns the position of the last write that is visible. Blocks:
    /// it reads what was written since the last call.
    ///
    /// # Errors
    /// [`ReadError`]: [`ReadError::Trimmed`], [`ReadError::IndexFull`], [`ReadError::Store`]. What
    /// was visible before stays visible.
    pub fn refresh(&self) -> Result<Seq, ReadError> {
        self.reader.state.refresh()?;
        Ok(self.position())
    }

    /// Returns the position of the last write that is visible. No I/O.
    pub fn position(&self) -> Seq {
        Seq(self.reader.state.durable())
    }

    /// Returns the default keyspace. It always exists.
    pub fn keyspace(&self) -> KeyspaceReader {
        self.reader.state.reader(self.reader.state.keyspaces().default_keys())
    }

    /// Returns the keyspace with this name; `None` if there is none.
    pub fn find_keyspace(&self, name: &str) -> Option<KeyspaceReader> {
        self.reader.state.keyspaces().find(name).map(|keys| self.reader.state.reader(&keys))
    }

    /// Returns the names of all keyspaces, sorted.
    pub fn keyspaces(&self) -> Vec<String> {
        self.reader.state.keyspaces().all().iter().map(|keys| keys.name().into()).collect()
    }

    /// Returns the store as it is visible now. It stays so while the store is refreshed.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let state = &self.reader.state;
        state.refuse_if_closing()?;
        Ok(Snapshot::new(Arc::clone(state), state.pin_newest()))
    }

    /// As [`Store::quarantined`](crate::Store::quarantined), as of the opening. Empty with
    /// [`ReadOnlyOptions::skip_quarantined`].
    pub fn quarantined(&self) -> Vec<SeqRange> {
        self.reader.state.gap().ranges().to_vec()
    }

    /// Returns statistics. No I/O.
    pub fn stats(&self) -> ReadOnlyStats {
        let Reader { log, state, opening, .. } = &*self.reader;
        let keyspaces = state.keyspaces().all();
        ReadOnlyStats {
            keys: keyspaces.iter().map(|keys| keys.count()).sum(),
            index_bytes: state.table().bytes()
                + keyspaces.iter().map(|keys| keys.bytes()).sum::<u64>(),
            cache_bytes: state.cache().memory(),
            history_bytes: state.history_bytes(),
            disk_bytes: log.storage().metadata().disk_bytes,
            checkpoint_bytes: opening.checkpoint_bytes,
            checkpoint_corrupt: opening.checkpoint_corrupt,
            replayed: opening.replayed,
            snapshots: state.snapshots().len(),
        }
    }

    /// Returns the oldest record that is left. A watch may begin at the position before it, or
    /// later. May read from the disk.
    pub fn oldest(&self) -> Seq {
        self.reader.log.oldest()
    }

    /// Returns the bytes in segments of all keys with their newest values. What `disk_bytes` of
    /// [`ReadOnlyStore::stats`] exceeds it by is overwritten, deleted, or padding. Walks the whole
    /// index.
    pub fn live_bytes(&self) -> u64 {
        let (state, mut bytes) = (&self.reader.state, 0);
        state
            .table()
            .arena()
            .for_each(|id, version| bytes += state.live_bytes(id, version).unwrap_or(0));
        bytes
    }

    /// Closes the reader. Calls on its keyspaces, snapshots and scans return
    /// [`StoreError::Closed`].
    pub fn close(&self) {
        self.reader.close();
    }
}

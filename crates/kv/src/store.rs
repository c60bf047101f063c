//! The handle of a store.

use std::path::Path;
use std::sync::Arc;

use esker_log::reclaim::Reclaimed;
use esker_log::{Seq, SeqRange};

use crate::base::operation_errors::{
    BackupError, KeyspaceError, OpenError, WatchError, WriteError,
};
use crate::base::options::{Options, StoreBuilder};
use crate::base::stats::Stats;
use crate::base::store_error::StoreError;
use crate::base::ticket::Ticket;
use crate::durability::checkpoint::DumpPace;
use crate::durability::open;
use crate::read::snapshot::Snapshot;
use crate::state::handle::Keyspace;
use crate::state::store_writer::StoreWriter;
use crate::watch::Watch;
use crate::write::batch::Batch;

/// A key-value store in a directory. Cheap to clone; all clones refer to the same store.
///
/// Dropping the last handle closes the store and blocks until it is closed. Call [`Store::close`]
/// to get the result. A keyspace, a snapshot and a scan are not handles: once the store is closed,
/// they return [`StoreError::Closed`].
#[derive(Debug, Clone)]
pub struct Store {
    writer: Arc<StoreWriter>,
    close_on_drop: Arc<CloseOnDrop>,
}

/// Closes a store when its last handle is dropped.
#[derive(Debug)]
struct CloseOnDrop(Arc<StoreWriter>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        match self.0.close() {
            Ok(()) => {}
            // A store that has failed logged that.
            Err(StoreError::Closed | StoreError::Internal { .. }) => {}
            // Another thread may have been changing what this would free.
            Err(StoreError::Forked) => std::mem::forget(Arc::clone(&self.0)),
            Err(error) => tracing::warn!(%error, "failed to close a store"),
        }
    }
}

impl StoreBuilder {
    /// Opens the store, and creates it where there is none. Recovery cuts a torn tail; every write
    /// that was durable is there.
    ///
    /// Blocks: it reads the log.
    ///
    /// # Errors
    /// [`OpenError`]. In [`OpenError::Store`], for example [`StoreError::Corrupted`]; and in
    /// [`StoreError::Log`], [`esker_log::Error::Locked`] when another process has it open, and
    /// [`esker_log::Error::WrongComponent`] for a directory that holds something else.
    pub fn open(self) -> Result<Store, OpenError> {
        let Self { dir, options } = self;
        Ok(Store::new(open::open(dir, options)?))
    }
}

impl Store {
    fn new(writer: Arc<StoreWriter>) -> Self {
        let close_on_drop = Arc::new(CloseOnDrop(Arc::clone(&writer)));
        Self { writer, close_on_drop }
    }

    /// Opens a store with the default options, and creates it where there is none.
    ///
    /// In a child that `fork` makes from here on, every call that returns a `Result` fails with
    /// [`StoreError::Forked`], and dropping the handle changes nothing: see
    /// [`esker_log::Log::open`].
    ///
    /// # Errors
    /// [`OpenError`], as [`StoreBuilder::open`].
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = esker_kv::Store::open(dir.path().join("store"))?;
    /// let keys = store.keyspace();
    /// keys.put("key", "value")?.blocking_wait()?; // durable
    /// assert_eq!(keys.get("key")?.as_deref(), Some(&b"value"[..]));
    /// store.close()?;
    /// # Ok::<(), esker_kv::Error>(())
    /// ```
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::builder(dir).open()
    }

    /// Returns a builder that opens a store with options.
    pub fn builder(dir: impl AsRef<Path>) -> StoreBuilder {
        StoreBuilder::new(dir.as_ref().into())
    }

    /// Returns the options that the store was opened with.
    pub fn options(&self) -> &Options {
        self.writer.options()
    }

    /// Returns the default keyspace. It always exists.
    pub fn keyspace(&self) -> Keyspace {
        self.writer.handle(self.writer.state().keyspaces().default_keys())
    }

    /// Returns the keyspace with this name; `None` if there is none.
    pub fn find_keyspace(&self, name: &str) -> Option<Keyspace> {
        let keys = self.writer.state().keyspaces().find(name);
        keys.map(|keys| self.writer.handle(&keys))
    }

    /// Returns the keyspace with this name, and creates it, durably, if there is none. Blocks; it
    /// has no async form, so async code calls it in `spawn_blocking` or its like.
    ///
    /// # Durability
    /// A keyspace that is created is durable when this returns.
    ///
    /// # Errors
    /// [`KeyspaceError`]; [`StoreError::Quarantined`] if a keyspace of this name may exist, see
    /// [`Store::quarantined`].
    pub fn create_keyspace(&self, name: &str) -> Result<Keyspace, KeyspaceError> {
        let keys = self.cleaned_if_full(self.writer.create_keyspace(name))?;
        Ok(self.writer.handle(&keys))
    }

    /// Drops a keyspace with all of its keys, durably. Blocks; writers of the store wait while its
    /// keys are removed from the index. It has no async form, so async code calls it in
    /// `spawn_blocking` or its like.
    ///
    /// # Durability
    /// The drop is durable when this returns.
    ///
    /// # Errors
    /// [`KeyspaceError::KeyspaceNotFound`], [`KeyspaceError::DefaultKeyspace`],
    /// [`KeyspaceError::Store`].
    pub fn drop_keyspace(&self, name: &str) -> Result<(), KeyspaceError> {
        self.cleaned_if_full(self.writer.drop_keyspace(name))?;
        self.writer.clean_now();
        Ok(())
    }

    /// Starts cleaning in the background if this change found no space.
    fn cleaned_if_full<T>(&self, changed: Result<T, KeyspaceError>) -> Result<T, KeyspaceError> {
        changed.inspect_err(|error| {
            if error.is_no_space() {
                self.writer.clean_full_disk();
            }
        })
    }

    /// Returns the names of all keyspaces, sorted.
    pub fn keyspaces(&self) -> Vec<String> {
        let keyspaces = self.writer.state().keyspaces().all();
        keyspaces.iter().map(|keys| keys.name().into()).collect()
    }

    /// Writes a batch: all of it or nothing.
    ///
    /// # Durability
    /// Accepted when it returns, and durable when the ticket resolves; the policy of the store may
    /// commit it earlier.
    ///
    /// # Errors
    /// [`WriteError`]. Nothing was written then.
    pub fn write(&self, batch: &Batch) -> Result<Ticket, WriteError> {
        let ticket = self.writer.write_batch(batch);
        self.writer.clean_after(ticket, WriteError::is_no_space)
    }

    /// As [`Store::write`], but waits as [`Keyspace::put_async`] does instead of blocking.
    ///
    /// # Cancel safety
    /// Cancel-safe: a future that is dropped before it is ready has written nothing.
    ///
    /// # Errors
    /// [`WriteError`], as [`Store::write`].
    pub async fn write_async(&self, batch: &Batch) -> Result<Ticket, WriteError> {
        let ticket = self.writer.write_batch_async(batch).await;
        self.writer.clean_after(ticket, WriteError::is_no_space)
    }

    /// Returns the store as it is now, for reading.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let state = self.writer.state();
        state.refuse_if_closing()?;
        Ok(Snapshot::new(Arc::clone(state), state.pin_newest()))
    }

    /// Returns the store as it is durable now, for reading: what a crash would leave at least.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn durable_snapshot(&self) -> Result<Snapshot, StoreError> {
        let state = self.writer.state();
        state.refuse_if_closing()?;
        Ok(Snapshot::new(Arc::clone(state), state.pin_durable()))
    }

    /// Returns a ticket that resolves when everything accepted before this call is durable.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn barrier(&self) -> Result<Ticket, StoreError> {
        self.writer.state().health().check_invariants()?;
        Ok(Ticket(self.writer.log.barrier()?))
    }

    /// Blocks until everything accepted before this call is durable. In async code, use
    /// [`Store::sync_async`].
    ///
    /// # Durability
    /// Everything accepted before this call is durable when it returns.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn sync(&self) -> Result<(), StoreError> {
        self.barrier()?.blocking_wait().map(drop)
    }

    /// As [`Store::sync`], but waits as a pending future instead of blocking.
    ///
    /// # Durability
    /// Everything accepted before the first poll is durable when it is ready.
    ///
    /// # Cancel safety
    /// Cancel-safe: the commit that was requested continues.
    ///
    /// # Errors
    /// [`StoreError`], as [`Store::sync`].
    ///
    /// # Examples
    /// ```
    /// # async fn example(store: esker_kv::Store) -> esker_kv::Result<()> {
    /// let keys = store.keyspace();
    /// for key in ["a", "b", "c"] {
    ///     let _ = keys.put_async(key, "value").await?;
    /// }
    /// store.sync_async().await?; // all three are durable
    /// # Ok(())
    /// # }
    /// ```
    pub async fn sync_async(&self) -> Result<(), StoreError> {
        self.barrier()?.await.map(drop)
    }

    /// Returns the position of the last accepted write.
    pub fn accepted(&self) -> Seq {
        self.writer.log.accepted()
    }

    /// Returns the position up to which everything is durable. Never above
    /// [`Store::accepted`].
    pub fn durable(&self) -> Seq {
        self.writer.log.durable()
    }

    /// Waits until everything up to a position is durable. Requests no commit. For a position above
    /// [`Store::accepted`] it waits for writes to come.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn wait_durable(&self, seq: Seq) -> Result<(), StoreError> {
        self.writer.state().health().check_invariants()?;
        Ok(self.writer.log.wait_durable(seq).await?)
    }

    /// Watches the durable changes after a position, in order. That is [`Store::durable`] for those
    /// from now on, [`Changes::position`](crate::Changes::position) to resume, or [`Snapshot::seq`]
    /// of a durable snapshot for those since. The watch is no handle: once the store is closed it
    /// returns [`StoreError::Closed`].
    ///
    /// # Errors
    /// [`WatchError::Trimmed`] when cleaning has dropped changes after the position;
    /// [`WatchError::NotDurable`] for a position that is above [`Store::durable`];
    /// [`WatchError::Store`].
    ///
    /// # Examples
    /// ```
    /// use esker_kv::Action;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = esker_kv::Store::open(dir.path().join("store"))?;
    /// let mut watch = store.watch(store.durable())?;
    /// store.keyspace().put("colour", "blue")?.blocking_wait()?;
    /// let changes = watch.blocking_next()?;
    /// for change in &changes {
    ///     assert_eq!(change.keyspace, "default");
    ///     assert_eq!(change.action, Action::Put { key: b"colour", value: b"blue" });
    /// }
    /// let resumed = store.watch(changes.position())?; // after a restart, for example
    /// # drop(resumed);
    /// # Ok::<(), esker_kv::Error>(())
    /// ```
    pub fn watch(&self, from: impl Into<Seq>) -> Result<Watch, WatchError> {
        Watch::from_store(&self.writer, from.into())
    }

    /// Copies the store to a new one in a directory that is empty or does not exist. The copy is
    /// the store at one durable position, which this returns. It has everything that was accepted
    /// before this call. Writes go on meanwhile. [`Store::open`] of the directory restores it. Its
    /// records keep their positions, so a watch of this store resumes on the copy, up to that
    /// position.
    ///
    /// Blocks while it reads and writes all that the log stores. If cleaning drops records before
    /// they are copied, it waits from then on until the backup ends.
    ///
    /// # Durability
    /// The copy is durable when this returns. Until then no store opens the directory: opening
    /// returns [`esker_log::Error::WrongComponent`], with
    /// [`UNFINISHED_BACKUP`](crate::UNFINISHED_BACKUP). After a crash, remove it.
    ///
    /// # Errors
    /// [`BackupError`]. In [`BackupError::Store`], for example [`StoreError::Closed`] when the
    /// store is closed meanwhile, [`StoreError::NoSpace`] when there is no room for the copy, and
    /// [`StoreError::Quarantined`] for a store over a gap. The store is not affected, and the files
    /// of the copy are removed. [`esker_log::Error::Busy`] where a waker calls it on a thread that
    /// cleans.
    ///
    /// # Examples
    /// ```
    /// # use esker_kv::Store;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (dir, copy) = (dir.path().join("store"), dir.path().join("copy"));
    /// let store = Store::open(&dir)?;
    /// let _ = store.keyspace().put("colour", "blue")?;
    /// store.backup(&copy)?;
    /// let copy = Store::open(&copy)?;
    /// assert_eq!(copy.keyspace().get("colour")?.as_deref(), Some(&b"blue"[..]));
    /// # Ok::<(), esker_kv::Error>(())
    /// ```
    pub fn backup(&self, dir: impl AsRef<Path>) -> Result<Seq, BackupError> {
        self.writer.backup(dir.as_ref().into())
    }

    /// Reclaims the space of overwritten values and deleted keys now, as long as at most half of
    /// the bytes of the oldest segments are live. Blocks; other operations continue meanwhile. It
    /// copies what is live in these segments. It waits for snapshots that may read what is dropped,
    /// at most [`Options::snapshot_timeout`](crate::Options::snapshot_timeout), and then expires
    /// them.
    ///
    /// Ends with the segments that exist when it begins. On a full disk it works within
    /// [`StoreBuilder::reserve`], and returns what it freed.
    ///
    /// # Durability
    /// Durable when it returns.
    ///
    /// # Errors
    /// [`StoreError`]: [`StoreError::Closed`] also when the store is closed meanwhile,
    /// [`StoreError::NoSpace`] only if nothing could be freed, [`StoreError::Quarantined`] for a
    /// store over a gap; [`esker_log::Error::Busy`] where a waker calls it on a thread that cleans.
    pub fn compact(&self) -> Result<Reclaimed, StoreError> {
        self.writer.compact()
    }

    /// Writes a checkpoint of the index: the next opening loads it, and reads only what was written
    /// since. Returns `false`, and writes none, if the log was ever repaired. Blocks; other
    /// operations continue meanwhile.
    ///
    /// The store writes one by itself in the background, when the log has grown by 256 MiB and four
    /// times the size of the last one, and when it is closed. It takes the length of each key and
    /// 24 bytes, and as much again while it is being written.
    ///
    /// # Durability
    /// Durable when it returns, and everything accepted before it, too.
    ///
    /// # Errors
    /// [`StoreError`], for example [`StoreError::NoSpace`], or
    /// [`esker_log::Error::Busy`] where a waker calls it on a thread that cleans or writes a
    /// checkpoint. The store stays usable, unless its log failed.
    pub fn checkpoint(&self) -> Result<bool, StoreError> {
        self.writer.state().refuse_if_closing()?;
        self.writer.write_checkpoint(DumpPace::Whole)
    }

    /// Returns the ranges of records that were quarantined, in order. None, unless a repair found
    /// corruption.
    ///
    /// A key that has no record after the last of them is unknown: reading it returns
    /// [`StoreError::Quarantined`] until it is put or deleted. So do a scan of a range in which a
    /// key may be unknown;
    /// [`Store::create_keyspace`] for a name that is not known to be free, which
    /// [`Store::drop_keyspace`] makes known; [`Store::compact`]; and [`Store::backup`]. The store
    /// is not cleaned. [`Store::find_keyspace`] does not find a keyspace whose creation is lost.
    pub fn quarantined(&self) -> Vec<SeqRange> {
        self.writer.state().gap().ranges().to_vec()
    }

    /// Returns statistics. No I/O.
    pub fn stats(&self) -> Stats {
        let (state, cleaning) = (self.writer.state(), self.writer.cleaning());
        let keyspaces = state.keyspaces().all();
        let metadata = self.writer.log.storage().metadata();
        let (throttled, throttled_time) = cleaning.throttle().counts();
        Stats {
            keys: keyspaces.iter().map(|keys| keys.count()).sum(),
            index_bytes: state.table().bytes()
                + keyspaces.iter().map(|keys| keys.bytes()).sum::<u64>(),
            cache_bytes: state.cache().memory(),
            disk_bytes: metadata.disk_bytes,
            checkpoint_bytes: self.writer.last_checkpoint().bytes,
            replayed: self.writer.replayed(),
            throttled,
            throttled_time,
            snapshots: state.snapshots().len(),
            reclaimed: cleaning.reclaimed(),
            log: self.writer.log.stats(),
        }
    }

    /// Closes the store: everything accepted is durable when it returns.
    ///
    /// # Errors
    /// [`StoreError`]: [`StoreError::Closed`] if it was closed already, [`StoreError::Internal`] if
    /// it had failed.
    pub fn close(&self) -> Result<(), StoreError> {
        self.close_on_drop.0.close()
    }
}

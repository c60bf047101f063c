//! The options of a consensus log, and the builder that opens it with them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use esker_disk::Disk;
use esker_log::component::SharedReserve;
use esker_log::{
    Engine, InvalidOption, OnCorruption, Options as LogOptions, Policy, RECORD_LIMIT_MAX,
};
use parking_lot::RwLock;

use crate::component::COMPONENT;
use crate::memory::value_budget::charge;
use crate::record::VALUE_AT;

/// The largest value in bytes: 64 MiB.
pub const VALUE_LIMIT: u64 = 64 << 20;

/// The most bytes of a label.
pub const LABEL_LIMIT: usize = 4096;

/// With `sync_on_commit` off: the longest time that a commit waits for a sync that no caller
/// requests. So the loss is bounded, and evicted values can soon be read back.
const UNREQUESTED_SYNC_INTERVAL: Duration = Duration::from_millis(10);

/// The least number of records between two checkpoints.
const CHECKPOINT_EVERY_MIN: u64 = 1024;

/// Bytes of the log's reserve for each record between two checkpoints: four times those that the
/// checkpoint takes for it.
const RESERVE_BYTES_PER_RECORD: u64 = 32;

// The record of the largest value fits in the underlying log.
const _: () = assert!(VALUE_LIMIT + VALUE_AT as u64 <= RECORD_LIMIT_MAX as u64);

/// When an accept is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Mode {
    /// When it is durable, as Paxos requires of an acceptor.
    #[default]
    Durable,
    /// At once, in memory. **This gives up the safety of Paxos**: an acceptor that crashes forgets
    /// the values that it accepted, and their ballots. A value that a majority chose can be lost,
    /// and another chosen in its place. Promises stay durable, and a log that is closed keeps what
    /// it accepted.
    Volatile,
}

/// Options of a consensus log. [`Options::default`] is safe Paxos on an SSD.
///
/// Set them with a [`ConsensusLogBuilder`], or pass a whole value to
/// [`ConsensusLogBuilder::options`].
/// [`ConsensusLog::options`](crate::ConsensusLog::options) returns those of an open log.
///
/// Profiles:
///
/// - Most durability: the defaults.
/// - Most throughput: [`Mode::Volatile`], `sync_on_commit` off, `mutable_size` 256 MiB. A crash
///   loses the commits of the last 10 ms and all uncommitted values.
/// - Batching: the defaults, and [`commit_batch`](crate::ConsensusLog::commit_batch): one sync for
///   all.
///
/// There is no limit on the number of threads.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// When an accept is acknowledged.
    pub mode: Mode,
    /// Memory for accepted, uncommitted values, in bytes. Default 64 MiB; 64 to 256 MiB are
    /// sensible, 2 MiB for one of many logs. At least 4 KiB.
    pub mutable_size: u64,
    /// Memory for committed values, in bytes; others are read from the log. Default 64 MiB.
    pub cache_size: u64,
    /// Whether a commit's ticket waits until its marker, or value, is durable, and readers see the
    /// commit only then. Default `true`. If `false`, a crash may lose *committed* entries: those of
    /// the last 10 ms and one commit. Closing and checkpoints sync in either case.
    pub sync_on_commit: bool,
    /// Records between two checkpoints of the index: roughly the number of records that opening
    /// reads after a crash. Default 1,048,576, at least 1,024. No more than one for each 32 bytes
    /// of the log's `reserve`, so that a checkpoint fits there on a full disk.
    pub checkpoint_every: u64,
    /// A name of your own that is stored with the log, at most [`LABEL_LIMIT`] bytes. Opening the
    /// log with another label fails, so that no directory is taken for another one; and so does
    /// opening with one when the log's own is corrupt. Default: empty, which stores none and opens
    /// any.
    pub label: Vec<u8>,
    /// The options of the underlying log: disk, engine, segments and memory. `component`,
    /// `record_limit` and `policy` are set by the consensus log itself, and truncation takes the
    /// place of `retention`; these stay at their defaults. Others have a meaning of their own:
    ///
    /// - `segment_size`: truncation frees whole segments.
    /// - `reserve`: for opening, truncation and checkpoints on a full disk. A checkpoint, or the
    ///   copies that a truncation makes, may need more. They then fail with
    ///   [`NoSpace`](esker_log::Error::NoSpace), and the log stays usable.
    /// - `on_corruption`: [`OnCorruption::Quarantine`] opens the log read-only;
    ///   [`OnCorruption::Truncate`] is refused, because it forgets promises.
    pub log: LogOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mode: Mode::Durable,
            mutable_size: 64 << 20,
            cache_size: 64 << 20,
            sync_on_commit: true,
            checkpoint_every: 1 << 20,
            label: Vec::new(),
            log: LogOptions::default(),
        }
    }
}

impl Options {
    /// The default options, on `disk`.
    pub fn on(disk: Arc<dyn Disk>) -> Self {
        Self { log: LogOptions::on(disk), ..Self::default() }
    }

    /// The largest value in bytes that a log with these options accepts.
    pub fn value_limit(&self) -> u64 {
        VALUE_LIMIT.min(self.mutable_size)
    }

    pub(crate) fn validate(&self) -> Result<(), InvalidOption> {
        let rule = |holds, option, rule: &str| InvalidOption::unless(holds, option, rule);
        rule(self.mutable_size >= 4 << 10, "mutable_size", "at least 4 KiB")?;
        rule(self.checkpoint_every >= CHECKPOINT_EVERY_MIN, "checkpoint_every", "at least 1024")?;
        rule(self.label.len() <= LABEL_LIMIT, "label", "at most 4096 bytes")?;
        let (log, default) = (&self.log, LogOptions::default());
        let left = "left at its default: the consensus log sets it";
        rule(log.component.is_none(), "component", left)?;
        rule(log.record_limit == default.record_limit, "record_limit", left)?;
        rule(log.policy == default.policy, "policy", "left at its default: see sync_on_commit")?;
        rule(
            log.retention == default.retention,
            "retention",
            "left at its default: only truncation may drop records",
        )?;
        rule(
            log.on_corruption != OnCorruption::Truncate,
            "on_corruption",
            "Fail or Quarantine: cutting a log off forgets what it promised",
        )
    }

    /// The number of records between two automatic checkpoints.
    pub(crate) fn records_per_checkpoint(&self) -> u64 {
        let in_reserve = self.log.reserve_bytes() / RESERVE_BYTES_PER_RECORD;
        self.checkpoint_every.min(in_reserve.max(CHECKPOINT_EVERY_MIN))
    }

    pub(crate) fn for_log(&self) -> LogOptions {
        let mut options = self.log.clone();
        if !self.sync_on_commit {
            options.policy = Policy::Periodic(UNREQUESTED_SYNC_INTERVAL);
        }
        options.record_limit = RECORD_LIMIT_MAX;
        options.component = Some(COMPONENT);
        options
    }
}

/// Opens a consensus log with options; from
/// [`ConsensusLog::builder`](crate::ConsensusLog::builder).
///
/// The options of the consensus log, and those of the underlying log that most programs set, have a
/// setter of the same name; [`ConsensusLogBuilder::log`] sets the others. [`Options`] describes
/// them.
#[derive(Debug, Clone)]
#[must_use = "a builder opens nothing until `open` is called"]
pub struct ConsensusLogBuilder {
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) shared: SharedResources,
    pub(crate) renumber: bool,
}

/// The resources that the logs of one manager share.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedResources {
    /// Held while segments or snapshots are removed, and by a backup, which needs them all.
    pub(crate) removals: Arc<RwLock<()>>,
    /// In place of one for each log.
    pub(crate) reserve: Option<SharedReserve>,
}

impl ConsensusLogBuilder {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            options: Options::default(),
            shared: SharedResources::default(),
            renumber: false,
        }
    }

    /// Declares that the node of this log has a new number, which no node of its group ever had. A
    /// backup becomes an ordinary log then, with everything that it has: durably, before the log is
    /// returned, and after a crash entirely or not at all. Any other log stays as it is: an
    /// ordinary one, and one that was repaired, which is read-only under any number.
    ///
    /// Call it once for a copy, when its group knows the new number as that of a new member.
    /// Under the number of the original, the copy would vote against what that one promised since.
    ///
    /// # Examples
    /// ```
    /// use esker_consensus::{
    ///     Ballot, ConsensusLog, Error, Options, PromiseError, Slot, StorageError, backup_log,
    /// };
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (dir, copy) = (dir.path().join("node-1"), dir.path().join("node-4"));
    /// # ConsensusLog::open(&dir)?.close()?;
    /// backup_log(&dir, &copy, &Options::default())?;
    /// let log = ConsensusLog::open(&copy)?;
    /// let ballot = Ballot { number: 5, node: 4 };
    /// let refused = log.promise(ballot, Slot(0)).unwrap_err();
    /// assert!(matches!(refused, PromiseError::Storage(StorageError::ReadOnly { .. })));
    /// log.close()?;
    ///
    /// // Node 4 joined the group.
    /// let log = ConsensusLog::builder(&copy).renumber().open()?;
    /// log.promise(ballot, Slot(0))?.blocking_wait()?;
    /// # Ok(log.close()?)
    /// # }
    /// ```
    pub fn renumber(mut self) -> Self {
        self.renumber = true;
        self
    }

    /// Replaces all options.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Replaces all options of the underlying log, those with a setter here too; so call it before
    /// them.
    ///
    /// # Examples
    /// ```
    /// use esker_consensus::{ConsensusLog, LogOptions};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path().join("node-1");
    /// let mut log = LogOptions::default();
    /// log.buffer_size = 1 << 20;
    /// let log = ConsensusLog::builder(&dir).log(log).segment_size(16 << 20).open()?;
    /// # log.close()?;
    /// # Ok::<(), esker_consensus::Error>(())
    /// ```
    pub fn log(mut self, log: LogOptions) -> Self {
        self.options.log = log;
        self
    }

    /// Sets [`Options::mode`].
    pub fn mode(mut self, mode: Mode) -> Self {
        self.options.mode = mode;
        self
    }

    /// Sets [`Options::mutable_size`].
    pub fn mutable_size(mut self, mutable_size: u64) -> Self {
        self.options.mutable_size = mutable_size;
        self
    }

    /// Sets [`Options::cache_size`].
    pub fn cache_size(mut self, cache_size: u64) -> Self {
        self.options.cache_size = cache_size;
        self
    }

    /// Sets [`Options::sync_on_commit`].
    pub fn sync_on_commit(mut self, sync_on_commit: bool) -> Self {
        self.options.sync_on_commit = sync_on_commit;
        self
    }

    /// Sets [`Options::checkpoint_every`].
    pub fn checkpoint_every(mut self, checkpoint_every: u64) -> Self {
        self.options.checkpoint_every = checkpoint_every;
        self
    }

    /// Sets [`Options::label`].
    pub fn label(mut self, label: Vec<u8>) -> Self {
        self.options.label = label;
        self
    }

    /// Sets [`LogOptions::segment_size`].
    pub fn segment_size(mut self, segment_size: u32) -> Self {
        self.options.log.segment_size = segment_size;
        self
    }

    /// Sets [`LogOptions::reserve`].
    pub fn reserve(mut self, reserve: u64) -> Self {
        self.options.log.reserve = Some(reserve);
        self
    }

    /// Sets [`LogOptions::on_corruption`].
    pub fn on_corruption(mut self, on_corruption: OnCorruption) -> Self {
        self.options.log.on_corruption = on_corruption;
        self
    }

    /// Sets [`LogOptions::must_exist`].
    pub fn must_exist(mut self, must_exist: bool) -> Self {
        self.options.log.must_exist = must_exist;
        self
    }

    /// Sets [`LogOptions::disk`].
    pub fn disk(mut self, disk: Arc<dyn Disk>) -> Self {
        self.options.log.disk = disk;
        self
    }

    /// Sets [`LogOptions::engine`].
    pub fn engine(mut self, engine: Engine) -> Self {
        self.options.log.engine = Some(engine);
        self
    }
}

/// The limit, if these options never accept a value of `len` bytes.
pub(crate) fn exceeded_limit(options: &Options, len: usize) -> Option<u64> {
    let limit = options.value_limit();
    (len as u64 > limit || charge(len) > options.mutable_size).then_some(limit)
}

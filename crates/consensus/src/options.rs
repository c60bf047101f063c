//! The options of a consensus log, and the builder that opens it with them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use esker_disk::{Disk, StdDisk};
use esker_log::component::SharedReserve;
use esker_log::{Direct, Engine, OnCorruption, OpenCheck, Policy, RECORD_LIMIT_MAX};
use parking_lot::RwLock;

use crate::component::COMPONENT;
use crate::memory::value_budget::charge;
use crate::outcome::{Error, Result};
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
    /// of `reserve`, so that a checkpoint fits there on a full disk.
    pub checkpoint_every: u64,
    /// The segment size of the log in bytes, 64 KiB to 512 MiB; truncation frees whole segments.
    /// Default 64 MiB.
    pub segment_size: u32,
    /// Disk space kept reserved, in bytes, for opening, truncation and checkpoints on a full disk:
    /// see [`esker_log::Options::reserve`]. A checkpoint, or the copies that a truncation makes,
    /// may need more. They then fail with [`NoSpace`](esker_log::Error::NoSpace), and the log stays
    /// usable.
    pub reserve: Option<u64>,
    /// The extent of the checks of opening. Default: the records that a crash may have left in
    /// doubt.
    pub check: OpenCheck,
    /// The reaction of opening to corruption. [`OnCorruption::Quarantine`] opens the log read-only;
    /// [`OnCorruption::Truncate`] is refused, because it forgets promises.
    pub on_corruption: OnCorruption,
    /// A name of your own that is stored with the log, at most [`LABEL_LIMIT`] bytes. Opening the
    /// log with another label fails, so that no directory is taken for another one; and so does
    /// opening with one when the log's own is corrupt. Default: empty, which stores none and opens
    /// any.
    pub label: Vec<u8>,
    /// Whether opening fails where there is no log. Default `false`: opening creates one.
    pub must_exist: bool,
    /// Whether commits bypass the page cache.
    pub direct: Direct,
    /// Whether each write is durable by itself, where the file system supports it.
    pub dsync: bool,
    /// The disk that holds the log.
    pub disk: Arc<dyn Disk>,
    /// The engine that runs commits. Default: the one shared by all logs of the process.
    pub engine: Option<Engine>,
}

impl Default for Options {
    fn default() -> Self {
        let log = esker_log::Options::default();
        Self {
            mode: Mode::Durable,
            mutable_size: 64 << 20,
            cache_size: 64 << 20,
            sync_on_commit: true,
            checkpoint_every: 1 << 20,
            segment_size: log.segment_size,
            reserve: log.reserve,
            check: OpenCheck::Quick,
            on_corruption: OnCorruption::Fail,
            label: Vec::new(),
            must_exist: false,
            direct: log.direct,
            dsync: log.dsync,
            disk: Arc::new(StdDisk::new()),
            engine: None,
        }
    }
}

impl Options {
    /// The default options, on `disk`.
    pub fn on(disk: Arc<dyn Disk>) -> Self {
        Self { disk, ..Self::default() }
    }

    /// The largest value in bytes that a log with these options accepts.
    pub fn value_limit(&self) -> u64 {
        VALUE_LIMIT.min(self.mutable_size)
    }

    pub(crate) fn validate(&self) -> Result<()> {
        let rule = |holds, option, rule| {
            if holds { Ok(()) } else { Err(Error::InvalidOption { option, rule }) }
        };
        rule(self.mutable_size >= 4 << 10, "mutable_size", "at least 4 KiB")?;
        rule(self.checkpoint_every >= CHECKPOINT_EVERY_MIN, "checkpoint_every", "at least 1024")?;
        rule(self.label.len() <= LABEL_LIMIT, "label", "at most 4096 bytes")?;
        rule(
            self.on_corruption != OnCorruption::Truncate,
            "on_corruption",
            "Fail or Quarantine: cutting a log off forgets what it promised",
        )
    }

    /// The number of records between two automatic checkpoints.
    pub(crate) fn records_per_checkpoint(&self) -> u64 {
        let in_reserve = self.for_log().reserve_bytes() / RESERVE_BYTES_PER_RECORD;
        self.checkpoint_every.min(in_reserve.max(CHECKPOINT_EVERY_MIN))
    }

    pub(crate) fn for_log(&self) -> esker_log::Options {
        let mut options = esker_log::Options::on(Arc::clone(&self.disk));
        options.policy = if self.sync_on_commit {
            Policy::Always
        } else {
            Policy::Periodic(UNREQUESTED_SYNC_INTERVAL)
        };
        options.record_limit = RECORD_LIMIT_MAX;
        options.segment_size = self.segment_size;
        options.reserve = self.reserve;
        options.check = self.check;
        options.on_corruption = self.on_corruption;
        options.must_exist = self.must_exist;
        options.component = Some(COMPONENT);
        options.direct = self.direct;
        options.dsync = self.dsync;
        options.engine.clone_from(&self.engine);
        options
    }
}

/// Opens a consensus log with options; from
/// [`ConsensusLog::builder`](crate::ConsensusLog::builder).
///
/// Each option has a setter of the same name. [`Options`] describes them.
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
    /// use esker_consensus::{Ballot, ConsensusLog, Error, Options, Slot, backup_log};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (dir, copy) = (dir.path().join("node-1"), dir.path().join("node-4"));
    /// # ConsensusLog::open(&dir)?.close()?;
    /// backup_log(&dir, &copy, &Options::default())?;
    /// let log = ConsensusLog::open(&copy)?;
    /// let ballot = Ballot { number: 5, node: 4 };
    /// assert!(matches!(log.promise(ballot, Slot(0)), Err(Error::ReadOnly { .. })));
    /// log.close()?;
    ///
    /// // Node 4 joined the group.
    /// let log = ConsensusLog::builder(&copy).renumber().open()?;
    /// log.promise(ballot, Slot(0))?.blocking_wait()?;
    /// # log.close()
    /// # }
    /// ```
    pub fn renumber(mut self) -> Self {
        self.renumber = true;
        self
    }

    esker_log::option_setters! { Options {
        mode: Mode,
        mutable_size: u64,
        cache_size: u64,
        sync_on_commit: bool,
        checkpoint_every: u64,
        segment_size: u32,
        check: OpenCheck,
        on_corruption: OnCorruption,
        label: Vec<u8>,
        must_exist: bool,
        direct: Direct,
        dsync: bool,
        disk: Arc<dyn Disk>,
        ;
        reserve: u64,
        engine: Engine,
    }}
}

/// Refuses a value of `len` bytes that these options never accept.
pub(crate) fn fits(options: &Options, len: usize) -> Result<()> {
    let limit = options.value_limit();
    if len as u64 > limit || charge(len) > options.mutable_size {
        return Err(Error::EntryTooLarge { size: len as u64, limit });
    }
    Ok(())
}

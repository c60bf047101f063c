//! What a user may choose.

use std::sync::Arc;
use std::time::Duration;

use esker_disk::{Disk, StdDisk};
use esker_log::{Direct, Engine, OnCorruption, OpenCheck, Policy, RECORD_LIMIT_MAX};

use crate::component::COMPONENT;
use crate::memory::value_budget::charge;
use crate::outcome::{Error, Result};

/// The largest value in bytes: 64 MiB.
pub const VALUE_LIMIT: u64 = 64 << 20;

/// The longest time that a commit waits for its sync where nobody asks for one.
const UNSYNCED: Duration = Duration::from_millis(10);

/// When an accept is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Mode {
    /// When it is durable. This is what Paxos asks of an acceptor.
    #[default]
    Durable,
    /// At once, in memory. **This gives up the safety of Paxos**: an acceptor that crashes forgets
    /// what it accepted, and the ballot that it accepted it under, so that a value that was chosen by
    /// a majority can be lost, and another chosen in its place. Promises are durable all the same,
    /// and a log that is closed keeps what it accepted.
    Volatile,
}

/// Options of a consensus log. [`Options::default`] is safe Paxos on an SSD.
///
/// | profile | options |
/// |---|---|
/// | most durability | the defaults |
/// | most throughput | [`Mode::Volatile`], `sync_on_commit` off, `mutable_size` 256 MiB: a crash takes what was committed in the last 10 ms, and all that was accepted |
/// | batching | the defaults, and [`commit_batch`](crate::ConsensusLog::commit_batch): one sync for all |
///
/// There is no limit on the number of threads.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// When an accept is acknowledged.
    pub mode: Mode,
    /// The bytes for values that are accepted and not committed. Default 64 MiB; 64 to 256 MiB are
    /// sensible, 2 MiB for one of many logs. At least 4 KiB.
    pub mutable_size: u64,
    /// The bytes of committed values kept in memory; others are read from the log. Default 64 MiB.
    pub cache_size: u64,
    /// Whether a commit's ticket waits for its marker, or value, to be durable, and readers see it
    /// only then. Default on. Off, a crash may take *committed* entries: those of the last 10 ms and
    /// one commit. Closing and checkpoints sync all the same.
    pub sync_on_commit: bool,
    /// The records from one checkpoint of the index to the next: about what opening after a crash has
    /// to read. Default 1,048,576, at least 1,024.
    pub checkpoint_every: u64,
    /// The size of a segment of the log in bytes, 64 KiB to 512 MiB; truncation frees whole
    /// segments. Default 64 MiB.
    pub segment_size: u32,
    /// The bytes kept reserved on the disk for opening, truncation and checkpoints on a full disk: see
    /// [`esker_log::Options::reserve`]. A checkpoint, or what a truncation copies, may need more; then
    /// it fails with [`NoSpace`](esker_log::Error::NoSpace) and the log goes on.
    pub reserve: Option<u64>,
    /// How much is checked at opening. Default: what a crash may have left in doubt.
    pub validate: OpenCheck,
    /// What to do about damage. [`OnCorruption::Quarantine`] opens the log for reading only;
    /// [`OnCorruption::Truncate`] is refused, because it forgets promises.
    pub on_corruption: OnCorruption,
    /// Opening fails where there is no log. Default `false`: one is created.
    pub must_exist: bool,
    /// Whether commits go past the page cache.
    pub direct: Direct,
    /// Whether a write is durable by itself, where the file system can.
    pub dsync: bool,
    /// Where the log lives.
    pub disk: Arc<dyn Disk>,
    /// The threads that commit. Default: those shared by all logs of the process.
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
            validate: OpenCheck::Quick,
            on_corruption: OnCorruption::Fail,
            must_exist: false,
            direct: log.direct,
            dsync: log.dsync,
            disk: Arc::new(StdDisk::new()),
            engine: None,
        }
    }
}

impl Options {
    /// The defaults on another disk.
    pub fn on(disk: Arc<dyn Disk>) -> Self {
        Self { disk, ..Self::default() }
    }

    /// The largest value that a log with these options takes, in bytes.
    pub fn value_limit(&self) -> u64 {
        VALUE_LIMIT.min(self.mutable_size)
    }

    pub(crate) fn check(&self) -> Result<()> {
        let rule = |holds, option, rule| {
            if holds { Ok(()) } else { Err(Error::InvalidOption { option, rule }) }
        };
        rule(self.mutable_size >= 4 << 10, "mutable_size", "at least 4 KiB")?;
        rule(self.checkpoint_every >= 1024, "checkpoint_every", "at least 1024")?;
        rule(
            self.on_corruption != OnCorruption::Truncate,
            "on_corruption",
            "Fail or Quarantine: cutting a log off forgets what it promised",
        )
    }

    pub(crate) fn for_log(&self) -> esker_log::Options {
        let mut options = esker_log::Options::on(Arc::clone(&self.disk));
        options.policy =
            if self.sync_on_commit { Policy::Always } else { Policy::Periodic(UNSYNCED) };
        options.record_limit = RECORD_LIMIT_MAX;
        options.segment_size = self.segment_size;
        options.reserve = self.reserve;
        options.validate = self.validate;
        options.on_corruption = self.on_corruption;
        options.must_exist = self.must_exist;
        options.component = Some(COMPONENT);
        options.direct = self.direct;
        options.dsync = self.dsync;
        options.engine.clone_from(&self.engine);
        options
    }
}

/// Whether a value of so many bytes is ever taken.
pub(crate) fn fits(options: &Options, len: usize) -> Result<()> {
    let limit = options.value_limit();
    if len as u64 > limit || charge(len) > options.mutable_size {
        return Err(Error::EntryTooLarge { size: len as u64, limit });
    }
    Ok(())
}

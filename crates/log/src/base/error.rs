//! The error type of the crate.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_disk::{NoHugePages, Op, process};

use crate::base::component::Component;
use crate::base::invalid_option::InvalidOption;
use crate::base::log_error::LogError;
use crate::base::position::{Position, Seq, SeqRange};
use crate::format::RECORD_LIMIT_MAX;

/// The result of an operation on a log.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Any error of this crate, for `?` in a program. Each operation returns an error of its own, with
/// what can happen there and nothing else; this one has the variants of all.
///
/// `Display` says what failed, on which file where there is one, and the remedy. The cause is only
/// in [`source`](std::error::Error::source); print the whole chain to see it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// An operation of the disk failed. For a failed write or sync this is the first report: the
    /// log is poisoned from then on. The source names the operation, the file and the error of the
    /// system.
    Io(esker_disk::Error),
    /// An earlier write or sync failed, with this cause. The log accepts nothing more; durable
    /// records stay readable. Reopen the log to continue.
    Poisoned(esker_disk::Error),
    /// An option is out of its range. Nothing was opened.
    InvalidOption(InvalidOption),
    /// The staging buffers are to be on huge pages, and too few are reserved. Nothing was opened.
    HugePages(NoHugePages),
    /// The system started no thread. Where this ends an opening, nothing was opened; a reader that
    /// waits can try again.
    NoThread(Arc<std::io::Error>),
    /// The log was closed.
    Closed,
    /// `fork` made this process of one that used Esker: one that had opened anything or started an
    /// engine. Such a child uses and opens nothing, and nothing was done. Call `exec` in it, or
    /// fork before the parent opens its first log.
    Forked,
    /// The engine stopped before the record became durable. Reopening the log shows whether it did.
    Stopped,
    /// An invariant of the log does not hold, which is a bug. Where the state of an open log
    /// contradicts itself, the log accepts nothing more, and every later call has this invariant
    /// for an error; durable records stay readable. Where a call only met an error that cannot
    /// occur there, that call failed. Report the bug, and open the log again.
    Internal {
        /// The invariant, as the sentence that should be true.
        invariant: &'static str,
    },
    /// Another handle or process has the log open for writing.
    Locked {
        /// The directory of the log.
        dir: PathBuf,
        /// The process that holds the lock, as named in the file `lock`. `None` when that file is
        /// missing, or names no process that runs: a child of the one that took the lock may hold
        /// it still. Right after a process took the lock, the file may still name the previous one.
        /// The number is that of the PID namespace of the holder: for one in another namespace,
        /// such as that of another container, this is `None`, or a process that has the same number
        /// here.
        pid: Option<u32>,
    },
    /// There is no log in the directory.
    NotALog {
        /// The directory.
        dir: PathBuf,
        /// A description of what was found instead.
        found: String,
    },
    /// A directory that a backup was to be written to holds something else. Nothing was changed.
    NotThisBackup {
        /// The directory.
        dir: PathBuf,
        /// A description of what was found there.
        found: String,
    },
    /// The files were written by a version of Esker that this one does not support.
    UnsupportedVersion {
        /// The file.
        file: PathBuf,
        /// The format version found in it.
        version: u32,
    },
    /// A file belongs to another log.
    ForeignFile {
        /// The file.
        file: PathBuf,
    },
    /// The log belongs to another component than [`Options::component`](crate::Options::component)
    /// names. Nothing was changed.
    WrongComponent {
        /// The directory.
        dir: PathBuf,
        /// The component that the log belongs to; `None` for a plain log.
        found: Option<Component>,
        /// The component that tried to open it.
        expected: Option<Component>,
    },
    /// The record is larger than the log's record limit. Nothing was accepted.
    TooLarge {
        /// The payload's size in bytes.
        size: u64,
        /// The largest payload that this log takes, in bytes.
        limit: u64,
    },
    /// The note of a snapshot, the content of a chunk, or the app metadata are too large. Nothing
    /// was written.
    ContentTooLarge {
        /// The size in bytes.
        size: u64,
        /// The most bytes.
        limit: u64,
    },
    /// The batch exceeds the limit of an atomic batch. Nothing was accepted.
    BatchTooLarge {
        /// The bytes that the batch would take, record headers included.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The sequence number of a record is not above the one that it follows, or is above
    /// [`Seq::MAX`], or the record does not follow the last one of the log. Nothing of the batch
    /// was accepted.
    Sequence {
        /// The sequence number of the record.
        seq: Seq,
        /// The sequence number that the caller said it follows.
        prev: Seq,
        /// The sequence number that it must follow.
        expected: Seq,
    },
    /// The name of a consumer is empty or too long. Nothing was changed.
    InvalidConsumer {
        /// The length of the name in bytes.
        bytes: usize,
        /// The most bytes of a name.
        limit: usize,
    },
    /// The log has as many named offsets as it can. Nothing was changed.
    TooManyConsumers {
        /// The most names.
        limit: usize,
    },
    /// The offset of a consumer is not the one that the caller expected. Nothing was changed.
    OffsetChanged {
        /// The name of the consumer.
        name: String,
        /// Its offset; `None` if it has none.
        found: Option<Seq>,
    },
    /// Another append, not yet durable, was ordered first after `prev`. Nothing was accepted.
    Conflict {
        /// The sequence number that both said they follow.
        prev: Seq,
        /// The last sequence number accepted so far.
        last: Seq,
    },
    /// No space can be reserved for the record: the disk is full, or a quota or a file size limit
    /// is reached. The refused record was not accepted;
    /// [`Log::write`](crate::Log::write) may have accepted those before it. Nothing
    /// is poisoned: reading, truncating and closing continue, and so does appending once there is
    /// room.
    NoSpace {
        /// The directory of the log.
        dir: PathBuf,
        /// At least this many bytes could not be reserved.
        wanted: u64,
        /// The last durable record.
        durable: Seq,
        /// The error of the system.
        cause: esker_disk::Error,
    },
    /// The staging memory is full and the caller asked not to wait. Nothing was accepted.
    Full,
    /// This handle does one such operation at a time. Nothing was changed.
    Busy {
        /// The operation that is in progress.
        what: &'static str,
    },
    /// The deadline passed. A record that was accepted may still become durable.
    Timeout,
    /// The record was dropped by retention or truncation.
    Trimmed(Trimmed),
    /// These records were corrupt and `repair` quarantined them. `from` is the last valid one
    /// before the gap.
    Quarantined(SeqRange),
    /// Durable bytes differ from what was written. Nothing was changed; `repair` quarantines the
    /// corrupt part and keeps the rest.
    Corrupted(Corruption),
    /// No record has this sequence number.
    NotFound {
        /// The sequence number asked for.
        seq: Seq,
    },
    /// No record starts at this position.
    InvalidPosition {
        /// The position asked for.
        position: Position,
    },
}

/// Records that retention or truncation dropped before they were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trimmed {
    /// The oldest record that is still stored.
    pub oldest: Seq,
}

impl fmt::Display for Trimmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the record was dropped; the oldest stored is {}", self.oldest)
    }
}

impl std::error::Error for Trimmed {}

/// A place where durable bytes are corrupt.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Corruption {
    /// The file.
    pub file: PathBuf,
    /// The offset in the file at which the corrupt part begins.
    pub offset: u64,
    /// The last valid record before it.
    pub after: Seq,
    /// A description of what is wrong there.
    pub what: String,
    /// Whether the files look as if they were copied one by one beside a writer.
    pub live_copy: LiveCopySign,
}

/// Whether the files of a directory look as if they were copied one by one beside a writer. Then
/// they are of different moments, and the original may have what is missing there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LiveCopySign {
    /// Nothing shows it.
    #[default]
    Absent,
    /// They are, but a crash may have left them so.
    Possible,
    /// They are, and no crash leaves them so.
    Certain,
    /// As [`LiveCopySign::Certain`], and the manifest is older than another file: a repair corrects
    /// it, and drops no record that a segment has.
    OldManifest,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "corruption in {} at byte {}", self.file.display(), self.offset)?;
        if self.after > Seq(0) {
            write!(f, ", after record {}", self.after)?;
        }
        write!(f, ": {}", self.what)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(cause) => write!(f, "{cause}"),
            Error::Poisoned(_) => {
                f.write_str("an earlier write or sync failed; reopen the log to continue")
            }
            Error::InvalidOption(cause) => write!(f, "{cause}"),
            Error::HugePages(cause) => write!(f, "{cause}"),
            Error::NoThread(_) => f.write_str("failed to start a thread"),
            Error::Closed => f.write_str("the log is closed"),
            Error::Forked => f.write_str(FORKED),
            Error::Stopped => {
                f.write_str("the commit engine has stopped; reopen the log to continue")
            }
            Error::Internal { invariant } => {
                write!(f, "a bug: this does not hold: {invariant}; report it, and reopen the log")
            }
            Error::Locked { dir, pid } => write_locked(f, dir, *pid),
            Error::NotThisBackup { dir, found } => {
                write!(f, "{} is no backup of this log: {found}", dir.display())
            }
            Error::NotALog { dir, found } => {
                write!(f, "{} is not a log: {found}", dir.display())
            }
            Error::UnsupportedVersion { file, version } => write!(
                f,
                "{} has format version {version}, which this version of Esker does not know",
                file.display()
            ),
            Error::ForeignFile { file } => {
                write!(f, "{} belongs to another log; move it elsewhere", file.display())
            }
            Error::WrongComponent { dir, found, expected } => {
                write_component(f, dir, (found.as_ref(), expected.as_ref()))
            }
            Error::TooLarge { size, limit } => write!(
                f,
                "a record of {size} bytes is over the limit of {limit} (at most {RECORD_LIMIT_MAX})"
            ),
            Error::ContentTooLarge { size, limit } => {
                write!(f, "content of {size} bytes is over the limit of {limit}")
            }
            Error::BatchTooLarge { size, limit } => {
                write!(f, "an atomic batch of {size} bytes is over the limit of {limit}")
            }
            Error::Sequence { seq, prev, expected } => write_sequence(f, *seq, *prev, *expected),
            Error::InvalidConsumer { bytes, limit } => {
                write!(f, "the name of a consumer has 1 to {limit} bytes, and this one has {bytes}")
            }
            Error::TooManyConsumers { limit } => {
                write!(f, "the log has {limit} consumers, the most it can; remove one first")
            }
            Error::OffsetChanged { name, found } => write_offset(f, name, *found),
            Error::Conflict { prev, last } => write!(
                f,
                "another record was accepted after {prev} first; the last record is now {last}"
            ),
            Error::NoSpace { dir, wanted, cause, .. } => write_no_space(f, dir, *wanted, cause),
            Error::Full => f.write_str("the staging memory is full"),
            Error::Busy { what } => write!(f, "{what}; wait until that ends"),
            Error::Timeout => f.write_str("the deadline passed"),
            Error::Trimmed(cause) => write!(f, "{cause}"),
            Error::Quarantined(range) => write!(f, "{range} were corrupt and are quarantined"),
            Error::Corrupted(corruption) => write!(f, "{corruption}"),
            Error::NotFound { seq } => write!(f, "there is no durable record {seq}"),
            Error::InvalidPosition { position } => {
                write!(f, "no record starts at position {position}")
            }
        }
    }
}

/// The message of [`Error::Forked`].
const FORKED: &str = "fork made this process of one that used Esker; call exec in it, or fork \
                      before the first log is opened";

fn write_locked(f: &mut fmt::Formatter<'_>, dir: &Path, pid: Option<u32>) -> fmt::Result {
    write!(f, "{} is open for writing", dir.display())?;
    match pid {
        Some(pid) if pid == std::process::id() => f.write_str(" by this process")?,
        Some(pid) => write!(f, " by process {pid}")?,
        None => {
            f.write_str(
                " by a process whose number is unknown, such as a child of one that ended",
            )?;
        }
    }
    f.write_str("; a log has one writer at a time, and readers need no lock")
}

fn write_component(
    f: &mut fmt::Formatter<'_>,
    dir: &Path,
    component: (Option<&Component>, Option<&Component>),
) -> fmt::Result {
    let dir = dir.display();
    match component {
        (Some(found), Some(expected)) => {
            write!(f, "{dir} is a log of component {found}, not of {expected}")
        }
        (Some(found), None) => {
            write!(f, "{dir} is a log of component {found}, not a plain log")
        }
        (None, Some(expected)) => {
            write!(f, "{dir} is a plain log, not one of component {expected}")
        }
        (None, None) => write!(f, "{dir} is not the log that was expected"),
    }
}

fn write_sequence(f: &mut fmt::Formatter<'_>, seq: Seq, prev: Seq, expected: Seq) -> fmt::Result {
    if seq > Seq::MAX && prev >= Seq::MAX {
        write!(f, "numbers of records end with {}; continue in another log", Seq::MAX)
    } else if seq > Seq::MAX {
        write!(f, "record {seq} cannot be: numbers end with {}", Seq::MAX)
    } else if seq <= prev {
        write!(f, "record {seq} cannot follow record {prev}; its number must be higher")
    } else {
        write!(f, "record {seq} is to follow record {prev}, but the last record is {expected}")
    }
}

fn write_offset(f: &mut fmt::Formatter<'_>, name: &str, found: Option<Seq>) -> fmt::Result {
    match found {
        Some(found) => write!(f, "the offset of consumer {name} is {found}"),
        None => write!(f, "consumer {name} has no offset"),
    }
}

fn write_no_space(
    f: &mut fmt::Formatter<'_>,
    dir: &Path,
    wanted: u64,
    cause: &esker_disk::Error,
) -> fmt::Result {
    let dir = dir.display();
    if cause.is_out_of_inodes() {
        return write!(
            f,
            "no inode for another file in {dir}; remove files from its file system and try again"
        );
    }
    write!(f, "no space for {wanted} bytes in {dir}; make room and try again")
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // These two display as their cause does, so their source is the one below.
            Error::Io(cause) => cause.source(),
            Error::HugePages(cause) => cause.source(),
            Error::Poisoned(cause) | Error::NoSpace { cause, .. } => Some(cause),
            Error::NoThread(cause) => Some(&**cause),
            _ => None,
        }
    }
}

impl From<InvalidOption> for Error {
    fn from(cause: InvalidOption) -> Self {
        Error::InvalidOption(cause)
    }
}

impl From<esker_disk::Error> for Error {
    fn from(cause: esker_disk::Error) -> Self {
        LogError::from(cause).into()
    }
}

impl Error {
    /// The system started no thread, or `fork` made this process.
    pub(crate) fn no_thread(error: std::io::Error) -> Self {
        LogError::no_thread(error).into()
    }

    /// Whether the only cause is a lack of disk space: [`Error::NoSpace`], or a call of the system
    /// that failed for it.
    pub fn is_no_space(&self) -> bool {
        match self {
            Error::Io(cause) => cause.is_no_space(),
            Error::NoSpace { .. } => true,
            _ => false,
        }
    }

    /// Whether a file or directory could not be opened, such as for want of descriptors.
    pub(crate) fn failed_to_open(&self) -> bool {
        matches!(self, Error::Io(cause) if matches!(cause.op(), Op::Open | Op::OpenDir))
    }

    /// Whether the same call, on the same handle and with the same arguments, may succeed later: a
    /// lack of room, of time, of disk space or of threads, an operation that is in progress, and a
    /// log that another process has open. After [`Error::Timeout`] a record may have been accepted,
    /// and after any of these from a write, the first of its records; see
    /// [`WriteError`](crate::WriteError). Then another call appends them twice, unless it names the
    /// record that they follow.
    ///
    /// # Examples
    /// ```
    /// use esker_log::Error;
    /// assert!(Error::Full.is_retryable());
    /// assert!(!Error::Closed.is_retryable());
    /// ```
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Full
            | Error::Timeout
            | Error::NoSpace { .. }
            | Error::Busy { .. }
            | Error::Locked { .. }
            | Error::NoThread(_) => true,
            Error::Io(_)
            | Error::Poisoned(_)
            | Error::InvalidOption(_)
            | Error::HugePages(_)
            | Error::Closed
            | Error::Forked
            | Error::Stopped
            | Error::Internal { .. }
            | Error::NotALog { .. }
            | Error::NotThisBackup { .. }
            | Error::UnsupportedVersion { .. }
            | Error::ForeignFile { .. }
            | Error::WrongComponent { .. }
            | Error::TooLarge { .. }
            | Error::BatchTooLarge { .. }
            | Error::ContentTooLarge { .. }
            | Error::Sequence { .. }
            | Error::InvalidConsumer { .. }
            | Error::TooManyConsumers { .. }
            | Error::OffsetChanged { .. }
            | Error::Conflict { .. }
            | Error::Trimmed(_)
            | Error::Quarantined(_)
            | Error::Corrupted(_)
            | Error::NotFound { .. }
            | Error::InvalidPosition { .. } => false,
        }
    }

    /// Turns a disk error for lack of space into [`Error::NoSpace`], and returns any other error
    /// unchanged.
    pub(crate) fn for_want_of_space(self, dir: &Path, wanted: u64, durable: u64) -> Self {
        match self {
            Error::Io(cause) if cause.is_no_space() => {
                Error::NoSpace { dir: dir.into(), wanted, durable: Seq(durable), cause }
            }
            other => other,
        }
    }
}

/// Makes this process one that uses Esker, and refuses to open this directory in a child of one.
pub(crate) fn register_process(dir: &Path) -> Result<()> {
    let failed = |source| esker_disk::Error::new(Op::OpenDir, dir, None, source);
    process::register().map_err(|source| failed(source).into())
}

/// An error as a field of a log event, which prints it with all of its causes.
pub(crate) fn with_causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> &'a (dyn std::error::Error + 'static) {
    error
}

pub(crate) fn corruption_at(path: &Path, offset: u64, after: u64, what: impl ToString) -> Error {
    Error::Corrupted(corruption_of(path, offset, after, what))
}

pub(crate) fn corruption_of(
    path: &Path,
    offset: u64,
    after: u64,
    what: impl ToString,
) -> Corruption {
    Corruption {
        file: path.into(),
        offset,
        after: Seq(after),
        what: what.to_string(),
        live_copy: LiveCopySign::Absent,
    }
}

/// Why a log accepts no more records. Kept for every later caller.
#[derive(Debug, Clone)]
pub(crate) enum Terminal {
    /// A write or sync failed. Waiters for records through this number get the cause itself.
    Failed {
        cause: Arc<esker_disk::Error>,
        through: u64,
    },
    Closed,
    /// The engine stopped.
    Stopped,
    /// An invariant does not hold, which is a bug.
    Broken {
        invariant: &'static str,
    },
}

impl Terminal {
    pub(crate) fn refusal(&self) -> LogError {
        match self {
            Terminal::Failed { cause, .. } => LogError::Poisoned((**cause).clone()),
            Terminal::Closed => LogError::Closed,
            Terminal::Stopped => LogError::Stopped,
            Terminal::Broken { invariant } => LogError::Internal { invariant },
        }
    }
}

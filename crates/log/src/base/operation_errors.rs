//! The errors of the operations on a log: each has what can happen there, and nothing else.

use std::path::PathBuf;

use esker_disk::NoHugePages;

use crate::base::component::Component;
#[cfg(doc)]
use crate::base::error::Error;
use crate::base::error::{Corruption, Trimmed};
use crate::base::invalid_option::InvalidOption;
use crate::base::log_error::LogError;
use crate::base::position::{Position, Seq, SeqRange};

/// The error of opening a log: of [`Log::open`](crate::Log::open) and
/// [`LogBuilder::open`](crate::LogBuilder::open), of
/// [`ReadOnlyLog::open`](crate::ReadOnlyLog::open) and of polling what it follows, and of the
/// functions that identify the component of a log. Nothing was opened or changed.
#[derive(Debug, Clone)]
pub enum OpenError {
    /// An option is out of its range.
    InvalidOption(InvalidOption),
    /// The staging buffers are to be on huge pages, and too few are reserved.
    HugePages(NoHugePages),
    /// Another handle or process has the log open for writing; as [`Error::Locked`].
    Locked {
        /// The directory.
        dir: PathBuf,
        /// The process that holds the lock, if it is known.
        pid: Option<u32>,
    },
    /// There is no log in the directory.
    NotALog {
        /// The directory.
        dir: PathBuf,
        /// A description of what was found instead.
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
    /// The log belongs to another component; as [`Error::WrongComponent`].
    WrongComponent {
        /// The directory.
        dir: PathBuf,
        /// The component that the log belongs to; `None` for a plain log.
        found: Option<Component>,
        /// The component that it should belong to.
        expected: Option<Component>,
    },
    /// There is not enough space. Only when opening for writing; see [`Error::NoSpace`].
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
    /// Durable bytes differ from what was written; as [`Error::Corrupted`].
    Corrupted(Corruption),
    /// The disk or the system failed, or the reader is closed.
    Log(LogError),
}

/// The error of an append: of the methods of [`Log`](crate::Log) and [`Sink`](crate::Sink) that
/// append, and in a [`WriteError`](crate::WriteError). The record that is refused was not accepted.
#[derive(Debug, Clone)]
pub enum AppendError {
    /// The record is larger than the log's record limit.
    TooLarge {
        /// The payload's size in bytes.
        size: u64,
        /// The largest payload that this log takes, in bytes.
        limit: u64,
    },
    /// The batch exceeds the limit of an atomic batch.
    BatchTooLarge {
        /// The bytes that the batch would take, record headers included.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The record does not follow the last one of the log; as [`Error::Sequence`].
    Sequence {
        /// The sequence number of the record.
        seq: Seq,
        /// The sequence number that the caller said it follows.
        prev: Seq,
        /// The sequence number that it must follow.
        expected: Seq,
    },
    /// Another append, not yet durable, was ordered first after `prev`.
    Conflict {
        /// The sequence number that both said they follow.
        prev: Seq,
        /// The last sequence number accepted so far.
        last: Seq,
    },
    /// No space can be reserved for the record. The log stays usable; see [`Error::NoSpace`].
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
    /// The append would have to wait. Only of the methods with the prefix `try_`, and of a
    /// [`Sink`](crate::Sink).
    Full,
    /// The time has passed. Only of the methods with the suffix `_timeout`.
    Timeout,
    /// The log is closed or has failed.
    Log(LogError),
}

/// The error of waiting with a deadline: of
/// [`Ticket::blocking_wait_timeout`](crate::Ticket::blocking_wait_timeout) and
/// [`Log::close_timeout`](crate::Log::close_timeout).
#[derive(Debug, Clone)]
pub enum WaitError {
    /// The time has passed. The commits that were waited for may still end.
    Timeout,
    /// The log is closed or has failed. The record may or may not survive; reopening decides.
    Log(LogError),
}

impl WaitError {
    /// Returns the error of a wait that had no deadline.
    pub(crate) fn without_deadline(self) -> LogError {
        match self {
            Self::Timeout => {
                LogError::internal("only a wait with a deadline times out", &self.into())
            }
            Self::Log(error) => error,
        }
    }
}

/// The error of reading a log: of the methods of [`Log`](crate::Log) and
/// [`ReadOnlyLog`](crate::ReadOnlyLog) that read records, and of a [`LogStream`](crate::LogStream).
#[derive(Debug, Clone)]
pub enum ReadError {
    /// No durable record has this sequence number.
    NotFound {
        /// The sequence number asked for.
        seq: Seq,
    },
    /// No record starts at this position.
    InvalidPosition {
        /// The position asked for.
        position: Position,
    },
    /// The record was dropped by retention or truncation.
    Trimmed(Trimmed),
    /// These records were corrupt and `repair` quarantined them; as [`Error::Quarantined`].
    Quarantined(SeqRange),
    /// Durable bytes differ from what was written; as [`Error::Corrupted`].
    Corrupted(Corruption),
    /// The time has passed. Only of
    /// [`LogStream::blocking_next_timeout`](crate::LogStream::blocking_next_timeout).
    Timeout,
    /// The directory does not hold the log any more. Only of a [`ReadOnlyLog`](crate::ReadOnlyLog),
    /// which polls it.
    Poll(OpenError),
    /// The log or the reader is closed, or the disk failed. Of a stream that waits, also the
    /// reason why the log accepts no more records.
    Log(LogError),
}

/// The error of writing, reading or receiving a snapshot of the application, and of writing a
/// checkpoint of a component.
#[derive(Debug, Clone)]
pub enum SnapshotError {
    /// The record that the snapshot is made from is not durable: a crash would leave a state ahead
    /// of the log.
    NotFound {
        /// The sequence number.
        seq: Seq,
    },
    /// The note, or the content of a chunk, is too large.
    ContentTooLarge {
        /// The size in bytes.
        size: u64,
        /// The most bytes.
        limit: u64,
    },
    /// Another snapshot is being received, snapshots are removed faster than one is read, or the
    /// thread writes a checkpoint already.
    Busy {
        /// The operation that is in progress.
        what: &'static str,
    },
    /// There is not enough space. Nothing was published, and the log stays usable; see
    /// [`Error::NoSpace`].
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
    /// The bytes of a snapshot differ from what was written or sent.
    Corrupted(Corruption),
    /// The log is closed or has failed, or the disk has.
    Log(LogError),
}

/// The error of reading or changing the offsets of consumers: of the methods of
/// [`Consumers`](crate::Consumers). Nothing was changed.
#[derive(Debug, Clone)]
pub enum ConsumerError {
    /// The name of a consumer is empty or too long.
    InvalidConsumer {
        /// The length of the name in bytes.
        bytes: usize,
        /// The most bytes of a name.
        limit: usize,
    },
    /// The log has as many named offsets as it can.
    TooManyConsumers {
        /// The most names.
        limit: usize,
    },
    /// The offset of a consumer is not the one that the caller expected.
    OffsetChanged {
        /// The name of the consumer.
        name: String,
        /// Its offset; `None` if it has none.
        found: Option<Seq>,
    },
    /// Other processes held the lock of the offsets for ten seconds.
    Busy {
        /// The operation that is in progress.
        what: &'static str,
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
    /// The file of the offsets is corrupt.
    Corrupted(Corruption),
    /// The disk failed.
    Log(LogError),
}

/// The error of a backup: of [`Storage::backup`](crate::Storage::backup),
/// [`ReadOnlyStorage::backup`](crate::ReadOnlyStorage::backup) and
/// [`ReadOnlyStorage::restore`](crate::ReadOnlyStorage::restore). An earlier backup is still a log.
#[derive(Debug, Clone)]
pub enum BackupError {
    /// The directory holds something else than a backup of this log.
    NotThisBackup {
        /// The directory.
        dir: PathBuf,
        /// A description of what was found there.
        found: String,
    },
    /// The log is that of a component, which has a backup of its own; as [`Error::WrongComponent`].
    WrongComponent {
        /// The directory.
        dir: PathBuf,
        /// The component that the log belongs to; `None` for a plain log.
        found: Option<Component>,
        /// The component that it should belong to.
        expected: Option<Component>,
    },
    /// Another handle or process has the directory of the copy open for writing; as
    /// [`Error::Locked`].
    Locked {
        /// The directory.
        dir: PathBuf,
        /// The process that holds the lock, if it is known.
        pid: Option<u32>,
    },
    /// There is no log in the directory.
    NotALog {
        /// The directory.
        dir: PathBuf,
        /// A description of what was found instead.
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
    /// Another process changes the offsets of consumers, for ten seconds.
    Busy {
        /// The operation that is in progress.
        what: &'static str,
    },
    /// The log drops segments faster than one is copied.
    Trimmed(Trimmed),
    /// The last record of the earlier backup is quarantined there.
    Quarantined(SeqRange),
    /// Bytes of the log, or of the earlier backup, differ from what was written.
    Corrupted(Corruption),
    /// The log or the reader is closed, or the disk failed.
    Log(LogError),
}

/// The error of dropping records, or of changing how many are kept: of the methods of
/// [`LogRetention`](crate::LogRetention).
#[derive(Debug, Clone)]
pub enum RetentionError {
    /// A record that is to be dropped is not durable, or does not exist yet. Nothing was dropped.
    NotFound {
        /// The first record that would stay.
        seq: Seq,
    },
    /// A limit is out of its range. The limits are what they were.
    InvalidOption(InvalidOption),
    /// There is not enough space. The log stays usable; see [`Error::NoSpace`].
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
    /// The log is closed or has failed.
    Log(LogError),
}

/// The error of checking or repairing the files of a log: of [`verify`](crate::verify),
/// [`repair`](crate::repair), [`salvage`](crate::salvage) and
/// [`salvage_log`](crate::salvage_log), and of the items of a [`Salvage`](crate::Salvage).
#[derive(Debug, Clone)]
pub enum RepairError {
    /// Another handle or process has the log open for writing; as [`Error::Locked`].
    Locked {
        /// The directory.
        dir: PathBuf,
        /// The process that holds the lock, if it is known.
        pid: Option<u32>,
    },
    /// There is no log in the directory.
    NotALog {
        /// The directory.
        dir: PathBuf,
        /// A description of what was found instead.
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
    /// The manifest is corrupt or lost, and the other files do not name the log; or corruption is
    /// left after several attempts to repair it.
    Corrupted(Corruption),
    /// The disk failed.
    Log(LogError),
}

//! The errors of the operations on a log: each has what can happen there, and nothing else.

use std::path::PathBuf;

#[cfg(doc)]
use crate::base::error::Error;
use crate::base::log_error::LogError;
use crate::base::position::Seq;

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

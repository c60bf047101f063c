//! The error of a request about sequences.

use std::fmt;

use esker_raft::NodeError;

use crate::sequence::{SEQUENCE_COUNT_MAX, SEQUENCE_NUMBER_MAX};
use crate::sequences::{CreateRefusal, NextRefusal};

/// The error of a request about sequences.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SequenceError {
    /// 0 numbers, or more than [`SEQUENCE_COUNT_MAX`]. Nothing was proposed.
    Count(u32),
    /// The first number is 0, or above [`SEQUENCE_NUMBER_MAX`]. Nothing was proposed.
    First(u64),
    /// Too many requests wait. Nothing was proposed.
    Busy,
    /// There is no sequence of this name. Nothing was changed.
    NoSequence,
    /// There is a sequence of this name. Nothing was changed.
    Exists,
    /// There are 10,000 sequences. Nothing was changed.
    TooMany,
    /// The key is that of another request: with another name or count, or for an earlier sequence
    /// of the same name. This request takes no numbers.
    KeyUsed,
    /// The key is below those whose answers are kept. This try takes no numbers. Whether an earlier
    /// one did is not known any more.
    KeyTooOld,
    /// The key is no timestamp that this cluster issued. This request takes no numbers.
    KeyNotIssued,
    /// The sequence has fewer numbers left. This request takes none.
    UsedUp,
    /// The node does not lead, or cannot have the request committed. If
    /// [`NodeError::may_still_happen`], it may be carried out, now or later; otherwise nothing was
    /// changed.
    Unavailable(NodeError),
    /// The sequences have stopped because of a mistake in the code. The request may have been
    /// carried out.
    Internal {
        /// The sentence that does not hold.
        invariant: &'static str,
    },
}

impl fmt::Display for SequenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => {
                write!(f, "{count} numbers: a request is for 1 to {SEQUENCE_COUNT_MAX}")
            }
            Self::First(first) => write!(
                f,
                "a sequence cannot begin with {first}: its numbers are 1 to {SEQUENCE_NUMBER_MAX}"
            ),
            Self::Busy => f.write_str("too many requests are waiting"),
            Self::NoSequence => f.write_str("there is no sequence of this name"),
            Self::Exists => f.write_str("there is a sequence of this name"),
            Self::TooMany => f.write_str("there are 10000 sequences, and there cannot be more"),
            Self::KeyUsed => f.write_str(
                "the key is that of another request: each request has a timestamp of its own",
            ),
            Self::KeyTooOld => f.write_str(
                "the key is older than the answers that are kept: if the request was sent before, \
                 it is not known any more whether it got numbers",
            ),
            Self::KeyNotIssued => f.write_str("the key is no timestamp that this cluster issued"),
            Self::UsedUp => {
                write!(f, "the sequence has not as many numbers left: the last one is 2^53 - 1")
            }
            Self::Unavailable(_) => f.write_str("no sequence can be used now"),
            Self::Internal { invariant } => {
                write!(
                    f,
                    "the sequences have stopped: internal error: this does not hold: {invariant}"
                )
            }
        }
    }
}

impl std::error::Error for SequenceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unavailable(error) => Some(error),
            _ => None,
        }
    }
}

impl From<NodeError> for SequenceError {
    fn from(error: NodeError) -> Self {
        Self::Unavailable(error)
    }
}

impl From<NextRefusal> for SequenceError {
    fn from(refusal: NextRefusal) -> Self {
        match refusal {
            NextRefusal::KeyUsed => Self::KeyUsed,
            NextRefusal::KeyTooOld => Self::KeyTooOld,
            NextRefusal::KeyNotIssued => Self::KeyNotIssued,
            NextRefusal::NoSequence => Self::NoSequence,
            NextRefusal::UsedUp => Self::UsedUp,
        }
    }
}

impl From<CreateRefusal> for SequenceError {
    fn from(refusal: CreateRefusal) -> Self {
        match refusal {
            CreateRefusal::Exists => Self::Exists,
            CreateRefusal::TooMany => Self::TooMany,
        }
    }
}

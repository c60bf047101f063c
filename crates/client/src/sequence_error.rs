//! Errors of calls for numbers of sequences.

use std::fmt;

use esker_oracle::Timestamp;

use crate::error::{AttemptError, Error};

/// The error of a call for numbers of a sequence.
///
/// Whatever failed, the same call with [`SequenceError::key`] is safe: no numbers are taken twice
/// under one key.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SequenceError {
    /// The kind of the error.
    pub kind: SequenceErrorKind,
    /// The key of the request; `None` if the call failed before it had one.
    pub key: Option<Timestamp>,
    /// Whether numbers may have been taken under the key by this call, or may still be. The same
    /// call with the key returns them.
    pub may_have_taken: bool,
}

/// The kind of the error of a call for numbers of a sequence.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum SequenceErrorKind {
    /// There is no sequence of this name. So answers a node of a version without sequences, too.
    NoSequence(AttemptError),
    /// The key is older than the answers that the cluster keeps. If it was used before, its numbers
    /// were taken, and the cluster does not know any more which ones.
    KeyTooOld(AttemptError),
    /// The key was used for another sequence, or for another count. A sequence that was removed and
    /// created again is another one.
    KeyUsed(AttemptError),
    /// The key is no timestamp that this cluster has issued.
    KeyNotIssued(AttemptError),
    /// The sequence has fewer numbers left, up to 2^53 - 1.
    UsedUp(AttemptError),
    /// The service refuses the request for another reason.
    Refused(AttemptError),
    /// The deadline of the call has passed. The source is the last failure of an attempt of this
    /// call, if there was one.
    Deadline {
        /// The last failure.
        last: Option<AttemptError>,
    },
    /// The text is no [`SequenceName`](crate::SequenceName).
    Name(String),
    /// The count is not from 1 to 65,536.
    Count(u32),
    /// The client failed: [`Error::Busy`], [`Error::Closed`], [`Error::Internal`], or an error of
    /// the timestamp that was to be the key.
    Client(Error),
}

impl SequenceError {
    /// Creates the error of a call that sent no request for numbers.
    pub(crate) fn unsent(kind: SequenceErrorKind, key: Option<Timestamp>) -> Self {
        Self { kind, key, may_have_taken: false }
    }

    /// Creates the error of a call that got no timestamp for its key.
    pub(crate) fn without_key(error: Error) -> Self {
        let kind = match error {
            Error::Deadline { last } => SequenceErrorKind::Deadline { last },
            error => SequenceErrorKind::Client(error),
        };
        Self::unsent(kind, None)
    }
}

impl fmt::Display for SequenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        match (&self.kind, self.key) {
            (SequenceErrorKind::KeyTooOld(_), Some(_)) if self.may_have_taken => {
                f.write_str("; whether an attempt before took numbers is unknown")
            }
            (_, Some(key)) if self.may_have_taken => write!(
                f,
                "; numbers may have been taken, and the same call with the key {key} returns them"
            ),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for SequenceErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSequence(_) => f.write_str("there is no such sequence"),
            Self::KeyTooOld(_) => {
                f.write_str("the key is older than the answers that the cluster keeps")
            }
            Self::KeyUsed(_) => f.write_str("the key was used for another request"),
            Self::KeyNotIssued(_) => {
                f.write_str("the key is no timestamp that this cluster has issued")
            }
            Self::UsedUp(_) => f.write_str("the sequence does not have so many numbers left"),
            Self::Refused(_) => f.write_str("the service refuses the request"),
            Self::Deadline { last: None } => {
                f.write_str("no numbers by the deadline; no attempt has failed before it")
            }
            Self::Deadline { .. } => f.write_str("no numbers by the deadline"),
            Self::Name(name) => {
                write!(f, "{name:?} is no name: {}", esker_oracle::SequenceNameError)
            }
            Self::Count(count) => write!(f, "{count} numbers cannot be taken: from 1 to 65,536"),
            Self::Client(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for SequenceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            SequenceErrorKind::NoSequence(cause)
            | SequenceErrorKind::KeyTooOld(cause)
            | SequenceErrorKind::KeyUsed(cause)
            | SequenceErrorKind::KeyNotIssued(cause)
            | SequenceErrorKind::UsedUp(cause)
            | SequenceErrorKind::Refused(cause)
            | SequenceErrorKind::Deadline { last: Some(cause) } => Some(cause),
            // Its message is that of this error.
            SequenceErrorKind::Client(error) => std::error::Error::source(error),
            SequenceErrorKind::Deadline { last: None }
            | SequenceErrorKind::Name(_)
            | SequenceErrorKind::Count(_) => None,
        }
    }
}

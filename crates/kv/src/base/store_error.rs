//! The error that every operation on a store can meet.

use std::fmt;
use std::path::PathBuf;

use esker_disk::process;
use esker_log::{Corruption, Seq, SeqRange};

use crate::base::corrupted_record::CorruptedRecord;
use crate::health::{BrokenInvariant, Refusal};

/// The error that every operation on a store can meet: the store is closed, was opened by a parent
/// process, has failed or is damaged, or its log or the disk is. It is the error of operations that
/// can meet nothing else, and the variant `Store` of the errors of all others.
///
/// The message says what failed and what to do about it. It does not repeat the cause, which is in
/// [`source`](std::error::Error::source).
#[derive(Debug, Clone)]
pub enum StoreError {
    /// The store was closed. Stop using it.
    Closed,
    /// `fork` made this process of one that used Esker, and nothing was done: see
    /// [`esker_log::Error::Forked`].
    Forked,
    /// There is not enough space. The store stays usable, and a write succeeds when there is room;
    /// see [`esker_log::Error::NoSpace`].
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
    /// An earlier write or sync failed, with this cause. The store accepts nothing more until it is
    /// reopened. A write that returned it may or may not survive.
    Poisoned(esker_disk::Error),
    /// Durable bytes of the log differ from what was written; see [`esker_log::Error::Corrupted`].
    Corrupted(Corruption),
    /// A record has a valid checksum, but its content is not valid. Nothing was changed.
    CorruptedRecord(CorruptedRecord),
    /// Records of the store were corrupt and are quarantined, and the answer may be among them. A
    /// key is known again when it is put or deleted. Restore a backup, or export what is left, see
    /// [`ReadOnlyOptions::skip_quarantined`](crate::ReadOnlyOptions::skip_quarantined).
    Quarantined(SeqRange),
    /// An invariant of the store does not hold, which is a bug. The store refuses every later call
    /// with this error, cleans nothing and writes no checkpoint. A write that returned it may or
    /// may not survive. Report it, and open the store again: that builds the index from the log.
    Internal {
        /// The invariant, as the sentence that should be true.
        invariant: &'static str,
    },
    /// The log failed with another error. A failed write or sync is first reported as
    /// [`esker_log::Error::Io`], and every later call returns [`StoreError::Poisoned`].
    Log(esker_log::Error),
}

impl StoreError {
    /// Returns whether the only cause is a lack of disk space: [`StoreError::NoSpace`], or a call
    /// of the system that failed for it. The store stays usable, and a write succeeds when there is
    /// room.
    pub fn is_no_space(&self) -> bool {
        match self {
            Self::NoSpace { .. } => true,
            Self::Log(cause) => cause.is_no_space(),
            _ => false,
        }
    }

    /// Returns the error of the log or of the disk that this is; `None` if the store itself
    /// reports it.
    pub fn to_log_error(&self) -> Option<esker_log::Error> {
        match self.clone() {
            Self::NoSpace { dir, wanted, durable, cause } => {
                Some(esker_log::Error::NoSpace { dir, wanted, durable, cause })
            }
            Self::Poisoned(cause) => Some(esker_log::Error::Poisoned(cause)),
            Self::Corrupted(corruption) => Some(esker_log::Error::Corrupted(corruption)),
            Self::Log(cause) => Some(cause),
            Self::Closed
            | Self::Forked
            | Self::CorruptedRecord(_)
            | Self::Quarantined(_)
            | Self::Internal { .. } => None,
        }
    }

    /// Whether the store refuses every call from here on, which its handles report.
    pub(crate) fn ends_store(&self) -> bool {
        matches!(self, Self::Closed | Self::Internal { .. })
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the store is closed"),
            Self::Forked => esker_log::Error::Forked.fmt(f),
            Self::CorruptedRecord(record) => record.fmt(f),
            Self::Quarantined(SeqRange { from, to }) => write!(
                f,
                "the records above {from} up to {to} are quarantined, and what they changed is \
                 unknown; restore a backup, or export what is left"
            ),
            Self::Internal { invariant } => write!(
                f,
                "the store has failed, because this does not hold: {invariant}; open it again, and \
                 report this"
            ),
            Self::Log(cause) => cause.fmt(f),
            Self::NoSpace { .. } | Self::Poisoned(_) | Self::Corrupted(_) => {
                self.to_log_error().map_or(Ok(()), |error| error.fmt(f))
            }
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoSpace { cause, .. } | Self::Poisoned(cause) => Some(cause),
            // This one displays as its cause does, so its source is the one below.
            Self::Log(cause) => cause.source(),
            Self::Closed
            | Self::Forked
            | Self::Corrupted(_)
            | Self::CorruptedRecord(_)
            | Self::Quarantined(_)
            | Self::Internal { .. } => None,
        }
    }
}

impl From<esker_log::Error> for StoreError {
    fn from(cause: esker_log::Error) -> Self {
        match cause {
            esker_log::Error::Closed => Self::Closed,
            esker_log::Error::Forked => Self::Forked,
            esker_log::Error::NoSpace { dir, wanted, durable, cause } => {
                Self::NoSpace { dir, wanted, durable, cause }
            }
            esker_log::Error::Poisoned(cause) => Self::Poisoned(cause),
            esker_log::Error::Corrupted(corruption) => Self::Corrupted(corruption),
            esker_log::Error::Quarantined(range) => Self::Quarantined(range),
            cause => Self::Log(cause),
        }
    }
}

impl From<CorruptedRecord> for StoreError {
    fn from(record: CorruptedRecord) -> Self {
        Self::CorruptedRecord(record)
    }
}

impl From<BrokenInvariant> for StoreError {
    fn from(BrokenInvariant(invariant): BrokenInvariant) -> Self {
        Self::Internal { invariant }
    }
}

impl From<Refusal> for StoreError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Closed => Self::Closed,
            Refusal::Failed(broken) => broken.into(),
        }
    }
}

/// Refuses a call in a child that `fork` made.
#[inline]
pub(crate) fn refuse_if_forked() -> Result<(), StoreError> {
    if process::is_forked() { Err(StoreError::Forked) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::io;
    use std::path::Path;

    use esker_disk::Op;

    use super::*;

    /// The message and the causes of an error.
    fn chain(error: &dyn std::error::Error) -> Vec<String> {
        let mut causes = vec![error.to_string()];
        let mut next = error.source();
        while let Some(cause) = next {
            causes.push(cause.to_string());
            next = cause.source();
        }
        causes
    }

    #[test]
    fn an_error_of_the_log_keeps_its_message_and_its_causes() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let io = esker_disk::Error::new(Op::Write, Path::new("store/segment"), Some(4096), full);
        let no_space = esker_log::Error::NoSpace {
            dir: "store".into(),
            wanted: 4096,
            durable: Seq(7),
            cause: io.clone(),
        };
        for error in [no_space, esker_log::Error::Poisoned(io.clone()), esker_log::Error::Io(io)] {
            let of_store = StoreError::from(error.clone());
            assert_eq!(chain(&of_store), chain(&error));
            assert_eq!(of_store.is_no_space(), error.is_no_space());
            let back = of_store.to_log_error().unwrap();
            assert_eq!(format!("{back:?}"), format!("{error:?}"));
        }
        assert!(StoreError::from(esker_log::Error::Closed).to_log_error().is_none());
        assert!(StoreError::Closed.source().is_none());
    }
}

//! Why a log is read-only, and what ends that.
//!
//! An acceptor that forgets a promise or an accept can un-choose a chosen value. So a log that may
//! lack one accepts nothing:
//!
//! - *Repaired*: records were quarantined, and a promise may be among them. Nothing ends that.
//! - *Copied*: the log is a backup. The original may have promised and accepted more since, and
//!   both have the number of one node. The copy has a component of its own (see
//!   [`COPY_COMPONENT`](crate::COPY_COMPONENT)), which says so until its node has a new number.
//!
//! # Why a copy may vote under a new number
//!
//! The copy keeps what it has. For its group it is an acceptor that never voted, and:
//!
//! - An accept that it reports was proposed at that ballot, and no other value was. A proposer
//!   takes the value of the highest ballot that a quorum reports. Beside the accepts of voters,
//!   one more report of a true proposal never leads it to another value: from the ballot on at
//!   which a value was chosen, nothing else was proposed.
//! - A promise only makes it refuse more: it costs a proposer another round, and answers none.
//! - A value that the copy has as committed was chosen, and stays so.
//! - Nothing that the number of the original answered after the copy counts for the new number: no
//!   quorum has it.
//!
//! The group must know the new number as a new member, by its own change of configuration; and no
//! proposer may use a ballot with a number that was in use.
//!
//! # Limits
//!
//! Only app metadata say that a log is a copy. A copy that loses them, as by a corrupt file `note`,
//! is taken for an ordinary log; and so is a directory that was copied by hand, file by file.

/// Why a log is read-only. From [`Stats::read_only`](crate::Stats::read_only) and
/// [`StorageError::ReadOnly`](crate::StorageError::ReadOnly).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadOnlyReason {
    /// Corrupt records were quarantined, and a promise may be lost with them. The log stays
    /// read-only: its node joins its group as a new member, with another node ID and a new log.
    Repaired,
    /// It is a backup, and the original may have promised and accepted more since. Give its node
    /// another node ID, and then open it once with
    /// [`ConsensusLogBuilder::renumber`](crate::ConsensusLogBuilder::renumber) or
    /// [`LogManagerBuilder::renumber`](crate::LogManagerBuilder::renumber).
    Copied,
}

impl ReadOnlyReason {
    /// The reason that counts: a repaired copy stays read-only under any number.
    pub(crate) fn from_origin(is_repaired: bool, is_copy: bool) -> Option<Self> {
        match (is_repaired, is_copy) {
            (true, _) => Some(Self::Repaired),
            (false, true) => Some(Self::Copied),
            (false, false) => None,
        }
    }

    /// The cause, and the remedy.
    pub(crate) fn advice(self) -> &'static str {
        match self {
            Self::Repaired => {
                "corrupt records were quarantined; its node must join its group as a new member, \
                 with another node ID"
            }
            Self::Copied => {
                "it is a copy, and the original may have promised more since; give its node \
                 another node ID, and then open it once with `renumber`"
            }
        }
    }
}

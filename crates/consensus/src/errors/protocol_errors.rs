//! The errors of the protocol's operations: promise, accept, commit, learn, truncate and read.

use esker_log::Seq;

use crate::base::ballot::Ballot;
use crate::base::slot::Slot;
use crate::memory::entry::Entry;
use crate::outcome::Ticket;
use crate::storage_error::StorageError;

/// Why a ballot was not promised.
#[derive(Debug, Clone)]
pub enum PromiseError {
    /// A higher ballot was promised. Choose one above it.
    StaleBallot {
        /// The ballot to exceed.
        promised: Ballot,
    },
    /// See [`StorageError`].
    Storage(StorageError),
}

/// Why a value was not accepted.
#[derive(Debug, Clone)]
pub enum AcceptError {
    /// A higher ballot was promised, or accepted in this slot. Request promises again, with a
    /// ballot above this one.
    StaleBallot {
        /// The ballot to exceed.
        promised: Ballot,
    },
    /// The slot is committed with another value. Adopt that value.
    AlreadyCommitted {
        /// The committed entry.
        entry: Box<Entry<'static>>,
    },
    /// This ballot already proposed another value for this slot: two proposers share a ballot, or
    /// one forgot what it proposed.
    AnotherValue {
        /// The slot.
        slot: Slot,
        /// The ballot.
        ballot: Ballot,
    },
    /// The slot was truncated.
    Truncated {
        /// Slots up to and including this one were truncated.
        floor: Slot,
    },
    /// The slot is too far above the floor: the index is dense and spans 2^32 slots.
    SlotOutOfRange {
        /// The slot.
        slot: Slot,
        /// The first slot that is out of range.
        limit: Slot,
    },
    /// There is no room for another uncommitted value. Commit, choose a larger
    /// [`Options::mutable_size`](crate::Options::mutable_size), or wait with a deadline.
    BufferFull {
        /// The bytes in use.
        used: u64,
        /// The capacity in bytes.
        size: u64,
    },
    /// The value exceeds [`Options::value_limit`](crate::Options::value_limit).
    EntryTooLarge {
        /// The value's size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// See [`StorageError`].
    Storage(StorageError),
}

/// Why a batch of values was not accepted as a whole.
#[derive(Debug, Clone)]
pub enum AcceptBatchError {
    /// The first value was refused: nothing was accepted.
    Refused(AcceptError),
    /// A later value was refused. The values before it are accepted.
    Stopped {
        /// The number of accepted values: the first ones of the batch. At least one.
        accepted: usize,
        /// The acknowledgement of all accepted values. Answer for them when it has resolved.
        ticket: Ticket,
        /// Why the next value was refused.
        source: Box<AcceptError>,
    },
    /// See [`StorageError`]. If the log failed, reopening decides which values are accepted.
    Storage(StorageError),
}

/// Why a chosen value was not stored.
#[derive(Debug, Clone)]
pub enum LearnError {
    /// The slot is committed with another value, which must not happen: nodes disagree on a
    /// chosen value.
    AlreadyCommitted {
        /// The committed entry.
        entry: Box<Entry<'static>>,
    },
    /// The slot was truncated.
    Truncated {
        /// Slots up to and including this one were truncated.
        floor: Slot,
    },
    /// The slot is too far above the floor: the index is dense and spans 2^32 slots.
    SlotOutOfRange {
        /// The slot.
        slot: Slot,
        /// The first slot that is out of range.
        limit: Slot,
    },
    /// The value exceeds [`Options::value_limit`](crate::Options::value_limit).
    EntryTooLarge {
        /// The value's size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// See [`StorageError`].
    Storage(StorageError),
}

/// Why a slot was not committed.
#[derive(Debug, Clone)]
pub enum CommitError {
    /// This log never accepted a value in this slot, as far as it knows.
    SlotNotFound {
        /// The slot.
        slot: Slot,
    },
    /// The slot is accepted under another ballot than the one named.
    BallotMismatch {
        /// The slot.
        slot: Slot,
        /// The ballot under which it is accepted.
        accepted: Ballot,
    },
    /// The slot was truncated.
    Truncated {
        /// Slots up to and including this one were truncated.
        floor: Slot,
    },
    /// A slot up to which [`commit_through`](crate::ConsensusLog::commit_through) commits is
    /// missing. Nothing was committed.
    Gap {
        /// The first such slot.
        slot: Slot,
    },
    /// See [`StorageError`].
    Storage(StorageError),
}

/// Why slots were not dropped, or the floor or the state of the application was not replaced.
/// Nothing was changed.
#[derive(Debug, Clone)]
pub enum TruncateError {
    /// A slot below the new floor is missing or not committed.
    Gap {
        /// The first such slot.
        slot: Slot,
    },
    /// The call would have dropped a committed slot.
    BelowFrontier {
        /// The highest committed slot that the call would have dropped.
        committed: Slot,
    },
    /// The slot was truncated.
    Truncated {
        /// Slots up to and including this one were truncated.
        floor: Slot,
    },
    /// No log has this slot, so none has a frontier there.
    SlotOutOfRange {
        /// The slot.
        slot: Slot,
        /// The first slot that is out of range.
        limit: Slot,
    },
    /// The state of the application exceeds [`APP_STATE_LIMIT`](crate::APP_STATE_LIMIT).
    EntryTooLarge {
        /// The size of the state in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// See [`StorageError`].
    Storage(StorageError),
}

/// Why an entry was not read.
#[derive(Debug, Clone)]
pub enum ReadError {
    /// This log never accepted a value in this slot, as far as it knows. Ask another replica.
    SlotNotFound {
        /// The slot.
        slot: Slot,
    },
    /// The slot is accepted, but not durably committed. Wait, or skip it.
    NotCommitted {
        /// The slot.
        slot: Slot,
    },
    /// The slot was truncated; read it from a snapshot.
    Truncated {
        /// Slots up to and including this one were truncated.
        floor: Slot,
    },
    /// No entry is stored at this offset: from
    /// [`Maintenance::read_at`](crate::Maintenance::read_at).
    InvalidOffset {
        /// The requested offset.
        offset: Seq,
    },
    /// See [`StorageError`].
    Storage(StorageError),
}

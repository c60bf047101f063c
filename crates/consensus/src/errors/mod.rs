//! Errors: one for each kind of operation, and one that any of them becomes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use esker_log::{InvalidOption, Seq};

use crate::base::ballot::Ballot;
use crate::base::slot::Slot;
use crate::memory::entry::Entry;
use crate::outcome::Ticket;
use crate::storage_error::StorageError;

mod conversions;
pub(crate) mod manager_errors;
mod messages;
pub(crate) mod protocol_errors;
pub(crate) mod snapshot_errors;

/// The result of an operation on a consensus log.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Any error of this crate, for `?` in a program. Each operation returns an error of its own, with
/// what can happen there and nothing else; this one has the variants of all.
///
/// The messages of all errors say what failed and what to do about it. They do not repeat the
/// cause, which is in [`source`](std::error::Error::source).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
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
    /// one forgot what it proposed. Nothing was accepted.
    AnotherValue {
        /// The slot.
        slot: Slot,
        /// The ballot.
        ballot: Ballot,
    },
    /// The slot is accepted under another ballot than the one named. Nothing was committed.
    BallotMismatch {
        /// The slot.
        slot: Slot,
        /// The ballot under which it is accepted.
        accepted: Ballot,
    },
    /// A slot below the one requested is missing or not committed. Nothing was changed.
    Gap {
        /// The first such slot.
        slot: Slot,
    },
    /// The slot was truncated; read it from a snapshot.
    Truncated {
        /// Slots up to and including this one were truncated.
        floor: Slot,
    },
    /// The call would have dropped a committed slot. Nothing was dropped.
    BelowFrontier {
        /// The highest committed slot that the call would have dropped.
        committed: Slot,
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
    /// The value exceeds this log's limit.
    EntryTooLarge {
        /// The value's size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A batch of accepts stopped at a value that was refused. The values before it are accepted.
    BatchFailed {
        /// The number of accepted values: the first ones of the batch. At least one.
        accepted: usize,
        /// The acknowledgement of all accepted values. Answer for them when it has resolved.
        ticket: Ticket,
        /// Why the next value was refused.
        source: Box<Error>,
    },
    /// There is no snapshot, or none at the slot. Restore from the entries, or from another
    /// replica.
    NoSnapshot,
    /// A snapshot is not whole. An older one may be; see also
    /// [`Snapshots::latest`](crate::Snapshots::latest).
    CorruptedSnapshot {
        /// The slot of the snapshot.
        slot: Slot,
        /// The log's error, with file and offset.
        cause: esker_log::Error,
    },
    /// A stream of the caller failed: the state of a snapshot, or the connection to a replica.
    Stream(Arc<std::io::Error>),
    /// Another replica sent what does not belong to a snapshot, or stopped.
    Transfer {
        /// The rule that it breaks.
        what: &'static str,
    },
    /// No entry is stored at this offset.
    InvalidOffset {
        /// The requested offset.
        offset: Seq,
    },
    /// The log was created with another label than the one it is opened with: it is another log.
    /// It was not opened.
    WrongLabel {
        /// The label that is stored with the log.
        found: Vec<u8>,
        /// The label in the options.
        expected: Vec<u8>,
    },
    /// The directory of a log that was created is gone, or holds no log any more. What its node
    /// promised is lost with it, so no empty log takes its place. Put the directory back; or call
    /// [`LogManager::remove`](crate::LogManager::remove), and let the node join its group as a new
    /// member.
    MissingLog {
        /// The key of the log.
        key: Vec<u8>,
        /// Its directory.
        dir: PathBuf,
    },
    /// The registry of keys cannot be read. Move it out of the directory of the manager: opening
    /// makes it again from the labels of the logs.
    CorruptedRegistry {
        /// The directory of the registry.
        dir: PathBuf,
        /// Why it cannot be read.
        cause: Box<StorageError>,
    },
    /// A backup that was interrupted. Delete the directory, and back up again.
    UnfinishedBackup {
        /// The directory.
        dir: PathBuf,
    },
    /// An option is out of its range. Nothing was opened.
    InvalidOption(InvalidOption),
    /// There are references to the log. Release them first.
    InUse {
        /// The number of references.
        references: usize,
    },
    /// The manager was closed while there were references to some logs. These logs stay open until
    /// the last of their guards is dropped.
    LeakedReferences {
        /// The keys of these logs, and the references to each.
        logs: BTreeMap<Vec<u8>, usize>,
    },
    /// The directory for a backup holds something. Nothing was changed.
    NotEmpty {
        /// The directory.
        dir: PathBuf,
    },
    /// See [`StorageError`].
    Storage(StorageError),
}

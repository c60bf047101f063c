//! A consensus log: slots for Paxos and Raft that are promised, accepted and committed.
//!
//! ```
//! use esker_consensus::{Ballot, ConsensusLog, Slot};
//! # fn main() -> Result<(), esker_consensus::Error> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let dir = dir.path().join("log");
//! let log = ConsensusLog::open(&dir)?;
//! let ballot = Ballot { number: 1, node: 7 };
//!
//! // Phase 1: durable, with what was accepted before. `.await` waits without blocking.
//! let promised = log.promise(ballot, Slot(0))?.blocking_wait()?;
//! assert!(promised.uncommitted().is_empty());
//! // Phase 2: answer the proposer after the wait.
//! log.accept(Slot(0), ballot, b"layer on layer")?.blocking_wait()?;
//! // Phase 3.
//! log.commit(Slot(0), ballot)?.blocking_wait()?;
//!
//! let guard = log.pin(); // one guard for many reads; nothing is copied
//! assert_eq!(log.read_committed(Slot(0), &guard)?.value(), b"layer on layer");
//! log.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! A log keeps the highest promised [`Ballot`] and, for each slot, the accepted value, its ballot
//! and whether it is committed. [`promise`](ConsensusLog::promise) and
//! [`accept`](ConsensusLog::accept) are acknowledged when they are durable. A committed slot never
//! changes. Each durable change is a record of an [`esker_log::Log`]; opening replays these
//! records.
//!
//! Most calls return a [`Ticket`]: await it, or block on it. [`ConsensusLog`] says which calls
//! block.
//!
//! # The calls
//!
//! These ten are enough for most programs:
//!
//! | call | result |
//! |---|---|
//! | [`open`]`(dir)` | the log, created if there is none |
//! | [`promise`]`(ballot, from)` | phase 1: a ticket for every entry from a slot on |
//! | [`accept`]`(slot, ballot, value)` | phase 2: a ticket; answer when it has resolved |
//! | [`commit`]`(slot, ballot)` | phase 3: a ticket; the slot never changes again |
//! | [`learn`]`(slot, ballot, value)` | stores a value that is known to be chosen |
//! | [`read_committed`]`(slot, &guard)` | the value of a committed slot, under a guard |
//! | [`frontier`]`()`, [`floor`]`()` | slots up to it are committed, or truncated |
//! | [`snapshots`]`().create(slot, state)` | a snapshot of the state machine, durable |
//! | [`snapshots`]`().restore(..)` | hands over the newest snapshot and the entries after it |
//! | [`snapshots`]`().truncate_through(slot)` | drops the entries that a snapshot covers |
//!
//! [`ConsensusLog`] itself has the calls of a protocol. The others are in three groups:
//! [`Snapshots`]; [`AppState`], some bytes of the application's own; and [`Maintenance`], for
//! operators and tests. [`LogManager`] keeps many logs, by key.
//!
//! # Errors
//!
//! Each kind of call has an error of its own, with what can happen there: [`OpenError`],
//! [`AcceptError`], [`ReadError`] and so on. Match it without a wildcard. Its variant `Storage`
//! nests what every call can meet, such as a closed or a failed log: [`StorageError`], which is
//! also the error of tickets. All of them become [`Error`] by `?`.
//!
//! [`open`]: ConsensusLog::open
//! [`promise`]: ConsensusLog::promise
//! [`accept`]: ConsensusLog::accept
//! [`commit`]: ConsensusLog::commit
//! [`learn`]: ConsensusLog::learn
//! [`read_committed`]: ConsensusLog::read_committed
//! [`frontier`]: ConsensusLog::frontier
//! [`floor`]: ConsensusLog::floor
//! [`snapshots`]: ConsensusLog::snapshots
//!
//! # Source
//!
//! For readers of the source: the private modules, from the top down. Each imports only those below
//! it.
//!
//! - `manager`: many logs by key.
//! - `backup`: copies of a log.
//! - `snapshots`: of the state machine, beside the log; and truncation under one.
//! - `protocol`: `rules` decides, without I/O. `promise`, `accept`, `commit`, `learn` and
//!   `truncate` take the slot locks, append the decision and apply it. `floor` drops what is below
//!   the floor.
//! - `durability`: `checkpoint`, `recovery` and `reclaim` bound the log and the time that opening
//!   takes; `close` makes everything durable; `maintenance` is what operators call.
//! - `read`: reads, iterations, watches and statistics, without a lock; `inspect` reads a log
//!   without opening it.
//! - `state`: the state that operations share. `commit_tracker` tracks what is durably committed;
//!   `background` runs jobs that no caller waits for.
//! - `index`: `page_table` and `page` find a slot's value; `slot_locks` order the decisions.
//! - `options`; `component`, which recognises a consensus log; `outcome`: tickets;
//!   `errors`: one enum for each kind of operation; `read_only`: why a log accepts nothing.
//! - `memory`: `value` and `cell` hold values; `value_pool` recycles their memory, and
//!   `value_budget` bounds the uncommitted ones.
//! - `record`: the records in the underlying log.
//! - `base`: ballots and slots; `wake` wakes tasks.

mod backup;
mod base;
mod component;
mod durability;
mod errors;
#[doc(hidden)]
pub mod fuzzing;
mod index;
mod manager;
mod memory;
mod options;
mod outcome;
mod protocol;
mod read;
mod read_only;
mod record;
mod snapshots;
mod state;
mod storage_error;

pub use backup::{BackupSummary, backup_log};
pub use base::ballot::Ballot;
pub use base::slot::{Slot, SnapshotBounds};
pub use component::{
    COMPONENT, COPY_COMPONENT, REGISTRY_COMPONENT, REGISTRY_COPY_COMPONENT, UNFINISHED_BACKUP,
};
pub use durability::maintenance::Maintenance;
pub use durability::metadata::label_in;
pub use errors::manager_errors::{BackupError, ManagerError, OpenError};
pub use errors::protocol_errors::{
    AcceptBatchError, AcceptError, CommitError, LearnError, PromiseError, ReadError, TruncateError,
};
pub use errors::snapshot_errors::{CreateSnapshotError, SnapshotError, TransferError};
pub use errors::{Error, Result};
/// The options of the underlying log, in [`Options::log`].
#[doc(no_inline)]
pub use esker_log::Options as LogOptions;
pub use esker_log::reclaim::Reclaimed;
pub use manager::get_log::ManagerStats;
pub use manager::list_logs::{LogState, ManagedLog, logs_in, logs_on};
pub use manager::log_guard::LogGuard;
pub use manager::open_manager::{LogManager, LogManagerBuilder};
pub use memory::entry::Entry;
pub use options::{ConsensusLogBuilder, LABEL_LIMIT, Mode, Options, VALUE_LIMIT};
pub use outcome::Ticket;
pub use protocol::app_state::AppState;
pub use protocol::commit::BatchTicket;
pub use protocol::floor::FloorTicket;
pub use protocol::promise::{PromiseAnswer, PromiseTicket};
pub use read::inspect::{
    InspectSummary, Inspection, InvalidRecord, RecordCounts, SlotTotals, inspect, inspect_on,
    inspect_with,
};
pub use read::iterate::{IterateOptions, IterationSummary};
pub use read::slot_values::ValueReader;
pub use read::stats::Stats;
pub use read::watch::Watch;
pub use read_only::ReadOnlyReason;
pub use record::APP_STATE_LIMIT;
pub use snapshots::create::SnapshotWriter;
pub use snapshots::restore::RestoreSummary;
pub use snapshots::stored::{
    ReadOnlySnapshots, SNAPSHOT_NOTE_LIMIT, Snapshot, SnapshotInfo, Snapshots,
};
pub use state::commit_tracker::CommittedRange;
pub use state::inner::{ConsensusLog, Guard};
pub use storage_error::StorageError;

//! A consensus log: slots for Paxos and Raft that are promised, accepted and committed.
//!
//! ```
//! use esker_consensus::{Ballot, ConsensusLog, Options};
//! # fn main() -> Result<(), esker_consensus::Error> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let dir = dir.path().join("log");
//! let log = ConsensusLog::open(&dir, Options::default())?;
//! let ballot = Ballot::new(1, 7); // number 1, node 7
//!
//! let promised = log.promise(ballot, 0)?.wait()?; // phase 1: durable; returns earlier accepts
//! assert!(promised.uncommitted().is_empty());
//! log.accept(0, ballot, b"layer on layer")?.wait()?; // phase 2: durable, then acknowledged
//! log.commit(0, ballot)?.wait()?; // phase 3
//!
//! let guard = log.pin(); // one guard for many reads; nothing is copied
//! assert_eq!(log.read_committed(0, &guard)?.value(), b"layer on layer");
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
//! Modules:
//!
//! - `rules` decides, without I/O, under a lock of `slot_locks`. `accept`, `commit`, `promise`,
//!   `learn` and `truncate` append the decision; `record` encodes it.
//! - `page_table`, `page`, `cell` and `value` let readers find a value without a lock.
//! - `value_pool` recycles memory; `value_budget` bounds uncommitted values.
//! - `commit_tracker` tracks what is durably committed.
//! - `checkpoint`, `recovery` and `reclaim` bound the log and the time that opening takes.
//! - `background` runs jobs that no caller waits for.

mod base;
mod component;
mod durability;
#[doc(hidden)]
pub mod fuzzing;
mod index;
mod memory;
mod options;
mod outcome;
mod protocol;
mod read;
mod record;
mod state;

pub use base::ballot::Ballot;
pub use component::COMPONENT;
pub use esker_log::reclaim::Reclaimed;
pub use memory::entry::Entry;
pub use options::{Mode, Options, VALUE_LIMIT};
pub use outcome::{Error, Result, Ticket};
pub use protocol::commit::BatchTicket;
pub use protocol::promise::{PromiseTicket, Promised};
pub use read::inspect::{InspectSummary, Inspection, Value, inspect};
pub use read::iterate::{IterateOptions, Iterated};
pub use read::stats::Stats;
pub use read::watch::Watch;
pub use state::commit_tracker::CommittedRange;
pub use state::inner::{ConsensusLog, Guard};

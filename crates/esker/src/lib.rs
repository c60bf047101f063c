//! Esker: a durable log, in one dependency.
//!
//! This crate holds no code of its own. It re-exports the components of Esker, each behind a
//! feature, so that a program adds one dependency and selects what it needs:
//!
//! | feature | module | what it is |
//! |---|---|---|
//! | `log` (default) | `esker::log` | an embedded, group-committed, append-only log |
//! | `consensus` | `esker::consensus` | slots for Paxos and Raft: promise, accept, commit |
//! | `kv` | `esker::kv` | a key-value store with a configurable durability policy |
//! | | `esker::disk` | the disk layer, to select another disk for a log |
//! | `io-uring` (default) | `esker::disk::uring` | a disk that uses io_uring, on Linux |
//! | `sim` | `esker::disk::sim` | a seeded simulated disk for crash tests |
//! | `metrics` | | `log::LogMetrics::publish`, for the recorder of the crate `metrics` |
//!
//! Two terms have the same meaning in every component. A record is **accepted** when the log has
//! assigned its place in the order. It is **durable** when its ticket has resolved, or the durable
//! watermark has passed it. A durable record survives process kill, kernel crash and power loss.

#[cfg(feature = "log")]
#[doc(inline)]
pub use esker_log as log;

/// The items of the log that most programs need, without the name of the module, which hides the
/// crate `log` where both are in scope.
#[cfg(feature = "log")]
#[doc(no_inline)]
pub use esker_log::{
    Append, Appended, Batch, Engine, Error, Log, LogBuilder, LogStream, Options, Policy, Position,
    ReadOnlyLog, ReadOptions, Record, Result, Retention, Seq, Sink, Start, Ticket, View,
    WriteError, repair, verify,
};

#[cfg(feature = "consensus")]
#[doc(inline)]
pub use esker_consensus as consensus;

/// The entry points of the consensus log. Its errors and options are in the module
/// [`consensus`].
#[cfg(feature = "consensus")]
#[doc(no_inline)]
pub use esker_consensus::{Ballot, ConsensusLog, Slot};

#[cfg(feature = "kv")]
#[doc(inline)]
pub use esker_kv as kv;

#[doc(inline)]
pub use esker_disk as disk;

/// The examples of the book and the README, compiled and run as doctests.
#[cfg(all(doctest, feature = "log"))]
mod book {
    #[doc = include_str!("../../../docs/src/log.md")]
    struct Log;

    #[cfg(feature = "kv")]
    #[doc = include_str!("../../../docs/src/kv.md")]
    struct Kv;

    #[cfg(feature = "consensus")]
    #[doc = include_str!("../../../docs/src/consensus.md")]
    struct Consensus;

    #[cfg(feature = "consensus")]
    #[doc = include_str!("../../../docs/src/consensus-patterns.md")]
    struct ConsensusPatterns;

    #[cfg(feature = "sim")]
    #[doc = include_str!("../../../docs/src/crash-testing.md")]
    struct CrashTesting;

    #[doc = include_str!("../../../README.md")]
    struct Readme;
}

//! The outcome of a run, or the violation that it found.

use std::fmt;

use esker_oracle::history::Violation;

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Simulated milliseconds.
    pub simulated_ms: u64,
    /// Calls that got timestamps, and calls that were refused.
    pub answered: u64,
    /// Calls that were refused.
    pub refused: u64,
    /// Requests for numbers of a sequence that were answered.
    pub numbered: u64,
    /// The time from the last fault to the first timestamps, in milliseconds.
    pub recovery_ms: u64,
    /// The last term.
    pub term: u64,
    /// Faults that happened.
    pub faults: u64,
    /// Events in the trace, and its fingerprint.
    pub events: u64,
    /// The fingerprint of all events: two runs with the same seed have the same.
    pub fingerprint: u64,
}

/// A violation that a run found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The history of the clients is not that of one oracle.
    History(Violation),
    /// No timestamps came for this time without faults, in milliseconds.
    NoTimestamps(u64),
    /// The numbers of the sequence have a gap or a repeat, or a request is not answered.
    Sequence(String),
    /// Replicas that applied the same entries differ.
    Replicas(String),
    /// A node had a lease in a term after another one had led in a later term.
    TwoLeaders {
        /// The node with the lease, and its term.
        node: u64,
        /// The term of its lease.
        term: u64,
        /// The later term.
        later: u64,
    },
    /// The epoch is higher than any clock may bring it.
    EpochTooHigh(u64),
    /// The cluster did not start.
    NotStarted(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::History(violation) => violation.fmt(f),
            Self::NoTimestamps(ms) => write!(f, "no timestamps for {ms} ms without faults"),
            Self::Sequence(what) => write!(f, "the sequence is broken: {what}"),
            Self::Replicas(what) => write!(f, "replicas differ: {what}"),
            Self::TwoLeaders { node, term, later } => {
                write!(f, "node {node} had a lease in term {term} when a node had led in {later}")
            }
            Self::EpochTooHigh(epoch) => write!(f, "the epoch {epoch} is after 2200"),
            Self::NotStarted(why) => write!(f, "the cluster did not start: {why}"),
        }
    }
}

impl std::error::Error for Failure {}

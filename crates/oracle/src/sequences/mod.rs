//! Sequences: named series of numbers without a gap or a repeat. Pure: no I/O, threads or clocks.
//!
//! # Why there is no gap and no repeat
//!
//! - A number is taken only where an entry of the log is applied, and all replicas apply each entry
//!   once, in one order.
//! - The numbers of a sequence are consecutive: only taking them moves its next number.
//! - A request that may have been applied is sent again under the same key. If it was applied, its
//!   answer is found under the key, and nothing is taken. If the answer was evicted, the key is not
//!   above the highest one that was, and the request is refused. So no request takes numbers twice.
//! - A request that is refused takes nothing.
//! - A sequence that is created again under its name is another one: the answers name the
//!   incarnation, so the keys of the earlier one get no number of the later.
//!
//! A gap that is left is one of the caller: numbers whose answer it never asked for again.
//!
//! # Keys
//!
//! A key is a timestamp that the cluster issued, so that keys rise, and the lowest answer can be
//! evicted for a new one. One that no epoch has come to is refused: it would stay among the answers
//! for good, and push out those that are needed.

mod recent_answers;
mod sequence_command;
mod sequence_set;
mod sequence_snapshot;

pub(crate) use sequence_command::{
    CreateRefusal, CreateSequence, NEXT_REQUESTS_MAX, NextNumbers, NextRefusal, NextRequest,
    RemoveSequence,
};
pub use sequence_set::SequenceStatus;
pub(crate) use sequence_set::Sequences;

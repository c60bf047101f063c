//! Proposals at a time, and bytes in them. What is not committed stays in the log's memory; an
//! entry for which it has no room would stop the node.

pub(crate) const PROPOSALS: usize = 4096;
pub(crate) const PROPOSED_BYTES: usize = 4 << 20;

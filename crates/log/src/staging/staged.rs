//! The records of units that are accepted but not durable.

use std::ops::Range;
use std::sync::Arc;

use crate::staging::buffer::StagingBuffer;

/// The records of a unit that is not durable yet.
#[derive(Debug, Clone)]
pub(crate) struct StagedUnit {
    pub(crate) unit: u64,
    pub(crate) buffer: Arc<StagingBuffer>,
    /// Offsets of the records in the segment.
    pub(crate) records: Range<u32>,
    pub(crate) prev_seq: u64,
}

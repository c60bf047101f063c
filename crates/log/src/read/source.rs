//! The interface between the reading code and a log: opened by this process, or written by another
//! process.

use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::base::error::Result;
use crate::read::batch::Memory;
use crate::staging::buffer::StagingBuffer;
use crate::store::segment_table::{Segment, SegmentTable};
use crate::store::trim_point::Trim;

/// The log that a cursor reads: opened by this process, or written by another process.
pub(crate) trait Source: Send + Sync + std::fmt::Debug {
    /// The position up to which reading is allowed, and the number of the last durable record
    /// before it, of one moment. Two calls return two moments: a caller that needs both values
    /// calls once.
    fn limit(&self) -> (u64, u64);
    /// The lower end of the log: the trim point.
    fn low(&self) -> Trim;
    fn segments(&self) -> &SegmentTable;
    /// The staging buffer that covers this offset, and the offset where its units end.
    fn buffer(&self, segment: u64, offset: u32) -> Option<(Arc<StagingBuffer>, u32)>;
    /// Whole valid units from the file, at least one; or `Pending` if the waker will be woken to
    /// retry.
    fn units(&self, want: &Want<'_>, wait: Wait<'_>) -> Poll<Result<(Memory, Range<u32>)>>;
}

/// A log whose readers share a read cache.
pub(crate) trait ReadSource: Source {
    /// Whether there are no threads except those of the callers.
    fn is_manual(&self) -> bool;
    /// Requests a [`ReadCache::load_next`] from another thread; `false` if there is none.
    fn ask_to_load(&self) -> bool;
    /// A value that advances with each commit.
    fn mark(&self) -> u64;
}

/// How a reader waits for a chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wait<'a> {
    Block,
    Wake(&'a Waker),
}

/// The request of a reader.
#[derive(Debug)]
pub(crate) struct Want<'a> {
    pub(crate) segment: &'a Arc<Segment>,
    /// The start of a unit.
    pub(crate) offset: u32,
    /// Bytes below this offset are durable.
    pub(crate) end: u32,
    /// The reader will continue past these units.
    pub(crate) ahead: bool,
}

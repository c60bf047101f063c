//! What the reading code needs of a log: one that is open here, or one that another process writes.

use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::base::error::Result;
use crate::read::batch::Memory;
use crate::staging::buffer::StagingBuffer;
use crate::store::segment_table::{Segment, SegmentTable};
use crate::store::trim_point::Trim;

/// What a cursor reads: a log that is open here, or one that another process writes.
pub(crate) trait Source: Send + Sync + std::fmt::Debug {
    /// A position up to which may be read, and then the number of the last such record: it may be
    /// later than the position, never before it.
    fn limit(&self) -> (u64, u64);
    /// The lower end.
    fn low(&self) -> Trim;
    fn segments(&self) -> &SegmentTable;
    /// The window in memory over this place, and the offset where its units end.
    fn buffer(&self, segment: u64, offset: u32) -> Option<(Arc<StagingBuffer>, u32)>;
    /// Whole sound units from the file: at least one, unless the waker is told when to look again.
    fn units(&self, want: &Want<'_>, wait: Wait<'_>) -> Poll<Result<(Memory, Range<u32>)>>;
}

/// A log whose readers share what they read.
pub(crate) trait ReadSource: Source {
    /// Whether there are no threads but those of the callers.
    fn is_manual(&self) -> bool;
    /// Asks another thread for [`ReadCache::load_next`]; `false` where there is none.
    fn ask_to_load(&self) -> bool;
    /// What moves with each commit.
    fn mark(&self) -> u64;
}

/// How a reader waits for a piece.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wait<'a> {
    Block,
    Wake(&'a Waker),
}

/// What a reader wants.
#[derive(Debug)]
pub(crate) struct Want<'a> {
    pub(crate) segment: &'a Arc<Segment>,
    /// The start of a unit.
    pub(crate) offset: u32,
    /// Bytes below this are durable.
    pub(crate) end: u32,
    /// The reader will go on behind it.
    pub(crate) ahead: bool,
}

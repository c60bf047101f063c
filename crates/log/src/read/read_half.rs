//! The reading half of a log that is open in this process: the state shared by streams and lookups.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::task::Poll;

use crate::base::error::Result;
use crate::base::log_error::{LogError, refuse_if_forked};
use crate::read::batch::Memory;
use crate::read::cache::ReadCache;
use crate::read::source::{ReadSource, Source, Wait, Want};
use crate::read::stream_table::StreamTable;
use crate::runtime::engine::{Engine, ReadWork};
use crate::runtime::waiters::Waiters;
use crate::staging::buffer::StagingBuffer;
use crate::staging::tail_cache::TailCache;
use crate::staging::terminal::TerminalCell;
use crate::staging::watermark::DurableWatermark;
use crate::store::segment_table::SegmentTable;
use crate::store::trim_point::{Trim, TrimPoint};

pub(crate) struct ReadHalf {
    pub(crate) engine: Engine,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) watermark: Arc<DurableWatermark>,
    pub(crate) terminal: Arc<TerminalCell>,
    pub(crate) segments: Arc<SegmentTable>,
    pub(crate) tail: Arc<TailCache>,
    pub(crate) trim_point: Arc<TrimPoint>,
    pub(crate) cache: ReadCache,
    pub(crate) streams: StreamTable,
    pub(crate) closed: Arc<AtomicBool>,
    pub(crate) weak_self: Weak<ReadHalf>,
}

/// Short: what readers of log messages want, and not every segment with its index.
impl std::fmt::Debug for ReadHalf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadHalf").field("durable", &self.watermark.seq()).finish_non_exhaustive()
    }
}

impl ReadHalf {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    pub(crate) fn refuse_if_closed(&self) -> Result<(), LogError> {
        refuse_if_forked()?;
        if self.is_closed() { Err(LogError::Closed) } else { Ok(()) }
    }
}

impl Source for ReadHalf {
    fn limit(&self) -> (u64, u64) {
        self.watermark.load()
    }

    fn low(&self) -> Trim {
        self.trim_point.low()
    }

    fn segments(&self) -> &SegmentTable {
        &self.segments
    }

    fn buffer(&self, segment: u64, offset: u32) -> Option<(Arc<StagingBuffer>, u32)> {
        self.tail.at(segment, offset)
    }

    fn units(&self, want: &Want<'_>, wait: Wait<'_>) -> Poll<Result<(Memory, Range<u32>)>> {
        self.cache.units(self, want, wait)
    }
}

impl ReadSource for ReadHalf {
    fn is_manual(&self) -> bool {
        self.engine.is_manual()
    }

    fn ask_to_load(&self) -> bool {
        self.cache.request_load(&self.engine, &self.weak_self)
    }

    fn mark(&self) -> u64 {
        self.watermark.position()
    }
}

impl ReadWork for ReadHalf {
    fn load(&self) {
        self.cache.load_next(self);
    }

    fn dropped_below(&self, segment: u64) {
        self.cache.forget_below(segment);
    }

    fn stopped(&self) {
        self.cache.abandon();
    }
}

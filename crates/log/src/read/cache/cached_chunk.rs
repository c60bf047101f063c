//! One chunk of the read cache.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use esker_disk::AlignedBuf;

use crate::store::segment_table::Segment;

/// Bytes per read, unless a unit is larger.
pub(super) const CHUNK_BYTES: u32 = 1 << 20;
/// A chunk loaded ahead counts as awaited for this long; after that its reader is not expected.
pub(super) const AWAITED_FOR: Duration = Duration::from_secs(1);

/// The start of a chunk: segment and offset.
pub(super) type ChunkId = (u64, u32);

#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) end: u32,
    /// The offset that it may extend to. Above `end` while the chunk is open.
    pub(super) most: u32,
    pub(super) content: Content,
    pub(super) used: u64,
    /// The time at which a reader was first expected; `None` once it came.
    pub(super) awaited: Option<Instant>,
    /// Whether it was ever put in the queue.
    pub(super) listed: bool,
    pub(super) wakers: Vec<Waker>,
}

#[derive(Debug)]
pub(super) enum Content {
    Queued(Arc<Segment>),
    Loading,
    /// Valid units from the start of the chunk up to this offset.
    Loaded(Arc<AlignedBuf>, u32),
    /// It holds no valid unit, or could not be read.
    Invalid,
}

impl Chunk {
    pub(super) fn is_kept(&self) -> bool {
        matches!(self.content, Content::Loaded(..) | Content::Invalid)
    }

    /// Whether a reader is still expected.
    pub(super) fn is_awaited(&self, now: Instant) -> bool {
        self.awaited.is_some_and(|since| now.saturating_duration_since(since) < AWAITED_FOR)
    }

    /// Whether it is kept for other readers than the one that came.
    pub(super) fn is_passed(&self) -> bool {
        self.is_kept() && self.awaited.is_none()
    }

    /// Whether the end of the chunk is still unknown.
    pub(super) fn is_open(&self) -> bool {
        self.most > self.end
    }

    /// The bytes of units in the chunk, which has this id.
    pub(super) fn bytes(&self, id: ChunkId) -> u64 {
        match self.content {
            Content::Loaded(_, valid) => u64::from(valid - id.1),
            _ => 0,
        }
    }
}

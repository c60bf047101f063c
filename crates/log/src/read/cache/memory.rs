//! The memory that chunks are read into.

use std::sync::OnceLock;

use esker_disk::{AlignedBuf, HugePages};

use super::chunk::CHUNK;
use crate::format::BLOCK;

/// The memory of one chunk in the pool: three share two huge pages. A chunk of one unit may be a
/// little longer than [`CHUNK`], and two units of that size have no room in a page.
const EACH: usize = (4 << 20) / 3 / BLOCK as usize * BLOCK as usize;
/// The most buffers in the pool. Larger caches are on small pages beyond this.
const POOLED: u64 = 1_024;

/// A pool of buffers on huge pages, into which a device reads several times as fast. A buffer comes
/// back when the cache and the last batch have dropped it, and is the next that is lent. So one
/// reader moves few buffers through the processor's caches, and needs no fresh pages, which cost as
/// much as the read itself.
#[derive(Debug)]
pub(super) struct ChunkMemory {
    pool: OnceLock<Option<HugePages>>,
    buffers: usize,
}

impl ChunkMemory {
    /// Memory for chunks of this many bytes, and for `more` that are being read or that readers
    /// hold. Maps nothing before the first large chunk.
    pub(super) fn new(budget: u64, more: usize) -> Self {
        let kept = (budget / u64::from(CHUNK)).min(POOLED) as usize;
        Self { pool: OnceLock::new(), buffers: kept + more }
    }

    /// A buffer of this length or longer. Short and long chunks, and those for which the pool has
    /// no buffer left, have memory of their own.
    pub(super) fn take(&self, len: usize) -> AlignedBuf {
        if len > EACH {
            return AlignedBuf::lazy_huge(len);
        }
        // A shorter chunk is the last of a segment or before a unit longer than half a chunk.
        let pooled = len >= CHUNK as usize / 2;
        let pool = || HugePages::transparent(EACH, self.buffers);
        let lent = pooled.then(|| self.pool.get_or_init(pool).as_ref()?.lend()).flatten();
        lent.unwrap_or_else(|| AlignedBuf::new(len))
    }
}

//! The memory that chunks are read into.

use esker_disk::{AlignedBuf, HugePages};
use parking_lot::Mutex;

use super::cached_chunk::CHUNK_BYTES;
use crate::format::BLOCK_BYTES;

/// The memory of one chunk in a slab. A chunk of one unit may be a little longer than
/// [`CHUNK_BYTES`], and two units of that size have no room in a huge page.
const SLAB_CHUNK_BYTES: usize = (4 << 20) / 3 / BLOCK_BYTES as usize * BLOCK_BYTES as usize;
/// Chunks that share the two huge pages of a slab.
const IN_SLAB: usize = 3;

/// Slabs of buffers on huge pages, into which a device reads several times as fast. A buffer comes
/// back when the cache and the last batch have dropped it.
///
/// The first slab that has a buffer lends it. So one reader moves few buffers through the
/// processor's caches, and needs no fresh pages, which cost as much as the read itself. Where fewer
/// buffers are used than before, slabs become idle. They are unmapped, but for one.
#[derive(Debug, Default)]
pub(super) struct ChunkMemory {
    slabs: Mutex<Vec<HugePages>>,
}

impl ChunkMemory {
    /// A buffer of this length or longer. Short and long chunks have memory of their own.
    pub(super) fn take(&self, len: usize) -> AlignedBuf {
        if len > SLAB_CHUNK_BYTES {
            return AlignedBuf::lazy_huge(len);
        }
        // A shorter chunk is the last of a segment or before a unit longer than half a chunk.
        let lent = if len >= CHUNK_BYTES as usize / 2 { self.lend() } else { None };
        lent.unwrap_or_else(|| AlignedBuf::new(len))
    }

    fn lend(&self) -> Option<AlignedBuf> {
        let mut slabs = self.slabs.lock();
        if let Some(lent) = slabs.iter().find_map(HugePages::lend) {
            let mut idle = 0;
            slabs.retain(|slab| {
                idle += usize::from(slab.idle() == IN_SLAB);
                idle <= 1 || slab.idle() < IN_SLAB
            });
            return Some(lent);
        }
        let slab = HugePages::transparent(SLAB_CHUNK_BYTES, IN_SLAB)?;
        let lent = slab.lend();
        slabs.push(slab);
        lent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slabs(memory: &ChunkMemory) -> usize {
        memory.slabs.lock().len()
    }

    #[test]
    #[allow(clippy::print_stderr)] // A test reports what it skips.
    fn slabs_come_when_they_are_needed_and_go_when_they_are_idle() {
        if HugePages::page_size().is_none() {
            return eprintln!("SKIPPED: the kernel has no huge pages");
        }
        let memory = ChunkMemory::default();
        drop((memory.take(1), memory.take(SLAB_CHUNK_BYTES + 1)));
        assert_eq!(slabs(&memory), 0);
        let mut held: Vec<_> = (0..30).map(|_| memory.take(CHUNK_BYTES as usize)).collect();
        assert_eq!(slabs(&memory), 10);
        assert!(held.iter().all(|buffer| buffer.len() == SLAB_CHUNK_BYTES));
        // One kept buffer is in the third slab, and one in the last.
        let kept = [held.swap_remove(29), held.swap_remove(7)];
        drop(held);
        for _ in 0..5 {
            let lent = memory.take(SLAB_CHUNK_BYTES);
            assert_eq!(slabs(&memory), 4, "one of which it is, one that is idle, and two");
            drop(lent);
        }
        drop(memory);
        assert!(kept.iter().all(|buffer| buffer.iter().all(|byte| *byte == 0)));
    }
}

//! Memory that is filled from the start by one thread at a time, and read by many.
//!
//! # Soundness
//!
//! Readers and the filler share the memory without a lock, because they never touch the same bytes
//! at the same time:
//!
//! * A chunk has one [`Filler`]. It writes only bytes at or above `filled`, and then raises it,
//!   with release ordering.
//! * [`Chunk::bytes`] returns only bytes below `filled`, which it reads with acquire ordering. They
//!   are never written again.
//!
//! A chunk is used again only when its `Arc` is unique.
#![allow(unsafe_code)]

use crate::memory::Memory;
use crate::sync::{
    Accesses, Arc, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, prefetch,
};

/// The size of a cache line of the processor in bytes.
const CACHE_LINE_BYTES: usize = 64;

pub(crate) struct Chunk {
    memory: Memory,
    /// The number of bytes that are filled.
    filled: AtomicUsize,
    accesses: Accesses,
}

impl std::fmt::Debug for Chunk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Chunk({} of {})", self.filled.load(Relaxed), self.memory.len())
    }
}

/// The right to fill a chunk. There is one for each.
#[derive(Debug)]
pub(super) struct Filler {
    chunk: Arc<Chunk>,
}

impl Filler {
    /// A chunk of this many bytes, in the memory of an old one if that is unused and of this size.
    pub(super) fn new(size: usize, old: Option<Arc<Chunk>>) -> Self {
        if let Some(mut chunk) = old
            && let Some(unused) = Arc::get_mut(&mut chunk)
            && unused.memory.len() == size.max(1)
        {
            unused.filled.store(0, Relaxed);
            return Self { chunk };
        }
        let memory = Memory::zeroed(size.max(1));
        let (filled, accesses) = (AtomicUsize::new(0), Accesses::new(size));
        Self { chunk: Arc::new(Chunk { memory, filled, accesses }) }
    }

    pub(super) fn chunk(&self) -> &Arc<Chunk> {
        &self.chunk
    }

    /// Copies bytes to the end of what is filled. Returns where they begin; `None` if there is too
    /// little room.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Option<usize> {
        let start = self.chunk.filled.load(Relaxed);
        debug_assert!(start <= self.chunk.memory.len(), "only memory of the chunk is filled");
        let end = start.checked_add(bytes.len())?;
        if end > self.chunk.memory.len() {
            return None;
        }
        self.chunk.accesses.write(start..end);
        // SAFETY: the range is in the memory and at or above `filled`, so no reader has it; `self`
        // is the only filler, and borrowed mutably.
        unsafe {
            let to = self.chunk.memory.as_ptr().add(start);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        self.chunk.filled.store(end, Release);
        // For the next value, which begins in a line that this one touched.
        self.chunk.prefetch(end + CACHE_LINE_BYTES);
        Some(start)
    }
}

impl Chunk {
    /// Requests the memory of a value that begins here, to be used soon.
    #[inline]
    pub(super) fn prefetch(&self, start: usize) {
        let at = self.memory.as_ptr().wrapping_add(start);
        prefetch(at);
        prefetch(at.wrapping_add(CACHE_LINE_BYTES));
    }

    /// The bytes of a range that was filled; `None` for others.
    #[inline]
    pub(crate) fn bytes(&self, start: usize, len: usize) -> Option<&[u8]> {
        let end = start.checked_add(len)?;
        if end > self.filled.load(Acquire) {
            return None;
        }
        self.accesses.read(start..end);
        // SAFETY: the range is below `filled`, so it is in the memory and never written again.
        unsafe { Some(std::slice::from_raw_parts(self.memory.as_ptr().add(start), len)) }
    }
}

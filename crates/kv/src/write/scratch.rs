//! The memory in which writes encode their records.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// The most bytes that a thread keeps for encoding its next record.
const SCRATCH_BYTES_MAX: usize = 64 << 10;

thread_local! {
    static SCRATCH_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer, in memory that an earlier write of the thread used. When it is dropped, the
/// thread that drops it keeps the memory for its next write.
#[derive(Debug)]
pub(super) struct Scratch(Vec<u8>);

impl Scratch {
    #[inline]
    pub(super) fn new() -> Self {
        let mut bytes = SCRATCH_BUFFER.with(RefCell::take);
        bytes.clear();
        Self(bytes)
    }
}

impl Deref for Scratch {
    type Target = Vec<u8>;

    #[inline]
    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Scratch {
    #[inline]
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl Drop for Scratch {
    #[inline]
    fn drop(&mut self) {
        if self.0.capacity() > SCRATCH_BYTES_MAX {
            return;
        }
        // A thread that ends has no buffer any more.
        let _ended = SCRATCH_BUFFER.try_with(|cell| cell.replace(std::mem::take(&mut self.0)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_uses_its_memory_again() {
        let mut scratch = Scratch::new();
        scratch.extend_from_slice(&[7; 100]);
        let address = scratch.as_ptr();
        drop(scratch);
        let (again, other) = (Scratch::new(), Scratch::new());
        assert!(again.is_empty() && again.as_ptr() == address);
        assert_ne!(other.as_ptr(), address, "it is used once at a time");
    }

    #[test]
    fn a_thread_keeps_no_large_buffer() {
        let mut scratch = Scratch::new();
        scratch.resize(SCRATCH_BYTES_MAX + 1, 0);
        drop(scratch);
        assert_eq!(Scratch::new().capacity(), 0);
    }
}

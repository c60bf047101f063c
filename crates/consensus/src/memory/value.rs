//! A value in memory, counted by reference: header and bytes in one block.
//!
//! Blocks of small values come in a few sizes, so that one that is free again serves the next value of
//! about the same length (see `pool`).
#![allow(unsafe_code)]

use std::ops::Deref;

use triomphe::{Arc, ThinArc};

use crate::base::ballot::Ballot;
use crate::base::sync::{AtomicU64, Ordering};
use crate::memory::prefetch::prefetch;

/// The sizes of blocks that are kept, in steps.
pub(crate) const SIZES: usize = 17;
/// The longest value in such a block.
pub(crate) const SMALL: usize = (SIZES - 1) * STEP;
/// Sizes are multiples of this.
pub(crate) const STEP: usize = 64;

/// What stands before a value.
#[derive(Debug)]
pub(crate) struct ValueHeader {
    pub(crate) slot: u64,
    pub(crate) ballot: Ballot,
    /// The number of the record that committed it; 0 while it is not.
    pub(super) marker: AtomicU64,
    pub(super) len: usize,
}

/// A value and its header. A pointer wide.
#[derive(Debug, Clone)]
pub(crate) struct SharedValue(pub(crate) ThinArc<ValueHeader, u8>);

impl SharedValue {
    /// Puts a value where another was; `false` when somebody kept that one.
    pub(super) fn fill(&mut self, head: ValueHeader, value: &[u8]) -> bool {
        self.0.with_arc_mut(|block| {
            let Some(block) = Arc::get_mut(block) else { return false };
            block.slice_mut()[..value.len()].copy_from_slice(value);
            *block.header_mut() = head;
            true
        })
    }

    /// Its block is written to in a moment, and came out of the caches long ago. Most of what is small
    /// is in the first lines; to look how many there are would be to wait for one.
    pub(crate) fn is_next(&self) {
        let at = (&raw const self.0.header).cast::<u8>();
        for line in 0..3 {
            prefetch(at.wrapping_add(line * 64));
        }
    }

    /// The size of its block, in steps.
    pub(crate) fn size(&self) -> usize {
        self.0.slice.len().div_ceil(STEP)
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        // Without a look at the length of the block, which stands in another cache line.
        // SAFETY: whoever made the head made the block at least as long as `len`.
        unsafe { std::slice::from_raw_parts(self.0.slice.as_ptr(), self.len) }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Deref for SharedValue {
    type Target = ValueHeader;

    #[inline]
    fn deref(&self) -> &ValueHeader {
        &self.0.header.header
    }
}

impl ValueHeader {
    #[inline]
    pub(crate) fn marker(&self) -> u64 {
        self.marker.load(Ordering::Acquire)
    }

    pub(crate) fn commit(&self, marker: u64) {
        self.marker.store(marker, Ordering::Release);
    }
}

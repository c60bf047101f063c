//! A reference-counted value in memory: header and bytes in one block.
//!
//! Blocks of small values come in a few sizes, so that a free block serves the next value of about
//! the same length (see `value_pool`).
#![allow(unsafe_code)]

use std::ops::Deref;

use triomphe::{Arc, ThinArc};

use crate::base::ballot::Ballot;
use crate::base::sync::{AtomicU64, Ordering};

/// The number of recycled block sizes, one per step.
pub(crate) const BLOCK_SIZES: usize = 17;
/// The longest value in a recycled block.
pub(crate) const SMALL_VALUE_BYTES: usize = (BLOCK_SIZES - 1) * BLOCK_STEP_BYTES;
/// The step: block sizes are multiples of this.
pub(crate) const BLOCK_STEP_BYTES: usize = 64;

const _: () = assert!(SMALL_VALUE_BYTES.div_ceil(BLOCK_STEP_BYTES) < BLOCK_SIZES);

/// The header before a value.
#[derive(Debug)]
pub(crate) struct ValueHeader {
    pub(crate) slot: u64,
    pub(crate) ballot: Ballot,
    /// The number of the record that committed the value; 0 if it is not committed.
    pub(super) marker: AtomicU64,
    pub(super) len: usize,
}

/// A value and its header. One pointer wide.
#[derive(Debug, Clone)]
pub(crate) struct SharedValue(pub(crate) ThinArc<ValueHeader, u8>);

impl SharedValue {
    /// Replaces the value in a block. Returns `false` if the block is still shared.
    pub(super) fn fill(&mut self, head: ValueHeader, value: &[u8]) -> bool {
        self.0.with_arc_mut(|block| {
            let Some(block) = Arc::get_mut(block) else { return false };
            block.slice_mut()[..value.len()].copy_from_slice(value);
            *block.header_mut() = head;
            true
        })
    }

    /// Prefetches a block that is about to be written and has probably left the caches. Most small
    /// values are within the first lines. Reading the number of lines would wait for one of them.
    pub(crate) fn is_next(&self) {
        let at = (&raw const self.0.header).cast::<u8>();
        for line in 0..3 {
            esker_log::prefetch(at.wrapping_add(line * 64));
        }
    }

    /// The size of the block, in steps.
    pub(crate) fn size(&self) -> usize {
        self.0.slice.len().div_ceil(BLOCK_STEP_BYTES)
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        // SAFETY: whenever a header is made, its block is at least `len` bytes long. The block's
        // own length is not read, because it is in another cache line.
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
        debug_assert!(marker > 0 && self.marker() == 0, "a value is committed once, by a record");
        self.marker.store(marker, Ordering::Release);
    }
}

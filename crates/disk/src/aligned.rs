//! Memory that direct I/O accepts.
//!
//! The kernel moves the bytes of a direct read or write straight between the device and the
//! caller's memory, so that memory has to start at a multiple of the block size. `Vec<u8>` promises
//! no such thing; [`AlignedBuf`] does. It comes zeroed from the allocator and not by a loop, so that
//! the pages of a large buffer cost nothing before they are used.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::ptr::NonNull;

use crate::{BLOCK, Error, Op, Result};

/// Zeroed heap memory that starts at a multiple of [`BLOCK`] and is a multiple of it long.
///
/// The length is fixed for life. It dereferences to the whole of it.
pub struct AlignedBuf {
    start: NonNull<u8>,
    layout: Layout,
}

impl AlignedBuf {
    /// At least `len` zero bytes, rounded up to whole blocks and never less than one.
    ///
    /// Like any other allocation it ends the process when the memory cannot be had.
    pub fn new(len: usize) -> Self {
        let rounded = len.max(1).checked_next_multiple_of(BLOCK).unwrap_or(usize::MAX);
        let Ok(layout) = Layout::from_size_align(rounded, BLOCK) else {
            handle_alloc_error(Layout::new::<[u8; BLOCK]>());
        };
        // SAFETY: the layout's size is at least BLOCK, hence not zero.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => Self { start, layout },
            None => handle_alloc_error(layout),
        }
    }

    /// The address of the first byte; valid for reads of the whole length while `self` lives.
    pub fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// The address of the first byte; valid for reads and writes of the whole length while `self`
    /// lives and nothing else borrows it.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` owns `layout.size()` bytes, all of them initialised by `alloc_zeroed`,
        // and they are freed only in `drop`. Shared access follows the borrow of `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the exclusive borrow of `self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: `start` came from `alloc_zeroed` with this same layout and is freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

// SAFETY: the memory is owned by this value alone, like that of a `Box<[u8]>`.
unsafe impl Send for AlignedBuf {}
// SAFETY: through `&AlignedBuf` the bytes can only be read.
unsafe impl Sync for AlignedBuf {}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuf").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Refuses a direct read or write that is not made of whole blocks, before the kernel does so
/// without a reason.
pub(crate) fn check_direct(op: Op, path: &Path, buf: &[u8], offset: u64) -> Result<()> {
    let whole = buf.as_ptr().addr().is_multiple_of(BLOCK)
        && buf.len().is_multiple_of(BLOCK)
        && offset.is_multiple_of(BLOCK as u64);
    if whole {
        return Ok(());
    }
    let why = format!(
        "direct I/O needs address, length and offset in multiples of {BLOCK}; the address was {:p}, \
         the length {}",
        buf.as_ptr(),
        buf.len()
    );
    Err(Error::new(op, path, Some(offset), io::Error::new(io::ErrorKind::InvalidInput, why)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_on_a_block_and_is_whole_blocks_of_zeros() {
        for len in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK] {
            let buf = AlignedBuf::new(len);
            assert_eq!(buf.as_ptr().addr() % BLOCK, 0);
            assert_eq!(buf.len(), len.max(1).next_multiple_of(BLOCK));
            assert!(buf.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn keeps_what_is_written_when_it_moves_to_another_thread() {
        let mut buf = AlignedBuf::new(2 * BLOCK);
        buf[0] = 1;
        buf[2 * BLOCK - 1] = 2;
        let buf = std::thread::spawn(move || buf).join().unwrap();
        assert_eq!((buf[0], buf[2 * BLOCK - 1]), (1, 2));
    }
}

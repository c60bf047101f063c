//! Memory for many index entries and values, on huge pages where the system offers them.
//!
//! Every lookup of a random key misses the processor's caches. On pages of 4 KiB it misses the
//! cache of page addresses, too, which costs as much again.
#![allow(unsafe_code)]

use std::alloc::{Layout, handle_alloc_error};
use std::ops::Deref;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// The size and alignment of a huge page, in bytes.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes that are zero at first, aligned to a page.
pub(crate) struct Memory {
    /// The mapping, and its length in bytes.
    mapping: NonNull<u8>,
    mapped: usize,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: this value alone owns the mapping, as a `Box<[UnsafeCell<u8>]>` does.
unsafe impl Send for Memory {}
// SAFETY: it gives out its address. Who uses that says why no access is a data race.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps this many bytes, more than 0. No memory is used before they are written.
    pub(crate) fn zeroed(len: usize) -> Self {
        assert!(len > 0, "a mapping is not empty");
        let mapped = len + HUGE_PAGE_BYTES;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing.
        let mapping = unsafe { mmap_anonymous(null_mut(), mapped, access, flags) };
        let Some(mapping) = mapping.ok().and_then(|at| NonNull::new(at.cast::<u8>())) else {
            handle_alloc_error(Layout::array::<u8>(len).unwrap_or(Layout::new::<u8>()))
        };
        let skip = mapping.as_ptr().align_offset(HUGE_PAGE_BYTES).min(HUGE_PAGE_BYTES);
        debug_assert!(skip + len <= mapped, "the memory is in its mapping");
        // SAFETY: `skip` is at most the length that was added.
        let start = unsafe { mapping.add(skip) };
        #[cfg(target_os = "linux")]
        if len >= HUGE_PAGE_BYTES {
            use rustix::mm::{Advice, madvise};
            // SAFETY: the range is in the mapping, and the advice changes no content. A refusal,
            // for example of a kernel without huge pages, costs speed only.
            let _refused = unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxHugepage) };
        }
        Self { mapping, mapped, start, len }
    }

    /// The length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address of the first byte.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

/// Words that are zero at first.
pub(crate) struct Words(Memory);

impl Words {
    pub(crate) fn zeroed(len: usize) -> Self {
        Self(Memory::zeroed(len * size_of::<AtomicU64>()))
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        let len = self.0.len / size_of::<AtomicU64>();
        // SAFETY: the bytes are in the mapping, aligned to a page, and zero, which is valid, until
        // they are written as atomics, and in no other way. They live as long as `self`.
        unsafe { std::slice::from_raw_parts(self.0.start.as_ptr().cast(), len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is of this length, and nothing refers to it any more.
        if let Err(error) = unsafe { munmap(self.mapping.as_ptr().cast(), self.mapped) } {
            tracing::error!(%error, "failed to unmap memory of an index");
            debug_assert!(false, "a mapping is unmapped once, with its length");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn memory_is_zero_and_keeps_what_is_written() {
        for len in [1, 511, HUGE_PAGE_BYTES / 8, HUGE_PAGE_BYTES / 4 + 1] {
            let memory = Words::zeroed(len);
            assert_eq!(memory.len(), len);
            assert!(memory.iter().all(|word| word.load(Relaxed) == 0));
            memory[len - 1].store(7, Relaxed);
            memory[0].store(5, Relaxed);
            assert_eq!(memory[0].load(Relaxed), 5);
        }
    }
}

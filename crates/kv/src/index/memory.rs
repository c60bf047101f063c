//! Memory for many index entries, on huge pages where the system offers them.
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
const HUGE: usize = 2 << 20;

/// Words that are zero at first.
pub(super) struct Memory {
    /// The mapping, and its length in bytes.
    mapping: NonNull<u8>,
    mapped: usize,
    words: NonNull<AtomicU64>,
    len: usize,
}

// SAFETY: this value alone owns the mapping, as a `Box<[AtomicU64]>` does.
unsafe impl Send for Memory {}
// SAFETY: it is shared as atomics only.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps this many words, more than 0. No memory is used before they are written.
    pub(super) fn zeroed(len: usize) -> Self {
        let bytes = len * size_of::<AtomicU64>();
        let mapped = bytes + HUGE;
        let failed =
            || handle_alloc_error(Layout::array::<AtomicU64>(len).unwrap_or(Layout::new::<u64>()));
        let flags = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing.
        let mapping = unsafe { mmap_anonymous(null_mut(), mapped, flags.0, flags.1) };
        let Some(mapping) = mapping.ok().and_then(|at| NonNull::new(at.cast::<u8>())) else {
            failed()
        };
        let skip = mapping.as_ptr().align_offset(HUGE).min(HUGE);
        // SAFETY: `skip` is at most the length that was added.
        let words = unsafe { mapping.add(skip) };
        #[cfg(target_os = "linux")]
        // SAFETY: the range is in the mapping, and the advice changes no content. A refusal, for
        // example of a kernel without huge pages, costs speed only.
        let _refused = unsafe {
            rustix::mm::madvise(words.as_ptr().cast(), bytes, rustix::mm::Advice::LinuxHugepage)
        };
        Self { mapping, mapped, words: words.cast(), len }
    }
}

impl Deref for Memory {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the words are in the mapping, aligned to a page, and zero, which is valid, until
        // they are written as atomics. They live as long as `self`.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is of this length, and nothing refers to it any more.
        if let Err(error) = unsafe { munmap(self.mapping.as_ptr().cast(), self.mapped) } {
            tracing::error!(%error, "failed to unmap memory of an index");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn memory_is_zero_and_keeps_what_is_written() {
        for len in [1, 511, HUGE / 8, HUGE / 4 + 1] {
            let memory = Memory::zeroed(len);
            assert_eq!(memory.len(), len);
            assert!(memory.iter().all(|word| word.load(Relaxed) == 0));
            memory[len - 1].store(7, Relaxed);
            memory[0].store(5, Relaxed);
            assert_eq!(memory[0].load(Relaxed), 5);
        }
    }
}

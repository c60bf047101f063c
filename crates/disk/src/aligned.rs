//! Memory that direct I/O accepts.
//!
//! The kernel moves the bytes of a direct read or write straight between the device and the
//! caller's memory, so that memory has to start at a multiple of the block size. `Vec<u8>` promises
//! no such thing; [`AlignedBuf`] does. It comes zeroed from the allocator and not by a loop, so that
//! the pages of a large buffer cost nothing before they are used.
//!
//! [`HugePages`] has the same memory on huge pages: one mapping, made and filled in at once, so that a
//! machine without them says so then and not in the middle of a write. Its buffers are lent out; one that
//! is dropped goes back to the mapping, and the mapping goes with the last of them.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::huge_pages::{self, NoHugePages};
use crate::{BLOCK, Error, Op, Result};

/// Zeroed heap memory that starts at a multiple of [`BLOCK`] and is a multiple of it long.
///
/// The length is fixed for life. It dereferences to the whole of it.
pub struct AlignedBuf {
    start: NonNull<u8>,
    layout: Layout,
    /// Where it goes when it is dropped; without one, back to the allocator.
    lender: Option<Arc<Mapping>>,
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
            Some(start) => Self { start, layout, lender: None },
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
        // SAFETY: `start` owns `layout.size()` bytes, all of them initialised by `alloc_zeroed` or the
        // kernel, and given up only in `drop`. Shared access follows the borrow of `self`.
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
        match &self.lender {
            Some(mapping) => mapping.idle().push(Idle(self.start)),
            // SAFETY: `start` came from `alloc_zeroed` with this same layout and is freed once.
            None => unsafe { dealloc(self.start.as_ptr(), self.layout) },
        }
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

/// Buffers of one size on huge pages, for whoever writes much from few places. Cheap to clone; clones lend
/// from the same memory.
#[derive(Debug, Clone)]
pub struct HugePages {
    mapping: Arc<Mapping>,
}

/// Memory of the kernel, cut into buffers. It is unmapped when no buffer of it is left.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
    each: Layout,
    /// Those that nobody has.
    idle: Mutex<Vec<Idle>>,
}

/// A buffer that nobody has.
struct Idle(NonNull<u8>);

// SAFETY: it owns its bytes of the mapping, as an `AlignedBuf` does.
unsafe impl Send for Idle {}
// SAFETY: the pointer itself is only given to `munmap`; the bytes belong to the buffers.
unsafe impl Send for Mapping {}
// SAFETY: all shared access is to the mutex.
unsafe impl Sync for Mapping {}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Mapping {
    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HugePages {
    /// The bytes of a huge page, where the kernel knows them; usually 2 MiB.
    pub fn page_size() -> Option<usize> {
        huge_pages::page_size()
    }

    /// Takes `count` buffers of `len` bytes each out of the kernel's reserve, at once.
    ///
    /// # Errors
    /// [`NoHugePages`], which says how many are missing, when too few are reserved, or when `len` is no
    /// non-zero multiple of [`HugePages::page_size`].
    pub fn reserve(len: usize, count: usize) -> std::result::Result<Self, NoHugePages> {
        let page = Self::page_size().ok_or(NoHugePages::unknown())?;
        let total = len.checked_mul(count).filter(|_| len.is_multiple_of(page));
        let total = total.filter(|total| *total > 0).ok_or(NoHugePages::uneven(len, page))?;
        let Ok(each) = Layout::from_size_align(len, BLOCK) else {
            return Err(NoHugePages::uneven(len, page));
        };
        let start = map(total).map_err(|cause| NoHugePages::missing(total / page, page, cause))?;
        // SAFETY: each offset is less than the length of the mapping.
        let idle = (0..count).rev().map(|n| Idle(unsafe { start.add(n * len) })).collect();
        Ok(Self { mapping: Arc::new(Mapping { start, len: total, each, idle: Mutex::new(idle) }) })
    }

    /// A buffer, unless all are lent out. It holds zeros, or what its last holder left there.
    pub fn lend(&self) -> Option<AlignedBuf> {
        let Idle(start) = self.mapping.idle().pop()?;
        Some(AlignedBuf {
            start,
            layout: self.mapping.each,
            lender: Some(Arc::clone(&self.mapping)),
        })
    }

    /// The bytes of each buffer.
    pub fn buffer_len(&self) -> usize {
        self.mapping.each.size()
    }
}

/// Zeroed memory on huge pages, all of them there already.
#[cfg(target_os = "linux")]
fn map(len: usize) -> io::Result<NonNull<u8>> {
    use rustix::io::Errno;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    let (access, huge) =
        (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::HUGETLB);
    // SAFETY: a new mapping at a place that the kernel chooses touches nobody's memory.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, huge)? };
    // A page that is missing after all would be a signal when it is first touched.
    // SAFETY: the range is the mapping that was just made.
    let filled = unsafe { madvise(start, len, Advice::LinuxPopulateWrite) };
    // An older kernel does not know the advice.
    let filled = filled.or_else(|why| if why == Errno::INVAL { Ok(()) } else { Err(why) });
    match (filled, NonNull::new(start.cast())) {
        (Ok(()), Some(start)) => Ok(start),
        (failed, _) => {
            // SAFETY: nobody has learnt of the mapping.
            unsafe { munmap(start, len)? };
            Err(failed.err().map_or(io::ErrorKind::OutOfMemory.into(), io::Error::from))
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn map(_: usize) -> io::Result<NonNull<u8>> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and no buffer of it is left, because
        // each holds a reference.
        #[cfg(target_os = "linux")]
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
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

    /// Only where huge pages are reserved: `sysctl -w vm.nr_hugepages=8`.
    #[test]
    #[allow(clippy::print_stderr)] // A test says what it skipped.
    fn huge_pages_are_lent_and_come_back() {
        let Some(page) = HugePages::page_size() else {
            return eprintln!("SKIPPED: the kernel has no huge pages");
        };
        let pages = match HugePages::reserve(page, 2) {
            Ok(pages) => pages,
            Err(why) => return eprintln!("SKIPPED: {why}"),
        };
        let (mut one, two) = (pages.lend().unwrap(), pages.lend().unwrap());
        assert!(pages.lend().is_none(), "there were two");
        assert_eq!((one.len(), two.len(), pages.buffer_len()), (page, page, page));
        assert!(one.as_ptr().addr().is_multiple_of(page));
        assert!(one.iter().all(|byte| *byte == 0));
        one[0] = 1;
        one[page - 1] = 2;
        assert!(two.iter().all(|byte| *byte == 0));
        drop(two);
        assert!(pages.lend().is_some(), "the one that came back");
        // The memory lives as long as a buffer of it does.
        drop(pages);
        let one = std::thread::spawn(move || one).join().unwrap();
        assert_eq!((one[0], one[page - 1]), (1, 2));
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

//! Aligned memory for direct I/O.
//!
//! Direct I/O moves bytes between the device and the caller's memory. That memory must start at a
//! multiple of the block size. `Vec<u8>` does not guarantee that; [`AlignedBuf`] does. Large
//! buffers are mappings of their own, so that dropping one returns its memory to the system.
//! [`AlignedBuf::lazy`] makes such a mapping of any length: pages that are never used cost nothing.
//! [`AlignedBuf::lazy_huge`] asks for transparent huge pages, which a device moves in fewer pieces.
//!
//! [`HugePages`] is a pool of such buffers in one mapping. [`HugePages::reserve`] populates it from
//! the kernel's reserve, so missing huge pages are an error then and not in the middle of a write;
//! [`HugePages::transparent`] asks for transparent huge pages, one by one when they are used.
//! Dropping a buffer returns it to the pool. The mapping is freed with the last buffer.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Op, Result};
use crate::file::BLOCK_BYTES;
use crate::huge_pages::{self, NoHugePages};

/// A zeroed buffer whose address and length are multiples of [`BLOCK_BYTES`].
///
/// The length is fixed. It dereferences to the whole buffer.
pub struct AlignedBuf {
    start: NonNull<u8>,
    layout: Layout,
    owner: Owner,
}

/// Buffers from this length on are mappings of their own. The allocator keeps what is freed, in
/// pieces of all lengths for each thread, and large buffers of many lengths leave gaps there.
const MAPPED_BYTES_MIN: usize = 128 << 10;

/// The place to which a buffer returns when it is dropped.
enum Owner {
    Allocator,
    /// The buffer is a mapping of its own.
    System,
    HugePages(Arc<Mapping>),
}

impl AlignedBuf {
    /// Allocates at least `len` zero bytes, rounded up to whole blocks and never less than one
    /// block.
    ///
    /// From 128 KiB on it is a mapping of its own. Like other allocations, it aborts the process
    /// when memory is exhausted.
    pub fn new(len: usize) -> Self {
        let rounded = len.max(1).checked_next_multiple_of(BLOCK_BYTES).unwrap_or(usize::MAX);
        let Ok(layout) = Layout::from_size_align(rounded, BLOCK_BYTES) else {
            handle_alloc_error(Layout::new::<[u8; BLOCK_BYTES]>());
        };
        if rounded >= MAPPED_BYTES_MIN
            && let Some(start) = map_lazily(rounded)
        {
            return Self { start, layout, owner: Owner::System };
        }
        // SAFETY: the layout's size is at least BLOCK_BYTES, hence not zero.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => Self { start, layout, owner: Owner::Allocator },
            None => handle_alloc_error(layout),
        }
    }

    /// As [`AlignedBuf::new`], of pages that take memory when they are first written to. For large
    /// buffers of which a part may never be used: making one costs a call of the system, and each
    /// page a fault.
    pub fn lazy(len: usize) -> Self {
        let rounded = len.max(1).checked_next_multiple_of(BLOCK_BYTES).unwrap_or(usize::MAX);
        let layout = Layout::from_size_align(rounded, BLOCK_BYTES);
        match layout.ok().and_then(|layout| Some((layout, map_lazily(layout.size())?))) {
            Some((layout, start)) => Self { start, layout, owner: Owner::System },
            None => Self::new(len),
        }
    }

    /// As [`AlignedBuf::lazy`], and asks the kernel for transparent huge pages. For large buffers
    /// that are filled: the first byte in each huge page takes the memory of all of it, usually
    /// 2 MiB.
    ///
    /// A huge page is one piece of memory for the device, where small ones are up to 512. Memory
    /// that is shorter than a huge page, or for which the kernel finds none, is on small pages.
    pub fn lazy_huge(len: usize) -> Self {
        let rounded = len.max(1).checked_next_multiple_of(BLOCK_BYTES).unwrap_or(usize::MAX);
        let page = huge_pages::page_size().filter(|page| *page <= rounded);
        let layout = Layout::from_size_align(rounded, BLOCK_BYTES).ok();
        let mapped = layout.zip(page).and_then(|(layout, page)| {
            Some((layout, map_lazily_on_huge_pages(layout.size(), page)?))
        });
        match mapped {
            Some((layout, start)) => Self { start, layout, owner: Owner::System },
            None => Self::lazy(len),
        }
    }

    /// Returns the address of the first byte; valid for reads of the whole length while `self`
    /// lives.
    pub fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// Returns the address of the first byte; valid for reads and writes of the whole length while
    /// `self` lives and nothing else borrows it.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` owns `layout.size()` bytes, all initialised by `alloc_zeroed` or the
        // kernel, and released only in `drop`. Shared access follows the borrow of `self`.
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
        match &self.owner {
            Owner::HugePages(mapping) => mapping.idle().push(Idle(self.start)),
            // SAFETY: `start` came from `alloc_zeroed` with this same layout and is freed once.
            Owner::Allocator => unsafe { dealloc(self.start.as_ptr(), self.layout) },
            #[cfg(target_os = "linux")]
            Owner::System => {
                let (start, len) = (self.start.as_ptr().cast(), self.layout.size());
                // SAFETY: it came from `map_lazily` with this length and is unmapped once.
                let _ = unsafe { rustix::mm::munmap(start, len) };
            }
            #[cfg(not(target_os = "linux"))]
            Owner::System => {}
        }
    }
}

// SAFETY: only this value owns the memory, as a `Box<[u8]>` does.
unsafe impl Send for AlignedBuf {}
// SAFETY: through `&AlignedBuf` the bytes can only be read.
unsafe impl Sync for AlignedBuf {}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuf").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// A pool of equal-sized buffers on huge pages. Cheap to clone; clones share the memory.
///
/// A buffer that comes back is lent first, so a user that needs few buffers touches little memory,
/// and the processor's caches may still hold it.
#[derive(Debug, Clone)]
pub struct HugePages {
    mapping: Arc<Mapping>,
}

/// A kernel mapping, divided into buffers. It is unmapped when its last buffer is dropped.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
    each: Layout,
    /// Buffers that are not lent out.
    idle: Mutex<Vec<Idle>>,
}

/// A buffer that is not lent out.
struct Idle(NonNull<u8>);

// SAFETY: it owns its bytes of the mapping, as an `AlignedBuf` does.
unsafe impl Send for Idle {}
// SAFETY: only `munmap` uses the pointer itself; the bytes belong to the buffers.
unsafe impl Send for Mapping {}
// SAFETY: all shared access goes through the mutex.
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
    /// Returns the huge page size in bytes, usually 2 MiB; `None` when the kernel reports none.
    pub fn page_size() -> Option<usize> {
        huge_pages::page_size()
    }

    /// Takes `count` buffers of `len` bytes each from the kernel's huge page reserve.
    ///
    /// # Errors
    /// [`NoHugePages`] when too few are reserved, with the number missing, or when `len` is not a
    /// non-zero multiple of [`HugePages::page_size`].
    pub fn reserve(len: usize, count: usize) -> std::result::Result<Self, NoHugePages> {
        let page = Self::page_size().ok_or(NoHugePages::unknown())?;
        let total = len.checked_mul(count).filter(|_| len.is_multiple_of(page));
        let total = total.filter(|total| *total > 0).ok_or(NoHugePages::uneven(len, page))?;
        let Ok(each) = Layout::from_size_align(len, BLOCK_BYTES) else {
            return Err(NoHugePages::uneven(len, page));
        };
        let start = map(total).map_err(|cause| NoHugePages::missing(total / page, page, cause))?;
        Ok(Self::over(start, total, each, count))
    }

    /// Makes a pool of `count` buffers of `len` bytes each that asks the kernel for transparent
    /// huge pages, and takes memory for each page when it is first written to. Buffers need not be
    /// whole pages: several may share one. Pages are small where the kernel has no huge ones left.
    ///
    /// `None` when `len` is not a non-zero multiple of [`BLOCK_BYTES`], or when the kernel has no
    /// huge pages or refuses a mapping of this length.
    pub fn transparent(len: usize, count: usize) -> Option<Self> {
        let whole = len > 0 && len.is_multiple_of(BLOCK_BYTES);
        let total = len.checked_mul(count).filter(|total| whole && *total > 0)?;
        let each = Layout::from_size_align(len, BLOCK_BYTES).ok()?;
        // A page of which the mapping has only a part would be small.
        let page = Self::page_size()?;
        let mapped = total.checked_next_multiple_of(page)?;
        let start = map_lazily_on_huge_pages(mapped, page)?;
        Some(Self::over(start, mapped, each, count))
    }

    /// A pool over a mapping of at least this many buffers, none of them lent out.
    fn over(start: NonNull<u8>, len: usize, each: Layout, count: usize) -> Self {
        // SAFETY: each offset is less than the length of the mapping.
        let at = |n: usize| Idle(unsafe { start.add(n * each.size()) });
        let idle = Mutex::new((0..count).rev().map(at).collect());
        Self { mapping: Arc::new(Mapping { start, len, each, idle }) }
    }

    /// Returns the number of buffers that are not lent out.
    pub fn idle(&self) -> usize {
        self.mapping.idle().len()
    }

    /// Lends the buffer that came back last; `None` when all are lent out. It holds zeros, or the
    /// content its last user left.
    pub fn lend(&self) -> Option<AlignedBuf> {
        let Idle(start) = self.mapping.idle().pop()?;
        Some(AlignedBuf {
            start,
            layout: self.mapping.each,
            owner: Owner::HugePages(Arc::clone(&self.mapping)),
        })
    }

    /// Returns the size of each buffer in bytes.
    pub fn buffer_len(&self) -> usize {
        self.mapping.each.size()
    }
}

/// Maps zeroed memory without populating it.
#[cfg(target_os = "linux")]
fn map_empty(len: usize) -> Option<NonNull<u8>> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses the address, so the new mapping overlaps no other memory.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::PRIVATE) };
    NonNull::new(start.ok()?.cast())
}

/// Maps zeroed memory without populating it. Its pages are as large as the smallest.
#[cfg(target_os = "linux")]
fn map_lazily(len: usize) -> Option<NonNull<u8>> {
    use rustix::mm::{Advice, madvise};
    let start = map_empty(len)?;
    // Where the kernel uses huge pages unasked, the first byte would cost 2 MiB. A kernel without
    // huge pages refuses the advice.
    // SAFETY: the range is the mapping that was just made.
    let _ = unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxNoHugepage) };
    Some(start)
}

#[cfg(not(target_os = "linux"))]
fn map_lazily(_: usize) -> Option<NonNull<u8>> {
    None
}

/// Maps zeroed memory without populating it, from the start of a huge page. Its pages are huge
/// where the kernel allows that and finds some.
#[cfg(target_os = "linux")]
fn map_lazily_on_huge_pages(len: usize, page: usize) -> Option<NonNull<u8>> {
    use rustix::mm::{Advice, madvise, munmap};
    // The kernel aligns a mapping to small pages, so some memory before and after is unmapped
    // again.
    let start = map_empty(len.checked_add(page)?)?;
    let before = start.as_ptr().align_offset(page).min(page);
    let after = page - before;
    // SAFETY: `before` and `after` add up to what the mapping is longer than `len`.
    let aligned = unsafe { start.add(before) };
    if before > 0 {
        // SAFETY: the first `before` bytes of the mapping, which nothing uses.
        let _ = unsafe { munmap(start.as_ptr().cast(), before) };
    }
    if after > 0 {
        // SAFETY: the last `after` bytes of the mapping, which nothing uses.
        let _ = unsafe { munmap(aligned.as_ptr().add(len).cast(), after) };
    }
    // A kernel without huge pages refuses the advice.
    // SAFETY: the range is what is left of the mapping that was just made.
    let _ = unsafe { madvise(aligned.as_ptr().cast(), len, Advice::LinuxHugepage) };
    Some(aligned)
}

#[cfg(not(target_os = "linux"))]
fn map_lazily_on_huge_pages(_: usize, _: usize) -> Option<NonNull<u8>> {
    None
}

/// Maps zeroed memory on huge pages and populates all of it.
#[cfg(target_os = "linux")]
fn map(len: usize) -> io::Result<NonNull<u8>> {
    use rustix::io::Errno;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    let (access, huge) =
        (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::HUGETLB);
    // SAFETY: the kernel chooses the address, so the new mapping overlaps no other memory.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, huge)? };
    // Without this, touching a missing page later would raise a signal.
    // SAFETY: the range is the mapping that was just made.
    let filled = unsafe { madvise(start, len, Advice::LinuxPopulateWrite) };
    // Older kernels do not know the advice.
    let filled = filled.or_else(|why| if why == Errno::INVAL { Ok(()) } else { Err(why) });
    match (filled, NonNull::new(start.cast())) {
        (Ok(()), Some(start)) => Ok(start),
        (failed, _) => {
            // SAFETY: the mapping has not been shared yet.
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
        // SAFETY: `map` made the mapping with this length. No buffer of it is left, because each
        // buffer holds a reference.
        #[cfg(target_os = "linux")]
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Rejects a direct read or write that is not made of whole blocks. The kernel would fail it
/// without giving the reason.
pub(crate) fn check_direct(op: Op, path: &Path, buf: &[u8], offset: u64) -> Result<()> {
    let whole = buf.as_ptr().addr().is_multiple_of(BLOCK_BYTES)
        && buf.len().is_multiple_of(BLOCK_BYTES)
        && offset.is_multiple_of(BLOCK_BYTES as u64);
    if whole {
        return Ok(());
    }
    let why = format!(
        "direct I/O needs address, length and offset in multiples of {BLOCK_BYTES}; the address was \
         {:p}, the length {}",
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
        for len in [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES] {
            for buf in [AlignedBuf::new(len), AlignedBuf::lazy(len), AlignedBuf::lazy_huge(len)] {
                assert_eq!(buf.as_ptr().addr() % BLOCK_BYTES, 0);
                assert_eq!(buf.len(), len.max(1).next_multiple_of(BLOCK_BYTES));
                assert!(buf.iter().all(|byte| *byte == 0));
            }
        }
    }

    /// The bytes of this process that are mapped, and those that are in memory.
    #[cfg(target_os = "linux")]
    fn memory() -> (usize, usize) {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        let mut bytes = pages.split(' ').map(|pages| pages.parse::<usize>().unwrap() * BLOCK_BYTES);
        (bytes.next().unwrap(), bytes.next().unwrap())
    }

    #[cfg(target_os = "linux")]
    fn resident() -> usize {
        memory().1
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn pages_of_a_lazy_buffer_take_memory_when_they_are_written() {
        let before = resident();
        let mut buf = AlignedBuf::lazy(256 << 20);
        assert!(resident() < before + (64 << 20));
        buf.fill(7);
        assert!(resident() > before + (192 << 20));
        drop(buf);
        assert!(resident() < before + (64 << 20));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn only_large_buffers_are_mappings_of_their_own() {
        let is_mapped = |len| matches!(AlignedBuf::new(len).owner, Owner::System);
        assert!(!is_mapped(BLOCK_BYTES) && !is_mapped(MAPPED_BYTES_MIN - BLOCK_BYTES));
        assert!(is_mapped(MAPPED_BYTES_MIN) && is_mapped(4 << 20));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn buffers_that_ask_for_huge_pages_begin_with_one_and_are_unmapped() {
        let Some(page) = HugePages::page_size().filter(|page| *page <= 64 << 20) else {
            return eprintln!("SKIPPED: the kernel has no huge pages");
        };
        for len in [page, page + BLOCK_BYTES, 2 * page] {
            let mut buf = AlignedBuf::lazy_huge(len);
            assert_eq!(buf.as_ptr().addr() % page, 0);
            assert_eq!(buf.len(), len);
            assert!(buf.iter().all(|byte| *byte == 0));
            buf.fill(7);
        }
        let (before, _) = memory();
        for _ in 0..1_000 {
            drop(AlignedBuf::lazy_huge(page));
            let pool = HugePages::transparent(page / 2, 2).unwrap();
            let lent = pool.lend().unwrap();
            drop(pool);
            drop(lent);
        }
        let grown = memory().0.saturating_sub(before);
        assert!(grown < 500 * page, "{grown} bytes of dropped buffers are mapped");
    }

    #[test]
    #[cfg(target_os = "linux")]
    #[allow(clippy::print_stderr)] // A test reports what it skips.
    fn buffers_that_share_a_huge_page_are_apart_and_come_back_in_turn() {
        let Some(page) = HugePages::page_size() else {
            return eprintln!("SKIPPED: the kernel has no huge pages");
        };
        let pool = HugePages::transparent(3 * BLOCK_BYTES, 4).unwrap();
        let mut lent: Vec<_> = (0..4).map(|_| pool.lend().unwrap()).collect();
        assert!(pool.lend().is_none(), "there were four");
        assert_eq!(pool.idle(), 0);
        assert!(lent[0].as_ptr().addr().is_multiple_of(page));
        for (n, buffer) in lent.iter_mut().enumerate() {
            assert_eq!((buffer.len(), pool.buffer_len()), (3 * BLOCK_BYTES, 3 * BLOCK_BYTES));
            buffer.fill(n as u8 + 1);
        }
        for (n, buffer) in lent.iter().enumerate() {
            assert!(buffer.iter().all(|byte| *byte == n as u8 + 1), "{n}");
        }
        // What came back last is lent first.
        let last = lent.remove(1);
        let address = last.as_ptr().addr();
        drop(lent.pop());
        drop(last);
        assert_eq!(pool.idle(), 2);
        assert_eq!(pool.lend().unwrap().as_ptr().addr(), address);
        // A lent buffer keeps the mapping alive.
        drop(pool);
        assert!(lent[0].iter().all(|byte| *byte == 1));
    }

    #[test]
    fn pools_of_no_blocks_or_of_too_many_are_refused() {
        let refused = [
            (0, 4),
            (BLOCK_BYTES + 1, 4),
            (BLOCK_BYTES, 0),
            (BLOCK_BYTES, usize::MAX),
            (1 << 62, 1),
        ];
        for (len, count) in refused {
            assert!(HugePages::transparent(len, count).is_none(), "{count} of {len}");
        }
    }

    /// Runs only where huge pages are reserved: `sysctl -w vm.nr_hugepages=8`.
    #[test]
    #[allow(clippy::print_stderr)] // A test reports what it skips.
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
        // A lent buffer keeps the mapping alive.
        drop(pages);
        let one = std::thread::spawn(move || one).join().unwrap();
        assert_eq!((one[0], one[page - 1]), (1, 2));
    }

    #[test]
    fn keeps_what_is_written_when_it_moves_to_another_thread() {
        let mut buf = AlignedBuf::new(2 * BLOCK_BYTES);
        buf[0] = 1;
        buf[2 * BLOCK_BYTES - 1] = 2;
        let buf = std::thread::spawn(move || buf).join().unwrap();
        assert_eq!((buf[0], buf[2 * BLOCK_BYTES - 1]), (1, 2));
    }
}

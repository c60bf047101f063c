//! Recycled memory for values.
//!
//! Every accept needs memory, and every eviction frees some once no reader uses it. Values are
//! recycled in batches. A thread collects the values that it removes from cells, and defers a whole
//! batch by the epochs. When the last guard of that time is dropped, the batch enters the pool. A
//! thread that needs memory takes a whole batch. So most accepts use neither the system's allocator
//! nor a lock, and the epochs defer one operation instead of many.
//!
//! The pool belongs to the process, not to a log: it is bounded once, however many logs there are.
//! Memory above the bound, and large blocks, return to the system.
#![allow(unsafe_code)]

use std::cell::RefCell;

use crossbeam_epoch::Guard;
use esker_disk::process;
use parking_lot::Mutex;
use triomphe::ThinArc;

use crate::base::ballot::Ballot;
use crate::base::sync::AtomicU64;
use crate::memory::cell::Counted;
use crate::memory::value::{
    BLOCK_SIZES, BLOCK_STEP_BYTES, SMALL_VALUE_BYTES, SharedValue, ValueHeader,
};

/// The number of blocks in a batch.
const BLOCKS_PER_BATCH: usize = 32;
/// The most bytes in the pool. In addition, a thread has one or two batches of each size.
const POOL_BYTES_MAX: usize = 32 << 20;

#[derive(Debug)]
struct ValuePool {
    /// Free blocks, by size.
    free: [Vec<SharedValue>; BLOCK_SIZES],
    bytes: usize,
}

static POOL: Mutex<ValuePool> = Mutex::new(ValuePool::new());

/// The pool, unless `fork` made this process: a thread that is not here may hold the lock. A child
/// comes here when it drops a guard, which runs what its parent deferred.
fn pool() -> Option<&'static Mutex<ValuePool>> {
    (!process::is_forked()).then_some(&POOL)
}

/// The cache of one thread.
#[derive(Debug)]
struct ThreadCache {
    /// Free blocks, by size.
    free: [Vec<SharedValue>; BLOCK_SIZES],
    /// Values that left their cells; readers may still use them. Must not be dropped directly.
    leaving: Vec<SharedValue>,
}

thread_local! {
    static THREAD_CACHE: RefCell<ThreadCache> = const {
        RefCell::new(ThreadCache { free: [const { Vec::new() }; BLOCK_SIZES], leaving: Vec::new() })
    };
}

static ZEROS: [u8; SMALL_VALUE_BYTES] = [0; SMALL_VALUE_BYTES];

/// Stores a value in memory. A marker of 0 means that it is not committed.
pub(crate) fn new_value(slot: u64, ballot: Ballot, value: &[u8], marker: u64) -> SharedValue {
    let head = || ValueHeader { slot, ballot, marker: AtomicU64::new(marker), len: value.len() };
    if value.len() > SMALL_VALUE_BYTES {
        return SharedValue(ThinArc::from_header_and_slice(head(), value));
    }
    let size = value.len().div_ceil(BLOCK_STEP_BYTES);
    if let Some(mut freed) = take(size)
        && freed.fill(head(), value)
    {
        return freed;
    }
    let zeros = &ZEROS[..size * BLOCK_STEP_BYTES];
    let mut block = SharedValue(ThinArc::from_header_and_slice(head(), zeros));
    let is_filled = block.fill(head(), value);
    debug_assert!(is_filled, "a new block is shared");
    block
}

// SAFETY: `ThinArc` documents this for `into_raw` and `from_raw`.
unsafe impl Counted for SharedValue {
    fn into_raw(self) -> *mut () {
        ThinArc::into_raw(self.0).cast_mut().cast()
    }

    unsafe fn from_raw(raw: *mut ()) -> Self {
        // SAFETY: the caller upholds the contract of `Counted::from_raw`.
        Self(unsafe { ThinArc::from_raw(raw.cast_const().cast()) })
    }

    fn retire(self, small: bool, guard: &Guard) {
        retire(self, small, guard);
    }
}

/// Takes a free block of this size, if there is one. Its old value may still be shared.
pub(crate) fn take(size: usize) -> Option<SharedValue> {
    let mine = |mine: &RefCell<ThreadCache>| {
        let mut mine = mine.try_borrow_mut().ok()?;
        let free = mine.free.get_mut(size)?;
        if free.is_empty() {
            pool()?.lock().take(size, free);
        }
        let freed = free.pop();
        if let Some(next) = free.last() {
            next.is_next();
        }
        freed
    };
    THREAD_CACHE.try_with(mine).ok().flatten()
}

/// Releases a value that left its cell, once no reader uses it. Small values wait for a batch of
/// this thread. The caller passes `small`, because reading the length would double the cost.
pub(crate) fn retire(freed: SharedValue, small: bool, guard: &Guard) {
    if !small {
        return guard.defer(move || drop(freed));
    }
    let mut left = Some(freed);
    let full = THREAD_CACHE.try_with(|mine| {
        let leaving = &mut mine.try_borrow_mut().ok()?.leaving;
        leaving.extend(left.take());
        (leaving.len() >= BLOCKS_PER_BATCH)
            .then(|| std::mem::replace(leaving, Vec::with_capacity(BLOCKS_PER_BATCH)))
    });
    if let Some(freed) = left {
        // The thread is ending.
        guard.defer(move || drop(freed));
    }
    if let Ok(Some(batch)) = full {
        // All of them left their cells before now.
        guard.defer(move || give(batch));
    }
}

/// Recycles a batch that no reader uses. Blocks above the bound are freed without the lock.
fn give(mut batch: Vec<SharedValue>) {
    // Reads all sizes first, so that the cache misses overlap.
    batch.retain(|freed| freed.size() < BLOCK_SIZES);
    let bytes = batch.iter().map(|freed| bytes_of(freed.size())).sum::<usize>();
    if let Some(pool) = pool() {
        pool.lock().put(&mut batch, bytes);
    }
}

impl ValuePool {
    const fn new() -> Self {
        Self { free: [const { Vec::new() }; BLOCK_SIZES], bytes: 0 }
    }

    /// Adds the batch, unless that would exceed the bound.
    fn put(&mut self, batch: &mut Vec<SharedValue>, bytes: usize) {
        if self.bytes + bytes <= POOL_BYTES_MAX {
            self.bytes += bytes;
            for freed in batch.drain(..) {
                self.free[freed.size()].push(freed);
            }
        }
    }

    /// Moves up to a batch of blocks of one size.
    fn take(&mut self, size: usize, to: &mut Vec<SharedValue>) {
        let free = &mut self.free[size];
        debug_assert!(to.is_empty(), "a cache is refilled that has blocks");
        to.extend(free.drain(free.len().saturating_sub(BLOCKS_PER_BATCH)..));
        self.bytes -= bytes_of(size) * to.len();
    }
}

/// The bytes of a block, including the header.
fn bytes_of(size: usize) -> usize {
    (size + 1) * BLOCK_STEP_BYTES
}

impl Drop for ThreadCache {
    fn drop(&mut self) {
        let leaving = std::mem::take(&mut self.leaving);
        if !leaving.is_empty() {
            crossbeam_epoch::pin().defer(move || drop(leaving));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ballot::Ballot;
    use crate::memory::cell::Cell;
    use crate::memory::value_pool::new_value;

    fn value(len: usize, byte: u8) -> SharedValue {
        new_value(u64::from(byte), Ballot { number: 1, node: 1 }, &vec![byte; len], 0)
    }

    #[test]
    fn what_is_seen_is_not_used_again() {
        let cell = Cell::new(value(300, 1));
        let guard = crossbeam_epoch::pin();
        let seen = cell.load(&guard).unwrap();
        for _ in 0..10 * BLOCKS_PER_BATCH {
            cell.replace(Some(value(300, 2)), true, &guard);
        }
        assert_eq!((seen.slot, seen.value()), (1, &[1; 300][..]));
    }

    #[test]
    fn what_is_kept_is_not_used_again_and_the_rest_is() {
        // No other test has values of this size.
        const VALUE_BYTES: usize = 13 * BLOCK_STEP_BYTES;
        let cell = Cell::new(value(VALUE_BYTES, 1));
        let kept = cell.load(&crossbeam_epoch::pin()).unwrap().counted();
        for _ in 0..BLOCKS_PER_BATCH {
            cell.replace(Some(value(VALUE_BYTES, 2)), true, &crossbeam_epoch::pin());
        }
        while pool().unwrap().lock().free[13].is_empty() {
            // Guards of other tests may delay it for a while.
            crossbeam_epoch::pin().flush();
            std::thread::yield_now();
        }
        let again: Vec<SharedValue> =
            (0..BLOCKS_PER_BATCH).map(|_| value(VALUE_BYTES, 3)).collect();
        assert!(pool().unwrap().lock().free[13].is_empty());
        assert!(again.iter().all(|freed| freed.value() == [3; VALUE_BYTES]));
        assert_eq!((kept.slot, kept.value()), (1, &[1; VALUE_BYTES][..]));
    }

    #[test]
    fn the_pool_is_bounded() {
        let (mut pool, block) = (ValuePool::new(), bytes_of(BLOCK_SIZES - 1));
        for _ in 0..2 * POOL_BYTES_MAX / block / BLOCKS_PER_BATCH {
            let mut batch: Vec<_> =
                (0..BLOCKS_PER_BATCH).map(|_| value(SMALL_VALUE_BYTES, 1)).collect();
            pool.put(&mut batch, block * BLOCKS_PER_BATCH);
        }
        let kept = pool.free[BLOCK_SIZES - 1].len();
        assert!(
            kept * block <= POOL_BYTES_MAX && (kept + BLOCKS_PER_BATCH) * block > POOL_BYTES_MAX
        );
        let mut taken = Vec::new();
        while pool.bytes > 0 {
            pool.take(BLOCK_SIZES - 1, &mut taken);
            assert_eq!(taken.drain(..).count(), BLOCKS_PER_BATCH);
        }
        assert!(pool.free[BLOCK_SIZES - 1].is_empty());
    }
}

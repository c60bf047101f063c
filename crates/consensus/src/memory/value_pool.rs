//! Memory of values that are gone, for values that come.
//!
//! Every accept needs memory, and every eviction gives some back, once no reader looks any more. Values
//! go through that in batches: a thread gathers what it takes out of cells, and hands a whole batch to
//! the epochs; when the last guard of that time is gone, the batch lies in the stock, and a thread
//! that needs memory takes it whole. So an accept asks neither the system's allocator nor a lock, and
//! the epochs have one thing to do where there were many.
//!
//! The stock is the process's, not a log's: it is bounded once, however many logs there are. What is
//! above the bound, and what is large, goes back to the system.
#![allow(unsafe_code)]

use std::cell::RefCell;

use crossbeam_epoch::Guard;
use parking_lot::Mutex;
use triomphe::ThinArc;

use crate::base::ballot::Ballot;
use crate::base::sync::AtomicU64;
use crate::memory::cell::Counted;
use crate::memory::value::{SIZES, SMALL, STEP, SharedValue, ValueHeader};

/// Blocks that go together.
const BATCH: usize = 32;
/// The most bytes in the stock. A thread has a batch or two of each size besides.
const KEPT: usize = 32 << 20;

#[derive(Debug)]
struct ValuePool {
    /// By size.
    free: [Vec<SharedValue>; SIZES],
    bytes: usize,
}

static POOL: Mutex<ValuePool> = Mutex::new(ValuePool::new());

/// A thread's part.
#[derive(Debug)]
struct ThreadCache {
    /// To be used, by size.
    free: [Vec<SharedValue>; SIZES],
    /// Out of their cells; readers may look at them. Never to be dropped as they are.
    leaving: Vec<SharedValue>,
}

thread_local! {
    static THREAD_CACHE: RefCell<ThreadCache> = const {
        RefCell::new(ThreadCache { free: [const { Vec::new() }; SIZES], leaving: Vec::new() })
    };
}

static ZEROS: [u8; SMALL] = [0; SMALL];

/// Puts a value into memory. A marker of 0 is none.
pub(crate) fn new_value(slot: u64, ballot: Ballot, value: &[u8], marker: u64) -> SharedValue {
    let head = || ValueHeader { slot, ballot, marker: AtomicU64::new(marker), len: value.len() };
    if value.len() > SMALL {
        return SharedValue(ThinArc::from_header_and_slice(head(), value));
    }
    let size = value.len().div_ceil(STEP);
    if let Some(mut resident) = take(size)
        && resident.fill(head(), value)
    {
        return resident;
    }
    let mut resident = SharedValue(ThinArc::from_header_and_slice(head(), &ZEROS[..size * STEP]));
    resident.fill(head(), value);
    resident
}

// SAFETY: `ThinArc` says so of its own pair.
unsafe impl Counted for SharedValue {
    fn into_raw(self) -> *mut () {
        ThinArc::into_raw(self.0).cast_mut().cast()
    }

    unsafe fn from_raw(raw: *mut ()) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { ThinArc::from_raw(raw.cast_const().cast()) })
    }

    fn retire(self, small: bool, guard: &Guard) {
        retire(self, small, guard);
    }
}

/// A block of this size, if there is one. Somebody may still hold a count of what is in it.
pub(crate) fn take(size: usize) -> Option<SharedValue> {
    let mine = |mine: &RefCell<ThreadCache>| {
        let mut mine = mine.try_borrow_mut().ok()?;
        let free = mine.free.get_mut(size)?;
        if free.is_empty() {
            POOL.lock().take(size, free);
        }
        let resident = free.pop();
        if let Some(next) = free.last() {
            next.is_next();
        }
        resident
    };
    THREAD_CACHE.try_with(mine).ok().flatten()
}

/// Gives back what was taken out of a cell, once nobody looks any more. What is small waits for others
/// of this thread; to look how long it is would take as long as all the rest.
pub(crate) fn retire(resident: SharedValue, small: bool, guard: &Guard) {
    if !small {
        return guard.defer(move || drop(resident));
    }
    let mut left = Some(resident);
    let full = THREAD_CACHE.try_with(|mine| {
        let leaving = &mut mine.try_borrow_mut().ok()?.leaving;
        leaving.extend(left.take());
        (leaving.len() >= BATCH).then(|| std::mem::replace(leaving, Vec::with_capacity(BATCH)))
    });
    if let Some(resident) = left {
        // The thread is ending.
        guard.defer(move || drop(resident));
    }
    if let Ok(Some(batch)) = full {
        // All of them left their cells before now.
        guard.defer(move || give(batch));
    }
}

/// Nobody looks any more. What finds no place goes back to the system, without the lock.
fn give(mut batch: Vec<SharedValue>) {
    // A look at all of them at once: their cache lines come together, and not one after another.
    batch.retain(|resident| resident.size() < SIZES);
    let bytes = batch.iter().map(|resident| bytes_of(resident.size())).sum::<usize>();
    POOL.lock().put(&mut batch, bytes);
}

impl ValuePool {
    const fn new() -> Self {
        Self { free: [const { Vec::new() }; SIZES], bytes: 0 }
    }

    /// Takes the batch over, unless that is too much.
    fn put(&mut self, batch: &mut Vec<SharedValue>, bytes: usize) {
        if self.bytes + bytes <= KEPT {
            self.bytes += bytes;
            for resident in batch.drain(..) {
                self.free[resident.size()].push(resident);
            }
        }
    }

    /// Moves as many as go together.
    fn take(&mut self, size: usize, to: &mut Vec<SharedValue>) {
        let free = &mut self.free[size];
        to.extend(free.drain(free.len().saturating_sub(BATCH)..));
        self.bytes -= bytes_of(size) * to.len();
    }
}

/// With the header.
fn bytes_of(size: usize) -> usize {
    (size + 1) * STEP
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
        new_value(u64::from(byte), Ballot::new(1, 1), &vec![byte; len], 0)
    }

    #[test]
    fn what_is_seen_is_not_used_again() {
        let cell = Cell::new(value(300, 1));
        let guard = crossbeam_epoch::pin();
        let seen = cell.load(&guard).unwrap();
        for _ in 0..10 * BATCH {
            cell.replace(Some(value(300, 2)), true, &guard);
        }
        assert_eq!((seen.slot, seen.value()), (1, &[1; 300][..]));
    }

    #[test]
    fn what_is_kept_is_not_used_again_and_the_rest_is() {
        // No other test has values of this size.
        const LEN: usize = 13 * STEP;
        let cell = Cell::new(value(LEN, 1));
        let kept = cell.load(&crossbeam_epoch::pin()).unwrap().counted();
        for _ in 0..BATCH {
            cell.replace(Some(value(LEN, 2)), true, &crossbeam_epoch::pin());
        }
        while POOL.lock().free[13].is_empty() {
            // Other tests' guards may hold it back for a while.
            crossbeam_epoch::pin().flush();
            std::thread::yield_now();
        }
        let again: Vec<SharedValue> = (0..BATCH).map(|_| value(LEN, 3)).collect();
        assert!(POOL.lock().free[13].is_empty());
        assert!(again.iter().all(|resident| resident.value() == [3; LEN]));
        assert_eq!((kept.slot, kept.value()), (1, &[1; LEN][..]));
    }

    #[test]
    fn the_stock_is_bounded() {
        let (mut pool, block) = (ValuePool::new(), bytes_of(SIZES - 1));
        for _ in 0..2 * KEPT / block / BATCH {
            let mut batch: Vec<_> = (0..BATCH).map(|_| value(SMALL, 1)).collect();
            pool.put(&mut batch, block * BATCH);
        }
        let kept = pool.free[SIZES - 1].len();
        assert!(kept * block <= KEPT && (kept + BATCH) * block > KEPT);
        let mut taken = Vec::new();
        while pool.bytes > 0 {
            pool.take(SIZES - 1, &mut taken);
            assert_eq!(taken.drain(..).count(), BATCH);
        }
        assert!(pool.free[SIZES - 1].is_empty());
    }
}

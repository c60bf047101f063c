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
use crate::memory::value::{Head, Held, SIZES, SMALL, STEP};

/// Blocks that go together.
const BATCH: usize = 32;
/// The most bytes in the stock. A thread has a batch or two of each size besides.
const KEPT: usize = 32 << 20;

#[derive(Debug)]
struct Stock {
    /// By size.
    free: [Vec<Held>; SIZES],
    bytes: usize,
}

static STOCK: Mutex<Stock> = Mutex::new(Stock::new());

/// A thread's part.
#[derive(Debug)]
struct Mine {
    /// To be used, by size.
    free: [Vec<Held>; SIZES],
    /// Out of their cells; readers may look at them. Never to be dropped as they are.
    leaving: Vec<Held>,
}

thread_local! {
    static MINE: RefCell<Mine> = const {
        RefCell::new(Mine { free: [const { Vec::new() }; SIZES], leaving: Vec::new() })
    };
}

static ZEROS: [u8; SMALL] = [0; SMALL];

/// Puts a value into memory. A marker of 0 is none.
pub(crate) fn hold(slot: u64, ballot: Ballot, value: &[u8], marker: u64) -> Held {
    let head = || Head { slot, ballot, marker: AtomicU64::new(marker), len: value.len() };
    if value.len() > SMALL {
        return Held(ThinArc::from_header_and_slice(head(), value));
    }
    let size = value.len().div_ceil(STEP);
    if let Some(mut held) = take(size)
        && held.fill(head(), value)
    {
        return held;
    }
    let mut held = Held(ThinArc::from_header_and_slice(head(), &ZEROS[..size * STEP]));
    held.fill(head(), value);
    held
}

// SAFETY: `ThinArc` says so of its own pair.
unsafe impl Counted for Held {
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
pub(crate) fn take(size: usize) -> Option<Held> {
    let mine = |mine: &RefCell<Mine>| {
        let mut mine = mine.try_borrow_mut().ok()?;
        let free = mine.free.get_mut(size)?;
        if free.is_empty() {
            STOCK.lock().take(size, free);
        }
        let held = free.pop();
        if let Some(next) = free.last() {
            next.is_next();
        }
        held
    };
    MINE.try_with(mine).ok().flatten()
}

/// Gives back what was taken out of a cell, once nobody looks any more. What is small waits for others
/// of this thread; to look how long it is would take as long as all the rest.
pub(crate) fn retire(held: Held, small: bool, guard: &Guard) {
    if !small {
        return guard.defer(move || drop(held));
    }
    let mut left = Some(held);
    let full = MINE.try_with(|mine| {
        let leaving = &mut mine.try_borrow_mut().ok()?.leaving;
        leaving.extend(left.take());
        (leaving.len() >= BATCH).then(|| std::mem::replace(leaving, Vec::with_capacity(BATCH)))
    });
    if let Some(held) = left {
        // The thread is ending.
        guard.defer(move || drop(held));
    }
    if let Ok(Some(batch)) = full {
        // All of them left their cells before now.
        guard.defer(move || give(batch));
    }
}

/// Nobody looks any more. What finds no place goes back to the system, without the lock.
fn give(mut batch: Vec<Held>) {
    // A look at all of them at once: their cache lines come together, and not one after another.
    batch.retain(|held| held.size() < SIZES);
    let bytes = batch.iter().map(|held| bytes_of(held.size())).sum::<usize>();
    STOCK.lock().put(&mut batch, bytes);
}

impl Stock {
    const fn new() -> Self {
        Self { free: [const { Vec::new() }; SIZES], bytes: 0 }
    }

    /// Takes the batch over, unless that is too much.
    fn put(&mut self, batch: &mut Vec<Held>, bytes: usize) {
        if self.bytes + bytes <= KEPT {
            self.bytes += bytes;
            for held in batch.drain(..) {
                self.free[held.size()].push(held);
            }
        }
    }

    /// Moves as many as go together.
    fn take(&mut self, size: usize, to: &mut Vec<Held>) {
        let free = &mut self.free[size];
        to.extend(free.drain(free.len().saturating_sub(BATCH)..));
        self.bytes -= bytes_of(size) * to.len();
    }
}

/// With the header.
fn bytes_of(size: usize) -> usize {
    (size + 1) * STEP
}

impl Drop for Mine {
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
    use crate::memory::value_pool::hold;

    fn value(len: usize, byte: u8) -> Held {
        hold(u64::from(byte), Ballot::new(1, 1), &vec![byte; len], 0)
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
        while STOCK.lock().free[13].is_empty() {
            // Other tests' guards may hold it back for a while.
            crossbeam_epoch::pin().flush();
            std::thread::yield_now();
        }
        let again: Vec<Held> = (0..BATCH).map(|_| value(LEN, 3)).collect();
        assert!(STOCK.lock().free[13].is_empty());
        assert!(again.iter().all(|held| held.value() == [3; LEN]));
        assert_eq!((kept.slot, kept.value()), (1, &[1; LEN][..]));
    }

    #[test]
    fn the_stock_is_bounded() {
        let (mut stock, block) = (Stock::new(), bytes_of(SIZES - 1));
        for _ in 0..2 * KEPT / block / BATCH {
            let mut batch: Vec<_> = (0..BATCH).map(|_| value(SMALL, 1)).collect();
            stock.put(&mut batch, block * BATCH);
        }
        let kept = stock.free[SIZES - 1].len();
        assert!(kept * block <= KEPT && (kept + BATCH) * block > KEPT);
        let mut taken = Vec::new();
        while stock.bytes > 0 {
            stock.take(SIZES - 1, &mut taken);
            assert_eq!(taken.drain(..).count(), BATCH);
        }
        assert!(stock.free[SIZES - 1].is_empty());
    }
}

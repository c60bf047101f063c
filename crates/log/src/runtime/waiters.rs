//! Wait queues for durability, buffer space and new records.
//!
//! A waiter checks, registers, and checks again. The committer publishes first and wakes after. So
//! the one that comes second sees the other, and no wake-up is lost.
//!
//! A commit wakes its callers first and then the readers, which have lists of their own: there may
//! be thousands, and no caller waits for them. Meanwhile another thread runs the next commit. Of
//! the callers, and of the readers, it wakes the threads first: the waker of a task is the caller's
//! code, and may take long.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Waker;

use esker_disk::process;
use parking_lot::Mutex;
use slab::Slab;

use crate::runtime::deferred_wakes::wake_threads_first;

/// The condition that a waiter waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitCondition {
    /// A record, the caller's own or another one that it asked for, is durable.
    Durable(u64),
    /// There is room for another record.
    Room,
    /// For readers: any record from this sequence number on is durable.
    Record(u64),
}

impl WaitCondition {
    /// Whether a commit up to this record meets the condition. Any commit makes room.
    fn is_due(self, durable: u64) -> bool {
        match self {
            Self::Durable(seq) | Self::Record(seq) => seq <= durable,
            Self::Room => true,
        }
    }
}

/// How many callers wait, and for what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WaitingCallers {
    pub(crate) for_durability: usize,
    pub(crate) for_room: usize,
}

#[derive(Debug)]
struct Waiter {
    what: WaitCondition,
    /// `None` once woken.
    waker: Option<Waker>,
}

type List = Mutex<Slab<Waiter>>;

/// The number of reader lists. There may be thousands of readers, on all cores, and each one that
/// waits locks a list.
const READER_LISTS: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Waiters {
    callers: List,
    readers: [List; READER_LISTS],
    /// The number of readers that were ever added to a list, to spread them.
    spread: AtomicUsize,
    /// The number of readers with a waker on a list.
    waiting: AtomicUsize,
}

/// An entry of a list. Removed with [`Waiters::remove`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key {
    /// The index of the list. The list of callers comes after those of the readers.
    list: u32,
    index: u32,
}

impl Waiters {
    fn list(&self, key: Key) -> &List {
        self.readers.get(key.list as usize).unwrap_or(&self.callers)
    }

    /// Adds a waiter to a list, or updates its existing entry.
    pub(crate) fn register(&self, slot: &mut Option<Key>, what: WaitCondition, waker: &Waker) {
        let reads = matches!(what, WaitCondition::Record(_));
        // Cloned and dropped without the lock: a waker is the caller's code.
        let waker = waker.clone();
        if let Some(key) = *slot {
            let mut list = self.list(key).lock();
            if let Some(waiter) = list.get_mut(key.index as usize) {
                if reads && waiter.waker.is_none() {
                    self.waiting.fetch_add(1, SeqCst);
                }
                waiter.what = what;
                let same = waiter.waker.as_ref().is_some_and(|old| old.will_wake(&waker));
                let unused = if same { Some(waker) } else { waiter.waker.replace(waker) };
                drop(list);
                drop(unused);
                return;
            }
        }
        let list =
            if reads { self.spread.fetch_add(1, SeqCst) % READER_LISTS } else { READER_LISTS }
                as u32;
        if reads {
            self.waiting.fetch_add(1, SeqCst);
        }
        let key = Key { list, index: 0 };
        let index = self.list(key).lock().insert(Waiter { what, waker: Some(waker) });
        *slot = Some(Key { list, index: index as u32 });
    }

    /// Removes an entry. Does nothing in a child that `fork` made: a thread that is not there may
    /// hold the lock.
    pub(crate) fn remove(&self, key: Key) {
        if process::is_forked() {
            return;
        }
        // Dropped without the lock: a waker is the caller's code.
        let removed = self.list(key).lock().try_remove(key.index as usize);
        if let Some(Waiter { what: WaitCondition::Record(_), waker: Some(_) }) = removed {
            self.waiting.fetch_sub(1, SeqCst);
        }
    }

    /// Moves the wakers of the callers that are due to `into`, to be woken without the lock.
    /// Returns how many of them waited for a record.
    pub(crate) fn take_callers(&self, durable: u64, into: &mut Vec<Waker>) -> usize {
        let mut records = 0;
        for (_, waiter) in self.callers.lock().iter_mut().filter(|(_, w)| w.what.is_due(durable)) {
            let waker = waiter.waker.take();
            records += usize::from(waker.is_some() && waiter.what != WaitCondition::Room);
            into.extend(waker);
        }
        records
    }

    /// Wakes the readers that are due. The list is empty before and after.
    pub(crate) fn wake_readers(&self, durable: u64, wakers: &mut Vec<Waker>) {
        for list in &self.readers {
            if !self.has_readers() {
                break;
            }
            let before = wakers.len();
            for (_, waiter) in list.lock().iter_mut().filter(|(_, w)| w.what.is_due(durable)) {
                wakers.extend(waiter.waker.take());
            }
            self.waiting.fetch_sub(wakers.len() - before, SeqCst);
        }
        wake_threads_first(wakers);
    }

    /// Wakes all waiters.
    pub(crate) fn wake_all(&self) {
        let mut wakers = Vec::new();
        self.take_callers(u64::MAX, &mut wakers);
        wake_threads_first(&mut wakers);
        self.wake_readers(u64::MAX, &mut wakers);
    }

    /// Whether a reader is waiting.
    pub(crate) fn has_readers(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }

    /// The number of readers that wait and were not woken.
    pub(crate) fn waiting_readers(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    /// The callers that wait and were not woken.
    pub(crate) fn callers(&self) -> WaitingCallers {
        let mut callers = WaitingCallers::default();
        for (_, waiter) in self.callers.lock().iter().filter(|(_, w)| w.waker.is_some()) {
            match waiter.what {
                WaitCondition::Room => callers.for_room += 1,
                WaitCondition::Durable(_) | WaitCondition::Record(_) => callers.for_durability += 1,
            }
        }
        callers
    }

    pub(crate) fn len(&self) -> usize {
        self.callers.lock().len() + self.readers.iter().map(|list| list.lock().len()).sum::<usize>()
    }
}

/// An entry in the wait queues that is removed when it is dropped.
pub(crate) struct Registration<'a> {
    waiters: &'a Waiters,
    pub(crate) key: Option<Key>,
}

impl<'a> Registration<'a> {
    pub(crate) fn new(waiters: &'a Waiters) -> Self {
        Self { waiters, key: None }
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.waiters.remove(key);
        }
    }
}

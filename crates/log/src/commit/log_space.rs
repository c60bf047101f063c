//! The disk space of an open log: the reserve, spare files, and blocks that are written ahead.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use parking_lot::{Mutex, MutexGuard};

use crate::commit::preallocator::Preallocator;
use crate::runtime::deferred_wakes::DeferredWakes;
use crate::store::space_reserve::Reserve;

#[derive(Debug)]
pub(crate) struct LogSpace {
    preallocator: Preallocator,
    /// Held while space is preallocated.
    reserve: Mutex<Reserve>,
    /// The size of the reserve, readable while another thread preallocates.
    reserve_bytes: Arc<AtomicU64>,
    /// Other logs may use the reserve.
    is_shared: AtomicBool,
    /// The numbers of the spare files.
    spares: Mutex<Vec<u64>>,
}

/// The reserve, locked: no other thread preallocates.
#[derive(Debug)]
pub(crate) struct HeldReserve<'a> {
    reserve: MutexGuard<'a, Reserve>,
    // Dropped after the lock.
    _wakes: DeferredWakes,
}

impl Deref for HeldReserve<'_> {
    type Target = Reserve;

    fn deref(&self) -> &Reserve {
        &self.reserve
    }
}

impl DerefMut for HeldReserve<'_> {
    fn deref_mut(&mut self) -> &mut Reserve {
        &mut self.reserve
    }
}

impl LogSpace {
    pub(crate) fn new(preallocator: Preallocator, reserve: Reserve, spares: Vec<u64>) -> Self {
        Self {
            preallocator,
            reserve_bytes: reserve.shared_bytes(),
            reserve: Mutex::new(reserve),
            is_shared: AtomicBool::new(false),
            spares: Mutex::new(spares),
        }
    }

    pub(crate) fn preallocator(&self) -> &Preallocator {
        &self.preallocator
    }

    /// Takes the lock of the reserve, or waits while another thread preallocates.
    pub(crate) fn lock_reserve(&self) -> HeldReserve<'_> {
        HeldReserve { reserve: self.reserve.lock(), _wakes: DeferredWakes::new() }
    }

    /// The size of the reserve in bytes.
    pub(crate) fn reserve_bytes(&self) -> u64 {
        self.reserve_bytes.load(Relaxed)
    }

    /// Lets other logs use the reserve.
    pub(crate) fn share_reserve(&self) {
        self.is_shared.store(true, SeqCst);
    }

    /// Whether other logs may use the reserve.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared.load(SeqCst)
    }

    /// Takes the number of a spare file; `None` if there is none.
    pub(crate) fn take_spare(&self) -> Option<u64> {
        self.spares.lock().pop()
    }

    /// Adds a spare file.
    pub(crate) fn add_spare(&self, number: u64) {
        self.spares.lock().push(number);
    }

    pub(crate) fn spare_count(&self) -> usize {
        self.spares.lock().len()
    }
}

//! The state of cleaning: when a pass is due, which thread makes it, and what passes found.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::thread::JoinHandle;

use esker_log::reclaim::Reclaimed;
use parking_lot::{Mutex, ReentrantMutex, ReentrantMutexGuard};

use crate::base::store_error::StoreError;
use crate::state::request::Request;
use crate::state::throttle::{BLOCKING_WAIT_MAX, Throttle};

/// The number of segments beyond twice the live bytes from which on writers wait for cleaning.
const BEHIND_SEGMENTS: u64 = 4;

/// The state of cleaning.
#[derive(Debug, Default)]
pub(crate) struct Cleaning {
    /// Held during a pass. That waits for commits, and lets writers continue, so it wakes tasks
    /// meanwhile.
    pass: ReentrantMutex<()>,
    /// The background thread, while it runs.
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Passes in the background.
    request: Request,
    throttle: Throttle,
    schedule: Schedule,
    full_disk: FullDisk,
    /// Bytes of records that were replaced since the store was opened.
    garbage: AtomicU64,
    /// The live bytes that a pass counted last.
    live: Mutex<Option<LiveBytes>>,
    /// The sum of all passes since the store was opened.
    reclaimed: Mutex<Reclaimed>,
}

/// The moments at which writes start passes.
#[derive(Debug, Default)]
struct Schedule {
    /// The offset of the end of the log and the replaced bytes, added, when a pass was last
    /// considered.
    considered: AtomicU64,
    /// The offset of the end of the log when a pass was last started by a write, durable or not.
    reached: AtomicU64,
}

/// The passes for writes that found no space.
#[derive(Debug, Default)]
struct FullDisk {
    /// A write found no space since the last pass began.
    requested: AtomicBool,
    /// The replaced bytes when such a pass last freed nothing.
    fruitless_at: Mutex<Option<u64>>,
}

/// The live bytes of a store at some moment.
#[derive(Debug, Clone, Copy)]
struct LiveBytes {
    bytes: u64,
    /// The offset of the end of the log at that moment.
    offset: u64,
    /// The bytes that had been replaced until then.
    garbage: u64,
}

impl Cleaning {
    /// Keeps other passes from beginning.
    ///
    /// # Errors
    /// [`Busy`](esker_log::Error::Busy) on a thread that has the lock: a waker called the store.
    pub(crate) fn lock_pass(&self) -> Result<ReentrantMutexGuard<'_, ()>, StoreError> {
        self.refuse_in_pass()?;
        Ok(self.pass.lock())
    }

    /// As [`Cleaning::lock_pass`], for a pass that writers may be waiting for. A backup may hold
    /// the lock until it ends, so writers continue meanwhile. Calls `check` between, which may end
    /// the wait with an error.
    ///
    /// # Errors
    /// As [`Cleaning::lock_pass`], and that of `check`.
    pub(crate) fn lock_pass_for_writers(
        &self,
        check: impl Fn() -> Result<(), StoreError>,
    ) -> Result<ReentrantMutexGuard<'_, ()>, StoreError> {
        self.refuse_in_pass()?;
        loop {
            check()?;
            if let Some(pass) = self.pass.try_lock_for(BLOCKING_WAIT_MAX) {
                return Ok(pass);
            }
            self.throttle.open();
        }
    }

    /// Refuses what would wait for a pass on a thread that makes one.
    pub(crate) fn refuse_in_pass(&self) -> Result<(), StoreError> {
        match self.pass.is_owned_by_current_thread() {
            true => Err(esker_log::Error::Busy { what: "this thread cleans the store" }.into()),
            false => Ok(()),
        }
    }

    #[inline]
    pub(crate) fn request(&self) -> &Request {
        &self.request
    }

    #[inline]
    pub(crate) fn throttle(&self) -> &Throttle {
        &self.throttle
    }

    /// Blocks a put or a batch for a short time while cleaning is behind.
    #[inline]
    pub(crate) fn pace_writer(&self) {
        if self.throttle.is_closed() {
            self.throttle.blocking_wait();
        }
    }

    /// Starts the background thread.
    pub(crate) fn start_thread(&self, start: impl FnOnce() -> Option<JoinHandle<()>>) {
        let mut thread = self.thread.lock();
        if let Some(started) = start() {
            *thread = Some(started);
        }
    }

    /// Takes the background thread, to wait for its end.
    pub(crate) fn take_thread(&self) -> Option<JoinHandle<()>> {
        self.thread.lock().take()
    }

    /// Counts the bytes of a record that was replaced.
    #[inline]
    pub(crate) fn add_garbage(&self, bytes: u64) {
        self.garbage.fetch_add(bytes, Relaxed);
    }

    /// The bytes of records that were replaced since the store was opened.
    #[inline]
    pub(crate) fn garbage(&self) -> u64 {
        self.garbage.load(Relaxed)
    }

    pub(crate) fn add_reclaimed(&self, pass: Reclaimed) {
        *self.reclaimed.lock() += pass;
    }

    pub(crate) fn reclaimed(&self) -> Reclaimed {
        *self.reclaimed.lock()
    }

    /// Whether it is time for a pass, for a write at this offset: the log and the replaced bytes
    /// have grown by a segment since the last time. `true` once.
    #[inline]
    pub(crate) fn is_due(&self, offset: u64, segment_size: u32) -> bool {
        let Schedule { considered, reached } = &self.schedule;
        let grown = offset + self.garbage();
        let last = considered.load(Relaxed);
        if grown < last + u64::from(segment_size)
            || considered.compare_exchange(last, grown, SeqCst, Relaxed).is_err()
        {
            return false;
        }
        reached.fetch_max(offset, Relaxed);
        true
    }

    /// The offset of the end of the log when a pass was last due.
    pub(crate) fn reached(&self) -> u64 {
        self.schedule.reached.load(Relaxed)
    }

    /// Registers a write that found no space. `false` if the last pass for one freed nothing, and
    /// nothing was replaced or deleted since.
    pub(crate) fn request_full_disk(&self) -> bool {
        let may_free = *self.full_disk.fruitless_at.lock() != Some(self.garbage());
        if may_free {
            self.full_disk.requested.store(true, SeqCst);
        }
        may_free
    }

    /// Whether a write found no space since the last call.
    pub(crate) fn take_full_disk(&self) -> bool {
        self.full_disk.requested.swap(false, SeqCst)
    }

    /// Stores whether a pass for a full disk freed space. `garbage` was read before the pass.
    pub(crate) fn set_full_disk_outcome(&self, freed: bool, garbage: u64) {
        *self.full_disk.fruitless_at.lock() = (!freed).then_some(garbage);
    }

    /// Stores the live bytes that a pass counted, with the offset and the replaced bytes that it
    /// read before.
    pub(crate) fn set_live(&self, bytes: u64, offset: u64, garbage: u64) {
        debug_assert!(garbage <= self.garbage(), "the replaced bytes never decrease");
        *self.live.lock() = Some(LiveBytes { bytes, offset, garbage });
    }

    /// Whether more space is used than twice the live bytes and four segments.
    pub(crate) fn is_behind(&self, offset: u64, disk_bytes: u64, segment_size: u32) -> bool {
        let Some(live) = *self.live.lock() else { return false };
        // An estimate: the counters are read one after the other.
        let put = offset.saturating_sub(live.offset);
        let replaced = self.garbage().saturating_sub(live.garbage);
        let live = (live.bytes + put).saturating_sub(replaced);
        disk_bytes > 2 * live + BEHIND_SEGMENTS * u64::from(segment_size)
    }
}

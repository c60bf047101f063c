//! An open consensus log, and the state that its operations share.

use std::cell::RefCell;
use std::sync::Arc;

use esker_log::AppendError;
use esker_log::Log;
use esker_log::Seq;
use esker_log::component::Purpose;
use parking_lot::RwLock;

use crate::base::slot::{Slot, page_of};
use crate::index::page::{Page, State};
use crate::index::page_table::{Index, PageLookup};
use crate::index::slot_locks::{PromiseState, SlotLocks};
use crate::memory::cell::Borrowed;
use crate::memory::value_budget::ValueBudget;
use crate::options::{Mode, Options};
use crate::outcome::FailureSink;
use crate::read_only::ReadOnlyReason;
use crate::record::{Record, Words};
use crate::state::background::Background;
use crate::state::checkpoint_schedule::CheckpointSchedule;
use crate::state::frontier::Frontier;
use crate::state::held_locks::{HeldSlot, HeldSlots};
use crate::state::lost_records::LostRecords;
use crate::state::newest_records::NewestRecords;
use crate::state::reclaim_progress::ReclaimProgress;
use crate::state::status::LogStatus;
use crate::storage_error::{StorageError, refuse_if_forked};

/// A handle to a consensus log in a directory. Cheap to clone: all clones are the same log, and
/// every operation may be called from any thread.
///
/// The methods of this handle are those of a protocol. The others are in three groups:
///
/// - [`snapshots`]: snapshots of the state machine, and truncation under one.
/// - [`app_state`]: some bytes of the application's own, stored beside promise and floor.
/// - [`maintenance`]: checkpoints, space, metrics of the underlying log, and single records. For
///   operators and tests.
///
/// Dropping the last handle closes the log, and blocks meanwhile. Call [`ConsensusLog::close`] to
/// learn whether closing succeeded.
///
/// # Blocking
/// Tickets are futures. A method of a ticket or a watch that is named `blocking_` blocks instead.
/// In async code:
///
/// - The calls that return a ticket block only while the staging memory of the underlying log is
///   full, until a commit ends, and while an index page is read that is not in memory, or the value
///   of a committed slot. Call them, and await the ticket.
/// - [`accept_timeout`] blocks. Call [`accept_async`], which waits for room as a future.
/// - [`read`] and [`read_committed`] block only to read a value that is not in memory.
/// - [`open`], [`iterate`], [`entries`], [`for_each`] over a promise's answer, [`close`],
///   [`inspect`], and the calls of [`snapshots`] and [`maintenance`] block on the disk. Run them
///   where blocking is allowed, for example in `spawn_blocking`.
///
/// [`accept_timeout`]: Self::accept_timeout
/// [`accept_async`]: Self::accept_async
/// [`entries`]: Self::entries
/// [`iterate`]: Self::iterate
/// [`read`]: Self::read
/// [`read_committed`]: Self::read_committed
/// [`open`]: Self::open
/// [`for_each`]: crate::PromiseAnswer::for_each
/// [`close`]: Self::close
/// [`inspect`]: crate::inspect()
/// [`snapshots`]: Self::snapshots
/// [`app_state`]: Self::app_state
/// [`maintenance`]: Self::maintenance
#[derive(Debug, Clone)]
pub struct ConsensusLog {
    pub(crate) inner: Arc<Inner>,
    pub(crate) _closer: Arc<dyn CloseWithLastHandle>,
}

/// A value that closes the log when it is dropped, with the last handle.
pub(crate) trait CloseWithLastHandle: std::fmt::Debug + Send + Sync {}

/// The state of an open log, by owner.
pub(crate) struct Inner {
    pub(crate) log: Log,
    /// The options that the log was opened with. The label is the one that is stored with it.
    pub(crate) options: Options,
    pub(crate) status: LogStatus,
    pub(crate) locks: SlotLocks,
    pub(crate) index: Index,
    pub(crate) budget: ValueBudget,
    pub(crate) frontier: Frontier,
    pub(crate) records: NewestRecords,
    pub(crate) checkpoints: CheckpointSchedule,
    pub(crate) reclaiming: ReclaimProgress,
    pub(crate) lost: LostRecords,
    pub(crate) background: Background,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsensusLog").field("log", &self.log).finish_non_exhaustive()
    }
}

thread_local! {
    /// The buffer that encodes records. It keeps the capacity for a thread's ordinary records.
    static RECORD_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}
const RECORD_BUFFER_BYTES_MAX: usize = 1 << 20;

impl ConsensusLog {
    /// Returns a guard under which to read. Hold it across many reads. Entries borrowed under it do
    /// not change. Memory that is replaced meanwhile is kept until the guard is dropped.
    pub fn pin(&self) -> Guard {
        Guard(crossbeam_epoch::pin())
    }

    /// The options that the log was opened with. Their label is the one that is stored with the
    /// log; empty if it has none.
    pub fn options(&self) -> &Options {
        &self.inner.options
    }
}

/// A guard under which entries are borrowed; from [`ConsensusLog::pin`]. While it is held, no
/// memory that is reachable under it is freed or reused, in any log of the process.
#[derive(Debug)]
pub struct Guard(pub(crate) crossbeam_epoch::Guard);

impl Inner {
    /// Creates the state of a log whose slots from `start` on are kept. `options` have the label
    /// that is stored with the log.
    pub(crate) fn new(
        log: Log,
        options: Options,
        read_only: Option<ReadOnlyReason>,
        removals: Arc<RwLock<()>>,
        start: u64,
    ) -> Self {
        let inline = options.log.engine.as_ref().is_some_and(esker_log::Engine::is_manual);
        Self {
            log,
            status: LogStatus::new(read_only),
            locks: SlotLocks::new(),
            index: Index::new(start),
            budget: ValueBudget::new(options.mutable_size),
            frontier: Frontier::new(start),
            records: NewestRecords::default(),
            checkpoints: CheckpointSchedule::new(options.records_per_checkpoint()),
            reclaiming: ReclaimProgress::new(removals),
            lost: LostRecords::default(),
            background: Background::new(inline),
            options,
        }
    }

    pub(crate) fn is_volatile(&self) -> bool {
        self.options.mode == Mode::Volatile
    }

    /// The first slot that is not truncated, as decisions see it: the record of the truncation may
    /// not be durable yet.
    #[inline]
    pub(crate) fn start(&self) -> u64 {
        self.index.start()
    }

    /// Commits with markers up to this record are visible to readers.
    #[inline]
    pub(crate) fn visible(&self) -> u64 {
        if self.options.sync_on_commit { self.log.durable().0 } else { u64::MAX }
    }

    /// Acquires the lock of a slot, for an operation on that slot alone.
    #[inline]
    pub(crate) fn slot_lock(&self, slot: u64) -> Result<HeldSlot<'_>, StorageError> {
        refuse_if_forked()?;
        Ok(HeldSlot::new(self.locks.lock_slot(slot)))
    }

    /// Acquires all slot locks, for an operation on more than one slot.
    pub(crate) fn all_locks(&self) -> Result<HeldSlots<'_>, StorageError> {
        refuse_if_forked()?;
        Ok(HeldSlots::new(self.locks.lock_all()))
    }

    pub(crate) fn refuse_if_closed(&self) -> Result<(), StorageError> {
        refuse_if_forked()?;
        if self.status.is_closed() { Err(StorageError::Closed) } else { Ok(()) }
    }

    /// As [`Inner::writable`], for an operation that holds no slot lock.
    pub(crate) fn refuse_if_not_writable(&self) -> Result<(), StorageError> {
        let promise_state = self.slot_lock(0)?;
        self.writable(&promise_state)
    }

    /// Refuses the operation if the log accepts no writes.
    #[inline]
    pub(crate) fn writable(&self, promise_state: &PromiseState) -> Result<(), StorageError> {
        if promise_state.closed {
            return Err(StorageError::Closed);
        }
        if let Some(reason) = self.status.read_only() {
            return Err(StorageError::ReadOnly { reason });
        }
        if self.status.is_failed() { Err(self.failure()) } else { Ok(()) }
    }

    /// Why the log is in its terminal state.
    #[cold]
    fn failure(&self) -> StorageError {
        if let Some(invariant) = self.status.broken_invariant() {
            return StorageError::Internal { invariant };
        }
        match self.log.barrier() {
            Ok(ticket) => {
                drop(ticket);
                StorageError::Log(esker_log::Error::Stopped)
            }
            // The barrier returns the cause.
            Err(error) => self.fail(error),
        }
    }

    /// The floor, if the slot is at or below it, as decisions see it.
    #[inline]
    pub(crate) fn floor_over(&self, slot: u64) -> Option<Slot> {
        let start = self.start();
        (slot < start).then(|| Slot(start - 1))
    }

    /// The first slot that is too far above the floor to be written to.
    pub(crate) fn slot_limit(&self) -> Slot {
        Slot(Index::limit(self.start()))
    }

    /// Converts an error of the underlying log. A failed write puts this log into its terminal
    /// state.
    pub(crate) fn fail(&self, error: impl Into<esker_log::Error>) -> StorageError {
        let error = error.into();
        if matches!(
            error,
            esker_log::Error::Io(_)
                | esker_log::Error::Poisoned(_)
                | esker_log::Error::Stopped
                | esker_log::Error::Internal { .. }
        ) {
            self.enter_terminal_state();
        }
        StorageError::from_log(error)
    }

    /// Puts the log into its terminal state, because its own state contradicts itself. Panics in
    /// debug builds.
    ///
    /// # Panics
    /// In debug builds, after the log is in its terminal state.
    #[cold]
    pub(crate) fn broken(&self, invariant: &'static str) -> StorageError {
        if self.status.break_invariant(invariant) {
            tracing::error!(invariant, "invariant of a consensus log broken");
        }
        self.enter_terminal_state();
        debug_assert!(false, "invariant broken: {invariant}");
        StorageError::Internal { invariant }
    }

    fn enter_terminal_state(&self) {
        self.status.fail();
        self.frontier.waiters().wake();
        // From here on no bytes are released.
        self.budget.close();
    }

    /// Appends one record.
    pub(crate) fn append(
        &self,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<esker_log::Ticket, StorageError> {
        self.append_encoded(encode, |record| self.log.append(record))
    }

    /// Appends one record that frees space or preserves data. On a full disk it uses the reserve of
    /// the underlying log.
    pub(crate) fn append_internal(
        &self,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<esker_log::Ticket, StorageError> {
        self.append_encoded(encode, |record| self.log.component().append(Purpose::Internal, record))
    }

    /// Appends the copy of a live record.
    pub(crate) fn append_copy(
        &self,
        encode: impl FnOnce(&mut Vec<u8>),
        purpose: Purpose,
    ) -> Result<esker_log::Ticket, StorageError> {
        self.append_encoded(encode, |record| self.log.component().append(purpose, record))
    }

    #[inline]
    fn append_encoded(
        &self,
        encode: impl FnOnce(&mut Vec<u8>),
        append: impl FnOnce(&[u8]) -> Result<esker_log::Ticket, AppendError>,
    ) -> Result<esker_log::Ticket, StorageError> {
        let ticket = with_record_buffer(|buffer| {
            encode(buffer);
            debug_assert_eq!(Record::decode(buffer).err(), None, "an appended record is invalid");
            append(buffer)
        });
        self.appended(ticket)
    }

    /// Appends records that share one sync as long as their tickets are kept: dropping a ticket
    /// requests a commit. Other records may be between them.
    pub(crate) fn append_all(
        &self,
        records: &[Vec<u8>],
    ) -> Result<Vec<esker_log::Ticket>, StorageError> {
        records
            .iter()
            .map(|record| {
                debug_assert_eq!(
                    Record::decode(record).err(),
                    None,
                    "an appended record is invalid"
                );
                self.appended(self.log.append(record.as_slice()))
            })
            .collect()
    }

    fn appended(
        &self,
        ticket: Result<esker_log::Ticket, impl Into<esker_log::Error>>,
    ) -> Result<esker_log::Ticket, StorageError> {
        let ticket = ticket.map_err(|error| self.fail(error))?;
        self.records.set_newest(ticket.seq().0);
        Ok(ticket)
    }

    /// The sink to which a ticket reports a failure.
    pub(crate) fn failure_sink(self: &Arc<Self>) -> Arc<dyn FailureSink> {
        Arc::clone(self) as Arc<dyn FailureSink>
    }

    /// The number of records since the last checkpoint.
    pub(crate) fn since_checkpoint(&self) -> u64 {
        self.checkpoints.records_since(self.records.newest())
    }

    /// Returns the page of a slot, if there is one. Reads it from the log if it is not in memory.
    /// An error names this slot.
    pub(crate) fn page<'g>(
        &self,
        slot: u64,
        guard: &'g crossbeam_epoch::Guard,
    ) -> Result<Option<Borrowed<'g, Arc<Page>>>, StorageError> {
        let number = page_of(slot);
        loop {
            match self.index.find(number, guard) {
                PageLookup::Page(page) => {
                    debug_assert_eq!(page.number, number, "the page table returned another page");
                    return Ok(Some(page));
                }
                PageLookup::Absent => return Ok(None),
                PageLookup::Stored(seq) => {
                    let page = match self.read_page(slot, seq) {
                        Ok(page) => page,
                        // A checkpoint may have stored it again, and the old record was dropped.
                        Err(error) => match self.index.find(number, guard) {
                            PageLookup::Stored(now) if now == seq => return Err(error),
                            _ => continue,
                        },
                    };
                    for (_, slot) in page.used_from(0) {
                        if slot.word().state() == State::Accepted {
                            self.index.open.enter(number, &page.open);
                        }
                    }
                    self.index.install(page, guard);
                }
            }
        }
    }

    /// Reads the page of a slot, for a call that then takes slot locks: with them, other callers
    /// would wait for the disk. A page stays in memory. One that cannot be read is met again.
    #[inline]
    pub(crate) fn load_page(&self, slot: u64, guard: &crossbeam_epoch::Guard) {
        if let PageLookup::Stored(_) = self.index.find(page_of(slot), guard) {
            drop(self.page(slot, guard));
        }
    }

    /// Returns the page of a slot that is accepted, committed or listed as open, so it has one.
    pub(crate) fn known_page<'g>(
        &self,
        slot: u64,
        guard: &'g crossbeam_epoch::Guard,
    ) -> Result<Borrowed<'g, Arc<Page>>, StorageError> {
        self.page(slot, guard)?.ok_or_else(|| self.broken("a slot in use has a page"))
    }

    fn read_page(&self, slot: u64, seq: u64) -> Result<Page, StorageError> {
        self.stored_page(slot, seq, |first, words| {
            Page::from_words(page_of(slot), usize::from(first), words.iter())
        })
    }

    /// Reads the page of a slot that a checkpoint stored.
    pub(crate) fn stored_page<T>(
        &self,
        slot: u64,
        seq: u64,
        make: impl FnOnce(u16, Words<'_>) -> Option<T>,
    ) -> Result<T, StorageError> {
        let nonsense = |what| StorageError::CorruptedRecord { seq: Seq(seq), what };
        let view = self.log.read(seq).map_err(|cause| StorageError::CorruptedEntry {
            slot: Slot(slot),
            cause: cause.into(),
        })?;
        match Record::decode(&view).map_err(nonsense)? {
            Record::Page { number, first, words } if number == page_of(slot) => {
                make(first, words).ok_or(nonsense("a slot of the page cannot be"))
            }
            _ => Err(nonsense("it is not the page that the checkpoint names")),
        }
    }

    /// Returns the page of a slot, creating it if there is none; `None` if the slot is too far
    /// above the floor.
    pub(crate) fn page_for<'g>(
        &self,
        slot: u64,
        guard: &'g crossbeam_epoch::Guard,
    ) -> Result<Option<Borrowed<'g, Arc<Page>>>, StorageError> {
        match self.page(slot, guard)? {
            Some(page) => Ok(Some(page)),
            None => Ok(self.index.make(page_of(slot), guard)),
        }
    }
}

/// Passes an empty buffer of this thread to `with`.
fn with_record_buffer<T>(with: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    RECORD_BUFFER.with(|buffer| match buffer.try_borrow_mut() {
        Ok(mut buffer) => {
            buffer.clear();
            let done = with(&mut buffer);
            buffer.shrink_to(RECORD_BUFFER_BYTES_MAX);
            done
        }
        Err(_) => with(&mut Vec::new()),
    })
}

impl FailureSink for Inner {
    fn fail(&self, error: esker_log::Error) -> StorageError {
        Inner::fail(self, error)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use esker_disk::sim::SimDisk;

    use super::*;
    use crate::{Ballot, Error};

    const INVARIANT: &str = "two and two are four";

    fn refused<T>(outcome: Result<T, impl Into<Error>>) {
        let error = outcome.err().map(Into::into);
        let is_internal =
            matches!(error, Some(Error::Storage(StorageError::Internal { invariant: INVARIANT })));
        assert!(is_internal, "{error:?}");
    }

    /// A state that contradicts itself is never an ordinary answer.
    #[test]
    fn a_broken_invariant_is_terminal() {
        let disk = SimDisk::new(1);
        let open = || ConsensusLog::builder("/log").disk(Arc::new(disk.clone())).open().unwrap();
        let (log, ballot) = (open(), Ballot { number: 1, node: 1 });
        log.accept(Slot(0), ballot, b"value").unwrap().blocking_wait().unwrap();
        let mut watch = log.watch();
        let broken = catch_unwind(AssertUnwindSafe(|| log.inner.broken(INVARIANT)));
        assert_eq!(broken.is_err(), cfg!(debug_assertions));
        refused(log.accept(Slot(1), ballot, b"value"));
        refused(log.promise(ballot, Slot(0)));
        refused(log.commit(Slot(0), ballot));
        refused(log.truncate_from(Slot(0)));
        refused(log.maintenance().checkpoint());
        refused(watch.blocking_changed());
        assert_eq!(log.read(Slot(0), &log.pin()).unwrap().value(), b"value");
        refused(log.close());
        let log = open();
        log.commit(Slot(0), ballot).unwrap().blocking_wait().unwrap();
        log.close().unwrap();
    }
}

//! An open consensus log, and the state that its operations share.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst,
};

use esker_log::component::Purpose;
use esker_log::{Log, Seq};
use parking_lot::{Mutex, RwLock};

use crate::base::slot::{Slot, number_of};
use crate::index::page::Page;
use crate::index::page_table::{Found, Index};
use crate::index::slot_locks::{AllLocks, PromiseState, SlotGuard, SlotLocks};
use crate::memory::cell::Borrowed;
use crate::memory::value_budget::ValueBudget;
use crate::options::{Mode, Options};
use crate::outcome::{Error, Failing, Result, refuse_if_forked};
use crate::read_only::ReadOnlyReason;
use crate::record::{Record, Words};
use crate::state::background::Background;
use crate::state::commit_tracker::CommitTracker;
use crate::state::reclaiming::Reclaiming;
use crate::state::waiting::FrontierWaiters;

/// A handle to a consensus log in a directory. Cheap to clone: all clones are the same log, and
/// every operation may be called from any thread.
///
/// Dropping the last handle closes the log, and blocks meanwhile. Call [`ConsensusLog::close`] to
/// learn whether closing succeeded.
///
/// # Blocking
/// Tickets are futures. A method of a ticket or a watch that is named `blocking_` blocks instead.
/// In async code:
///
/// - [`promise`], [`accept`], [`accept_batch`], [`commit`], [`commit_batch`], [`commit_through`]
///   and [`learn`]: call them, and await the ticket. The call itself blocks only while the staging
///   memory of the underlying log is full, until a commit ends, and while an index page that is not
///   in memory is read.
/// - [`accept_timeout`] blocks. Call [`accept_async`], which waits for room as a future.
/// - [`truncate_before`], [`truncate_from`] and [`install`] block, and the variants named `_with`.
///   Call those named `_async`.
/// - [`read`] and [`read_committed`] block only to read a value that is not in memory.
/// - [`open`], iterations and replays, [`entries`], [`for_each`] over a promise's answer,
///   [`checkpoint`], [`reclaim`], [`close`] and [`inspect`] block on the disk. Run them where
///   blocking is allowed, for example in `spawn_blocking`.
///
/// [`promise`]: Self::promise
/// [`accept`]: Self::accept
/// [`accept_batch`]: Self::accept_batch
/// [`accept_timeout`]: Self::accept_timeout
/// [`commit`]: Self::commit
/// [`commit_batch`]: Self::commit_batch
/// [`commit_through`]: Self::commit_through
/// [`learn`]: Self::learn
/// [`accept_async`]: Self::accept_async
/// [`entries`]: Self::entries
/// [`truncate_before`]: Self::truncate_before
/// [`truncate_from`]: Self::truncate_from
/// [`install`]: Self::install
/// [`read`]: Self::read
/// [`read_committed`]: Self::read_committed
/// [`open`]: Self::open
/// [`for_each`]: crate::Promised::for_each
/// [`checkpoint`]: Self::checkpoint
/// [`reclaim`]: Self::reclaim
/// [`close`]: Self::close
/// [`inspect`]: crate::inspect()
#[derive(Debug, Clone)]
pub struct ConsensusLog {
    pub(crate) inner: Arc<Inner>,
    /// Closes the log when the last handle is dropped.
    pub(crate) _owner: Arc<dyn std::fmt::Debug + Send + Sync>,
}

pub(crate) struct Inner {
    pub(crate) log: Log,
    pub(crate) options: Options,
    /// The label that is stored with the log.
    pub(crate) label: Vec<u8>,
    pub(crate) locks: SlotLocks,
    /// The first slot that is not truncated, durably or not. Changes only under all slot locks.
    pub(crate) start: AtomicU64,
    pub(crate) index: Index,
    pub(crate) budget: ValueBudget,
    pub(crate) tracker: Mutex<CommitTracker>,
    pub(crate) waiting: FrontierWaiters,
    /// Held while a checkpoint is taken and while the log is closed.
    pub(crate) maintenance: Mutex<()>,
    pub(crate) background: Background,
    pub(crate) reclaiming: Reclaiming,
    /// The number of the newest record, or of a slightly earlier one.
    pub(crate) newest: AtomicU64,
    /// The number of the newest record that the last checkpoint covers.
    pub(crate) checkpointed: AtomicU64,
    /// The number of records between two automatic checkpoints.
    pub(crate) checkpoint_every: u64,
    /// The records of the newest raise of the floor and of the newest cut, durable or not.
    pub(crate) raised_at: AtomicU64,
    pub(crate) cut_at: AtomicU64,
    /// No automatic checkpoint before the newest record has this number: the last one failed.
    pub(crate) retry_at: AtomicU64,
    /// Why it accepts no operation; `None` for an ordinary log.
    pub(crate) read_only: Option<ReadOnlyReason>,
    /// The quarantined records, from the first to the last. No other record may be missing.
    pub(crate) lost: Mutex<Option<(Seq, Seq)>>,
    /// As of opening, one past the highest slot that a record shows to be committed, and one past
    /// the highest accepted one. Used only for a log that lost records, which is read-only.
    pub(crate) committed_end: AtomicU64,
    pub(crate) accepted_end: AtomicU64,
    pub(crate) closed: AtomicBool,
    /// Held while segments or snapshots are removed, and by a backup, which needs them all. One for
    /// all logs of a manager.
    pub(crate) removals: Arc<RwLock<()>>,
    /// The underlying log failed.
    pub(crate) failed: AtomicBool,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsensusLog").field("log", &self.log).finish_non_exhaustive()
    }
}

thread_local! {
    /// The buffer that encodes records. It keeps the capacity for a thread's ordinary records.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}
const SCRATCH_KEPT: usize = 1 << 20;

impl ConsensusLog {
    /// Returns a guard under which to read. Hold it across many reads. Entries borrowed under it do
    /// not change. Memory that is replaced meanwhile is kept until the guard is dropped.
    pub fn pin(&self) -> Guard {
        Guard(crossbeam_epoch::pin())
    }

    /// Whether the log was closed.
    pub fn is_closed(&self) -> bool {
        self.inner.closed.load(Acquire)
    }

    /// The label that is stored with the log; empty if it has none. See
    /// [`Options::label`](crate::Options::label).
    pub fn label(&self) -> &[u8] {
        &self.inner.label
    }

    /// The options that the log was opened with.
    pub fn options(&self) -> &Options {
        &self.inner.options
    }
}

/// A guard under which entries are borrowed; from [`ConsensusLog::pin`]. While it is held, no
/// memory that is reachable under it is freed or reused, in any log of the process.
#[derive(Debug)]
pub struct Guard(pub(crate) crossbeam_epoch::Guard);

impl Inner {
    pub(crate) fn new(
        log: Log,
        options: Options,
        label: Vec<u8>,
        read_only: Option<ReadOnlyReason>,
        start: u64,
    ) -> Self {
        let inline = options.engine.as_ref().is_some_and(esker_log::Engine::is_manual);
        Self {
            log,
            label,
            background: Background::new(inline),
            reclaiming: Reclaiming::default(),
            locks: SlotLocks::new(),
            start: AtomicU64::new(start),
            index: Index::new(start),
            budget: ValueBudget::new(options.mutable_size),
            tracker: Mutex::new(CommitTracker::new(start)),
            waiting: FrontierWaiters::default(),
            maintenance: Mutex::default(),
            newest: AtomicU64::new(0),
            checkpointed: AtomicU64::new(0),
            checkpoint_every: options.records_per_checkpoint(),
            raised_at: AtomicU64::new(0),
            cut_at: AtomicU64::new(0),
            retry_at: AtomicU64::new(0),
            read_only,
            lost: Mutex::default(),
            committed_end: AtomicU64::new(0),
            accepted_end: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            removals: Arc::default(),
            failed: AtomicBool::new(false),
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
        self.start.load(Acquire)
    }

    /// Commits with markers up to this record are visible to readers.
    #[inline]
    pub(crate) fn visible(&self) -> u64 {
        if self.options.sync_on_commit { self.log.durable().0 } else { u64::MAX }
    }

    /// Acquires the lock of a slot, for an operation on that slot alone.
    #[inline]
    pub(crate) fn slot_lock(&self, slot: u64) -> Result<SlotGuard<'_>> {
        refuse_if_forked()?;
        Ok(self.locks.of_slot(slot))
    }

    /// Acquires all slot locks, for an operation on more than one slot.
    pub(crate) fn all_locks(&self) -> Result<AllLocks<'_>> {
        refuse_if_forked()?;
        Ok(self.locks.lock_all())
    }

    pub(crate) fn refuse_if_closed(&self) -> Result<()> {
        refuse_if_forked()?;
        if self.closed.load(Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// As [`Inner::writable`], for an operation that holds no slot lock.
    pub(crate) fn refuse_if_not_writable(&self) -> Result<()> {
        let promise_state = self.slot_lock(0)?;
        self.writable(&promise_state)
    }

    /// Refuses the operation if the log accepts no writes.
    pub(crate) fn writable(&self, promise_state: &PromiseState) -> Result<()> {
        if promise_state.closed {
            return Err(Error::Closed);
        }
        if let Some(reason) = self.read_only {
            return Err(Error::ReadOnly { reason });
        }
        if self.failed.load(Relaxed) {
            // The barrier returns the cause.
            drop(self.log.barrier().map_err(|error| self.fail(error))?);
            return Err(Error::Log(esker_log::Error::Stopped));
        }
        Ok(())
    }

    /// Refuses a slot that cannot be written to.
    pub(crate) fn in_range(&self, slot: u64) -> Result<()> {
        let start = self.start();
        if slot < start {
            return Err(Error::Truncated { floor: Slot(start - 1) });
        }
        let limit = Index::limit(start);
        if slot >= limit {
            Err(Error::SlotOutOfRange { slot: Slot(slot), limit: Slot(limit) })
        } else {
            Ok(())
        }
    }

    /// Converts an error of the underlying log. A failed write puts this log into the failed state.
    pub(crate) fn fail(&self, error: esker_log::Error) -> Error {
        if matches!(
            error,
            esker_log::Error::Io(_) | esker_log::Error::Poisoned(_) | esker_log::Error::Stopped
        ) {
            self.failed.store(true, SeqCst);
            self.waiting.wake();
            // From here on no bytes are released.
            self.budget.close();
        }
        error.into()
    }

    /// Appends one record.
    pub(crate) fn append(&self, encode: impl FnOnce(&mut Vec<u8>)) -> Result<esker_log::Ticket> {
        self.append_encoded(encode, |record| self.log.append(record))
    }

    /// Appends one record that frees space or preserves data. On a full disk it uses the reserve of
    /// the underlying log.
    pub(crate) fn append_internal(
        &self,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<esker_log::Ticket> {
        self.append_encoded(encode, |record| self.log.component().append(Purpose::Internal, record))
    }

    /// Appends the copy of a live record.
    pub(crate) fn append_copy(
        &self,
        encode: impl FnOnce(&mut Vec<u8>),
        purpose: Purpose,
    ) -> Result<esker_log::Ticket> {
        self.append_encoded(encode, |record| self.log.component().append(purpose, record))
    }

    #[inline]
    fn append_encoded(
        &self,
        encode: impl FnOnce(&mut Vec<u8>),
        append: impl FnOnce(&[u8]) -> esker_log::Result<esker_log::Ticket>,
    ) -> Result<esker_log::Ticket> {
        let ticket = with_scratch(|scratch| {
            encode(scratch);
            append(scratch)
        });
        self.appended(ticket)
    }

    /// Appends records that share one sync as long as their tickets are kept: dropping a ticket
    /// requests a commit. Other records may be between them.
    pub(crate) fn append_all(&self, records: &[Vec<u8>]) -> Result<Vec<esker_log::Ticket>> {
        records.iter().map(|record| self.appended(self.log.append(record.as_slice()))).collect()
    }

    fn appended(&self, ticket: esker_log::Result<esker_log::Ticket>) -> Result<esker_log::Ticket> {
        let ticket = ticket.map_err(|error| self.fail(error))?;
        // Other threads may store theirs out of order; every use of `newest` tolerates that.
        self.newest.store(ticket.seq().0, Relaxed);
        Ok(ticket)
    }

    /// This log, as a ticket reports a failure to it.
    pub(crate) fn failing(self: &Arc<Self>) -> Arc<dyn Failing> {
        Arc::clone(self) as Arc<dyn Failing>
    }

    /// The number of records since the last checkpoint.
    pub(crate) fn since_checkpoint(&self) -> u64 {
        self.newest.load(Relaxed).saturating_sub(self.checkpointed.load(Relaxed))
    }

    /// Returns the page of a slot, if there is one. Reads it from the log if it is not in memory.
    /// An error names this slot.
    pub(crate) fn page<'g>(
        &self,
        slot: u64,
        guard: &'g crossbeam_epoch::Guard,
    ) -> Result<Option<Borrowed<'g, Arc<Page>>>> {
        let number = number_of(slot);
        loop {
            match self.index.find(number, guard) {
                Found::Page(page) => return Ok(Some(page)),
                Found::Nothing => return Ok(None),
                Found::Stored(seq) => {
                    let page = match self.read_page(slot, seq) {
                        Ok(page) => page,
                        // A checkpoint may have stored it again, and the old record was dropped.
                        Err(error) => match self.index.find(number, guard) {
                            Found::Stored(now) if now == seq => return Err(error),
                            _ => continue,
                        },
                    };
                    for (_, slot) in page.used_from(0) {
                        if slot.word().state() == crate::index::page::State::Accepted {
                            self.index.open.enter(number, &page.open);
                        }
                    }
                    self.index.install(page, guard);
                }
            }
        }
    }

    fn read_page(&self, slot: u64, seq: u64) -> Result<Page> {
        self.stored_page(slot, seq, |first, words| {
            Page::from_words(number_of(slot), usize::from(first), words.iter())
        })
    }

    /// Reads the page of a slot that a checkpoint stored.
    pub(crate) fn stored_page<T>(
        &self,
        slot: u64,
        seq: u64,
        make: impl FnOnce(u16, Words<'_>) -> Option<T>,
    ) -> Result<T> {
        let nonsense = |what| Error::CorruptedRecord { seq: Seq(seq), what };
        let view = self
            .log
            .read(seq)
            .map_err(|cause| Error::CorruptedEntry { slot: Slot(slot), cause })?;
        match Record::decode(&view).map_err(nonsense)? {
            Record::Page { number, first, words } if number == number_of(slot) => {
                make(first, words).ok_or(nonsense("a slot of the page cannot be"))
            }
            _ => Err(nonsense("it is not the page that the checkpoint names")),
        }
    }

    /// Returns the page of a slot, creating it if there is none.
    pub(crate) fn page_for<'g>(
        &self,
        slot: u64,
        guard: &'g crossbeam_epoch::Guard,
    ) -> Result<Borrowed<'g, Arc<Page>>> {
        if let Some(page) = self.page(slot, guard)? {
            return Ok(page);
        }
        let limit = Index::limit(self.start());
        self.index
            .make(number_of(slot), guard)
            .ok_or(Error::SlotOutOfRange { slot: Slot(slot), limit: Slot(limit) })
    }
}

/// Passes an empty buffer of this thread to `with`.
fn with_scratch<T>(with: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
        Ok(mut scratch) => {
            scratch.clear();
            let done = with(&mut scratch);
            scratch.shrink_to(SCRATCH_KEPT);
            done
        }
        Err(_) => with(&mut Vec::new()),
    })
}

impl Failing for Inner {
    fn fail(&self, error: esker_log::Error) -> Error {
        Inner::fail(self, error)
    }
}

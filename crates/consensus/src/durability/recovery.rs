//! Recovery: opening loads the last checkpoint and replays every later record, in order.
//!
//! Replay decides nothing. A record exists because its operation was decided, and the order of the
//! records is the order of the decisions. Records that truncation copied forward repeat the current
//! state: an accept that is the slot's current one, or a value that is already committed.
//!
//! The pages of a checkpoint were copied while callers continued, each at a different moment. So a
//! slot may be ahead of the record that is being replayed. Replay skips a record whose effect is
//! already in the slot's word. `checkpoint` shows why this is correct for every record and state.

use std::path::Path;
use std::sync::Arc;

use crossbeam_epoch::Guard;
use esker_disk::planted::{Bug, is_planted};
use esker_log::{Log, Seq, Start};

use crate::base::ballot::Ballot;
use crate::base::slot::{SLOTS_PER_PAGE, Slot, first_slot_of, page_of};
use crate::component::{self, COMPONENT, COPY_COMPONENT};
use crate::durability::close::CloseOnDrop;
use crate::durability::load_values::load_values;
use crate::durability::metadata::Metadata;
use crate::errors::manager_errors::OpenError;
use crate::index::page::{IndexEntry, Page, SEQ_LIMIT, State, Word};
use crate::memory::cell::Borrowed;
use crate::options::ConsensusLogBuilder;
use crate::read_only::ReadOnlyReason;
use crate::record::{PageAt, Record, Root};
use crate::state::commit_tracker::{AppStateBytes, CommittedRange};
use crate::state::inner::{ConsensusLog, Inner};
use crate::storage_error::StorageError;

impl ConsensusLog {
    /// Opens the log in `dir` with the default options, and creates it if there is none. Locks
    /// the directory.
    ///
    /// After a clean close it reads the last checkpoint. After a crash it also replays the records
    /// appended since, at most about
    /// [`Options::checkpoint_every`](crate::Options::checkpoint_every). Blocks meanwhile.
    ///
    /// In a child that `fork` makes from here on, every call that returns a `Result` fails with
    /// [`StorageError::Forked`], and dropping the handle changes nothing: see
    /// [`esker_log::Log::open`].
    ///
    /// # Errors
    /// As [`ConsensusLogBuilder::open`].
    ///
    /// # Examples
    /// ```
    /// use esker_consensus::{Ballot, ConsensusLog};
    /// # fn main() -> Result<(), esker_consensus::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path().join("node-1");
    /// let log = ConsensusLog::open(&dir)?;
    /// assert_eq!(log.promised(), None);
    /// # Ok(log.close()?)
    /// # }
    /// ```
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::builder(dir).open()
    }

    /// Returns a builder that opens the log in `dir` with other options.
    ///
    /// # Examples
    /// ```
    /// use esker_consensus::{ConsensusLog, Mode};
    /// # fn main() -> Result<(), esker_consensus::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path().join("node-1");
    /// let log = ConsensusLog::builder(&dir).mutable_size(128 << 20).segment_size(8 << 20).open()?;
    /// assert_eq!(log.options().mode, Mode::Durable);
    /// # Ok(log.close()?)
    /// # }
    /// ```
    pub fn builder(dir: impl AsRef<Path>) -> ConsensusLogBuilder {
        ConsensusLogBuilder::new(dir.as_ref().to_owned())
    }
}

impl ConsensusLogBuilder {
    /// Opens the log. See [`ConsensusLog::open`].
    ///
    /// # Errors
    /// [`OpenError::InvalidOption`], [`OpenError::WrongLabel`], [`OpenError::UnfinishedBackup`];
    /// [`OpenError::Storage`], with:
    ///
    /// - [`StorageError::Log`] for a log that is locked, corrupt or unreadable, see
    ///   [`esker_log::Error`], and for a plain log or one of another component, which is not
    ///   changed. With a label in the options also [`esker_log::Error::Corrupted`] for the file
    ///   `note`, which has the log's own: if you know that it is this log, remove that file.
    /// - [`StorageError::CorruptedRecord`] for a record that is not a consensus log's.
    pub fn open(self) -> Result<ConsensusLog, OpenError> {
        let Self { dir, mut options, shared, renumber } = self;
        options.validate()?;
        let mut own = options.for_log();
        if shared.reserve.is_some() {
            (own.reserve, own.shared_reserve) = (Some(0), shared.reserve);
        }
        let (log, component) = component::open(&dir, own)?;
        if log.accepted().0 >= SEQ_LIMIT {
            let what = "its number is too large";
            return Err(StorageError::CorruptedRecord { seq: log.accepted(), what }.into());
        }
        let is_repaired = log.storage().was_repaired().map_err(StorageError::from_log)?;
        let read_only = ReadOnlyReason::from_origin(is_repaired, component == COPY_COMPONENT);
        let mut metadata = Metadata::read(&log, component, &options)?;
        metadata.check_label(&log, component, &options)?;
        let root = if is_repaired { None } else { last_root(&log, metadata.root) };
        let start = match &root {
            Some(last) => last.root.start,
            None => floor(&log)?,
        };
        options.label = metadata.label;
        let mut inner = Inner::new(log, options, read_only, shared.removals, start);
        Replay::run(&inner, root)?;
        if renumber && inner.status.read_only() == Some(ReadOnlyReason::Copied) {
            let metadata = Metadata { root: metadata.root, label: inner.options.label.clone() };
            let metadata = metadata.encode();
            let renamed = inner.log.component().set_component(COPY_COMPONENT, COMPONENT, &metadata);
            renamed.map_err(StorageError::from_log)?;
            inner.status.end_copy();
        }
        let inner = Arc::new(inner);
        let closer = Arc::new(CloseOnDrop(Arc::clone(&inner)));
        Ok(ConsensusLog { inner, _closer: closer })
    }
}

/// The root of the last checkpoint.
struct LastRoot {
    root: Root,
    app_state: AppStateBytes,
    pages: Vec<PageAt>,
}

/// Returns the root of the last checkpoint, if there is one. A checkpoint is optional: an invalid
/// one is no error, because everything in it can be replayed.
fn last_root(log: &Log, root: u64) -> Option<LastRoot> {
    let view = log.read(root).ok()?;
    match Record::decode(&view) {
        Ok(Record::Root { root, app_state, pages }) => {
            let (app_state, pages) = (app_state.into(), pages.iter().collect::<Vec<_>>());
            is_in(log, &root, &pages).then_some(LastRoot { root, app_state, pages })
        }
        _ => None,
    }
}

/// Whether the log has every record that a checkpoint names. A new checkpoint is written before
/// records that the last one needs are dropped. So missing records mean that older app metadata
/// named it.
fn is_in(log: &Log, root: &Root, pages: &[PageAt]) -> bool {
    let oldest = log.oldest().0;
    let is_kept = |page: &&PageAt| page.number >= page_of(root.start);
    let whole =
        root.replay >= oldest && pages.iter().filter(is_kept).all(|page| page.seq >= oldest);
    if !whole {
        tracing::warn!(oldest, "checkpoint ignored: records that it needs were dropped");
    }
    whole
}

/// The first kept slot, for a log that is replayed as a whole. The replay needs it before the first
/// record: once the log dropped its prefix, the records that hold it may follow values of slots far
/// above 0. The replay skips slots below it, and otherwise reaches the same state.
fn floor(log: &Log) -> Result<u64, StorageError> {
    let mut start = 0;
    if log.oldest() <= Seq(1) {
        // The log has every record, from slot 0 on.
        return Ok(start);
    }
    let mut stream = log.stream(Start::Oldest).map_err(StorageError::from_log)?;
    loop {
        let batch = match stream.try_next() {
            Ok(Some(batch)) => batch,
            Ok(None) => return Ok(start),
            // The replay reports it.
            Err(esker_log::ReadError::Quarantined(_)) => continue,
            Err(error) => return Err(StorageError::from_log(error)),
        };
        for record in &batch {
            if let Ok(
                Record::State { start: raised, .. }
                | Record::Root { root: Root { start: raised, .. }, .. },
            ) = Record::decode(record.payload)
            {
                start = start.max(raised);
            }
        }
    }
}

/// A recovery in progress. It has exclusive access to the log.
struct Replay<'a, 'g> {
    inner: &'a Inner,
    guard: &'g Guard,
    promise: Option<Ballot>,
    app_state: AppStateBytes,
    /// The record as of which `app_state` is known.
    app_state_at: u64,
    next: u64,
    range: Option<CommittedRange>,
    /// One past the highest slot that a record shows to be committed, even if its value is lost.
    committed_end: u64,
    /// The page of the last record.
    page: Option<Borrowed<'g, Arc<Page>>>,
}

impl<'a, 'g> Replay<'a, 'g> {
    fn run(inner: &'a Inner, root: Option<LastRoot>) -> Result<(), StorageError> {
        let guard = &crossbeam_epoch::pin();
        let mut replay = Replay {
            inner,
            guard,
            promise: None,
            app_state: Arc::default(),
            app_state_at: 0,
            next: 0,
            range: None,
            committed_end: 0,
            page: None,
        };
        let from = match root {
            Some(last) => replay.begin(last)?,
            None => Start::Oldest,
        };
        replay.records(from)?;
        replay.end()
    }

    /// Loads a checkpoint. Returns where the replay starts.
    fn begin(
        &mut self,
        LastRoot { root, app_state, pages }: LastRoot,
    ) -> Result<Start, StorageError> {
        self.promise = root.promise;
        (self.app_state, self.app_state_at) = (app_state, root.replay.saturating_sub(1));
        self.next = root.next;
        let kept = || pages.iter().filter(|page| page.number >= page_of(root.start));
        // As of when the pages were written; later commits are replayed.
        let count = kept().map(|page| page.committed).sum();
        let (lowest, highest) = (Slot(root.lowest), Slot(root.highest));
        self.range = (count > 0).then_some(CommittedRange { lowest, highest, count });
        for page in kept() {
            if page.committed > SLOTS_PER_PAGE as u64 {
                let what = "a page of the checkpoint has too many committed slots";
                return Err(StorageError::CorruptedRecord { seq: Seq(page.seq), what });
            }
            if !self.inner.index.store(page, self.guard) {
                let what = "a page of the checkpoint is too far off";
                return Err(StorageError::CorruptedRecord { seq: Seq(page.seq), what });
            }
        }
        for page in pages.iter().filter(|page| page.open) {
            self.inner.page(first_slot_of(page.number), self.guard)?;
        }
        Ok(Start::From(Seq(root.replay)))
    }

    fn records(&mut self, from: Start) -> Result<(), StorageError> {
        let mut stream = self.inner.log.stream(from).map_err(StorageError::from_log)?;
        let mut count = 0;
        loop {
            let batch = match stream.try_next() {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                // The log is read-only and reports the gap; the other slots stay readable.
                Err(esker_log::ReadError::Quarantined(esker_log::SeqRange { from, to }))
                    if self.is_repaired() =>
                {
                    self.inner.lost.add(from, to);
                    continue;
                }
                Err(error) => return Err(StorageError::from_log(error)),
            };
            for record in &batch {
                count += 1;
                self.record(record.seq.0, record.payload)?;
            }
        }
        let oldest = self.inner.log.oldest().0;
        if self.is_repaired() && oldest > 1 {
            // No gap is known: `repair` wrote a new manifest, and the records before the oldest
            // segment were dropped or lost.
            self.inner.lost.add_beginning(Seq(oldest - 1));
        }
        let newest = self.inner.log.accepted().0;
        self.inner.records.set_newest(newest);
        debug_assert!(count <= newest, "more records were replayed than appended");
        self.inner.checkpoints.set_covered(newest.saturating_sub(count));
        Ok(())
    }

    fn is_repaired(&self) -> bool {
        self.inner.status.read_only() == Some(ReadOnlyReason::Repaired)
    }

    fn record(&mut self, seq: u64, payload: &[u8]) -> Result<(), StorageError> {
        let nonsense = |what| StorageError::CorruptedRecord { seq: Seq(seq), what };
        let decoded = Record::decode(payload).map_err(nonsense)?;
        match decoded {
            Record::Promise { ballot } => self.promise = self.promise.max(Some(ballot)),
            Record::Accept { slot, ballot, value } => {
                self.promise = self.promise.max(Some(ballot));
                self.accepted(slot, seq, value.len())?;
            }
            Record::Chosen { slot, value, .. } => self.chosen(slot, seq, value.len())?,
            Record::Commit { slots } => {
                for (slot, _) in slots.iter() {
                    self.marked(slot, seq)?;
                }
            }
            Record::Through { first, last } => self.through(first, last, seq)?,
            Record::State { promise, start, next, app_state }
            | Record::Root { root: Root { promise, start, next, .. }, app_state, .. } => {
                let at = decoded.app_state_at(seq);
                if at >= self.app_state_at {
                    (self.app_state, self.app_state_at) = (app_state.into(), at);
                }
                self.promise = self.promise.max(promise);
                self.next = self.next.max(next);
                self.raise(start);
                self.committed_end = self.committed_end.max(next);
                if let Record::Root { root, .. } = decoded
                    && root.lowest <= root.highest
                {
                    self.is_committed(root.highest);
                }
            }
            Record::Cut { from } => self.cut(from, seq)?,
            // A page repeats what earlier records contain.
            Record::Page { .. } => {}
        }
        Ok(())
    }

    /// A record shows this slot to be committed.
    fn is_committed(&mut self, slot: u64) {
        self.committed_end = self.committed_end.max(slot.saturating_add(1));
    }

    /// The page of a slot that the record `seq` is about; `None` below the floor.
    fn page(
        &mut self,
        slot: u64,
        seq: u64,
    ) -> Result<Option<Borrowed<'g, Arc<Page>>>, StorageError> {
        if slot < self.inner.start() {
            return Ok(None);
        }
        let number = page_of(slot);
        if self.page.as_ref().is_none_or(|page| page.number != number) {
            let page = self.inner.page_for(slot, self.guard)?;
            let what = "its slot is too far above the floor";
            let far = StorageError::CorruptedRecord { seq: Seq(seq), what };
            self.page = Some(page.ok_or(far)?);
        }
        Ok(self.page.clone())
    }

    fn accepted(&mut self, slot: u64, seq: u64, len: usize) -> Result<(), StorageError> {
        let Some(page) = self.page(slot, seq)? else { return Ok(()) };
        let indexed = page.slot(slot);
        if indexed.word().seq() >= seq {
            return Ok(());
        }
        match indexed.word().state() {
            // The same value; another one would have been refused.
            State::Committed => return Ok(()),
            State::Empty => self.inner.index.open.enter(page.number, &page.open),
            State::Accepted => {}
        }
        indexed.set_word(Word::accepted(seq).sized(len));
        page.touch();
        Ok(())
    }

    fn chosen(&mut self, slot: u64, seq: u64, len: usize) -> Result<(), StorageError> {
        self.is_committed(slot);
        let Some(page) = self.page(slot, seq)? else { return Ok(()) };
        let indexed = page.slot(slot);
        if indexed.word().seq() >= seq {
            self.merge(slot);
            return Ok(());
        }
        match indexed.word().state() {
            State::Accepted => page.open.leave(),
            State::Empty | State::Committed => {}
        }
        if indexed.word().state() == State::Committed {
            self.merge(slot);
        } else {
            page.count_commit();
            self.count(slot);
        }
        indexed.set_word(Word::committed(seq).sized(len));
        page.touch();
        Ok(())
    }

    /// Replays a commit of a slot by the record `marker`.
    fn marked(&mut self, slot: u64, marker: u64) -> Result<(), StorageError> {
        self.is_committed(slot);
        let Some(page) = self.page(slot, marker)? else { return Ok(()) };
        self.mark(&page, slot, page.slot(slot), marker);
        Ok(())
    }

    fn mark(&mut self, page: &Page, slot: u64, indexed: &IndexEntry, marker: u64) {
        let word = indexed.word();
        match word.state() {
            State::Committed => self.merge(slot),
            // The marker does not commit an entry that was accepted after it.
            State::Accepted if word.seq() > marker => {}
            State::Accepted if self.is_current(word.seq()) => {
                indexed.set_word(word.commit(word.seq()));
                page.touch();
                page.count_commit();
                page.open.leave();
                self.count(slot);
            }
            State::Accepted => page.clear(indexed, self.guard),
            // The accept was in a dropped prefix, and its copy follows; or it was quarantined; or
            // the page was copied after the floor passed the slot.
            State::Empty => {}
        }
    }

    /// Whether no quarantined record can have replaced this accept. A marker after a gap may commit
    /// another accept than one before the gap. Then the slot's value is among the missing records.
    fn is_current(&self, seq: u64) -> bool {
        self.inner.lost.is_current(seq)
    }

    /// Counts a slot that became committed.
    fn count(&mut self, slot: u64) {
        let none = CommittedRange { lowest: Slot(slot), highest: Slot(slot), count: 0 };
        self.range.get_or_insert(none).count += 1;
        self.merge(slot);
    }

    /// Extends the range to a committed slot. If it was committed before, its page's count includes
    /// it, but the bounds may not.
    fn merge(&mut self, slot: u64) {
        if let Some(range) = &mut self.range {
            range.lowest = range.lowest.min(Slot(slot));
            range.highest = range.highest.max(Slot(slot));
        }
    }

    /// Replays a commit of every accepted slot in a range.
    fn through(&mut self, first: u64, last: u64, marker: u64) -> Result<(), StorageError> {
        self.is_committed(last);
        let mut number = self.inner.index.next_page(page_of(first), self.guard);
        while let Some(current) = number.filter(|number| *number <= page_of(last)) {
            if let Some(page) = self.inner.page(first.max(first_slot_of(current)), self.guard)? {
                for (slot, indexed) in page.used_from(first).take_while(|(slot, _)| *slot <= last) {
                    self.mark(&page, slot, indexed, marker);
                }
            }
            number = self.inner.index.next_page(current + 1, self.guard);
        }
        Ok(())
    }

    fn raise(&mut self, start: u64) {
        if start > self.inner.start() {
            self.page = None;
            self.inner.frontier.lock().set_recovered(start, self.next, self.range);
            self.inner.index.raise_start(start);
            drop(self.inner.forget_below(start, self.guard));
            self.range = self.inner.frontier.lock().range();
        }
        self.next = self.next.max(start);
    }

    /// Replays a cut: drops entries from a slot on that were accepted by records before the cut's.
    fn cut(&mut self, from: u64, seq: u64) -> Result<(), StorageError> {
        for number in self.inner.index.open.list() {
            let page = self.inner.known_page(first_slot_of(number), self.guard)?;
            for (slot, indexed) in page.used_from(from) {
                let word = indexed.word();
                if word.state() == State::Accepted && word.seq() < seq && slot >= from {
                    page.clear(indexed, self.guard);
                }
            }
        }
        Ok(())
    }

    /// Loads uncommitted values into memory, and computes the frontier.
    fn end(self) -> Result<(), StorageError> {
        let is_repaired = self.is_repaired();
        let Self { inner, guard, promise, app_state, next, range, committed_end, .. } = self;
        let mut open = Vec::new();
        for number in inner.index.open.list() {
            let page = inner.known_page(first_slot_of(number), guard)?;
            let slots = page.used_from(0).map(|(slot, indexed)| (indexed.word(), slot));
            let accepted = slots.filter(|(word, _)| word.state() == State::Accepted);
            open.extend(accepted.map(|(word, slot)| (word.seq(), slot)));
        }
        let highest = open.iter().map(|(_, slot)| slot.saturating_add(1)).max();
        inner.lost.set_ends(committed_end, highest.unwrap_or(0));
        // In record order, so that one read returns many values.
        open.sort_unstable();
        load_values(inner, &open, guard)?;
        if !is_repaired {
            refuse_unpromised(inner, promise, guard)?;
        }
        if let Some(promise) = promise {
            inner.locks.lock_all().promise(promise, true);
        }
        let mut tracker = inner.frontier.lock();
        tracker.set_recovered(inner.start(), next, range);
        tracker.set_recovered_app_state(app_state);
        inner.advance(&mut tracker, u64::MAX, guard);
        drop(tracker);
        // Reads the pages that the frontier comes to.
        inner.count_durable(guard);
        Ok(())
    }
}

/// Refuses an entry whose ballot is above the promise: the record with the promise is missing.
fn refuse_unpromised(
    inner: &Inner,
    promise: Option<Ballot>,
    guard: &Guard,
) -> Result<(), StorageError> {
    let mut unpromised = None;
    inner.each_uncommitted(0, guard, |slot, resident| {
        if Some(resident.ballot) > promise && !is_planted(Bug::PromiseLostOnTruncation) {
            unpromised.get_or_insert(slot);
        }
    });
    let Some(slot) = unpromised else { return Ok(()) };
    let word = inner.known_page(slot, guard)?.slot(slot).word();
    let what = "its ballot was accepted and never promised";
    Err(StorageError::CorruptedRecord { seq: Seq(word.seq()), what })
}

const _: () = assert!(SLOTS_PER_PAGE <= u16::MAX as usize);

//! Opening: the last checkpoint, and then every record behind it, in order.
//!
//! Replaying decides nothing. A record is there because it was decided, and its place is the place of
//! the decision. Records that truncation copied forward say again what is so: an accept that is the
//! slot's current one, or a value that is committed already.
//!
//! The pages of a checkpoint were copied while callers went on, each at a moment of its own, so a slot may
//! be further than the record that is replayed: a record whose effect the slot's word has already is
//! passed over. Why that is right for every record and state is in `checkpoint`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use crossbeam_epoch::Guard;
use esker_log::{Log, Seq, Start};

use crate::base::ballot::Ballot;
use crate::base::slot::{SLOTS, number_of};
use crate::component::{self, COMPONENT};
use crate::durability::checkpoint;
use crate::durability::close::Owner;
use crate::index::page::{Page, SEQ_LIMIT, Slot, State, Word};
use crate::memory::cell::Borrowed;
use crate::memory::value_budget::charge;
use crate::memory::value_pool::new_value;
use crate::options::Options;
use crate::outcome::{Error, Result};
use crate::record::{PageAt, Record, Root};
use crate::state::commit_tracker::CommittedRange;
use crate::state::inner::{ConsensusLog, Inner};

impl ConsensusLog {
    /// Opens the log in `dir`, creating it where there is none. Takes the directory's lock.
    ///
    /// After a clean close it reads the last checkpoint; after a crash also what was appended since,
    /// at most about [`Options::checkpoint_every`] records.
    ///
    /// # Errors
    /// [`Error::InvalidOption`]; [`Error::Log`] for a log that is locked, damaged or unreadable, see
    /// [`esker_log::Error`], and for a plain log or that of another component, which is not changed;
    /// [`Error::CorruptedRecord`] for a record that is not a consensus log's.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Self> {
        options.check()?;
        let log = component::open(dir.as_ref(), options.for_log())?;
        if log.accepted().0 >= SEQ_LIMIT {
            let what = "its number is too large";
            return Err(Error::CorruptedRecord { seq: log.accepted().0, what });
        }
        // Whatever was put aside may have held a promise. That never heals.
        let read_only = log.was_repaired().map_err(Error::Log)?;
        let root = if read_only { None } else { last_root(&log) };
        let start = match &root {
            Some((root, _)) => root.start,
            None => floor(&log)?,
        };
        let inner = Inner::new(log, options, read_only, start);
        Replay::run(&inner, root)?;
        let inner = Arc::new(inner);
        let owner = Arc::new(Owner(Arc::clone(&inner)));
        Ok(Self { inner, _owner: owner })
    }
}

/// The last checkpoint's root, if there is one. It is an aid: whatever is wrong with it is no error,
/// for everything that it says can be replayed.
fn last_root(log: &Log) -> Option<(Root, Vec<PageAt>)> {
    let metadata = match log.app_metadata(COMPONENT) {
        Ok(metadata) => metadata?,
        Err(error) => {
            tracing::warn!(%error, "the last checkpoint is not used");
            return None;
        }
    };
    let view = checkpoint::named(&metadata).ok().and_then(|seq| log.read(seq).ok())?;
    match Record::decode(&view) {
        Ok(Record::Root { root, pages }) => {
            let pages: Vec<PageAt> = pages.iter().collect();
            is_in(log, &root, &pages).then_some((root, pages))
        }
        _ => None,
    }
}

/// Whether every record that a checkpoint names is in the log. A new checkpoint is made before records
/// that the last one needs are dropped, so one with missing records comes from older app metadata.
fn is_in(log: &Log, root: &Root, pages: &[PageAt]) -> bool {
    let oldest = log.oldest().0;
    let is_kept = |page: &&PageAt| page.number >= number_of(root.start);
    let whole =
        root.replay >= oldest && pages.iter().filter(is_kept).all(|page| page.seq >= oldest);
    if !whole {
        tracing::warn!(
            oldest,
            "the last checkpoint is not used: records that it needs were dropped"
        );
    }
    whole
}

/// The first slot kept, for a log that is replayed whole. It must be known before the first record is:
/// the records that tell of it may stand behind values of slots far above 0, once the log dropped its
/// prefix. Replayed from there, slots below it are passed over, and everything else comes out the same.
fn floor(log: &Log) -> Result<u64> {
    let mut start = 0;
    if log.oldest() <= Seq(1) {
        // Everything is there from slot 0 on.
        return Ok(start);
    }
    let mut stream = log.stream(Start::Oldest).map_err(Error::Log)?;
    loop {
        let batch = match stream.try_next() {
            Ok(Some(batch)) => batch,
            Ok(None) => return Ok(start),
            // The replay tells of it.
            Err(esker_log::Error::Quarantined { .. }) => continue,
            Err(error) => return Err(error.into()),
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

/// A recovery under way. Nobody else has the log yet.
struct Replay<'a, 'g> {
    inner: &'a Inner,
    guard: &'g Guard,
    promise: Ballot,
    next: u64,
    range: Option<CommittedRange>,
    /// The page of the last record.
    page: Option<Borrowed<'g, Arc<Page>>>,
}

impl<'a, 'g> Replay<'a, 'g> {
    fn run(inner: &'a Inner, root: Option<(Root, Vec<PageAt>)>) -> Result<()> {
        let guard = &crossbeam_epoch::pin();
        let (promise, next) = (Ballot::ZERO, 0);
        let mut replay = Replay { inner, guard, promise, next, range: None, page: None };
        let from = match root {
            Some((root, pages)) => replay.begin(&root, &pages)?,
            None => Start::Oldest,
        };
        replay.records(from)?;
        replay.end()
    }

    /// Takes over a checkpoint.
    fn begin(&mut self, root: &Root, pages: &[PageAt]) -> Result<Start> {
        self.promise = root.promise;
        self.next = root.next;
        let kept = || pages.iter().filter(|page| page.number >= number_of(root.start));
        // By the pages, as they were when they were written: what was committed since is replayed.
        let count = kept().map(|page| page.committed).sum();
        let (lowest, highest) = (root.lowest, root.highest);
        self.range = (count > 0).then_some(CommittedRange { lowest, highest, count });
        for page in kept() {
            if page.committed > SLOTS as u64 {
                let what = "a page of the checkpoint has too many committed slots";
                return Err(Error::CorruptedRecord { seq: page.seq, what });
            }
            if !self.inner.index.store(page, self.guard) {
                let what = "a page of the checkpoint is too far off";
                return Err(Error::CorruptedRecord { seq: page.seq, what });
            }
        }
        for page in pages.iter().filter(|page| page.open) {
            self.inner.page(page.number, self.guard)?;
        }
        Ok(Start::From(Seq(root.replay)))
    }

    fn records(&mut self, from: Start) -> Result<()> {
        let mut stream = self.inner.log.stream(from).map_err(Error::Log)?;
        let mut count = 0;
        loop {
            let batch = match stream.try_next() {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                // The log is read-only, and says so; what is left may be read.
                Err(esker_log::Error::Quarantined { from, to }) if self.inner.read_only => {
                    let mut lost = self.inner.lost.lock();
                    let first = lost.map_or(from, |(first, _)| first);
                    *lost = Some((first, to));
                    continue;
                }
                Err(error) => return Err(Error::Log(error)),
            };
            for record in &batch {
                count += 1;
                self.record(record.seq.0, record.payload)?;
            }
        }
        let newest = self.inner.log.accepted().0;
        self.inner.newest.store(newest, Relaxed);
        self.inner.checkpointed.store(newest.saturating_sub(count), Relaxed);
        Ok(())
    }

    fn record(&mut self, seq: u64, payload: &[u8]) -> Result<()> {
        let nonsense = |what| Error::CorruptedRecord { seq, what };
        match Record::decode(payload).map_err(nonsense)? {
            Record::Promise { ballot } => self.promise = self.promise.max(ballot),
            Record::Accept { slot, ballot, value } => {
                self.promise = self.promise.max(ballot);
                self.accepted(slot, seq, value.len())?;
            }
            Record::Chosen { slot, value, .. } => self.chosen(slot, seq, value.len())?,
            Record::Commit { slots } => {
                for (slot, _) in slots.iter() {
                    self.marked(slot, seq)?;
                }
            }
            Record::Through { first, last } => self.through(first, last, seq)?,
            Record::State { promise, start, next }
            | Record::Root { root: Root { promise, start, next, .. }, .. } => {
                self.promise = self.promise.max(promise);
                self.next = self.next.max(next);
                self.raise(start);
            }
            Record::Cut { above } => self.cut(above, seq)?,
            // What it says was said before it.
            Record::Page { .. } => {}
        }
        Ok(())
    }

    /// The page of a slot; `None` below the floor.
    fn page(&mut self, slot: u64) -> Result<Option<Borrowed<'g, Arc<Page>>>> {
        if slot < self.inner.start() {
            return Ok(None);
        }
        let number = number_of(slot);
        if self.page.as_ref().is_none_or(|page| page.number != number) {
            self.page = Some(self.inner.page_for(slot, self.guard)?);
        }
        Ok(self.page.clone())
    }

    fn accepted(&mut self, slot: u64, seq: u64, len: usize) -> Result<()> {
        let Some(page) = self.page(slot)? else { return Ok(()) };
        let place = page.slot(slot);
        if place.word().seq() >= seq {
            return Ok(());
        }
        match place.word().state() {
            // The same value, or it would have been refused.
            State::Committed => return Ok(()),
            State::Empty => self.inner.index.open.enter(page.number, &page.open),
            State::Accepted => {}
        }
        place.set_word(Word::accepted(seq).sized(len));
        page.touch();
        Ok(())
    }

    fn chosen(&mut self, slot: u64, seq: u64, len: usize) -> Result<()> {
        let Some(page) = self.page(slot)? else { return Ok(()) };
        let place = page.slot(slot);
        if place.word().seq() >= seq {
            self.merge(slot);
            return Ok(());
        }
        match place.word().state() {
            State::Accepted => page.open.leave(),
            State::Empty | State::Committed => {}
        }
        if place.word().state() == State::Committed {
            self.merge(slot);
        } else {
            page.count_commit();
            self.count(slot);
        }
        place.set_word(Word::committed(seq).sized(len));
        page.touch();
        Ok(())
    }

    /// A marker with this number commits what is accepted in a slot.
    fn marked(&mut self, slot: u64, marker: u64) -> Result<()> {
        let Some(page) = self.page(slot)? else { return Ok(()) };
        self.mark(&page, slot, page.slot(slot), marker);
        Ok(())
    }

    fn mark(&mut self, page: &Page, slot: u64, place: &Slot, marker: u64) {
        let word = place.word();
        match word.state() {
            State::Committed => self.merge(slot),
            // What was accepted later, the marker does not name.
            State::Accepted if word.seq() > marker => {}
            State::Accepted if self.is_current(word.seq()) => {
                place.set_word(word.commit(word.seq()));
                page.touch();
                page.count_commit();
                page.open.leave();
                self.count(slot);
            }
            State::Accepted => page.clear(place, self.guard),
            // What it committed stood before a prefix that was dropped, and follows as a copy; or it
            // was quarantined; or the page was copied after the floor passed the slot.
            State::Empty => {}
        }
    }

    /// Whether no quarantined record may have replaced this accept. One before a gap may not be what a
    /// marker after the gap commits: then the slot's value is among those that are missing.
    fn is_current(&self, seq: u64) -> bool {
        self.inner.lost.lock().is_none_or(|(_, last)| seq > last.0)
    }

    /// A slot became committed.
    fn count(&mut self, slot: u64) {
        let none = CommittedRange { lowest: slot, highest: slot, count: 0 };
        self.range.get_or_insert(none).count += 1;
        self.merge(slot);
    }

    /// A slot is committed. If it was before, its page's count has it, and the bounds may not.
    fn merge(&mut self, slot: u64) {
        if let Some(range) = &mut self.range {
            range.lowest = range.lowest.min(slot);
            range.highest = range.highest.max(slot);
        }
    }

    /// Whatever is accepted in a range is committed.
    fn through(&mut self, first: u64, last: u64, marker: u64) -> Result<()> {
        let mut number = self.inner.index.next_page(number_of(first), self.guard);
        while let Some(current) = number.filter(|number| *number <= number_of(last)) {
            if let Some(page) = self.inner.page(current, self.guard)? {
                for (slot, place) in page.from(first).take_while(|(slot, _)| *slot <= last) {
                    self.mark(&page, slot, place, marker);
                }
            }
            number = self.inner.index.next_page(current + 1, self.guard);
        }
        Ok(())
    }

    fn raise(&mut self, start: u64) {
        if start > self.inner.start() {
            self.page = None;
            self.inner.tracker.lock().recovered(start, self.next, self.range);
            self.inner.start.store(start, Release);
            drop(self.inner.forget_below(start, self.guard));
            self.range = self.inner.tracker.lock().range();
        }
        self.next = self.next.max(start);
    }

    /// What is accepted above a slot, by records before the cut's, is dropped.
    fn cut(&mut self, above: u64, seq: u64) -> Result<()> {
        for number in self.inner.index.open.list() {
            let Some(page) = self.inner.page(number, self.guard)? else { continue };
            for (slot, place) in page.from(above.saturating_add(1)) {
                let word = place.word();
                if word.state() == State::Accepted && word.seq() < seq && slot > above {
                    page.clear(place, self.guard);
                }
            }
        }
        Ok(())
    }

    /// Brings what is uncommitted into memory, and finds the frontier.
    fn end(self) -> Result<()> {
        let Self { inner, guard, promise, next, range, .. } = self;
        let mut open = Vec::new();
        for number in inner.index.open.list() {
            let Some(page) = inner.page(number, guard)? else { continue };
            let slots = page.from(0).map(|(slot, place)| (place.word(), slot));
            let accepted = slots.filter(|(word, _)| word.state() == State::Accepted);
            open.extend(accepted.map(|(word, slot)| (word.seq(), slot)));
        }
        // In the order of the records, so that one read brings many.
        open.sort_unstable();
        bring_in(inner, &open, guard)?;
        inner.locks.lock_all().promise(promise);
        let mut tracker = inner.tracker.lock();
        tracker.recovered(inner.start(), next, range);
        inner.advance(&mut tracker, u64::MAX, guard);
        Ok(())
    }
}

/// Records that are read through for one behind them, before a read begins anew.
const NEAR: u64 = 4096;

/// Holds the values of these records and slots, in the order of the records.
fn bring_in(inner: &Inner, mut open: &[(u64, u64)], guard: &Guard) -> Result<()> {
    let mut stream = None;
    let mut behind = 0;
    while let [(seq, slot), rest @ ..] = open {
        if seq.saturating_sub(behind) > NEAR {
            stream = None;
        }
        if stream.is_none() {
            stream = inner.log.stream(Start::From(Seq(*seq))).ok();
        }
        let batch = stream.as_mut().and_then(|stream| stream.try_next().ok().flatten());
        let Some(batch) = batch else {
            // The single read says what is wrong.
            hold_one(inner, *slot, None, guard)?;
            (stream, open) = (None, rest);
            continue;
        };
        for record in &batch {
            while let [(seq, slot), rest @ ..] = open
                && *seq <= record.seq.0
            {
                let value = match Record::decode(record.payload) {
                    Ok(Record::Accept { slot: found, ballot, value })
                        if found == *slot && *seq == record.seq.0 =>
                    {
                        Some((ballot, value))
                    }
                    _ => None,
                };
                hold_one(inner, *slot, value, guard)?;
                open = rest;
            }
        }
        behind = batch.last().map_or(behind, |last| last.0);
    }
    Ok(())
}

/// Holds the value of an uncommitted slot; from its record, where it was not read yet.
fn hold_one(inner: &Inner, slot: u64, read: Option<(Ballot, &[u8])>, guard: &Guard) -> Result<()> {
    let Some(page) = inner.page(number_of(slot), guard)? else { return Ok(()) };
    let place = page.slot(slot);
    let stored;
    let (ballot, value) = match read {
        Some(read) => read,
        None => {
            stored = inner.entry_at(slot, place, guard)?;
            (stored.ballot(), stored.value())
        }
    };
    inner.budget.force(charge(value.len()));
    place.resident().swap(Some(new_value(slot, ballot, value, 0)), guard);
    Ok(())
}

const _: () = assert!(SLOTS <= u16::MAX as usize);

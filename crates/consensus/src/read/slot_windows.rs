//! Replays the records of a log for a bounded number of slots at a time.
//!
//! # Bounded memory
//!
//! One pass over the records keeps the entries of a window of slots, at most
//! [`ReplayLimits::slots`] of them. When another entry would exceed that, the highest is dropped,
//! and the window ends below it. So after the pass the window has the lowest entries from its first
//! slot on, each as a replay of all slots has it. The next window begins where this one ends.
//!
//! The first pass also records, for each [`RecordRun`] of records, the lowest and the highest slot
//! that they concern. Later passes read only the runs that concern their window. When there are too
//! many runs, neighbours are joined. So a log whose slots are about in the order of its records is
//! read about twice, whatever its size. One with slots in random order is read once for each
//! window.

use std::ops::ControlFlow;

use esker_log::{ReadOnlyLog, Seq, SeqRange, Start};

use crate::base::slot::Slot;
use crate::read::record_totals::{
    Entries, INVALID_RECORDS_MAX, InspectSummary, InvalidRecord, RecordCounts, Totals,
};
use crate::record::{Record, Root};
use crate::storage_error::StorageError;

/// The bounds of a replay's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplayLimits {
    /// The entries of a window.
    pub(crate) slots: usize,
    /// The runs of records.
    pub(crate) runs: usize,
    /// The records in a run, until there are too many runs.
    pub(crate) run_records: u64,
}

impl ReplayLimits {
    /// About 13 MB of entries.
    pub(crate) const DEFAULT: Self = Self { slots: 1 << 17, runs: 4096, run_records: 1024 };
}

/// Records that follow one another in the log, and the slots that they concern.
#[derive(Debug, Clone, Copy)]
struct RecordRun {
    /// The first record.
    from: Seq,
    /// The state before that record that a window does not have itself.
    before: PriorState,
    lowest: u64,
    /// Below `lowest` if they concern no slot.
    highest: u64,
}

/// The effect of earlier records on all slots.
#[derive(Debug, Clone, Copy, Default)]
struct PriorState {
    /// The first slot above the floor.
    start: u64,
    /// The end of the last quarantined range. A quarantined record may have replaced a value up to
    /// here, so a marker after it may commit another value.
    certain: Seq,
}

impl RecordRun {
    fn concern(&mut self, slots: Option<(u64, u64)>) {
        if let Some((lowest, highest)) = slots {
            self.lowest = self.lowest.min(lowest);
            self.highest = self.highest.max(highest);
        }
    }
}

/// The runs of a log, as the first pass finds them.
#[derive(Debug)]
struct RecordRuns {
    runs: Vec<RecordRun>,
    most: usize,
    /// The records of a run, and those of the last one so far.
    records: u64,
    in_last: u64,
}

impl RecordRuns {
    fn add(&mut self, seq: Seq, before: PriorState, slots: Option<(u64, u64)>) {
        debug_assert!(
            self.runs.last().is_none_or(|last| last.from < seq || self.in_last == 0),
            "records are not in order"
        );
        if self.in_last >= self.records && self.runs.len() >= self.most {
            self.join();
        }
        if self.runs.is_empty() || self.in_last >= self.records {
            self.runs.push(RecordRun { from: seq, before, lowest: u64::MAX, highest: 0 });
            self.in_last = 0;
        }
        self.in_last += 1;
        if let Some(last) = self.runs.last_mut() {
            last.concern(slots);
        }
    }

    /// Joins each run with its neighbour.
    fn join(&mut self) {
        let joined = self.runs.chunks(2).filter_map(|pair| {
            let (mut first, second) = (*pair.first()?, pair.get(1));
            if let Some(second) = second.filter(|second| second.lowest <= second.highest) {
                first.concern(Some((second.lowest, second.highest)));
            }
            Some(first)
        });
        let is_odd = self.runs.len() % 2 == 1;
        self.runs = joined.collect();
        self.records *= 2;
        self.in_last = if is_odd { self.records / 2 } else { self.records };
    }
}

/// The slots that a record concerns, the lowest and the highest. Floors concern all, and are kept
/// with each run.
fn concerned(record: &Record<'_>) -> Option<(u64, u64)> {
    match *record {
        Record::Accept { slot, .. } | Record::Chosen { slot, .. } => Some((slot, slot)),
        Record::Commit { slots } => {
            let lowest = slots.iter().map(|(slot, _)| slot).min();
            lowest.zip(slots.iter().map(|(slot, _)| slot).max())
        }
        Record::Through { first, last } => (first <= last).then_some((first, last)),
        Record::Cut { from } => Some((from, u64::MAX)),
        Record::Promise { .. }
        | Record::State { .. }
        | Record::Page { .. }
        | Record::Root { .. } => None,
    }
}

/// The replay of the records that concern a window of slots.
#[derive(Debug)]
struct SlotWindow {
    first: u64,
    /// The first slot after it; `None` while it has every slot.
    end: Option<u64>,
    most: usize,
    entries: Entries,
    before: PriorState,
    /// Records that contradict earlier ones, with the slot.
    invalid: Vec<(InvalidRecord, u64)>,
}

impl SlotWindow {
    fn new(first: u64, limits: ReplayLimits) -> Self {
        let (entries, before) = (Entries::new(), PriorState::default());
        Self { first, end: None, most: limits.slots, entries, before, invalid: Vec::new() }
    }

    fn has(&self, slot: u64) -> bool {
        slot >= self.first && self.end.is_none_or(|end| slot < end)
    }

    fn needs(&self, run: &RecordRun) -> bool {
        let begins = self.end.is_none_or(|end| run.lowest < end);
        run.lowest <= run.highest && run.highest >= self.first && begins
    }

    fn insert(&mut self, slot: u64, summary: InspectSummary) {
        if !self.has(slot) {
            return;
        }
        self.entries.insert(Slot(slot), summary);
        if self.entries.len() > self.most
            && let Some((dropped, _)) = self.entries.pop_last()
        {
            debug_assert!(self.end.is_none_or(|end| end > dropped.0), "a window grows");
            self.end = Some(dropped.0);
            self.invalid.retain(|(_, slot)| *slot < dropped.0);
        }
    }

    /// Continues after records that were not read.
    fn resume(&mut self, before: PriorState) {
        self.raise(before.start);
        self.before.certain = self.before.certain.max(before.certain);
    }

    fn raise(&mut self, start: u64) {
        if start > self.before.start {
            self.before.start = start;
            self.entries = self.entries.split_off(&Slot(start));
        }
    }

    fn take(&mut self, seq: Seq, record: &Record<'_>) {
        let PriorState { start, certain } = self.before;
        match *record {
            Record::Accept { slot, ballot, value } => {
                let summary = InspectSummary::new(seq, ballot, value, false);
                let known = self.entries.get(&Slot(slot));
                if slot >= start && known.is_none_or(|known| !known.committed) {
                    self.insert(slot, summary);
                }
            }
            Record::Commit { slots } => {
                for (slot, ballot) in slots.iter().filter(|(slot, _)| *slot >= start) {
                    match self.entries.get_mut(&Slot(slot)) {
                        Some(known) if known.committed => {}
                        Some(known) if known.offset <= certain => {
                            self.entries.remove(&Slot(slot));
                        }
                        Some(known) if known.ballot == ballot => known.committed = true,
                        Some(_) => {
                            let what = "it commits another ballot than was accepted";
                            self.report_invalid(seq, slot, what);
                        }
                        // The accept was in a dropped prefix; its copy follows.
                        None => {}
                    }
                }
            }
            Record::Through { first, last } => {
                let first = first.max(start);
                let mut replaced = Vec::new();
                // The map panics for a range that ends before it starts.
                let covered = (first <= last).then_some(Slot(first)..=Slot(last));
                let covered = covered.map(|covered| self.entries.range_mut(covered));
                for (slot, known) in covered.into_iter().flatten() {
                    if known.committed || known.offset > certain {
                        known.committed = true;
                    } else {
                        replaced.push(*slot);
                    }
                }
                for slot in replaced {
                    self.entries.remove(&slot);
                }
            }
            Record::Chosen { slot, ballot, value } => {
                let summary = InspectSummary::new(seq, ballot, value, true);
                let other = self.entries.get(&Slot(slot)).is_some_and(|known| {
                    known.committed && known.ballot == ballot && known.len != summary.len
                });
                if other {
                    self.report_invalid(seq, slot, "the slot was committed with another value");
                }
                if slot >= start {
                    self.insert(slot, summary);
                }
            }
            Record::State { start: to, .. } | Record::Root { root: Root { start: to, .. }, .. } => {
                self.raise(to);
            }
            Record::Cut { from } => {
                self.entries.retain(|slot, known| known.committed || slot.0 < from);
            }
            Record::Promise { .. } | Record::Page { .. } => {}
        }
    }

    fn report_invalid(&mut self, seq: Seq, slot: u64, what: &'static str) {
        if self.invalid.len() < INVALID_RECORDS_MAX {
            self.invalid.push((InvalidRecord { seq, what }, slot));
        }
    }
}

/// The entries of a log, read again in windows whenever they are visited. A log whose entries fit
/// in one window is read once.
#[derive(Debug)]
pub(crate) struct SlotWindows {
    reader: ReadOnlyLog,
    limits: ReplayLimits,
    runs: Vec<RecordRun>,
    /// The last record of the first pass; later ones are not replayed.
    last: Seq,
    /// The state after the last record.
    end: PriorState,
    /// The first window, if it has all entries.
    all: Option<Entries>,
}

impl SlotWindows {
    /// Reads all records once. Calls `read` with the number of records read so far, often. `ours`
    /// is whether the log is known to be a consensus log; of any other, the first record decides.
    ///
    /// # Errors
    /// [`StorageError::CorruptedRecord`] for the first record of a plain log; as the log.
    pub(crate) fn replay(
        reader: ReadOnlyLog,
        ours: bool,
        limits: ReplayLimits,
        read: &mut dyn FnMut(u64),
    ) -> Result<(Self, Totals), StorageError> {
        let mut totals = Totals::default();
        let mut window = SlotWindow::new(0, limits);
        let ReplayLimits { runs: most, run_records: records, .. } = limits;
        let mut runs = RecordRuns { runs: Vec::new(), most, records, in_last: 0 };
        let (mut last, mut count) = (Seq(0), 0);
        let mut stream = reader.stream(Start::Oldest).map_err(StorageError::from_log)?;
        loop {
            let batch = match stream.try_next() {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                Err(esker_log::ReadError::Quarantined(esker_log::SeqRange { from, to })) => {
                    totals.quarantined.push(SeqRange { from, to });
                    window.before.certain = to;
                    continue;
                }
                Err(error) => return Err(StorageError::from_log(error)),
            };
            for record in &batch {
                let seq = record.seq;
                (last, count) = (seq, count + 1);
                match Record::decode(record.payload) {
                    Ok(decoded) => {
                        runs.add(seq, window.before, concerned(&decoded));
                        totals.add(seq, &decoded);
                        window.take(seq, &decoded);
                    }
                    Err(what) if !ours && totals.records == RecordCounts::default() => {
                        return Err(StorageError::CorruptedRecord { seq, what });
                    }
                    Err(what) => totals.report_invalid(InvalidRecord { seq, what }),
                }
            }
            read(count);
        }
        let (end, first_end) = (window.before, window.end);
        let mut found = Self { reader, limits, runs: runs.runs, last, end, all: None };
        let contradictions = window.invalid.drain(..).map(|(record, _)| record);
        let mut invalid: Vec<_> = contradictions.collect();
        totals.count(&window.entries);
        match first_end {
            None => found.all = Some(window.entries),
            Some(next) => {
                drop(window);
                found.each_window(next, |window| {
                    totals.count(&window.entries);
                    invalid.extend(window.invalid.iter().map(|(record, _)| *record));
                    invalid.sort_by_key(|record| record.seq);
                    invalid.truncate(INVALID_RECORDS_MAX);
                    read(count);
                    ControlFlow::Continue(())
                })?;
            }
        }
        totals.invalid_records.append(&mut invalid);
        totals.invalid_records.sort_by_key(|record| record.seq);
        totals.invalid_records.truncate(INVALID_RECORDS_MAX);
        Ok((found, totals))
    }

    pub(crate) fn reader(&self) -> &ReadOnlyLog {
        &self.reader
    }

    /// Visits the entries from a slot on, in slot order.
    pub(crate) fn visit(
        &self,
        from: Slot,
        mut visit: impl FnMut(Slot, &InspectSummary) -> Result<ControlFlow<()>, StorageError>,
    ) -> Result<(), StorageError> {
        let mut each = |entries: &Entries| {
            for (slot, summary) in entries.range(from..) {
                if visit(*slot, summary)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        };
        if let Some(all) = &self.all {
            return each(all).map(drop);
        }
        let mut outcome = Ok(());
        self.each_window(from.0.max(self.end.start), |window| match each(&window.entries) {
            Ok(flow) => flow,
            Err(error) => {
                outcome = Err(error);
                ControlFlow::Break(())
            }
        })?;
        outcome
    }

    /// Replays the windows from a slot on.
    fn each_window(
        &self,
        first: u64,
        mut each: impl FnMut(&SlotWindow) -> ControlFlow<()>,
    ) -> Result<(), StorageError> {
        let mut next = Some(first);
        while let Some(first) = next {
            let window = self.window(first)?;
            debug_assert!(window.end.is_none_or(|end| end > first), "a window has no slot");
            if each(&window).is_break() {
                break;
            }
            next = window.end;
        }
        Ok(())
    }

    /// Replays the window that begins with a slot.
    fn window(&self, first: u64) -> Result<SlotWindow, StorageError> {
        let mut window = SlotWindow::new(first, self.limits);
        let mut n = 0;
        while let Some(run) = self.runs.get(n) {
            if window.needs(run) {
                window.resume(run.before);
                n = self.read_runs(n, &mut window)?;
            } else {
                n += 1;
            }
        }
        window.resume(self.end);
        Ok(window)
    }

    /// Replays a run, and those that follow as long as the window needs them. Returns the next one.
    fn read_runs(&self, mut n: usize, window: &mut SlotWindow) -> Result<usize, StorageError> {
        let from = Start::From(self.runs[n].from);
        let mut stream = self.reader.stream(from).map_err(StorageError::from_log)?;
        loop {
            let batch = match stream.try_next() {
                Ok(Some(batch)) => batch,
                Ok(None) => return Ok(self.runs.len()),
                Err(esker_log::ReadError::Quarantined(esker_log::SeqRange { to, .. })) => {
                    window.before.certain = to;
                    continue;
                }
                Err(error) => return Err(StorageError::from_log(error)),
            };
            for record in &batch {
                if record.seq > self.last {
                    return Ok(self.runs.len());
                }
                while let Some(next) = self.runs.get(n + 1).filter(|next| record.seq >= next.from) {
                    n += 1;
                    if !window.needs(next) {
                        return Ok(n);
                    }
                }
                if let Ok(decoded) = Record::decode(record.payload) {
                    window.take(record.seq, &decoded);
                }
            }
        }
    }
}

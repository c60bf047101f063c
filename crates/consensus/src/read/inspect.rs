//! Inspecting a consensus log without its lock, and without changing it.
//!
//! Inspection reads every record from the oldest on and uses no checkpoint. So it verifies
//! independently what opening a log recovers. It skips the ranges that `repair` quarantined.

use std::collections::BTreeMap;
use std::path::Path;

use esker_log::{ReadOnlyLog, Seq, Start, View};

use crate::base::ballot::Ballot;
use crate::component::{self, COMPONENT};
use crate::outcome::{Error, Result};
use crate::record::{Record, Root};

/// The state of a slot, according to the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InspectSummary {
    /// The ballot of its value.
    pub ballot: Ballot,
    /// Whether it is committed.
    pub committed: bool,
    /// The record that holds its value.
    pub offset: Seq,
    /// The value's length in bytes.
    pub len: u64,
}

/// The state of a log, according to all its records.
#[derive(Debug)]
pub struct Inspection {
    /// The highest promised ballot.
    pub promised: Ballot,
    /// Slots up to this one were truncated.
    pub floor: Option<u64>,
    /// Slots up to this one are committed.
    pub frontier: Option<u64>,
    /// The slots, in order. Memory use is proportional to their number.
    pub slots: BTreeMap<u64, InspectSummary>,
    /// Records read, by kind: promises, accepts, commits, values stored as committed, truncations
    /// and states, checkpoint pages and roots.
    pub records: [u64; 6],
    /// Contradictions: the record, and what is wrong with it.
    pub flaws: Vec<(Seq, &'static str)>,
    /// Ranges of records that `repair` quarantined: the last record before the range, and the last
    /// one in it. A slot that is missing after such a range may have been in it.
    pub quarantined: Vec<(Seq, Seq)>,
    reader: ReadOnlyLog,
}

/// The most contradictions that are kept.
const FLAWS: usize = 1000;

/// Reads the durable records of the consensus log in `dir`, with or without a live writer.
///
/// # Errors
/// [`Error::Log`] if there is no log, if it is corrupt, or if it is a plain log or one of another
/// component.
pub fn inspect(
    dir: impl AsRef<Path>,
    options: impl Into<esker_log::ReadOptions>,
) -> Result<Inspection> {
    let options = options.into();
    let dir = dir.as_ref();
    let found = match esker_log::component(dir, options.clone()) {
        // Corrupt app metadata are ignored, as opening does.
        Err(error @ esker_log::Error::UnsupportedVersion { .. }) => return Err(error.into()),
        found => found.unwrap_or(Some(COMPONENT)),
    };
    let reader = ReadOnlyLog::builder(dir).options(options).open().map_err(Error::Log)?;
    if found.is_some_and(|found| found != COMPONENT) {
        let (dir, expected) = (dir.into(), Some(COMPONENT));
        return Err(esker_log::Error::WrongComponent { dir, found, expected }.into());
    }
    let mut inspection = Inspection {
        promised: Ballot::ZERO,
        floor: None,
        frontier: None,
        slots: BTreeMap::new(),
        records: [0; 6],
        flaws: Vec::new(),
        quarantined: Vec::new(),
        reader,
    };
    match inspection.read(found.is_some()) {
        // Neither app metadata nor records identify a consensus log: it is a plain log, maybe
        // empty.
        Err(Error::CorruptedRecord { .. }) => Err(component::plain(dir)),
        Ok(()) if found.is_none() && inspection.records == [0; 6] => Err(component::plain(dir)),
        outcome => outcome.map(|()| inspection),
    }
}

impl Inspection {
    /// The value of a slot; `None` for a slot without one.
    ///
    /// # Errors
    /// [`Error::CorruptedEntry`].
    pub fn value(&self, slot: u64) -> Result<Option<Value>> {
        let Some(summary) = self.slots.get(&slot) else { return Ok(None) };
        match self.reader.read(summary.offset) {
            Ok(view) => Ok(Some(Value(view))),
            Err(cause) => Err(Error::CorruptedEntry { slot, cause }),
        }
    }

    fn read(&mut self, ours: bool) -> Result<()> {
        let mut stream = self.reader.stream(Start::Oldest).map_err(Error::Log)?;
        let (mut start, mut next) = (0, 0);
        loop {
            let batch = match stream.try_next() {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                Err(esker_log::Error::Quarantined { from, to }) => {
                    self.quarantined.push((from, to));
                    continue;
                }
                Err(error) => return Err(Error::Log(error)),
            };
            for record in &batch {
                match Record::decode(record.payload) {
                    Ok(decoded) => self.take(record.seq, &decoded, &mut start, &mut next),
                    Err(what) if !ours && self.records == [0; 6] => {
                        return Err(Error::CorruptedRecord { seq: record.seq.0, what });
                    }
                    Err(what) => self.report_flaw(record.seq, what),
                }
            }
        }
        while self.slots.get(&next).is_some_and(|summary| summary.committed) {
            next += 1;
        }
        self.floor = u64::checked_sub(start, 1);
        self.frontier = u64::checked_sub(next, 1);
        Ok(())
    }

    fn take(&mut self, seq: Seq, record: &Record<'_>, start: &mut u64, next: &mut u64) {
        let kind = match *record {
            Record::Promise { ballot } => {
                self.promised = self.promised.max(ballot);
                0
            }
            Record::Accept { slot, ballot, value } => {
                self.promised = self.promised.max(ballot);
                let summary = InspectSummary {
                    ballot,
                    committed: false,
                    offset: seq,
                    len: value.len() as u64,
                };
                if slot >= *start && self.slots.get(&slot).is_none_or(|known| !known.committed) {
                    self.slots.insert(slot, summary);
                }
                1
            }
            Record::Commit { slots } => {
                for (slot, ballot) in slots.iter().filter(|(slot, _)| *slot >= *start) {
                    let certain = self.certain();
                    match self.slots.get_mut(&slot) {
                        Some(known) if known.committed => {}
                        Some(known) if known.offset <= certain => {
                            self.slots.remove(&slot);
                        }
                        Some(known) if known.ballot == ballot => known.committed = true,
                        Some(_) => {
                            self.report_flaw(seq, "it commits another ballot than was accepted");
                        }
                        // The accept was in a dropped prefix; its copy follows.
                        None => {}
                    }
                }
                2
            }
            Record::Through { first, last } => {
                let certain = self.certain();
                let mut replaced = Vec::new();
                for (slot, known) in self.slots.range_mut(first.max(*start)..=last.max(first)) {
                    if known.committed || known.offset > certain {
                        known.committed = true;
                    } else {
                        replaced.push(*slot);
                    }
                }
                for slot in replaced {
                    self.slots.remove(&slot);
                }
                2
            }
            Record::Chosen { slot, ballot, value } => {
                let summary = InspectSummary {
                    ballot,
                    committed: true,
                    offset: seq,
                    len: value.len() as u64,
                };
                let other = self.slots.get(&slot).is_some_and(|known| {
                    known.committed && known.ballot == ballot && known.len != summary.len
                });
                if other {
                    self.report_flaw(seq, "the slot was committed with another value");
                }
                if slot >= *start {
                    self.slots.insert(slot, summary);
                }
                3
            }
            Record::State { promise, start: to, next: decided }
            | Record::Root { root: Root { promise, start: to, next: decided, .. }, .. } => {
                self.promised = self.promised.max(promise);
                *next = decided.max(*next);
                if to > *start {
                    *start = to;
                    self.slots = self.slots.split_off(&to);
                }
                if matches!(record, Record::State { .. }) { 4 } else { 5 }
            }
            Record::Cut { above } => {
                self.slots.retain(|slot, known| known.committed || *slot <= above);
                4
            }
            Record::Page { .. } => 5,
        };
        self.records[kind] += 1;
    }

    /// The end of the last quarantined range. A quarantined record may have replaced a value up to
    /// here, so a marker after it may commit another value.
    fn certain(&self) -> Seq {
        self.quarantined.last().map_or(Seq(0), |(_, to)| *to)
    }

    fn report_flaw(&mut self, seq: Seq, what: &'static str) {
        if self.flaws.len() < FLAWS {
            self.flaws.push((seq, what));
        }
    }
}

/// A value, as a view of the bytes that were read.
#[derive(Debug, Clone)]
pub struct Value(View);

impl std::ops::Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.payload().get(crate::record::VALUE_AT..).unwrap_or_default()
    }
}

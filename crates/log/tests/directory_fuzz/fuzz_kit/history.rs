//! The history of a log, known without asking it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use esker_testkit::{BLOCK_BYTES, Files, MARK_BYTES, Names, Payloads, Traces, payloads_in};

use super::reading::Item;

/// Bytes before the payload of a unit's first record that belong to the unit, at most.
const HEAD: usize = 160;

/// The watermark page; the manifest.
pub const PAGE: &str = "mark";
pub const MANIFEST: &str = "manifest";

/// Something that was accepted.
#[derive(Debug, Clone)]
pub struct Record {
    pub prev: u64,
    pub payload: Vec<u8>,
    /// The step that made it durable.
    pub step: Option<usize>,
    /// The step that last wrote it: recovery copies records of several steps into one unit.
    pub moved: Option<usize>,
}

impl Record {
    /// Records that were written by the same step may share a unit.
    pub fn written(&self) -> Option<usize> {
        self.moved.or(self.step)
    }
}

/// Where the payload with these first bytes is stored.
type Location = (Vec<u8>, String, usize);

/// The history of a log.
#[derive(Debug, Clone)]
pub struct History {
    /// By number: what the log holds, or held before it was trimmed.
    pub live: BTreeMap<u64, Record>,
    /// Accepted, never durable, and cut off by a recovery.
    pub dead: Vec<(u64, Vec<u8>)>,
    /// The number of these that were cut off before the log was corrupted. The others are in its
    /// files, and a recovery of the whole log cuts them off.
    pub cut_before: usize,
    /// Ranges that an earlier repair gave up.
    pub gaps: Vec<(u64, u64)>,
    /// The records that were in them. Bytes of an earlier time may bring it back.
    pub given_up: BTreeMap<u64, Record>,
    /// Records up to this number were durably dropped.
    pub trimmed: u64,
    /// A call may have dropped records up to this one when the power went.
    pub trimming: u64,
    pub traces: Traces,
    pub payloads: Payloads,
}

/// The facts that no file proves any more.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lost {
    /// The file that knew what was trimmed is not what it was: trimmed records may be there.
    pub trim: bool,
    /// A segment is of an earlier time, and the header after it that cut off its dead records is
    /// corrupted: they may be there.
    pub cut: bool,
}

impl History {
    pub fn new(seed: u64) -> Self {
        Self {
            live: BTreeMap::new(),
            dead: Vec::new(),
            cut_before: 0,
            gaps: Vec::new(),
            given_up: BTreeMap::new(),
            trimmed: 0,
            trimming: 0,
            traces: Traces::new(Names { page: PAGE, manifest: MANIFEST, segment: ".seg" }),
            payloads: Payloads::new(seed),
        }
    }

    pub fn last(&self) -> u64 {
        let gap = self.gaps.last().map_or(0, |(_, to)| *to);
        self.live.keys().next_back().copied().unwrap_or(0).max(gap)
    }

    pub fn durable(&self) -> u64 {
        let durable = self.live.iter().rev().find(|(_, record)| record.step.is_some());
        durable.map_or(0, |(seq, _)| *seq)
    }

    /// A record has its place in the order.
    pub fn accepted(&mut self, seq: u64, prev: u64, payload: Vec<u8>) {
        self.live.insert(seq, Record { prev, payload, step: None, moved: None });
    }

    /// Everything accepted up to a number is durable, by the step that is next.
    pub fn acknowledged(&mut self, last: u64) {
        let step = self.traces.next();
        for (_, record) in self.live.range_mut(..=last).rev() {
            if record.step.is_some() {
                break;
            }
            record.step = Some(step);
        }
    }

    /// Whether bytes hold a record of this step.
    pub fn holds(&self, step: usize, bytes: &[u8]) -> bool {
        payloads_in(bytes).iter().any(|(_, marked)| {
            let mut records = self.live.values().rev();
            records.any(|record| record.step == Some(step) && record.payload.starts_with(marked))
        })
    }

    /// An opening left these files, and wrote some records again.
    pub fn moved(&mut self, before: &Files, after: &Files) {
        let step = self.traces.next();
        let before: HashSet<Location> = all_places(before).collect();
        let new: HashSet<Vec<u8>> = all_places(after)
            .filter(|location| !before.contains(location))
            .map(|(marked, ..)| marked)
            .collect();
        for record in self.live.values_mut() {
            if record.payload.get(..MARK_BYTES).is_some_and(|marked| new.contains(marked)) {
                record.moved = Some(step);
            }
        }
    }

    /// The blocks of the segments that hold each step's records now.
    pub fn places(&self, files: &Files) -> HashMap<usize, Vec<(String, Range<usize>)>> {
        let mut known: HashMap<&[u8], &Record> = HashMap::new();
        for record in self.live.values().filter(|record| !record.payload.is_empty()) {
            known.insert(&record.payload[..MARK_BYTES], record);
        }
        let mut found: HashMap<usize, Vec<(String, Range<usize>)>> = HashMap::new();
        for (name, bytes) in files.iter().filter(|(name, _)| name.ends_with(".seg")) {
            let mut here: HashMap<usize, Range<usize>> = HashMap::new();
            for (at, nonce) in payloads_in(bytes) {
                let Some(record) = known.get(nonce) else { continue };
                let Some(step) = record.written() else { continue };
                let end = at + record.payload.len();
                let range = here.entry(step).or_insert(at..end);
                *range = range.start.min(at)..range.end.max(end);
            }
            for (step, range) in here {
                let blocks =
                    range.start.saturating_sub(HEAD) / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
                found.entry(step).or_default().push((name.clone(), blocks));
            }
        }
        found
    }

    /// Checks that records were delivered as they were accepted, in order and without a hole.
    pub fn check_items(&self, items: &[Item], lost: Lost) -> Result<(), String> {
        let mut last: Option<u64> = None;
        // Where the hole before them is in a gap, nothing says that they were never durable.
        let over_the_end = |item: &Item| matches!(item, Item::Gap(_, to) if *to > self.last());
        let in_files = items.iter().any(over_the_end).then_some(self.cut_before);
        for item in items {
            if last.is_some_and(|last| item.prev() != last) {
                return Err(format!("a hole: after {last:?} comes {}", brief(item)));
            }
            last = Some(item.last());
            let Item::Record { seq, prev, payload } = item else { continue };
            match self.live.get(seq).or_else(|| self.given_up.get(seq)) {
                Some(record) if record.payload == *payload && record.prev == *prev => {}
                Some(record) if record.payload == *payload => {
                    return Err(format!(
                        "{seq} follows {prev}, and was written after {}",
                        record.prev
                    ));
                }
                _ if self.dead.iter().any(|(dead, bytes)| dead == seq && bytes == payload) => {
                    let is_uncut = |from: usize| {
                        self.dead[from..]
                            .iter()
                            .any(|(dead, bytes)| dead == seq && bytes == payload)
                    };
                    if lost.cut || in_files.is_some_and(is_uncut) {
                        continue;
                    }
                    return Err(format!("DEAD RECORD {seq} came back"));
                }
                _ => return Err(format!("WRONG RECORD {}", brief(item))),
            }
            if *seq <= self.trimmed && !lost.trim {
                return Err(format!("TRIMMED {seq} came back, up to {} is dropped", self.trimmed));
            }
        }
        Ok(())
    }
}

fn all_places(files: &Files) -> impl Iterator<Item = Location> + '_ {
    files.iter().filter(|(name, _)| name.ends_with(".seg")).flat_map(|(name, bytes)| {
        let places = payloads_in(bytes).into_iter();
        places.map(|(at, marked)| (marked.to_vec(), name.clone(), at))
    })
}

pub fn brief(item: &Item) -> String {
    match item {
        Item::Record { seq, prev, payload } => format!("{prev}->{seq} ({} B)", payload.len()),
        Item::Gap(from, to) => format!("a gap {from}..{to}"),
    }
}

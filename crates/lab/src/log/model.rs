//! The model of a log: records that were accepted, durable and dropped. Checks whether the log
//! agrees.

use std::sync::Arc;
use std::time::Duration;

use esker_log::{Policy, Retention};

use super::config::{Config, SEGMENT_BYTES};

/// A record that was accepted.
#[derive(Debug, Clone)]
pub struct Entry {
    pub seq: u64,
    pub prev: u64,
    pub payload: Arc<[u8]>,
    /// The atomic batch that it belongs to, or 0.
    pub group: u64,
    /// The engine's clock when it was accepted.
    pub at: Duration,
}

/// How many appends these records came with. An atomic batch is one, as `Policy::Batch` counts.
pub fn appends(entries: &[Entry]) -> usize {
    let continues = |n: &usize| {
        let group = entries[*n].group;
        *n > 0 && group > 0 && entries[n - 1].group == group
    };
    entries.len() - (0..entries.len()).filter(continues).count()
}

/// A record that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRecord {
    pub seq: u64,
    pub prev: u64,
    pub payload: Vec<u8>,
}

/// The segments that an opening left, and their bytes.
#[derive(Debug, Clone, Copy)]
pub struct SegmentUse {
    pub segments: u64,
    pub bytes: u64,
}

/// The records that must be there.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// The records in order; dropped ones may still be at the front.
    entries: Vec<Entry>,
    last: u64,
    durable: u64,
    /// The last record that was handed to the system.
    written: u64,
    /// Records up to this number were dropped durably, and those up to that perhaps.
    dropped: u64,
    dropping: u64,
    /// The options of the lives since the last opening that was looked at.
    regimes: Vec<Config>,
    groups: u64,
    /// Entries forgotten because their records were dropped.
    forgotten: u64,
}

impl Model {
    /// The number of records accepted, and of those that are durable, since the log was created.
    pub fn counts(&self) -> (u64, u64) {
        let durable = self.entries.partition_point(|entry| entry.seq <= self.durable);
        (self.forgotten + self.entries.len() as u64, self.forgotten + durable as u64)
    }

    pub fn last(&self) -> u64 {
        self.last
    }

    pub fn durable(&self) -> u64 {
        self.durable
    }

    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    pub fn new_group(&mut self) -> u64 {
        self.groups += 1;
        self.groups
    }

    /// The log gave the record its place.
    pub fn accept(&mut self, entry: Entry) {
        self.last = entry.seq;
        self.entries.push(entry);
    }

    /// The log says that records up to this number are durable.
    pub fn mark_durable(&mut self, durable: u64) -> Result<(), String> {
        if durable < self.durable {
            return Err(format!("the durable mark fell from {} to {durable}", self.durable));
        }
        let known = durable == self.durable || self.entries.iter().any(|e| e.seq == durable);
        if !known {
            return Err(format!("{durable} is durable, and was never accepted"));
        }
        self.durable = durable;
        Ok(())
    }

    /// The system has this many of the records after `from`.
    pub fn handed_over(&mut self, from: u64, count: u64) {
        let mut later = self.entries.iter().filter(|entry| entry.seq > from);
        if let Some(entry) = (count as usize).checked_sub(1).and_then(|n| later.nth(n)) {
            self.written = self.written.max(entry.seq);
        }
    }

    /// The power went, and with it what was only handed over.
    pub fn lose_cache(&mut self) {
        self.written = 0;
    }

    /// A caller asked to drop the records up to this number, or may be about to.
    pub fn may_drop(&mut self, through: u64) {
        self.dropping = self.dropping.max(through);
    }

    /// The records up to this number are dropped for ever.
    pub fn drop_through(&mut self, through: u64) {
        self.dropped = self.dropped.max(through);
        self.may_drop(through);
    }

    /// Accepted and not durable, the oldest first.
    pub fn pending(&self) -> &[Entry] {
        &self.entries[self.entries.partition_point(|entry| entry.seq <= self.durable)..]
    }

    /// Durable and not dropped, the oldest first.
    pub fn readable(&self) -> &[Entry] {
        let from = self.entries.partition_point(|entry| entry.seq <= self.dropped);
        let to = self.entries.partition_point(|entry| entry.seq <= self.durable);
        &self.entries[from.min(to)..to]
    }

    /// The records that were accepted and not dropped.
    pub fn accepted(&self) -> &[Entry] {
        &self.entries[self.entries.partition_point(|entry| entry.seq <= self.dropped)..]
    }

    /// Compares what a living log gives with what is readable: no more and no less.
    pub fn matches(&self, seen: &[ReadRecord]) -> Result<(), String> {
        let expected = self.readable();
        for (entry, seen) in expected.iter().zip(seen) {
            same(entry, seen)?;
        }
        if expected.len() == seen.len() {
            return Ok(());
        }
        Err(format!(
            "{} records are readable ({}) and {} were read ({})",
            expected.len(),
            range(expected.iter().map(|entry| entry.seq)),
            seen.len(),
            range(seen.iter().map(|seen| seen.seq)),
        ))
    }

    /// The log is opened with these options.
    pub fn opening(&mut self, config: Config) {
        self.regimes.push(config);
    }

    /// The log opened: it ends with the record `last`, and dropped the records through `after`. The
    /// answer is what was lost: accepted, and never durable.
    pub fn open(&mut self, last: u64, after: u64, left: SegmentUse) -> Result<Vec<Entry>, String> {
        if last < self.durable {
            return Err(format!("{} was durable, and the log ends with {last}", self.durable));
        }
        if last < self.written {
            return Err(format!("{} was handed over, and the log ends with {last}", self.written));
        }
        if last > self.last {
            return Err(format!(
                "{} was the last accepted, and the log ends with {last}",
                self.last
            ));
        }
        let end = self.entries.partition_point(|entry| entry.seq <= last);
        if last != self.durable && self.entries[..end].last().is_none_or(|e| e.seq != last) {
            return Err(format!("the log ends with {last}, which was never accepted"));
        }
        if let (Some(kept), Some(lost)) =
            (end.checked_sub(1).map(|n| &self.entries[n]), self.entries.get(end))
            && kept.group != 0
            && kept.group == lost.group
        {
            let (seq, next) = (kept.seq, lost.seq);
            return Err(format!("an atomic batch was cut between {seq} and {next}"));
        }
        self.check_floor(after, end, left)?;
        let lost = self.entries.split_off(end);
        self.last = last;
        self.durable = last;
        self.written = last;
        self.dropped = after;
        self.dropping = after;
        self.regimes.drain(..self.regimes.len().saturating_sub(1));
        Ok(lost)
    }

    /// Whether the records through `after` may be gone, and none that was dropped is back.
    fn check_floor(&self, after: u64, end: usize, left: SegmentUse) -> Result<(), String> {
        if after < self.dropped {
            return Err(format!("{} was dropped durably, and {after} now", self.dropped));
        }
        let start = self.entries.partition_point(|entry| entry.seq <= after);
        let kept = end.saturating_sub(start) as u64;
        let known = start.checked_sub(1).is_some_and(|n| self.entries[n].seq == after);
        let allows = |config: &Config| {
            let retention = config.retention;
            // What is handed over counts there, and may be lost.
            let counts = config.policy != Policy::OsBuffered;
            retention != Retention::NONE
                && retention.records.is_none_or(|least| kept >= least || !counts)
                // A crash may have taken a newest segment in which nothing was durable.
                && retention.segments.is_none_or(|most| left.segments + 1 >= most || !counts)
                // So too the space reserved for it; the one that was dropped may have been larger
                // than usual, for the sake of a large record.
                && retention.bytes.is_none_or(|most| {
                    left.bytes + 4 * u64::from(SEGMENT_BYTES) >= most || !counts
                })
        };
        if after <= self.dropping || known && self.regimes.iter().any(allows) {
            return Ok(());
        }
        Err(format!("the records through {after} are gone, and {kept} are left"))
    }

    /// Compares what was found at opening, and forgets what was dropped.
    pub fn recover(&mut self, seen: &[ReadRecord]) -> Result<(), String> {
        self.matches(seen)?;
        let start = self.entries.partition_point(|entry| entry.seq <= self.dropped);
        self.entries.drain(..start);
        self.forgotten += start as u64;
        Ok(())
    }
}

fn same(entry: &Entry, seen: &ReadRecord) -> Result<(), String> {
    if (entry.seq, entry.prev) != (seen.seq, seen.prev) {
        let Entry { seq, prev, .. } = entry;
        return Err(format!(
            "record {seq} after {prev} was accepted, {} after {} is there",
            seen.seq, seen.prev
        ));
    }
    if *entry.payload == *seen.payload {
        return Ok(());
    }
    let (want, have) = (&entry.payload, &seen.payload);
    let at = want.iter().zip(have).take_while(|(want, have)| want == have).count();
    Err(format!(
        "record {}: {} bytes were accepted and {} are there, different from byte {at} on",
        entry.seq,
        want.len(),
        have.len()
    ))
}

fn range(mut seqs: impl DoubleEndedIterator<Item = u64>) -> String {
    match (seqs.next(), seqs.next_back()) {
        (Some(first), Some(last)) => format!("{first} to {last}"),
        (Some(only), None) => format!("only {only}"),
        _ => "none".into(),
    }
}

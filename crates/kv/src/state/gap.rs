//! The keys that a store does not know because records of its log were quarantined.
//!
//! A key is known if it has a record after the last gap. It then has an entry in the index, or a
//! record after the gap deleted it. The ranges of the latter are kept here. The argument is in
//! `docs/decisions/050-a-store-over-a-gap.md`.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Included, Unbounded};

use esker_log::{Seq, SeqRange};
use parking_lot::RwLock;

use crate::record::{Change, Record};
use crate::state::keyspaces::{CATALOG_ID, number};

/// The gaps of a log, and the keys that were deleted after the last one.
#[derive(Debug, Default)]
pub(crate) struct Gap {
    ranges: Vec<SeqRange>,
    known: RwLock<HashMap<u32, DecidedRanges>>,
}

/// Ranges of keys by their first key. They are disjoint.
type DecidedRanges = BTreeMap<Vec<u8>, DecidedRange>;

/// A range of keys that one record deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DecidedRange {
    /// All keys are below this one.
    end: Option<Vec<u8>>,
    /// The record that deleted them.
    seq: u64,
}

impl DecidedRange {
    fn has(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_none_or(|end| key < &**end)
    }
}

/// The range at or before a key.
fn range_at<'a>(known: &'a DecidedRanges, key: &[u8]) -> Option<&'a DecidedRange> {
    let mut before = known.range::<[u8], _>((Unbounded, Included(key)));
    before.next_back().map(|(_, range)| range).filter(|range| range.has(key))
}

impl Gap {
    /// Adds a gap that follows all others. No key is known after it yet.
    pub(crate) fn add(&mut self, from: Seq, to: Seq) {
        debug_assert!(from < to, "a gap has a record");
        debug_assert!(self.last().is_none_or(|last| last.to <= from), "gaps are in order");
        self.ranges.push(SeqRange { from, to });
        self.known.get_mut().clear();
    }

    pub(crate) fn ranges(&self) -> &[SeqRange] {
        &self.ranges
    }

    /// The last gap. `None` if all keys are known.
    #[inline]
    pub(crate) fn last(&self) -> Option<SeqRange> {
        self.ranges.last().copied()
    }

    /// Whether some keys may be unknown, because there is a gap.
    #[inline]
    pub(crate) fn is_some(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// Registers that the keys of a range are known from this record on.
    pub(crate) fn decide(&self, keyspace: u32, low: &[u8], high: Option<&[u8]>, seq: u64) {
        if !self.is_some() {
            return;
        }
        let mut known = self.known.write();
        let known = known.entry(keyspace).or_default();
        let mut from = low.to_vec();
        // Only what no earlier record decided.
        while high.is_none_or(|high| *from < *high) {
            if let Some(range) = range_at(known, &from) {
                let Some(end) = range.end.clone() else { return };
                from = end;
                continue;
            }
            let next = known.range::<[u8], _>((Excluded(&*from), Unbounded)).next();
            let next = next.map(|(low, _)| low.clone());
            let end = match (next, high) {
                (Some(next), Some(high)) if *next > *high => Some(high.to_vec()),
                (None, high) => high.map(<[u8]>::to_vec),
                (next, _) => next,
            };
            let low = std::mem::take(&mut from);
            debug_assert!(end.as_ref().is_none_or(|end| low < *end), "a decided range has keys");
            known.insert(low, DecidedRange { end: end.clone(), seq });
            let Some(end) = end else { return };
            from = end;
        }
    }

    /// Registers that a key is known from this record on, which deleted it.
    pub(crate) fn decide_key(&self, keyspace: u32, key: &[u8], seq: u64) {
        if self.is_some() {
            self.decide(keyspace, key, Some(&after(key)), seq);
        }
    }

    /// Registers the keys that a record deletes, or the keyspace that it creates.
    pub(crate) fn decide_by(&self, record: &Record<'_>, seq: u64) {
        if !self.is_some() {
            return;
        }
        let Record { keyspace, key, change } = *record;
        match change {
            Change::Delete => self.decide_key(keyspace, key, seq),
            Change::DeleteRange { end } => self.decide(keyspace, key, end, seq),
            Change::Put { value, moved: false } if keyspace == CATALOG_ID && !key.is_empty() => {
                if let Some(created) = number(value) {
                    self.decide(created, b"", None, seq);
                }
            }
            Change::Put { .. } => {}
        }
    }

    /// Fails with the last gap if a key without an entry in the index is unknown at a point in
    /// time.
    #[inline]
    pub(crate) fn refuse_key(&self, keyspace: u32, key: &[u8], at: u64) -> Result<(), SeqRange> {
        self.last().map_or(Ok(()), |last| self.refuse_key_after(last, keyspace, key, at))
    }

    #[cold]
    fn refuse_key_after(
        &self,
        last: SeqRange,
        keyspace: u32,
        key: &[u8],
        at: u64,
    ) -> Result<(), SeqRange> {
        let known = self.known.read();
        let range = known.get(&keyspace).and_then(|known| range_at(known, key));
        if range.is_some_and(|range| range.seq <= at) { Ok(()) } else { Err(last) }
    }

    /// Fails with the last gap if any key of a range may be unknown at a point in time.
    pub(crate) fn refuse_range(
        &self,
        keyspace: u32,
        low: &[u8],
        high: Option<&[u8]>,
        at: u64,
    ) -> Result<(), SeqRange> {
        let Some(last) = self.last() else { return Ok(()) };
        let known = self.known.read();
        let known = known.get(&keyspace);
        let mut from = low;
        while high.is_none_or(|high| from < high) {
            let range =
                known.and_then(|known| range_at(known, from)).filter(|range| range.seq <= at);
            let Some(range) = range else { return Err(last) };
            let Some(end) = &range.end else { break };
            from = end;
        }
        Ok(())
    }

    /// Fails with the last gap if any key may be unknown.
    pub(crate) fn refuse(&self) -> Result<(), SeqRange> {
        self.last().map_or(Ok(()), Err)
    }
}

/// The range of the records before the oldest one; `None` when it is the first. Of a log that was
/// repaired it is a gap: a repair that found no manifest cannot tell dropped records from lost
/// ones.
pub(crate) fn range_before(oldest: Seq) -> Option<SeqRange> {
    let to = Seq(oldest.0.saturating_sub(1));
    (to > Seq::ZERO).then_some(SeqRange { from: Seq::ZERO, to })
}

/// The key after a key.
fn after(key: &[u8]) -> Vec<u8> {
    let mut next = key.to_vec();
    next.push(0);
    next
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with_gap() -> Gap {
        let mut gap = Gap::default();
        gap.add(Seq(1), Seq(2));
        gap
    }

    #[test]
    fn without_a_gap_everything_is_known() {
        let gap = Gap::default();
        gap.decide(1, b"a", None, 3);
        assert!(gap.refuse_key(1, b"b", 0).is_ok() && gap.refuse_range(1, b"", None, 0).is_ok());
        assert!(gap.known.read().is_empty(), "nothing is kept");
    }

    #[test]
    fn a_later_gap_makes_everything_unknown_again() {
        let mut gap = with_gap();
        gap.decide(1, b"", None, 3);
        assert!(gap.refuse_range(1, b"", None, 3).is_ok());
        gap.add(Seq(3), Seq(9));
        let refused = gap.refuse_key(1, b"a", 100);
        assert_eq!(refused, Err(SeqRange { from: Seq(3), to: Seq(9) }));
    }

    proptest! {
        /// Keys of one byte, or none; each is known from the first record on that deleted it.
        #[test]
        fn a_key_is_known_from_the_first_record_on_that_deleted_it(
            deletes in prop::collection::vec((0u8..12, prop::option::of(0u8..12)), 0..20),
            at in 0u64..25,
            low in 0u8..12,
            high in prop::option::of(0u8..12),
        ) {
            let gap = with_gap();
            let mut model = [u64::MAX; 12];
            for (n, (low, high)) in deletes.iter().enumerate() {
                let seq = n as u64 + 3;
                gap.decide(7, &[*low], high.as_ref().map(std::slice::from_ref), seq);
                for key in *low..high.unwrap_or(12).max(*low) {
                    model[usize::from(key)] = model[usize::from(key)].min(seq);
                }
            }
            for key in 0..12u8 {
                let known = model[usize::from(key)] <= at;
                prop_assert_eq!(gap.refuse_key(7, &[key], at).is_ok(), known);
                prop_assert!(gap.refuse_key(8, &[key], at).is_err());
            }
            let known = gap.refuse_range(7, &[low], high.as_ref().map(std::slice::from_ref), at);
            let all = (low..high.unwrap_or(12).max(low)).all(|key| model[usize::from(key)] <= at);
            prop_assert_eq!(known.is_ok(), all);
        }
    }
}

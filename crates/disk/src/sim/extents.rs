//! The pages of a file that own space on the disk, as disjoint ranges.
//!
//! Ranges instead of single pages, because a segment reserves tens of thousands of pages at once.

use std::collections::BTreeMap;

/// Start page to end page, exclusive. Ranges neither overlap nor touch.
#[derive(Debug, Clone, Default)]
pub(super) struct Extents(BTreeMap<u64, u64>);

impl Extents {
    /// Number of pages owned.
    pub(super) fn total(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    /// Number of pages of `start..end` that are not owned yet.
    pub(super) fn missing(&self, start: u64, end: u64) -> u64 {
        let owned: u64 = self.overlapping(start, end).map(|(s, e)| e.min(end) - s.max(start)).sum();
        (end - start) - owned
    }

    /// Returns the end, at most `end`, of the longest run from `start` that needs at most `budget`
    /// new pages.
    pub(super) fn affordable(&self, start: u64, end: u64, budget: u64) -> u64 {
        let mut at = start;
        let mut left = budget;
        for (owned_start, owned_end) in self.overlapping(start, end) {
            let gap = owned_start.saturating_sub(at);
            if gap > left {
                return at + left;
            }
            left -= gap;
            at = owned_end.min(end);
        }
        at + left.min(end - at)
    }

    /// Adds `start..end` to the owned pages.
    pub(super) fn add(&mut self, start: u64, end: u64) {
        if start >= end || self.missing(start, end) == 0 {
            return;
        }
        let (mut start, mut end) = (start, end);
        while let Some((&s, &e)) = self.0.range(..=end).next_back().filter(|(_, e)| **e >= start) {
            start = start.min(s);
            end = end.max(e);
            self.0.remove(&s);
        }
        self.0.insert(start, end);
    }

    /// Releases everything from page `end` on.
    pub(super) fn cut(&mut self, end: u64) {
        self.0.split_off(&end);
        if let Some((_, last)) = self.0.iter_mut().next_back() {
            *last = (*last).min(end);
        }
    }

    fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let first = self.0.range(..=start).next_back().map_or(start, |(s, _)| *s);
        self.0.range(first..end.max(first)).map(|(s, e)| (*s, *e)).filter(move |(_, e)| *e > start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_set_of_pages() {
        let mut rng = crate::sim::rng::Rng::new(7);
        for _ in 0..200 {
            let mut extents = Extents::default();
            let mut model = std::collections::BTreeSet::new();
            for _ in 0..40 {
                let start = rng.below(50);
                let end = start + rng.below(12);
                let missing = (start..end).filter(|page| !model.contains(page)).count() as u64;
                assert_eq!(extents.missing(start, end), missing);
                let budget = rng.below(8);
                let mut left = budget;
                let mut afford = start;
                while afford < end && (model.contains(&afford) || left > 0) {
                    left -= u64::from(!model.contains(&afford));
                    afford += 1;
                }
                assert_eq!(extents.affordable(start, end, budget), afford);
                if rng.percent(20) {
                    extents.cut(start);
                    model.retain(|page| *page < start);
                } else {
                    extents.add(start, end);
                    model.extend(start..end);
                }
                assert_eq!(extents.total(), model.len() as u64);
            }
        }
    }
}

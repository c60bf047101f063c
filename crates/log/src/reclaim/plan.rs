//! Decides which segments are worth dropping: pure arithmetic.

use crate::base::position::Seq;
use crate::format::BLOCK_BYTES;

/// The usage of one segment, as the rule needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// The sequence number of its last record.
    pub last: Seq,
    /// Bytes in it, headers and padding included.
    pub bytes: u64,
    /// Stored bytes of its live records.
    pub live: u64,
}

impl Usage {
    /// The usage of a segment with this last record, size and live bytes.
    pub const fn new(last: Seq, bytes: u64, live: u64) -> Self {
        Self { last, bytes, live }
    }
}

/// The rule for copying live records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Effort {
    /// Live records are copied only while dead bytes exceed live bytes by more than one segment. In
    /// a log that is truncated in order this copies nothing, because each segment is soon dead. So
    /// space is bounded by twice the live bytes plus two segments.
    #[default]
    Lazy,
    /// Live records are copied wherever the rule allows it.
    Full,
    /// For a full disk: no more than fits in the reserve of the log, and also where that gains only
    /// a thirty-second part of the segments. It frees space, or moves live segments away that are
    /// before dead ones, or does nothing.
    FullDisk,
}

impl Effort {
    /// Whether it pays to copy `live` bytes to free segments of `bytes` bytes. With
    /// `checkpoint_grows`, what the copies cost besides is not known here, and half must be dead.
    pub(super) fn pays(
        self,
        (live, bytes, segments): (u64, u64, u64),
        checkpoint_grows: bool,
    ) -> bool {
        match self {
            Effort::FullDisk if !checkpoint_grows => {
                space_of_copies(live, segments) + bytes / 32 <= bytes
            }
            Effort::Lazy | Effort::Full | Effort::FullDisk => live <= bytes / 2,
        }
    }
}

/// About the space that copies take, with headers and padding: in segments that are as full as
/// those that they come from.
pub(super) fn space_of_copies(live: u64, segments: u64) -> u64 {
    live + live / 32 + segments * u64::from(BLOCK_BYTES)
}

/// The segments to drop, oldest first, and the cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// The number of segments to drop.
    pub segments: usize,
    /// The sequence number of the first record that stays.
    pub cut: Seq,
    /// Bytes in the dropped segments.
    pub bytes: u64,
    /// Live bytes in them, which are copied first.
    pub live: u64,
}

impl Plan {
    /// Applies the rule to segments in order, oldest first. `None` when no segment is to be
    /// dropped.
    ///
    /// The rule is *marginal*: segments after a cut are added, up to some later one, only when at
    /// most half of the bytes of **these** segments are live. With [`Effort::FullDisk`] a
    /// thirty-second part that is gained suffices. So bytes freed earlier never justify
    /// copies that are not worth it by themselves. Wholly dead segments at the front are dropped
    /// alone, before anything is copied, because that takes no space. `most` bounds the live bytes
    /// of one plan, after its first step; with [`Effort::FullDisk`] also those of the first step.
    /// If that step has more, its first segments are dropped alone: what this copies takes as much
    /// space as it frees, but later plans reach what is dead behind it.
    ///
    /// `checkpoint_grows`: as [`Owner::CHECKPOINT_GROWS`](super::Owner::CHECKPOINT_GROWS).
    pub fn new(
        segments: &[Usage],
        segment_size: u64,
        effort: Effort,
        most: u64,
        checkpoint_grows: bool,
    ) -> Option<Self> {
        let dead = segments.iter().take_while(|segment| segment.live == 0).count();
        if dead > 0 {
            return Self::from_segments(&segments[..dead]);
        }
        let live: u64 = segments.iter().map(|segment| segment.live).sum();
        let bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
        let garbage = bytes.saturating_sub(live);
        if effort == Effort::Lazy && garbage <= live.saturating_add(segment_size) {
            return None;
        }
        let mut cut = 0;
        let (mut copied, mut added, mut added_live) = (0u64, 0u64, 0u64);
        for (n, segment) in segments.iter().enumerate() {
            added += segment.bytes;
            added_live += segment.live;
            let step = (added_live, added, (n + 1 - cut) as u64);
            if !effort.pays(step, checkpoint_grows) {
                continue;
            }
            let fits = copied.saturating_add(added_live) <= most;
            if cut == 0 && effort == Effort::FullDisk && !fits {
                return Self::from_segments(&segments[..with_at_most(segments, most)]);
            }
            if cut > 0 && !fits {
                break;
            }
            cut = n + 1;
            copied += added_live;
            (added, added_live) = (0, 0);
        }
        Self::from_segments(&segments[..cut])
    }

    fn from_segments(segments: &[Usage]) -> Option<Self> {
        let last = segments.last()?.last;
        Some(Self {
            segments: segments.len(),
            cut: Seq(last.0.saturating_add(1)),
            bytes: segments.iter().map(|segment| segment.bytes).sum(),
            live: segments.iter().map(|segment| segment.live).sum(),
        })
    }
}

/// The number of segments at the front that have at most `most` live bytes together.
fn with_at_most(segments: &[Usage], most: u64) -> usize {
    let mut live = 0u64;
    let fits = |usage: &&Usage| {
        live = live.saturating_add(usage.live);
        live <= most
    };
    segments.iter().take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn segments(shares: &[(u64, u64)]) -> Vec<Usage> {
        let usage = |(n, (bytes, live)): (u64, &(u64, u64))| Usage::new(Seq(n * 10), *bytes, *live);
        (1..).zip(shares).map(usage).collect()
    }

    fn cut(shares: &[(u64, u64)], effort: Effort) -> usize {
        Plan::new(&segments(shares), 100, effort, u64::MAX, false).map_or(0, |plan| plan.segments)
    }

    #[test]
    fn freed_space_of_earlier_segments_does_not_justify_copies() {
        // By a cumulative rule all four would be dropped: 170 of 400 bytes are live.
        let shares = [(100, 10), (100, 0), (100, 80), (100, 80)];
        assert_eq!(cut(&shares, Effort::Full), 2);
        assert_eq!(cut(&[(100, 50), (100, 51)], Effort::Full), 1);
        assert_eq!(cut(&[(100, 51), (100, 51)], Effort::Full), 0);
        // A full segment is dropped together with the dead ones after it.
        assert_eq!(cut(&[(100, 90), (100, 40), (100, 10)], Effort::Full), 3);
        assert_eq!(cut(&[(100, 90), (100, 10)], Effort::Full), 2);
    }

    #[test]
    fn dead_segments_go_first_and_alone() {
        let shares = [(100, 0), (100, 0), (100, 1), (100, 0)];
        for effort in [Effort::Lazy, Effort::Full] {
            let plan = Plan::new(&segments(&shares), 100, effort, u64::MAX, false);
            let dead = Plan { segments: 2, cut: Seq(21), bytes: 200, live: 0 };
            assert_eq!(plan, Some(dead));
        }
    }

    #[test]
    fn a_lazy_one_waits_until_more_is_dead_than_alive() {
        // In a log that is truncated in order, the oldest segment is soon dead.
        let shares = [(100, 10), (100, 100), (100, 100)];
        assert_eq!((cut(&shares, Effort::Lazy), cut(&shares, Effort::Full)), (0, 1));
        // One old record keeps all later dead segments from being dropped.
        let shares = [(100, 1), (100, 0), (100, 0), (100, 10)];
        assert_eq!(cut(&shares, Effort::Lazy), 4);
    }

    #[test]
    fn one_plan_copies_a_bounded_amount() {
        let shares = [(100, 40); 9];
        let plan = Plan::new(&segments(&shares), 100, Effort::Full, 130, false).unwrap();
        assert_eq!((plan.segments, plan.live, plan.bytes), (3, 120, 300));
        let plan = Plan::new(&segments(&shares), 100, Effort::Full, 0, false).unwrap();
        assert_eq!(plan.segments, 1, "it always comes to an end");
        let on_full_disk = |most| Plan::new(&segments(&shares), 100, Effort::FullDisk, most, true);
        assert_eq!(on_full_disk(39), None, "it would use up the reserve and free nothing");
        assert_eq!(on_full_disk(119).unwrap().segments, 2);
    }

    /// A part of a segment of 1 MiB, in hundredths.
    const PART: u64 = (1 << 20) / 100;

    fn full_disk(shares: &[u64], most: u64) -> Option<Plan> {
        let shares: Vec<_> = shares.iter().map(|live| (100 * PART, live * PART)).collect();
        Plan::new(&segments(&shares), 100 * PART, Effort::FullDisk, most * PART, false)
    }

    #[test]
    fn on_a_full_disk_live_segments_at_the_front_are_moved_away() {
        let shares = [95, 97, 0, 0, 80];
        let front = full_disk(&shares, 191).unwrap();
        assert_eq!((front.segments, front.live), (1, 95 * PART));
        assert_eq!(full_disk(&shares, 192).unwrap().segments, 4);
        assert_eq!(full_disk(&shares, 94), None, "no segment fits");
        // Nothing is dead behind them that would pay for it.
        assert_eq!(full_disk(&[98, 99], 98), None);
    }

    /// Bug: headers and padding counted as dead bytes, so that live segments paid for themselves
    /// again and again.
    #[test]
    fn on_a_full_disk_little_that_is_dead_pays_and_headers_do_not() {
        assert_eq!(full_disk(&[93, 95, 91], u64::MAX / PART).unwrap().segments, 3);
        assert_eq!(full_disk(&[94, 94], u64::MAX / PART), None);
        // All is live in the smallest segment: the rest is its header and those of units.
        for bytes in [64 << 10, 128 << 10, 1 << 20] {
            let live = (bytes - u64::from(BLOCK_BYTES)) / 1024 * 1008;
            let one = [Usage::new(Seq(1), bytes, live)];
            assert_eq!(Plan::new(&one, bytes, Effort::FullDisk, u64::MAX, false), None, "{bytes}");
            assert_eq!(Plan::new(&one, bytes, Effort::FullDisk, u64::MAX, true), None, "{bytes}");
        }
    }

    #[test]
    fn on_a_full_disk_half_is_dead_where_the_copies_make_a_checkpoint_larger() {
        let plan = |live| {
            let one = [Usage::new(Seq(1), 100 * PART, live * PART)];
            Plan::new(&one, 100 * PART, Effort::FullDisk, u64::MAX, true)
        };
        assert_eq!((plan(51), plan(50).map(|plan| plan.segments)), (None, Some(1)));
    }

    proptest! {
        /// For any segments: the dropped ones are at most half live, and some suffix of them is at
        /// most half live by itself. Once nothing more is dropped, the bound on space holds.
        #[test]
        fn the_rule_holds(
            shares in prop::collection::vec((1u64..1000, 0u64..1000), 0..12),
            lazy in any::<bool>(),
        ) {
            let shares: Vec<_> =
                shares.into_iter().map(|(bytes, live)| (bytes, live.min(bytes))).collect();
            let all = segments(&shares);
            let effort = if lazy { Effort::Lazy } else { Effort::Full };
            let sums = |part: &[Usage]| {
                part.iter().fold((0, 0), |(b, l), usage| (b + usage.bytes, l + usage.live))
            };
            match Plan::new(&all, 100, effort, u64::MAX, false) {
                Some(plan) => {
                    let (bytes, live) = sums(&all[..plan.segments]);
                    prop_assert_eq!((plan.bytes, plan.live), (bytes, live));
                    prop_assert!(live <= bytes / 2);
                    // The last step by itself: some suffix is at most half live.
                    let step = (0..plan.segments).any(|from| {
                        let (bytes, live) = sums(&all[from..plan.segments]);
                        live <= bytes / 2
                    });
                    prop_assert!(step);
                    prop_assert!(plan.live == 0 || all[0].live > 0, "the dead ones go alone");
                }
                None => {
                    let (bytes, live) = sums(&all);
                    prop_assert!(all.first().is_none_or(|first| first.live > 0));
                    prop_assert!(bytes <= 2 * live + 100 || !all.is_empty());
                    if lazy {
                        // Either few bytes are dead, or the rule allows no drop.
                        let full = Plan::new(&all, 100, Effort::Full, u64::MAX, false);
                        prop_assert!(bytes - live <= live + 100 || full.is_none());
                    }
                }
            }
        }
    }
}

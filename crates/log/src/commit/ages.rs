//! The ages of records, for a retention by age.
//!
//! An age is never the difference of two wall clocks of one session: one that is set ahead would
//! make all records old at once, and one that is set back would keep them until it has caught up.
//! Ages are counted from a beginning, the opening of the log or the moment when it got a limit:
//!
//! - A record that is committed after the beginning has the age since its commit, on the clock that
//!   nothing sets.
//! - An earlier record has the time since the beginning, plus the difference between its stored
//!   time and the wall clock at the beginning. If its stored time was ahead of that clock, it has
//!   only the time since the beginning.
//!
//! Commits that follow one another closely share an entry with the time of the last of them, so
//! that their records stay a little longer than they need to. An entry covers a 256th of the age,
//! and there are at most [`ENTRIES_MAX`].

use std::collections::VecDeque;
use std::time::Duration;

/// An entry covers one part in this many of the age.
const AGE_FRACTION: u32 = 256;
/// The shortest time that an entry covers.
const ENTRY_MIN: Duration = Duration::from_millis(32);
/// The most entries. When there are so many, the last one covers what follows.
const ENTRIES_MAX: usize = 1024;

/// The ages of the records of a log.
#[derive(Debug, Default)]
pub(crate) struct Ages {
    /// The time of the next check, on the clock of the engine.
    pub(super) due: Duration,
    /// `None` while no limit needs them.
    counted: Option<AgeTable>,
}

#[derive(Debug)]
struct AgeTable {
    begin: Begin,
    /// The time that an entry covers.
    resolution: Duration,
    /// Commits since the beginning, oldest first.
    commits: VecDeque<Entry>,
    /// The last record that was found to be too old.
    expired: u64,
}

/// The moment from which ages are counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begin {
    /// On the clock of the engine.
    pub(super) now: Duration,
    /// On the wall clock, in milliseconds since 1970.
    pub(super) wall_ms: u64,
    /// The last record before the beginning.
    pub(super) last_seq: u64,
}

/// Commits of about the same time.
#[derive(Debug)]
struct Entry {
    first: Duration,
    last: Duration,
    last_seq: u64,
}

/// The records that are too old.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expired {
    /// All up to this one.
    pub(super) through: u64,
    /// And of those up to `Earlier::last_seq` all before a time.
    pub(super) earlier: Option<Earlier>,
}

/// Records from before the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Earlier {
    pub(super) time_ms: u64,
    pub(super) last_seq: u64,
}

impl Ages {
    /// Counts ages for this limit, or none any more, and has them checked at once. Returns the
    /// beginning if it begins now.
    pub(super) fn set_limit(
        &mut self,
        age: Option<Duration>,
        begin: impl FnOnce() -> Begin,
    ) -> Option<Begin> {
        self.due = Duration::ZERO;
        let Some(age) = age else {
            self.counted = None;
            return None;
        };
        let resolution = (age / AGE_FRACTION).max(ENTRY_MIN);
        if let Some(counted) = &mut self.counted {
            counted.resolution = resolution;
            return None;
        }
        let begin = begin();
        let commits = VecDeque::new();
        self.counted = Some(AgeTable { begin, resolution, commits, expired: 0 });
        Some(begin)
    }

    /// Notes a commit that ends with this record.
    pub(super) fn committed(&mut self, last_seq: u64, now: impl FnOnce() -> Duration) {
        let Some(AgeTable { resolution, commits, .. }) = &mut self.counted else { return };
        let now = now();
        let len = commits.len();
        match commits.back_mut() {
            Some(newest)
                if now.saturating_sub(newest.first) < *resolution || len == ENTRIES_MAX =>
            {
                (newest.last, newest.last_seq) = (now, last_seq);
            }
            _ => commits.push_back(Entry { first: now, last: now, last_seq }),
        }
    }

    /// The records that are older than this; `None` if no age is counted.
    pub(super) fn older_than(&mut self, age: Duration, now: Duration) -> Option<Expired> {
        let AgeTable { begin, commits, expired, .. } = self.counted.as_mut()?;
        while let Some(oldest) = commits.front()
            && now.saturating_sub(oldest.last) > age
        {
            *expired = oldest.last_seq;
            commits.pop_front();
        }
        let since = now.saturating_sub(begin.now);
        if since > age {
            *expired = begin.last_seq.max(*expired);
        }
        let time_ms = begin.wall_ms.saturating_add(ms(since)).saturating_sub(ms(age));
        let earlier = Earlier { time_ms, last_seq: begin.last_seq };
        let is_all = *expired >= begin.last_seq;
        Some(Expired { through: *expired, earlier: (!is_all).then_some(earlier) })
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const AGE: Duration = Duration::from_secs(256);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn counted() -> Ages {
        let mut ages = Ages::default();
        let begin = Begin { now: seconds(10), wall_ms: 900_000, last_seq: 7 };
        assert!(ages.set_limit(Some(AGE), || begin).is_some());
        ages
    }

    #[test]
    fn nothing_is_counted_without_a_limit() {
        let mut ages = Ages::default();
        ages.committed(1, || unreachable!("a clock is read"));
        assert_eq!(ages.older_than(AGE, seconds(1000)), None);
        let mut ages = counted();
        assert!(ages.set_limit(None, || unreachable!()).is_none());
        assert_eq!(ages.older_than(AGE, seconds(1000)), None);
    }

    #[test]
    fn records_of_before_have_their_stored_times_until_the_age_is_over() {
        let mut ages = counted();
        let earlier = |time_ms| Some(Earlier { time_ms, last_seq: 7 });
        let expired = ages.older_than(AGE, seconds(10)).unwrap();
        assert_eq!(expired, Expired { through: 0, earlier: earlier(900_000 - 256_000) });
        let expired = ages.older_than(AGE, seconds(10) + AGE).unwrap();
        assert_eq!(expired, Expired { through: 0, earlier: earlier(900_000) });
        let expired = ages.older_than(AGE, seconds(11) + AGE).unwrap();
        assert_eq!(expired, Expired { through: 7, earlier: None });
    }

    #[test]
    fn commits_expire_with_the_last_of_their_entry() {
        let mut ages = counted();
        for (at, seq) in [(20_000, 8), (20_900, 9), (21_000, 10)] {
            ages.committed(seq, || Duration::from_millis(at));
        }
        let mut through =
            |ms| ages.older_than(AGE, AGE + Duration::from_millis(ms)).unwrap().through;
        assert_eq!([20_900, 20_901, 21_000, 21_001].map(&mut through), [7, 9, 9, 10]);
    }

    #[test]
    fn entries_are_bounded() {
        let mut ages = counted();
        for n in 0..3_000 {
            ages.committed(8 + n, || seconds(20 + n));
        }
        let counted = ages.counted.as_ref().unwrap();
        assert_eq!(counted.commits.len(), ENTRIES_MAX);
        assert_eq!(counted.commits.back().unwrap().last_seq, 3_007);
        assert_eq!(ages.older_than(AGE, seconds(20 + 2_999) + AGE).unwrap().through, 8 + 1_022);
        assert_eq!(ages.older_than(AGE, seconds(20 + 3_000) + AGE).unwrap().through, 3_007);
    }
}

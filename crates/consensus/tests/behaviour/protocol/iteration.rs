//! Going through slots in order.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::ops::{Bound, ControlFlow, RangeBounds};

use esker_consensus::{
    AcceptError, CommittedRange, IterateOptions, LearnError, Mode, Slot, SnapshotBounds,
};

use crate::fixture::{LOW, MODES, Setting, log, log_with, slots, value};

fn visited(s: &Setting, range: impl RangeBounds<u64>) -> Vec<u64> {
    let mut visited = Vec::new();
    let options = IterateOptions::default();
    let visit = |entry: &esker_consensus::Entry<'_>| {
        visited.push(entry.slot().0);
        ControlFlow::Continue(())
    };
    s.log.iterate(slots(range), options, visit).unwrap();
    visited
}

fn fill(s: &Setting, slots: impl IntoIterator<Item = u64>) {
    for slot in slots {
        s.accept(slot, LOW, &value(slot));
        s.commit(slot, LOW);
    }
}

#[test]
fn slots_come_in_ascending_order_whatever_the_order_of_commits() {
    for mode in MODES {
        let s = log(mode);
        fill(&s, [5, 15, 1, 10, 8, 3, 12, 7]);
        let all = [1, 3, 5, 7, 8, 10, 12, 15];
        assert_eq!(visited(&s, ..), all);
        assert_eq!(visited(&s, ..).iter().sum::<u64>(), 61);
        assert_eq!(visited(&s, 5..=15), all[2..]);
        assert_eq!(visited(&s, 10..), all[5..]);
        assert_eq!(visited(&s, ..=9), all[..5]);
        assert_eq!(visited(&s, 7..=7), [7]);
        assert_eq!(visited(&s, (Bound::Excluded(7), Bound::Excluded(12))), [8, 10]);
        assert!(visited(&s, 100..).is_empty());
        let s = s.reopen(mode);
        assert_eq!(visited(&s, ..), all, "from the log");
    }
}

#[test]
fn ranges_are_explicit_and_an_empty_log_has_none() {
    let s = log(Mode::Durable);
    assert_eq!((visited(&s, ..), s.log.stats().committed), (vec![], None));
    assert!(visited(&s, 0..=0).is_empty());
    fill(&s, [0, 1]);
    assert_eq!(visited(&s, 0..=0), [0]);
    assert!(visited(&s, 0..0).is_empty());
    fill(&s, [5, 10, 15, 20]);
    let range = CommittedRange { lowest: Slot(0), highest: Slot(20), count: 6 };
    assert_eq!(s.log.stats().committed, Some(range));
}

#[test]
fn uncommitted_entries_are_visited_when_asked_for_and_a_visit_may_end_it() {
    for mode in MODES {
        let s = log(mode);
        fill(&s, [2, 9000]);
        s.accept(4, LOW, b"open");
        s.accept(20_000, LOW, b"open");
        assert_eq!(visited(&s, ..), [2, 9000]);
        let mut options = IterateOptions::default();
        options.include_uncommitted = true;
        let mut seen = Vec::new();
        let done = s.log.iterate(.., options, |entry| {
            seen.push((entry.slot().0, entry.is_committed()));
            if seen.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let done = done.unwrap();
        assert_eq!(seen, [(2, true), (4, false), (9000, true)]);
        assert_eq!((done.visited, done.stopped), (3, true));
    }
}

#[test]
fn a_replay_ends_with_what_was_committed_when_it_began() {
    for mode in MODES {
        let s = log(mode);
        fill(&s, (0..100).filter(|slot| slot % 10 > 0));
        let mut seen = Vec::new();
        s.log
            .iterate(Slot(0).., IterateOptions::default(), |entry| {
                if entry.slot() == Slot(1) {
                    fill(&s, (0..200).filter(|slot| slot % 10 == 0 || *slot >= 100));
                }
                seen.push(entry.slot().0);
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(seen, (0..100).filter(|slot| slot % 10 > 0).collect::<Vec<_>>());
        let mut sum = 0;
        let done = s.log.iterate(Slot(10)..=Slot(50), IterateOptions::default(), |entry| {
            sum += entry.slot().0;
            ControlFlow::Continue(())
        });
        assert_eq!((done.unwrap().visited, sum), (41, 1230));
    }
}

#[test]
fn a_range_of_gaps_a_replay_from_the_middle_and_what_comes_during_one() {
    for mode in MODES {
        let s = log(mode);
        fill(&s, [5, 10, 15, 20]);
        let range = CommittedRange { lowest: Slot(5), highest: Slot(20), count: 4 };
        assert_eq!(s.log.stats().committed, Some(range));
        let s = log(mode);
        fill(&s, 0..20);
        let (mut count, mut sum) = (0, 0);
        let from_ten = s.log.iterate(Slot(10).., IterateOptions::default(), |entry| {
            (count, sum) = (count + 1, sum + entry.slot().0);
            ControlFlow::Continue(())
        });
        assert_eq!((from_ten.unwrap().visited, count, sum), (10, 10, 145));
        fill(&s, 20..100);
        let mut seen = Vec::new();
        s.log
            .iterate(Slot(0).., IterateOptions::default(), |entry| {
                if entry.slot() == Slot(0) {
                    fill(&s, 100..150);
                }
                seen.push(entry.slot().0);
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
    }
}

/// Values that left the cache are read from the log, many at a time.
#[test]
fn ten_thousand_values_come_back_from_a_small_cache() {
    for mode in MODES {
        let s = log_with(mode, |options| options.cache_size = 10_000);
        let slots: Vec<_> = (0..10_000).map(|n| Slot(n * 7919 % 10_000)).collect();
        for some in slots.chunks(500) {
            let values: Vec<_> = some.iter().map(|slot| value(slot.0)).collect();
            let pairs: Vec<(Slot, &[u8])> =
                some.iter().copied().zip(values.iter().map(Vec::as_slice)).collect();
            s.log.accept_batch(LOW, &pairs).unwrap().blocking_wait().unwrap();
            let marks: Vec<_> = some.iter().map(|slot| (*slot, LOW)).collect();
            s.log.commit_batch(&marks).unwrap().ticket.blocking_wait().unwrap();
        }
        assert!(s.log.stats().cache_used <= 10_000 + 64 * 500);
        let s = s.kill(mode);
        let mut next = 0;
        s.log
            .iterate(Slot(0).., IterateOptions::default(), |entry| {
                assert_eq!((entry.slot().0, entry.value()), (next, &value(next)[..]));
                next += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!((next, s.log.frontier()), (10_000, Some(Slot(9_999))));
        for slot in (0..10_000).step_by(97) {
            assert_eq!(s.committed(slot), value(slot));
        }
    }
}

#[test]
fn slots_too_far_off_are_refused() {
    let s = log(Mode::Durable);
    let limit = 1 << 32;
    let far = s.log.accept(Slot(limit), LOW, b"far");
    assert!(matches!(far, Err(AcceptError::SlotOutOfRange { slot, limit: reported })
        if slot == Slot(limit) && reported == Slot(limit)));
    assert!(matches!(
        s.log.learn(Slot(u64::MAX), LOW, b"far"),
        Err(LearnError::SlotOutOfRange { .. })
    ));
    s.log
        .snapshots()
        .install(SnapshotBounds { floor: Slot(limit), frontier: Slot(limit) })
        .unwrap()
        .blocking_wait()
        .unwrap();
    s.accept(limit + 1, LOW, b"near");
    s.commit(limit + 1, LOW);
    assert_eq!(visited(&s.kill(Mode::Durable), ..), [limit + 1]);
}

//! A promise's answer, and an iteration, list everything or return `Truncated`.
//!
//! Guards against the loss of committed slots from a promise's answer while `truncate_before` or
//! `install` runs beside it: truncated slots were taken for gaps, and two quorums could choose two
//! values for one slot.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::ops::{Bound, ControlFlow, RangeBounds};

use esker_consensus::{
    Ballot, Entry, IterateOptions, Mode, PromiseAnswer, ReadError, Slot, SnapshotBounds,
};

use crate::fixture::{HIGH, HIGHER, LOW, MODES, Setting, log, log_with, slots, value};

const HIGHEST: Ballot = Ballot { number: 9, node: 9 };

fn fill(s: &Setting, slots: impl IntoIterator<Item = u64>) {
    for slot in slots {
        s.accept(slot, LOW, &value(slot));
        s.commit(slot, LOW);
    }
}

/// Lists the entries of an answer. `during` runs inside the visit of each slot, and says when to
/// break off.
fn answer(
    promised: &PromiseAnswer,
    mut during: impl FnMut(u64) -> ControlFlow<()>,
) -> (Vec<u64>, Result<ControlFlow<()>, ReadError>) {
    let mut slots = Vec::new();
    let flow = promised.for_each(|entry| {
        slots.push(entry.slot().0);
        during(entry.slot().0)
    });
    (slots, flow)
}

fn refused<T: std::fmt::Debug>(result: Result<T, ReadError>, floor: u64) {
    assert!(
        matches!(result, Err(ReadError::Truncated { floor: at }) if at == Slot(floor)),
        "not refused with floor {floor}: {result:?}"
    );
}

/// Both ways to raise the floor.
const RAISES: [fn(&Setting, u64); 2] = [
    |s, to| s.log.truncate_before(Slot(to)).unwrap().blocking_wait().unwrap(),
    |s, to| {
        s.log
            .snapshots()
            .install(SnapshotBounds { floor: Slot(to - 1), frontier: Slot(to - 1) })
            .unwrap()
            .blocking_wait()
            .unwrap();
    },
];

#[test]
fn a_floor_that_passes_an_answer_refuses_it() {
    for mode in MODES {
        for (raise, to) in RAISES.iter().flat_map(|raise| [2, 50, 5_000].map(|to| (raise, to))) {
            let s = log(mode);
            fill(&s, (0..100).chain([9_000]));
            s.log
                .snapshots()
                .install(SnapshotBounds { floor: Slot(0), frontier: Slot(8_999) })
                .unwrap()
                .blocking_wait()
                .unwrap();
            let promised = s.log.promise(HIGH, Slot(0)).unwrap().blocking_wait().unwrap();
            assert_eq!(
                (promised.floor(), promised.highest_committed()),
                (Some(Slot(0)), Some(Slot(9_000)))
            );
            // Slot 1 is listed before the floor passes it.
            let (slots, reported) = answer(&promised, |slot| {
                if slot == 1 {
                    raise(&s, to + 1);
                }
                ControlFlow::Continue(())
            });
            assert_eq!(slots, [1]);
            refused(reported, to);
            let (slots, reported) = answer(&promised, |_| ControlFlow::Continue(()));
            assert!(slots.is_empty(), "nor is it given after that");
            refused(reported, to);
        }
    }
}

#[test]
fn an_answer_that_is_broken_off_is_refused_as_well() {
    for raise in RAISES {
        let s = log(Mode::Durable);
        fill(&s, 0..20);
        let promised = s.log.promise(HIGH, Slot(0)).unwrap().blocking_wait().unwrap();
        let (slots, reported) = answer(&promised, |_| {
            raise(&s, 10);
            ControlFlow::Break(())
        });
        assert_eq!(slots, [0]);
        refused(reported, 9);
    }
}

#[test]
fn answer_is_kept_when_the_floor_passes_only_listed_slots() {
    for mode in MODES {
        let s = log(mode);
        fill(&s, 0..20);
        s.accept(25, LOW, &value(25));
        let promised = s.log.promise(HIGH, Slot(0)).unwrap().blocking_wait().unwrap();
        let (slots, reported) = answer(&promised, |slot| {
            if slot < 20 {
                s.log.truncate_before(Slot(slot + 1)).unwrap().blocking_wait().unwrap();
            }
            ControlFlow::Continue(())
        });
        assert!(reported.unwrap().is_continue());
        assert_eq!(slots, (0..20).chain([25]).collect::<Vec<_>>());
        // Broken off after the last committed slot: nothing that is left can be truncated.
        let s = log(mode);
        fill(&s, 0..20);
        let promised = s.log.promise(HIGH, Slot(10)).unwrap().blocking_wait().unwrap();
        let (slots, reported) = answer(&promised, |slot| {
            s.log.truncate_before(Slot(slot + 1)).unwrap().blocking_wait().unwrap();
            if slot == 19 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(reported.unwrap().is_break());
        assert_eq!(slots, (10..20).collect::<Vec<_>>());
    }
}

/// Entries uncommitted at the promise's place are in the answer, whatever became of them since.
#[test]
fn what_was_uncommitted_is_listed_as_it_was_after_truncation_and_install() {
    for mode in MODES {
        let s = log(mode);
        for slot in 0..5 {
            s.accept(slot, LOW, &value(slot));
        }
        let promised = s.log.promise(HIGH, Slot(0)).unwrap().blocking_wait().unwrap();
        assert_eq!(promised.highest_committed(), None);
        s.accept(0, HIGHER, b"another value");
        s.commit(0, HIGHER);
        s.log.learn(Slot(1), HIGHER, b"a third one").unwrap().blocking_wait().unwrap();
        s.log.truncate_before(Slot(2)).unwrap().blocking_wait().unwrap();
        s.log
            .snapshots()
            .install(SnapshotBounds { floor: Slot(9), frontier: Slot(9) })
            .unwrap()
            .blocking_wait()
            .unwrap();
        let mut listed = Vec::new();
        let flow = promised.for_each(|entry| {
            assert_eq!((entry.ballot(), entry.value()), (LOW, &value(entry.slot().0)[..]));
            assert!(!entry.is_committed());
            listed.push(entry.slot().0);
            ControlFlow::Continue(())
        });
        assert!(flow.unwrap().is_continue());
        assert_eq!(listed, [0, 1, 2, 3, 4]);
    }
}

/// An answer is as of its own place: what fills a gap afterwards is no part of it.
#[test]
fn what_was_committed_after_the_promise_is_not_listed() {
    for mode in MODES {
        let s = log(mode);
        fill(&s, [0, 2, 9]);
        let promised = s.log.promise(HIGH, Slot(0)).unwrap().blocking_wait().unwrap();
        s.accept(1, HIGHER, b"later");
        s.commit(1, HIGHER);
        s.log.learn(Slot(5), HIGHER, b"later").unwrap().blocking_wait().unwrap();
        fill_under(&s, HIGHEST, 12);
        let (slots, reported) = answer(&promised, |_| ControlFlow::Continue(()));
        assert!(reported.unwrap().is_continue());
        assert_eq!(slots, [0, 2, 9]);
    }
}

fn fill_under(s: &Setting, ballot: Ballot, slot: u64) {
    s.accept(slot, ballot, &value(slot));
    s.commit(slot, ballot);
}

fn iterate(
    s: &Setting,
    range: impl RangeBounds<u64>,
    mut during: impl FnMut(u64),
) -> (Vec<u64>, Result<(), ReadError>) {
    let mut visited = Vec::new();
    let done = s.log.iterate(slots(range), IterateOptions::default(), |entry| {
        visited.push(entry.slot().0);
        during(entry.slot().0);
        ControlFlow::Continue(())
    });
    (visited, done.map(drop))
}

fn nothing(_: u64) {}

#[test]
fn an_iteration_from_a_truncated_slot_is_refused_and_one_without_a_start_begins_above_the_floor() {
    let each = |_: &Entry<'_>| ControlFlow::Continue(());
    for mode in MODES {
        let s = log(mode);
        fill(&s, 0..20);
        s.log.truncate_before(Slot(10)).unwrap().blocking_wait().unwrap();
        refused(s.log.iterate(Slot(0).., IterateOptions::default(), each), 9);
        refused(s.log.iterate(Slot(9).., IterateOptions::default(), each), 9);
        refused(s.log.iterate(Slot(0)..=Slot(5), IterateOptions::default(), each), 9);
        refused(s.log.iterate(Slot(9)..=Slot(30), IterateOptions::default(), each), 9);
        refused(iterate(&s, 5.., nothing).1, 9);
        refused(iterate(&s, (Bound::Excluded(8), Bound::Unbounded), nothing).1, 9);
        let mut uncommitted = IterateOptions::default();
        uncommitted.include_uncommitted = true;
        uncommitted.skip_errors = true;
        refused(s.log.iterate(Slot(3).., uncommitted, each), 9);
        assert_eq!(s.log.iterate(.., uncommitted, each).unwrap().visited, 10);
        assert_eq!(s.log.iterate(Slot(10).., IterateOptions::default(), each).unwrap().visited, 10);
        assert_eq!(s.log.iterate(Slot(100).., IterateOptions::default(), each).unwrap().visited, 0);
        for (range, expected) in [
            ((Bound::Unbounded, Bound::Unbounded), 10..20),
            ((Bound::Unbounded, Bound::Included(12)), 10..13),
            ((Bound::Unbounded, Bound::Included(5)), 0..0),
            ((Bound::Excluded(9), Bound::Unbounded), 10..20),
        ] {
            let (slots, done) = iterate(&s, range, nothing);
            done.unwrap();
            assert_eq!(slots, expected.collect::<Vec<_>>());
        }
        // An empty range has no slot below the floor.
        iterate(&s, 5..5, nothing).1.unwrap();
        // Where nothing is left at all, too.
        s.log.truncate_before(Slot(20)).unwrap().blocking_wait().unwrap();
        assert_eq!(s.log.stats().committed, None);
        refused(s.log.iterate(Slot(0).., IterateOptions::default(), each), 19);
        assert!(iterate(&s, .., nothing).0.is_empty());
    }
}

#[test]
fn a_floor_that_passes_an_iteration_ends_it() {
    for mode in MODES {
        for raise in RAISES {
            for first in [Bound::Unbounded, Bound::Included(0)] {
                let s = log(mode);
                fill(&s, 0..20);
                let (slots, reported) = iterate(&s, (first, Bound::Unbounded), |slot| {
                    if slot == 3 {
                        raise(&s, 10);
                    }
                });
                assert_eq!(slots, [0, 1, 2, 3]);
                refused(reported, 9);
                // Only what was visited goes.
                let (slots, reported) = iterate(&s, .., |slot| raise(&s, slot + 1));
                reported.unwrap();
                assert_eq!(slots, (10..20).collect::<Vec<_>>());
            }
        }
    }
}

/// Guards against values that truncation copied forward and that an iteration beside it took for
/// ones that were committed after it began.
#[test]
fn a_value_that_truncation_moves_is_listed_by_what_began_before() {
    for mode in MODES {
        let s = log_with(mode, |options| options.cache_size = 64 << 10);
        s.log.learn(Slot(999), LOW, b"far ahead").unwrap().blocking_wait().unwrap();
        for slot in 0..300 {
            s.accept(slot, LOW, &vec![slot as u8; 2000]);
            s.commit(slot, LOW);
        }
        let before = s.log.maintenance().offset_of(Slot(999)).unwrap();
        let promised = s.log.promise(HIGH, Slot(290)).unwrap().blocking_wait().unwrap();
        let expected: Vec<_> = (290..300).chain([999]).collect();
        let move_and_read_again = || {
            s.log.truncate_before(Slot(290)).unwrap().blocking_wait().unwrap();
            assert_ne!(
                s.log.maintenance().offset_of(Slot(999)).unwrap(),
                before,
                "it was not moved"
            );
            let (slots, done) = iterate(&s, 999.., nothing);
            done.unwrap();
            assert_eq!(slots, [999]);
        };
        let (slots, done) = iterate(&s, 290.., |slot| {
            if slot == 299 {
                move_and_read_again();
            }
        });
        done.unwrap();
        assert_eq!(slots, expected);
        let (slots, reported) = answer(&promised, |slot| {
            if slot == 299 {
                move_and_read_again();
            }
            ControlFlow::Continue(())
        });
        assert!(reported.unwrap().is_continue());
        assert_eq!(slots, expected);
    }
}

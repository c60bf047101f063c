//! The phases of the protocol, one after the other, and what each leaves.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::ops::ControlFlow;
use std::time::Duration;

use esker_consensus::{
    AcceptBatchError, AcceptError, Ballot, CommitError, Error, Mode, PromiseError, ReadError, Slot,
    StorageError,
};

use crate::fixture::{HIGH, HIGHER, LOW, MODES, log, log_with, value};

/// An accepted slot is read as uncommitted, and a committed one as committed; a slot without either
/// is `SlotNotFound`.
#[test]
fn accept_commit_read() {
    for mode in MODES {
        let s = log(mode);
        let guard = s.log.pin();
        assert!(matches!(
            s.log.read(Slot(7), &guard),
            Err(ReadError::SlotNotFound { slot: Slot(7) })
        ));
        assert!(matches!(
            s.log.commit(Slot(7), LOW),
            Err(CommitError::SlotNotFound { slot: Slot(7) })
        ));
        s.accept(7, LOW, b"settle");
        let entry = s.log.read(Slot(7), &guard).unwrap();
        assert_eq!((entry.slot().0, entry.ballot(), entry.is_committed()), (7, LOW, false));
        assert_eq!(entry.value(), b"settle");
        assert!(matches!(
            s.log.read_committed(Slot(7), &guard),
            Err(ReadError::NotCommitted { slot: Slot(7) })
        ));
        s.commit(7, LOW);
        s.commit(7, LOW);
        for entry in [s.log.read(Slot(7), &guard), s.log.read_committed(Slot(7), &guard)] {
            let entry = entry.unwrap();
            assert!(entry.is_committed() && entry.value() == b"settle" && entry.ballot() == LOW);
        }
    }
}

#[test]
fn clean_close_keeps_every_slot_in_both_modes() {
    for mode in MODES {
        let s = log(mode);
        for slot in 0..100 {
            s.accept(slot, LOW, &value(slot));
            if slot % 3 > 0 {
                s.commit(slot, LOW);
            }
        }
        let s = s.reopen(mode);
        for slot in 0..100 {
            if slot % 3 > 0 {
                assert_eq!(s.committed(slot), value(slot));
            }
        }
        let left: Vec<_> = s.uncommitted().iter().map(|(slot, ..)| *slot).collect();
        assert_eq!(left, (0..100).step_by(3).collect::<Vec<_>>());
        for slot in left {
            s.commit(slot, LOW);
            assert_eq!(s.committed(slot), value(slot));
        }
        assert_eq!(s.log.frontier(), Some(Slot(99)));
    }
}

/// Guards against an acceptor that answers and then forgets: a chosen value can be un-chosen.
#[test]
fn an_acknowledged_accept_and_promise_outlive_a_kill() {
    let s = log(Mode::Durable);
    s.accept(3, HIGH, b"voted");
    let s = s.kill(Mode::Durable);
    assert_eq!(s.uncommitted(), [(3, HIGH, b"voted".to_vec())]);
    s.log.promise(HIGHER, Slot(0)).unwrap().blocking_wait().unwrap();
    let s = s.kill(Mode::Durable);
    assert_eq!(s.log.promised(), Some(HIGHER));
    assert_eq!(s.uncommitted(), [(3, HIGH, b"voted".to_vec())]);
    assert!(matches!(
        s.log.accept(Slot(3), HIGH, b"late"),
        Err(AcceptError::StaleBallot { promised: HIGHER })
    ));
}

#[test]
fn promises_are_durable_in_volatile_mode_and_accepts_are_not() {
    let s = log(Mode::Volatile);
    s.log.promise(HIGH, Slot(0)).unwrap().blocking_wait().unwrap();
    s.accept(3, HIGHER, b"in memory");
    let s = s.kill(Mode::Volatile);
    assert_eq!(s.log.promised(), Some(HIGH));
    assert!(s.uncommitted().is_empty());
}

#[test]
fn an_accept_promises_its_ballot() {
    for mode in MODES {
        let s = log(mode);
        s.accept(1, HIGH, b"a");
        assert_eq!(s.log.promised(), Some(HIGH));
        assert!(matches!(
            s.log.accept(Slot(2), LOW, b"b"),
            Err(AcceptError::StaleBallot { promised: HIGH })
        ));
        assert!(matches!(
            s.log.promise(LOW, Slot(0)),
            Err(PromiseError::StaleBallot { promised: HIGH })
        ));
    }
    let s = log(Mode::Durable);
    s.accept(1, HIGH, b"a");
    assert_eq!(s.kill(Mode::Durable).log.promised(), Some(HIGH));
}

/// Guards against a promise that is reported and not written: a committed value is acknowledged
/// under any ballot, without a record.
#[test]
fn a_committed_value_acknowledged_again_promises_nothing() {
    for mode in MODES {
        let s = log(mode);
        s.log.promise(LOW, Slot(0)).unwrap().blocking_wait().unwrap();
        s.accept(0, LOW, b"chosen");
        s.commit(0, LOW);
        s.accept(0, HIGH, b"chosen");
        assert_eq!(s.log.promised(), Some(LOW));
        assert_eq!(s.kill(mode).log.promised(), Some(LOW), "and nothing else was reported before");
    }
}

/// A commit or a learned value that is repeated is acknowledged when the first one is durable.
#[test]
fn a_commit_that_is_not_durable_is_not_acknowledged_again() {
    let s = log(Mode::Durable);
    let learned = s.log.learn(Slot(0), LOW, b"chosen").unwrap();
    assert!(!s.log.learn(Slot(0), HIGH, b"chosen").unwrap().is_ready());
    assert!(!s.log.commit(Slot(0), HIGH).unwrap().is_ready());
    learned.blocking_wait().unwrap();
    assert!(s.log.learn(Slot(0), HIGH, b"chosen").unwrap().is_ready());
    s.accept(1, LOW, b"accepted");
    let committed = s.log.commit(Slot(1), LOW).unwrap();
    assert!(!s.log.commit(Slot(1), LOW).unwrap().is_ready());
    assert!(!s.log.learn(Slot(1), LOW, b"accepted").unwrap().is_ready());
    committed.blocking_wait().unwrap();
    assert!(s.log.commit(Slot(1), LOW).unwrap().is_ready());
}

/// Guards against an accept that is acknowledged from memory, because its slot is committed and
/// commits wait for no sync.
#[test]
fn an_accept_of_what_is_committed_is_durable_before_it_is_acknowledged() {
    let s = log_with(Mode::Durable, |options| options.sync_on_commit = false);
    s.log.learn(Slot(0), LOW, b"chosen").unwrap().blocking_wait().unwrap();
    drop(s.log.accept(Slot(1), LOW, b"sent twice").unwrap());
    s.commit(1, LOW);
    s.accept(0, LOW, b"chosen");
    s.accept(1, LOW, b"sent twice");
    s.disk.power_cut(esker_disk::sim::Persist::Nothing);
    let s = s.kill(Mode::Durable);
    assert_eq!((s.committed(0), s.committed(1)), (b"chosen".to_vec(), b"sent twice".to_vec()));
}

#[test]
fn a_lower_ballot_is_refused_and_a_higher_one_replaces() {
    for mode in MODES {
        let s = log(mode);
        s.accept(1, LOW, b"first");
        s.accept(1, HIGH, b"second");
        let refused = s.log.accept(Slot(1), LOW, b"third");
        assert!(matches!(refused, Err(AcceptError::StaleBallot { promised: HIGH })));
        assert_eq!(s.uncommitted(), [(1, HIGH, b"second".to_vec())]);
        assert!(matches!(
            s.log.commit(Slot(1), LOW),
            Err(CommitError::BallotMismatch { slot: Slot(1), accepted: HIGH })
        ));
        s.commit(1, HIGH);
        assert_eq!(s.committed(1), b"second");
    }
}

#[test]
fn the_same_ballot_again_is_acknowledged_with_its_value_and_no_other() {
    for mode in MODES {
        let s = log(mode);
        s.accept(1, LOW, b"value");
        s.accept(1, LOW, b"value");
        let other = s.log.accept(Slot(1), LOW, b"other");
        assert!(matches!(other, Err(AcceptError::AnotherValue { slot: Slot(1), ballot: LOW })));
        assert_eq!(s.uncommitted(), [(1, LOW, b"value".to_vec())]);
    }
}

#[test]
fn a_committed_value_never_changes_also_across_restarts() {
    for mode in MODES {
        let mut s = log(mode);
        s.accept(1, LOW, b"chosen");
        s.commit(1, LOW);
        for _ in 0..3 {
            for ballot in [LOW, HIGH, HIGHER] {
                s.log.accept(Slot(1), ballot, b"chosen").unwrap().blocking_wait().unwrap();
                s.log.learn(Slot(1), ballot, b"chosen").unwrap().blocking_wait().unwrap();
                for refused in [
                    s.log.accept(Slot(1), ballot, b"no").map_err(Error::from),
                    s.log.learn(Slot(1), ballot, b"no").map_err(Error::from),
                ] {
                    let Err(Error::AlreadyCommitted { entry }) = refused else { panic!() };
                    assert_eq!((entry.slot().0, entry.value()), (1, &b"chosen"[..]));
                    assert!(entry.is_committed());
                }
            }
            s.commit(1, HIGHER);
            assert_eq!(s.committed(1), b"chosen");
            s = s.reopen(mode).kill(mode);
        }
    }
}

#[test]
fn a_promise_answers_with_everything_from_the_first_missing_slot_on() {
    for mode in MODES {
        let s = log(mode);
        for slot in [0, 1, 2, 5, 6, 9] {
            s.accept(slot, LOW, &value(slot));
        }
        for slot in [0, 1, 5] {
            s.commit(slot, LOW);
        }
        let promised = s.log.promise(HIGH, Slot(1)).unwrap().blocking_wait().unwrap();
        assert_eq!((promised.ballot(), promised.floor()), (HIGH, None));
        assert_eq!(
            (promised.frontier(), promised.highest_committed()),
            (Some(Slot(1)), Some(Slot(5)))
        );
        let uncommitted: Vec<_> = promised.uncommitted().iter().map(|e| e.slot().0).collect();
        assert_eq!(uncommitted, [2, 6, 9]);
        // What comes later is not in the answer.
        s.accept(2, HIGHER, b"later");
        s.accept(7, HIGHER, b"later");
        let mut all = Vec::new();
        let flow = promised.for_each(|entry| {
            assert_eq!((entry.value(), entry.ballot()), (&value(entry.slot().0)[..], LOW));
            all.push((entry.slot().0, entry.is_committed()));
            ControlFlow::Continue(())
        });
        assert!(flow.unwrap().is_continue());
        assert_eq!(all, [(1, true), (2, false), (5, true), (6, false), (9, false)]);
        let again = s.log.promise(HIGHER, Slot(100)).unwrap().blocking_wait().unwrap();
        assert!(again.uncommitted().is_empty());
    }
}

#[test]
fn wait_for_a_promise_times_out() {
    let s = log(Mode::Durable);
    let ticket = s.log.promise(LOW, Slot(0)).unwrap();
    let late = ticket.blocking_wait_timeout(Duration::ZERO);
    assert!(matches!(late, Err(StorageError::Log(esker_log::Error::Timeout))), "{late:?}");
    let ticket = s.log.promise(HIGH, Slot(0)).unwrap();
    s.engine.run();
    assert_eq!(ticket.blocking_wait_timeout(Duration::ZERO).unwrap().ballot(), HIGH);
}

#[test]
fn batch_returns_a_result_per_slot_and_syncs_once() {
    for mode in MODES {
        let s = log(mode);
        let values: Vec<_> = (0..100).map(value).collect();
        let pairs: Vec<(Slot, &[u8])> =
            (0..).map(Slot).zip(values.iter().map(Vec::as_slice)).collect();
        let syncs = s.log.stats().log_stats.syncs;
        s.log.accept_batch(LOW, &pairs).unwrap().blocking_wait().unwrap();
        let after = s.log.stats().log_stats.syncs;
        assert_eq!(after - syncs, u64::from(mode == Mode::Durable));
        let mut slots: Vec<_> = (0..100).map(|slot| (Slot(slot), LOW)).collect();
        slots.extend([(Slot(3), HIGH), (Slot(200), LOW), (Slot(5), LOW)]);
        s.accept(101, HIGHER, b"x");
        slots.push((Slot(101), LOW));
        let before = s.log.stats().log_stats.syncs;
        let done = s.log.commit_batch(&slots).unwrap();
        done.ticket.blocking_wait().unwrap();
        assert_eq!(s.log.stats().log_stats.syncs - before, 1);
        assert!(done.results[..100].iter().all(Result::is_ok));
        assert!(matches!(
            done.results[100],
            Err(CommitError::BallotMismatch { slot: Slot(3), .. })
        ));
        assert!(matches!(done.results[101], Err(CommitError::SlotNotFound { slot: Slot(200) })));
        assert!(done.results[102].is_ok());
        assert!(matches!(
            done.results[103],
            Err(CommitError::BallotMismatch { slot: Slot(101), .. })
        ));
        let s = s.kill(mode);
        assert_eq!(s.committed_slots(), (0..100).collect::<Vec<_>>());
        assert!((0..100).all(|slot| s.committed(slot) == value(slot)));
    }
}

/// Guards against a batch that is refused as a whole although a part of it was accepted: its
/// proposer would count votes that it has as votes that it has not.
#[test]
fn interrupted_batch_returns_how_many_slots_it_accepted() {
    for mode in MODES {
        let s = log(mode);
        s.accept(2, LOW, b"other");
        let values: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
        let values: Vec<_> = (0..).map(Slot).zip(values).collect();
        let failed = s.log.accept_batch(LOW, &values).unwrap_err();
        assert!(std::error::Error::source(&failed).is_some());
        let AcceptBatchError::Stopped { accepted: 2, ticket, source } = failed else {
            panic!("{failed:?}");
        };
        assert!(matches!(*source, AcceptError::AnotherValue { slot: Slot(2), .. }), "{source:?}");
        ticket.clone().blocking_wait().unwrap();
        assert!(ticket.is_ready());
        let s = if mode == Mode::Durable { s.kill(mode) } else { s };
        let open: Vec<_> =
            s.uncommitted().into_iter().map(|(slot, _, value)| (slot, value)).collect();
        assert_eq!(open, [(0, b"a".to_vec()), (1, b"b".to_vec()), (2, b"other".to_vec())]);
        let first = s.log.accept_batch(LOW, &[(Slot(2), b"c"), (Slot(3), b"d")]);
        assert!(
            matches!(
                first,
                Err(AcceptBatchError::Refused(AcceptError::AnotherValue { slot: Slot(2), .. }))
            ),
            "nothing was accepted"
        );
    }
}

/// The same when what fails is the log below.
#[test]
fn ticket_of_a_batch_with_a_failed_write_returns_the_failure() {
    use esker_disk::Op;
    use esker_disk::sim::{Effect, Fault};
    let s = log(Mode::Durable);
    s.accept(0, LOW, b"before");
    s.disk.inject(Fault::on(Op::Write, Effect::Io).path(".seg"));
    // More than can be staged before a caller has to write.
    let large = vec![7; 1 << 20];
    let values: Vec<_> = (1..60).map(|slot| (Slot(slot), large.as_slice())).collect();
    match s.log.accept_batch(LOW, &values) {
        Err(AcceptBatchError::Stopped { accepted, ticket, source }) => {
            assert!(
                accepted > 0 && matches!(*source, AcceptError::Storage(StorageError::Log(_))),
                "{accepted}: {source:?}"
            );
            assert!(matches!(ticket.blocking_wait(), Err(StorageError::Log(_))));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn commit_through_refuses_a_gap_and_commits_everything_up_to_its_slot() {
    for mode in MODES {
        let s = log(mode);
        for slot in [0, 1, 2, 4, 5] {
            s.accept(slot, LOW, &value(slot));
        }
        assert!(matches!(s.log.commit_through(Slot(4)), Err(CommitError::Gap { slot: Slot(3) })));
        assert_eq!(s.log.stats().committed, None);
        s.log.commit_through(Slot(1)).unwrap().blocking_wait().unwrap();
        s.accept(3, HIGH, &value(3));
        s.log.commit_through(Slot(4)).unwrap().blocking_wait().unwrap();
        s.log.commit_through(Slot(4)).unwrap().blocking_wait().unwrap();
        assert_eq!(s.log.frontier(), Some(Slot(4)));
        let s = s.kill(mode);
        assert_eq!(s.committed_slots(), [0, 1, 2, 3, 4]);
        assert!((0..5).all(|slot| s.committed(slot) == value(slot)));
        assert_eq!(s.uncommitted().len(), usize::from(mode == Mode::Durable));
    }
}

#[test]
fn values_up_to_the_limit_are_taken_and_one_byte_more_refused() {
    let s = log(Mode::Durable);
    let largest = vec![7; 64 << 20];
    s.accept(1, LOW, &largest);
    let over = s.log.accept(Slot(2), LOW, &vec![7; 65 << 20]);
    assert!(matches!(over, Err(AcceptError::EntryTooLarge { limit: 67_108_864, .. })));
    s.commit(1, LOW);
    assert!(s.committed(1) == largest);
    let s = log_with(Mode::Volatile, |options| options.mutable_size = 4096);
    let over = s.log.accept(Slot(1), LOW, &[0; 4097]);
    assert!(matches!(over, Err(AcceptError::EntryTooLarge { size: 4097, limit: 4096 })));
    s.accept(1, LOW, &[0; 4096]);
    s.accept(1, Ballot { number: 9, node: 9 }, b"");
}

#[test]
fn learned_values_are_committed_whatever_was_promised_or_accepted() {
    for mode in MODES {
        let s = log(mode);
        s.accept(1, LOW, b"mine");
        s.log.promise(HIGHER, Slot(0)).unwrap().blocking_wait().unwrap();
        s.log.learn(Slot(1), HIGH, b"chosen").unwrap().blocking_wait().unwrap();
        s.log.learn(Slot(4), LOW, b"other").unwrap().blocking_wait().unwrap();
        assert_eq!(s.log.promised(), Some(HIGHER));
        assert!(s.uncommitted().is_empty());
        assert_eq!((s.log.stats().mutable_used, s.log.stats().uncommitted), (0, 0));
        let s = s.kill(mode);
        assert_eq!((s.committed(1), s.committed(4)), (b"chosen".to_vec(), b"other".to_vec()));
        let guard = s.log.pin();
        assert_eq!(s.log.read(Slot(1), &guard).unwrap().ballot(), HIGH);
        assert_eq!((s.log.promised(), s.log.stats().mutable_used), (Some(HIGHER), 0));
    }
}

/// The index has no memory for slots that were never used. They are a gap all the same, and what is
/// after them is in checkpoints.
#[test]
fn a_gap_of_any_width_is_a_gap() {
    let mut setting = log(Mode::Durable);
    for slot in (0..64).chain([130, 200, 4095, 4096, 9000]) {
        setting.accept(slot, LOW, &value(slot));
    }
    for last in [130, 4095, 9000] {
        let refused = setting.log.commit_through(Slot(last));
        assert!(matches!(refused, Err(CommitError::Gap { slot: Slot(64) })), "{last}: {refused:?}");
    }
    let committed: Vec<u64> = (0..64).chain([130, 200, 4096]).collect();
    for slot in committed.iter().copied() {
        setting.commit(slot, LOW);
    }
    for round in 0..3 {
        assert_eq!(setting.log.frontier(), Some(Slot(63)), "round {round}");
        assert_eq!(setting.committed_slots(), committed);
        let uncommitted: Vec<u64> = setting.uncommitted().iter().map(|(slot, ..)| *slot).collect();
        assert_eq!(uncommitted, [4095, 9000]);
        assert_eq!(setting.log.last_slot(), Some(Slot(9000)));
        setting =
            if round == 0 { setting.reopen(Mode::Durable) } else { setting.kill(Mode::Durable) };
    }
    setting.log.truncate_from(Slot(4097)).unwrap().blocking_wait().unwrap();
    assert_eq!(setting.log.last_slot(), Some(Slot(4096)));
}

//! The calls that an adapter for Raft needs.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use esker_consensus::{
    APP_STATE_LIMIT, AcceptBatchError, AcceptError, Ballot, Mode, ReadError, Slot, SnapshotBounds,
    StorageError, TruncateError,
};

use crate::fixture::{HIGH, LOW, MODES, Setting, log, log_with, open_on, value};

/// The ends that a session may have.
const ENDS: [fn(Setting) -> Setting; 3] = [
    |s| s.kill(Mode::Durable),
    |s| s.reopen(Mode::Durable),
    |s| s.kill(Mode::Durable).reopen(Mode::Durable),
];

#[test]
fn no_vote_is_not_a_vote_for_ballot_zero() {
    for end in ENDS {
        let s = log(Mode::Durable);
        s.log.learn(Slot(0), LOW, b"chosen").unwrap().blocking_wait().unwrap();
        assert_eq!(s.log.promised(), None);
        let s = end(s);
        s.log.truncate_before(Slot(1)).unwrap().blocking_wait().unwrap();
        s.log.maintenance().reclaim().unwrap();
        let s = end(s);
        assert_eq!(s.log.promised(), None, "neither a floor nor a checkpoint promises");
        drop(s.log.promise(Ballot::ZERO, Slot(0)).unwrap().blocking_wait().unwrap());
        assert_eq!(s.log.promised(), Some(Ballot::ZERO));
        s.log.truncate_from(Slot(1)).unwrap().blocking_wait().unwrap();
        s.log
            .snapshots()
            .install(SnapshotBounds { floor: Slot(9), frontier: Slot(9) })
            .unwrap()
            .blocking_wait()
            .unwrap();
        let s = end(end(s));
        assert_eq!(s.log.promised(), Some(Ballot::ZERO));
        let inspection =
            esker_consensus::inspect_on(Arc::new(s.disk.process()), crate::fixture::DIR).unwrap();
        assert_eq!(inspection.promised, Some(Ballot::ZERO));
    }
}

/// The promise of an open log is that of its records.
#[test]
fn an_accept_under_ballot_zero_promises_it() {
    let s = log(Mode::Durable);
    s.accept(0, Ballot::ZERO, b"accepted");
    assert_eq!(s.log.promised(), Some(Ballot::ZERO));
    assert_eq!(s.kill(Mode::Durable).log.promised(), Some(Ballot::ZERO));
}

#[test]
fn the_state_of_the_application_survives_truncation() {
    for end in ENDS {
        let s = log(Mode::Durable);
        assert!(s.log.app_state().get().is_empty());
        s.log.app_state().set(b"first").unwrap().blocking_wait().unwrap();
        let s = end(s);
        assert_eq!(*s.log.app_state().get(), *b"first");
        for slot in 0..500 {
            s.log.learn(Slot(slot), LOW, &value(slot)).unwrap().blocking_wait().unwrap();
        }
        s.log
            .app_state()
            .set_and_truncate_before(b"purged 399", Slot(400))
            .unwrap()
            .blocking_wait()
            .unwrap();
        // Drops the segments with all records of it but the checkpoint's.
        s.log.maintenance().reclaim().unwrap();
        s.log.maintenance().checkpoint().unwrap();
        let s = end(s);
        assert_eq!(
            (&*s.log.app_state().get(), s.log.floor()),
            (&b"purged 399"[..], Some(Slot(399)))
        );
        let bounds = SnapshotBounds { floor: Slot(600), frontier: Slot(600) };
        s.log.app_state().set_and_install(b"purged 600", bounds).unwrap().blocking_wait().unwrap();
        s.log.app_state().set(b"").unwrap().blocking_wait().unwrap();
        s.log.app_state().set(&[7; APP_STATE_LIMIT]).unwrap().blocking_wait().unwrap();
        let s = end(s);
        assert_eq!(
            (&*s.log.app_state().get(), s.log.floor()),
            (&[7; APP_STATE_LIMIT][..], Some(Slot(600)))
        );
        let refused = s.log.app_state().set(&[7; APP_STATE_LIMIT + 1]).err();
        assert!(matches!(refused, Some(TruncateError::EntryTooLarge { size: 1025, limit: 1024 })));
        assert_eq!(s.log.app_state().get().len(), APP_STATE_LIMIT);
    }
}

/// Values reported without a ticket are durable.
#[test]
fn the_state_of_the_application_is_reported_when_it_is_durable() {
    let s = log(Mode::Durable);
    let ticket = s.log.app_state().set(b"later").unwrap();
    let again = s.log.app_state().set(b"later").unwrap();
    assert!(s.log.app_state().get().is_empty() && !again.is_ready(), "the same bytes wait, too");
    ticket.blocking_wait().unwrap();
    assert_eq!(*s.log.app_state().get(), *b"later");
    let written = s.log.stats().log_stats.accepted;
    s.log.app_state().set(b"later").unwrap().blocking_wait().unwrap();
    assert_eq!(s.log.stats().log_stats.accepted, written, "nothing new needs no record");
}

#[test]
fn a_cut_from_slot_zero_empties_the_log() {
    for mode in MODES {
        let s = log(mode);
        (0..10).for_each(|slot| s.accept(slot, LOW, b"old term"));
        assert_eq!(s.log.last_slot(), Some(Slot(9)));
        s.log.truncate_from(Slot(0)).unwrap().blocking_wait().unwrap();
        assert_eq!((s.log.last_slot(), s.uncommitted().len()), (None, 0));
        let s = if mode == Mode::Durable { s.kill(mode) } else { s };
        assert_eq!((s.log.last_slot(), s.uncommitted().len()), (None, 0));
        s.accept(0, HIGH, b"new term");
        let s = s.reopen(mode).kill(mode);
        assert_eq!(s.uncommitted(), [(0, HIGH, b"new term".to_vec())]);
        s.commit(0, HIGH);
        let refused = s.log.truncate_from(Slot(0)).err();
        assert!(matches!(refused, Some(TruncateError::BelowFrontier { committed: Slot(0) })));
        s.log.truncate_before(Slot(1)).unwrap().blocking_wait().unwrap();
        let refused = s.log.truncate_from(Slot(0)).err();
        assert!(matches!(refused, Some(TruncateError::Truncated { floor: Slot(0) })));
        s.log.truncate_from(Slot(1)).unwrap().blocking_wait().unwrap();
    }
}

#[test]
fn the_last_slot_is_known_after_opening() {
    for end in ENDS {
        let s = log(Mode::Durable);
        assert_eq!(s.log.last_slot(), None);
        s.accept(3, LOW, b"accepted");
        s.accept(9000, LOW, b"far");
        assert_eq!(s.log.last_slot(), Some(Slot(9000)));
        let s = end(s);
        assert_eq!(s.log.last_slot(), Some(Slot(9000)));
        s.log.truncate_from(Slot(8000)).unwrap().blocking_wait().unwrap();
        assert_eq!(s.log.last_slot(), Some(Slot(3)));
        s.log.learn(Slot(70), LOW, b"learned").unwrap().blocking_wait().unwrap();
        let s = end(s);
        assert_eq!(s.log.last_slot(), Some(Slot(70)));
        s.log
            .snapshots()
            .install(SnapshotBounds { floor: Slot(70), frontier: Slot(70) })
            .unwrap()
            .blocking_wait()
            .unwrap();
        let s = end(s);
        assert_eq!((s.log.last_slot(), s.log.floor()), (None, Some(Slot(70))));
    }
}

#[test]
fn entries_are_consecutive_and_bounded() {
    let s = log_with(Mode::Durable, |options| options.cache_size = 0);
    for slot in 0..50 {
        s.accept(slot, LOW, &value(slot));
    }
    s.log.commit_through(Slot(20)).unwrap().blocking_wait().unwrap();
    s.accept(60, LOW, b"after a gap");
    let slots = |from: u64, to: u64, bytes| -> Vec<u64> {
        let entries = s.log.entries(Slot(from)..Slot(to), bytes).unwrap();
        for entry in &entries {
            assert_eq!(entry.value(), value(entry.slot().0));
            assert_eq!(entry.is_committed(), entry.slot() <= Slot(20));
        }
        entries.iter().map(|entry| entry.slot().0).collect()
    };
    assert_eq!(slots(0, 1000, u64::MAX), (0..50).collect::<Vec<_>>(), "it ends before the gap");
    assert_eq!(slots(10, 30, u64::MAX), (10..30).collect::<Vec<_>>());
    assert!(slots(50, 70, u64::MAX).is_empty(), "it does not begin after one");
    assert_eq!(slots(7, 30, 0), [7], "one entry always fits");
    let charged = |slot: u64| (value(slot).len() as u64).max(64);
    let bytes = (5..12).map(charged).sum();
    assert_eq!(slots(5, 40, bytes), (5..12).collect::<Vec<_>>());
    assert_eq!(slots(5, 40, bytes + charged(12) - 1), (5..12).collect::<Vec<_>>());
    assert!(slots(9, 9, 100).is_empty());
    s.log.truncate_before(Slot(10)).unwrap().blocking_wait().unwrap();
    assert!(matches!(s.log.entries(Slot(9).., 1), Err(ReadError::Truncated { floor: Slot(9) })));
    assert_eq!(s.log.entries(.., 1).unwrap()[0].slot(), Slot(10));
    let disk = s.disk.clone();
    drop(s);
    let s = open_on(&disk, Mode::Durable, |_| {});
    assert_eq!(s.log.entries(.., u64::MAX).unwrap().len(), 40, "also from the disk");
}

#[test]
fn a_callback_learns_of_an_accept_when_it_is_durable() {
    let s = log(Mode::Durable);
    let (sender, receiver) = std::sync::mpsc::channel();
    let accepted = s.log.accept(Slot(0), LOW, b"accepted").unwrap();
    let again = sender.clone();
    accepted.on_resolved(move |outcome| sender.send(outcome.is_ok()).unwrap());
    assert!(receiver.try_recv().is_err());
    s.engine.run();
    assert_eq!(receiver.try_recv(), Ok(true));
    // A repeated accept of what is durable is acknowledged at once.
    let accepted = s.log.accept(Slot(0), LOW, b"accepted").unwrap();
    accepted.on_resolved(move |outcome| again.send(outcome.is_ok()).unwrap());
    assert_eq!(receiver.try_recv(), Ok(true));
}

/// The marker of a commit that a majority has anyway costs no sync of its own.
#[test]
fn a_detached_commit_requests_no_sync() {
    let s = log(Mode::Durable);
    (0..5).for_each(|slot| s.accept(slot, LOW, b"accepted"));
    let syncs = s.log.stats().log_stats.syncs;
    s.log.commit(Slot(0), LOW).unwrap().detach();
    s.log.commit_batch(&[(Slot(1), LOW), (Slot(2), LOW)]).unwrap().ticket.detach();
    s.log.commit_through(Slot(3)).unwrap().detach();
    s.engine.run();
    assert_eq!((s.log.frontier(), s.log.stats().log_stats.syncs), (None, syncs));
    s.accept(5, LOW, b"the next one");
    assert_eq!(s.log.frontier(), Some(Slot(3)), "durable with the next accept");
    s.log.commit_through(Slot(4)).unwrap().detach();
    s.engine.advance(std::time::Duration::from_millis(10));
    assert_eq!(s.log.frontier(), Some(Slot(4)), "or after 10 ms");
}

/// Values that only memory has are one record each: none of their tickets may request a sync.
#[test]
fn a_detached_commit_of_many_values_requests_no_sync() {
    let s = log(Mode::Volatile);
    (0..5).for_each(|slot| s.accept(slot, LOW, b"accepted"));
    s.log.commit_through(Slot(4)).unwrap().detach();
    s.engine.run();
    assert_eq!(s.log.frontier(), None);
    s.engine.advance(std::time::Duration::from_millis(10));
    assert_eq!(s.log.frontier(), Some(Slot(4)));
}

#[test]
fn an_accept_waits_for_room_as_a_future() {
    let s = log_with(Mode::Volatile, |options| options.mutable_size = 4 << 10);
    s.accept(0, LOW, &[1; 3 << 10]);
    let (counts, value) = (Arc::new(Wakes::default()), [2; 2 << 10]);
    let waker = Waker::from(Arc::clone(&counts));
    let mut waits = pin!(s.log.accept_async(Slot(1), LOW, &value));
    for _ in 0..3 {
        assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    let mut also = pin!(s.log.accept_async(Slot(2), LOW, &value));
    assert!(also.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    // One that is given up is not woken.
    let given_up = Arc::new(Wakes::default());
    {
        let waker = Waker::from(Arc::clone(&given_up));
        let mut waits = pin!(s.log.accept_async(Slot(2), LOW, &value));
        assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    // Other slots go on.
    s.accept(3, LOW, b"small");
    assert_eq!(counts.0.load(SeqCst), 0);
    s.commit(0, LOW);
    assert_eq!(counts.0.load(SeqCst), 2, "each waiting task is woken once");
    assert_eq!((given_up.0.load(SeqCst), Arc::strong_count(&given_up)), (0, 1));
    let Poll::Ready(accepted) = waits.as_mut().poll(&mut Context::from_waker(&waker)) else {
        panic!("there is room")
    };
    accepted.unwrap().blocking_wait().unwrap();
    // One that is given up accepted nothing, and one that waits learns of a close.
    assert!(also.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    s.log.close().unwrap();
    let closed = also.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(
        matches!(closed, Poll::Ready(Err(AcceptError::Storage(StorageError::Closed)))),
        "{closed:?}"
    );
}

#[test]
fn a_batch_waits_for_room_as_a_future() {
    let s = log_with(Mode::Volatile, |options| options.mutable_size = 4 << 10);
    let value = [7; 1 << 10];
    let values: Vec<_> = (0..6).map(|slot| (Slot(slot), &value[..])).collect();
    let mut waits = pin!(s.log.accept_batch_async(LOW, &values));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    assert_eq!(s.uncommitted().len(), 4, "the first ones are accepted");
    s.log.commit_through(Slot(1)).unwrap().blocking_wait().unwrap();
    let Poll::Ready(accepted) = waits.as_mut().poll(&mut context) else { panic!("there is room") };
    accepted.unwrap().blocking_wait().unwrap();
    assert_eq!(s.uncommitted().len(), 4);
    let stale = [(Slot(9), &value[..0])];
    drop(s.log.promise(HIGH, Slot(0)).unwrap().blocking_wait().unwrap());
    let mut refused = pin!(s.log.accept_batch_async(LOW, &stale));
    let refused = refused.as_mut().poll(&mut context);
    let Poll::Ready(Err(AcceptBatchError::Refused(refused))) = refused else {
        panic!("{refused:?}")
    };
    assert!(matches!(refused, AcceptError::StaleBallot { promised: HIGH }));
}

/// A waker that counts.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

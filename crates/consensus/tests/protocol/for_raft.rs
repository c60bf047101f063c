//! What an adapter for Raft needs of the log.

use esker_consensus::{APP_STATE_LIMIT, Ballot, Error, Mode, Slot, SnapshotBounds};

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
        s.log.truncate_before(Slot(1)).unwrap();
        s.log.reclaim().unwrap();
        let s = end(s);
        assert_eq!(s.log.promised(), None, "neither a floor nor a checkpoint promises");
        drop(s.log.promise(Ballot::ZERO, Slot(0)).unwrap().blocking_wait().unwrap());
        assert_eq!(s.log.promised(), Some(Ballot::ZERO));
        s.log.truncate_from(Slot(1)).unwrap();
        s.log.install(SnapshotBounds { floor: Slot(9), frontier: Slot(9) }).unwrap();
        let s = end(end(s));
        assert_eq!(s.log.promised(), Some(Ballot::ZERO));
        let inspection =
            esker_consensus::inspect_on(std::sync::Arc::new(s.disk.process()), crate::fixture::DIR)
                .unwrap();
        assert_eq!(inspection.promised, Some(Ballot::ZERO));
    }
}

#[test]
fn the_state_of_the_application_survives_truncation() {
    for end in ENDS {
        let s = log(Mode::Durable);
        assert!(s.log.app_state().is_empty());
        s.log.set_app_state(b"first").unwrap().blocking_wait().unwrap();
        let s = end(s);
        assert_eq!(*s.log.app_state(), *b"first");
        for slot in 0..500 {
            s.log.learn(Slot(slot), LOW, &value(slot)).unwrap().blocking_wait().unwrap();
        }
        s.log.truncate_before_with(Slot(400), b"purged 399").unwrap();
        // Drops the segments with all records of it but the checkpoint's.
        s.log.reclaim().unwrap();
        s.log.checkpoint().unwrap();
        let s = end(s);
        assert_eq!((&*s.log.app_state(), s.log.floor()), (&b"purged 399"[..], Some(Slot(399))));
        let bounds = SnapshotBounds { floor: Slot(600), frontier: Slot(600) };
        s.log.install_with(bounds, b"purged 600").unwrap();
        s.log.set_app_state(b"").unwrap().blocking_wait().unwrap();
        s.log.set_app_state(&[7; APP_STATE_LIMIT]).unwrap().blocking_wait().unwrap();
        let s = end(s);
        assert_eq!(
            (&*s.log.app_state(), s.log.floor()),
            (&[7; APP_STATE_LIMIT][..], Some(Slot(600)))
        );
        let refused = s.log.set_app_state(&[7; APP_STATE_LIMIT + 1]).err();
        assert!(matches!(refused, Some(Error::EntryTooLarge { size: 1025, limit: 1024 })));
        assert_eq!(s.log.app_state().len(), APP_STATE_LIMIT);
    }
}

/// What is reported without a ticket is durable.
#[test]
fn the_state_of_the_application_is_reported_when_it_is_durable() {
    let s = log(Mode::Durable);
    let ticket = s.log.set_app_state(b"later").unwrap();
    let again = s.log.set_app_state(b"later").unwrap();
    assert!(s.log.app_state().is_empty() && !again.is_ready(), "the same bytes wait, too");
    ticket.blocking_wait().unwrap();
    assert_eq!(*s.log.app_state(), *b"later");
    let written = s.log.stats().log_stats.accepted;
    s.log.set_app_state(b"later").unwrap().blocking_wait().unwrap();
    assert_eq!(s.log.stats().log_stats.accepted, written, "nothing new needs no record");
}

#[test]
fn a_cut_from_slot_zero_empties_the_log() {
    for mode in MODES {
        let s = log(mode);
        (0..10).for_each(|slot| s.accept(slot, LOW, b"old term"));
        assert_eq!(s.log.last_slot(), Some(Slot(9)));
        s.log.truncate_from(Slot(0)).unwrap();
        assert_eq!((s.log.last_slot(), s.uncommitted().len()), (None, 0));
        let s = if mode == Mode::Durable { s.kill(mode) } else { s };
        assert_eq!((s.log.last_slot(), s.uncommitted().len()), (None, 0));
        s.accept(0, HIGH, b"new term");
        let s = s.reopen(mode).kill(mode);
        assert_eq!(s.uncommitted(), [(0, HIGH, b"new term".to_vec())]);
        s.commit(0, HIGH);
        let refused = s.log.truncate_from(Slot(0)).err();
        assert!(matches!(refused, Some(Error::BelowFrontier { committed: Slot(0) })));
        s.log.truncate_before(Slot(1)).unwrap();
        let refused = s.log.truncate_from(Slot(0)).err();
        assert!(matches!(refused, Some(Error::BelowFrontier { .. } | Error::Truncated { .. })));
        s.log.truncate_from(Slot(1)).unwrap();
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
        s.log.truncate_from(Slot(8000)).unwrap();
        assert_eq!(s.log.last_slot(), Some(Slot(3)));
        s.log.learn(Slot(70), LOW, b"learned").unwrap().blocking_wait().unwrap();
        let s = end(s);
        assert_eq!(s.log.last_slot(), Some(Slot(70)));
        s.log.install(SnapshotBounds { floor: Slot(70), frontier: Slot(70) }).unwrap();
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
    s.log.truncate_before(Slot(10)).unwrap();
    assert!(matches!(s.log.entries(Slot(9).., 1), Err(Error::Truncated { floor: Slot(9) })));
    assert_eq!(s.log.entries(.., 1).unwrap()[0].slot(), Slot(10));
    let disk = s.disk.clone();
    drop(s);
    let s = open_on(&disk, Mode::Durable, |_| {});
    assert_eq!(s.log.entries(.., u64::MAX).unwrap().len(), 40, "also from the disk");
}

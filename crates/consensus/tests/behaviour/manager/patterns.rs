//! The usage patterns of docs/src/consensus-patterns.md, as one replica after the other.

use std::io::Read;
use std::ops::ControlFlow;

use esker_consensus::{
    AcceptError, Ballot, ConsensusLog, CreateSnapshotError, IterateOptions, LogManager, Mode,
    Options, ReadError, RestoreSummary, Slot, SnapshotBounds, SnapshotError,
};
use esker_disk::sim::SimDisk;

use crate::fixture::{HIGHER, LOW, Setting, log, open_on};
use crate::manager::manager;

/// The state after the slots below this one.
fn state_of(next: u64) -> Vec<u8> {
    (0..next).flat_map(value).collect()
}

fn value(slot: u64) -> Vec<u8> {
    format!("<{slot}>").into_bytes()
}

fn learn(log: &ConsensusLog, slots: impl IntoIterator<Item = u64>) {
    for slot in slots {
        log.learn(Slot(slot), LOW, &value(slot)).unwrap().blocking_wait().unwrap();
    }
}

fn restore(log: &ConsensusLog) -> Result<(Vec<u8>, RestoreSummary), SnapshotError> {
    let (mut state, mut later) = (Vec::new(), Vec::new());
    let restored = log.snapshots().restore::<SnapshotError>(
        |snapshot| {
            snapshot.read_to_end(&mut state).unwrap();
            Ok(())
        },
        |entry| {
            later.extend_from_slice(entry.value());
            Ok(())
        },
    )?;
    Ok(([state, later].concat(), restored))
}

/// A table's log through its manager, with snapshots, over restarts.
#[test]
fn a_table_takes_snapshots_and_recovers_with_and_without_one() {
    let managed = manager(1);
    let get = |table| managed.manager.get(table).unwrap();
    for table in ["users", "orders"] {
        let log = get(table);
        log.accept(Slot(0), LOW, &value(0)).unwrap().blocking_wait().unwrap();
        assert!(matches!(
            log.read_committed(Slot(0), &log.pin()),
            Err(ReadError::NotCommitted { .. })
        ));
        log.commit(Slot(0), LOW).unwrap().blocking_wait().unwrap();
        assert_eq!(log.read_committed(Slot(0), &log.pin()).unwrap().value(), value(0));
        learn(&log, 1..10);
    }
    // One takes snapshots, and keeps two and the entries after the older one.
    for applied in [3, 5, 7] {
        let log = get("users");
        log.snapshots().create(Slot(applied), &state_of(applied + 1)[..]).unwrap();
        log.snapshots().keep(2).unwrap();
        log.snapshots().truncate_through(log.snapshots().list().unwrap()[0]).unwrap();
    }
    // Each `get` opens the log again: one is open at a time.
    let (state, restored) = restore(&get("users")).unwrap();
    assert_eq!((restored.snapshot, restored.entries), (Some(Slot(7)), 2));
    assert_eq!(
        (state, restored.next, get("users").floor()),
        (state_of(10), Slot(10), Some(Slot(5)))
    );
    // By hand, from the slot after the snapshot to the highest one.
    let log = get("users");
    let mut snapshot = log.snapshots().latest().unwrap();
    let mut state = Vec::new();
    snapshot.read_to_end(&mut state).unwrap();
    log.iterate(snapshot.slot().next().., IterateOptions::default(), |entry| {
        state.extend_from_slice(entry.value());
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(state, state_of(10));
    drop((snapshot, log));
    // The other one has none: a full replay.
    let (state, restored) = restore(&get("orders")).unwrap();
    assert_eq!((restored.snapshot, restored.entries), (None, 10));
    assert_eq!((state, restored.next), (state_of(10), Slot(10)));
}

/// The default options of a manager's logs.
#[test]
fn the_defaults_are_for_many_logs() {
    let (defaults, one) = (LogManager::builder("logs"), Options::default());
    let each = defaults.current_options();
    assert_eq!((each.mutable_size, each.cache_size), (2 << 20, 2 << 20));
    assert_eq!((each.log.segment_size, each.log.reserve), (64 << 20, Some(16 << 20)));
    assert_eq!((each.mode, each.sync_on_commit), (Mode::Durable, true));
    assert_eq!((one.mutable_size, one.log.segment_size), (64 << 20, 64 << 20));
    assert!(format!("{defaults:?}").contains("max_open: 256"), "{defaults:?}");
}

/// The state machine continues at the slot that it keeps beside its state.
fn apply_new(log: &ConsensusLog, state: &mut Vec<u8>, next: &mut Slot) -> u64 {
    let Some(frontier) = log.frontier() else { return 0 };
    let replayed = log.iterate(*next..=frontier, IterateOptions::default(), |entry| {
        state.extend_from_slice(entry.value());
        ControlFlow::Continue(())
    });
    *next = frontier.next();
    replayed.unwrap().visited
}

#[test]
fn a_state_is_rebuilt_from_nothing_and_in_steps() {
    let Setting { log, .. } = &log(Mode::Durable);
    let (mut state, mut next) = (Vec::new(), Slot(0));
    assert_eq!(apply_new(log, &mut state, &mut next), 0);
    learn(log, [0, 1, 3, 4]);
    assert_eq!((apply_new(log, &mut state, &mut next), next), (2, Slot(2)));
    // A snapshot at the highest committed slot takes every slot below it.
    let highest = log.stats().committed.unwrap().highest;
    let refused = log.snapshots().create(highest, &b""[..]).unwrap_err();
    assert!(matches!(refused, CreateSnapshotError::Gap { slot: Slot(2) }), "{refused}");
    learn(log, [2]);
    assert_eq!((apply_new(log, &mut state, &mut next), next), (3, Slot(5)));
    assert_eq!(state, state_of(5));
    assert_eq!(log.snapshots().create(highest, &state[..]).unwrap().entries, 5);
    let (again, restored) = restore(log).unwrap();
    assert_eq!((again, restored.snapshot, restored.entries), (state, Some(Slot(4)), 0));
}

#[test]
fn gaps_are_passed_over_in_order_and_truncated_slots_are_not() {
    let Setting { log, .. } = &log(Mode::Durable);
    learn(log, [9, 5, 7]);
    log.accept(Slot(6), LOW, b"not committed").unwrap().blocking_wait().unwrap();
    let applied = |from| {
        let mut applied = Vec::new();
        let visit = |entry: &esker_consensus::Entry<'_>| {
            applied.push(entry.slot().0);
            ControlFlow::Continue(())
        };
        log.iterate(Slot(from).., IterateOptions::default(), visit).map(|_| applied)
    };
    assert_eq!(applied(0).unwrap(), [5, 7, 9]);
    log.snapshots()
        .install(SnapshotBounds { floor: Slot(5), frontier: Slot(5) })
        .unwrap()
        .blocking_wait()
        .unwrap();
    assert!(matches!(applied(5), Err(ReadError::Truncated { floor: Slot(5) })));
    assert_eq!(applied(6).unwrap(), [7, 9]);
}

/// The consecutive entries up to the frontier, in messages of at most so many bytes.
fn messages(leader: &ConsensusLog, max_bytes: u64) -> Vec<Vec<(Slot, Ballot, Vec<u8>)>> {
    let (mut next, mut messages) = (Slot(0), Vec::new());
    while let Some(frontier) = leader.frontier().filter(|frontier| next <= *frontier) {
        let entries = leader.entries(next..=frontier, max_bytes).unwrap();
        assert!(entries.iter().all(|entry| entry.is_committed()));
        next = entries.last().unwrap().slot().next();
        let one = |entry: &esker_consensus::Entry<'_>| {
            (entry.slot(), entry.ballot(), entry.value().to_vec())
        };
        messages.push(entries.iter().map(one).collect());
    }
    messages
}

#[test]
fn a_leader_streams_a_range_and_a_learner_fetches_what_it_lacks() {
    let Setting { log: leader, .. } = &log(Mode::Durable);
    learn(leader, 0..100);
    for slot in 100..110 {
        leader.accept(Slot(slot), LOW, &value(slot)).unwrap().blocking_wait().unwrap();
    }
    let messages = messages(leader, 64 * 30);
    assert_eq!(messages.iter().map(Vec::len).collect::<Vec<_>>(), [30, 30, 30, 10]);

    // Its range, then what is missing. A promise in between refuses no chosen value.
    let disk = SimDisk::new(2);
    let learner = open_on(&disk, Mode::Durable, |_| {});
    learn(&learner.log, [3, 50]);
    learner.accept(4, LOW, &value(4));
    learner.log.promise(HIGHER, Slot(0)).unwrap().blocking_wait().unwrap();
    let mut fetched = 0;
    for (slot, ballot, value) in messages.iter().flatten() {
        if learner.log.read_committed(*slot, &learner.log.pin()).is_err() {
            let stale = learner.log.accept(*slot, *ballot, value);
            assert!(matches!(stale, Err(AcceptError::StaleBallot { promised: HIGHER })));
            learner.log.learn(*slot, *ballot, value).unwrap().blocking_wait().unwrap();
            fetched += 1;
        }
    }
    assert_eq!((fetched, learner.log.frontier()), (98, Some(Slot(99))));
    let learner = learner.kill(Mode::Durable);
    assert_eq!(restore(&learner.log).unwrap().0, state_of(100));

    // Accepting and committing each does the same where nothing was promised.
    let follower = log(Mode::Durable);
    for (slot, ballot, value) in messages.iter().flatten() {
        follower.accept(slot.0, *ballot, value);
        follower.commit(slot.0, *ballot);
    }
    assert_eq!(restore(&follower.log).unwrap().0, state_of(100));
}

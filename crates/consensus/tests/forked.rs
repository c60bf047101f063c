//! A child that `fork` makes has a copy of each handle, and no part in the logs: its calls fail
//! with `Forked`, it opens nothing, and what it drops or closes changes no file and releases no
//! lock.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use esker_consensus::{
    Ballot, ConsensusLog, Error, IterateOptions, LogManager, Mode, OpenError, Slot, SnapshotBounds,
    StorageError,
};
use esker_log::Engine;
use esker_testkit::{import, in_forked_child, polled_once};

const BALLOT: Ballot = Ballot { number: 1, node: 1 };
const PATIENCE: Duration = Duration::from_secs(180);

#[track_caller]
fn forked<T>(what: &str, outcome: Result<T, impl Into<Error>>) {
    match outcome.err().map(Into::into) {
        Some(Error::Storage(StorageError::Forked)) => {}
        other => panic!("{what}: {other:?}"),
    }
}

#[track_caller]
fn locked<T>(outcome: Result<T, OpenError>) {
    match outcome.err() {
        Some(OpenError::Storage(StorageError::Log(esker_log::Error::Locked { .. }))) => {}
        other => panic!("the lock of a living writer is free: {other:?}"),
    }
}

/// In volatile mode closing writes the values that only memory has, and always a checkpoint.
#[test]
fn a_child_that_drops_a_consensus_log_changes_nothing() {
    let workdir = tempfile::tempdir().unwrap();
    let dir = workdir.path().join("log");
    let engine = Engine::manual();
    let builder = || ConsensusLog::builder(&dir).mode(Mode::Volatile).engine(engine.clone());
    let log = builder().open().unwrap();
    log.learn(Slot(0), BALLOT, b"durable").unwrap().blocking_wait().unwrap();
    log.accept(Slot(1), BALLOT, b"only in memory").unwrap().blocking_wait().unwrap();
    let (before, log) = (import(&dir).unwrap(), Cell::new(Some(log)));
    in_forked_child(|| {
        let log = log.take().unwrap();
        forked("close", log.close());
        drop(log);
    })
    .unwrap();
    assert!(import(&dir).unwrap() == before, "files changed");
    locked(builder().open());
    let parents = log.take().unwrap();
    parents.learn(Slot(2), BALLOT, b"after").unwrap().blocking_wait().unwrap();
    parents.close().unwrap();
    let again = builder().open().unwrap();
    let guard = again.pin();
    assert_eq!(again.read(Slot(1), &guard).unwrap().value(), b"only in memory");
    assert_eq!(again.read_committed(Slot(2), &guard).unwrap().value(), b"after");
}

#[test]
fn every_call_of_a_child_is_refused() {
    let workdir = tempfile::tempdir().unwrap();
    let log = ConsensusLog::open(workdir.path().join("log")).unwrap();
    log.learn(Slot(0), BALLOT, b"a value").unwrap().blocking_wait().unwrap();
    let ticket = log.accept(Slot(1), BALLOT, b"another").unwrap();
    let watch = Cell::new(Some(log.watch()));
    in_forked_child(|| {
        forked("promise", log.promise(Ballot { number: 9, node: 1 }, Slot(0)));
        forked("accept", log.accept(Slot(2), BALLOT, b"x"));
        forked("accept_timeout", log.accept_timeout(Slot(2), BALLOT, b"x", PATIENCE));
        forked("accept_batch", log.accept_batch(BALLOT, &[(Slot(2), &b"x"[..])]));
        forked("accept_async", polled_once(log.accept_async(Slot(2), BALLOT, b"x")));
        forked("commit", log.commit(Slot(1), BALLOT));
        forked("commit_batch", log.commit_batch(&[(Slot(1), BALLOT)]));
        forked("commit_through", log.commit_through(Slot(1)));
        forked("learn", log.learn(Slot(2), BALLOT, b"x"));
        forked(
            "install",
            log.snapshots().install(SnapshotBounds { floor: Slot(3), frontier: Slot(4) }),
        );
        forked("app_state().set", log.app_state().set(b"x"));
        forked("truncate_before", log.truncate_before(Slot(1)));
        forked("truncate_from", log.truncate_from(Slot(1)));
        forked("truncate_through", log.snapshots().truncate_through(Slot(0)));
        forked("snapshots().keep", log.snapshots().keep(1));
        forked("snapshots().create", log.snapshots().create(Slot(0), &b"x"[..]));
        forked("snapshots", log.snapshots().list());
        forked("checkpoint", log.maintenance().checkpoint());
        forked("reclaim", log.maintenance().reclaim());
        let guard = log.pin();
        forked("read", log.read(Slot(0), &guard));
        forked("read_committed", log.read_committed(Slot(0), &guard));
        forked("scan_uncommitted", log.maintenance().scan_uncommitted(&guard));
        let each = |_: &esker_consensus::Entry<'_>| ControlFlow::Continue(());
        forked("iterate", log.iterate(.., IterateOptions::default(), each));
        forked("entries", log.entries(.., 100));
        forked("ticket", ticket.clone().blocking_wait());
        forked("watch", watch.take().unwrap().blocking_changed());
        forked("watch", log.watch().blocking_changed_timeout(PATIENCE));
        forked("close", log.close());
    })
    .unwrap();
    ticket.blocking_wait().unwrap();
    log.commit(Slot(1), BALLOT).unwrap().blocking_wait().unwrap();
    assert_eq!(log.frontier(), Some(Slot(1)));
    log.close().unwrap();
}

/// The registry of a manager was corrupt after a child had closed it, or opened a log.
#[test]
fn a_child_of_a_manager_changes_nothing() {
    let workdir = tempfile::tempdir().unwrap();
    let dir = workdir.path().join("logs");
    let open = || LogManager::builder(&dir).engine(Engine::manual()).open();
    let manager = open().unwrap();
    manager.get("one").unwrap().learn(Slot(0), BALLOT, b"a").unwrap().blocking_wait().unwrap();
    let guard = Cell::new(Some(manager.get("two").unwrap()));
    let (before, manager) = (import(&dir).unwrap(), Cell::new(Some(manager)));
    in_forked_child(|| {
        let (manager, guard) = (manager.take().unwrap(), guard.take().unwrap());
        forked("get", manager.get("one"));
        forked("get", manager.get("new"));
        assert!(manager.get_if_open("one").is_none());
        forked("keys", manager.keys());
        forked("has", manager.has("one"));
        forked("stats", manager.stats());
        forked("remove", manager.remove("one"));
        forked("compact_registry", manager.compact_registry());
        forked("backup", manager.backup(workdir.path().join("backup")));
        forked("close", manager.close("one"));
        forked("close_all", manager.close_all());
        forked("learn", guard.learn(Slot(0), BALLOT, b"x"));
        drop((guard, manager));
    })
    .unwrap();
    assert!(import(&dir).unwrap() == before, "files changed");
    locked(open());
    let manager = manager.take().unwrap();
    manager.get("three").unwrap().learn(Slot(0), BALLOT, b"c").unwrap().blocking_wait().unwrap();
    drop(guard.take());
    manager.close_all().unwrap();
    let again = open().unwrap();
    assert_eq!(again.keys().unwrap(), [&b"one"[..], b"three", b"two"]);
}

#[test]
fn a_child_opens_nothing() {
    let workdir = tempfile::tempdir().unwrap();
    let new = workdir.path().join("new");
    let (dir, logs) = (workdir.path().join("log"), workdir.path().join("logs"));
    let log = ConsensusLog::open(&dir).unwrap();
    let manager = LogManager::open(&logs).unwrap();
    drop(manager.get("one").unwrap());
    let engine = Engine::new(1).unwrap();
    in_forked_child(|| {
        forked("open", ConsensusLog::open(&new));
        forked("open, of its parent", ConsensusLog::open(&dir));
        forked("open, an engine", ConsensusLog::builder(&new).engine(engine.clone()).open());
        forked("manager", LogManager::open(&new));
        forked("manager, of its parent", LogManager::open(&logs));
        forked("manager that exists", LogManager::builder(&logs).must_exist(true).open());
        forked("inspect", esker_consensus::inspect(&dir));
        forked("logs_in", esker_consensus::logs_in(&logs));
    })
    .unwrap();
    assert!(!new.exists());
    manager.close_all().unwrap();
    log.close().unwrap();
}

/// Forks while slot locks, the tracker and those of the log are held, each at some moment.
#[test]
fn children_of_a_busy_process_end() {
    let workdir = tempfile::tempdir().unwrap();
    let log = ConsensusLog::open(workdir.path().join("log")).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (log, is_over) = (&log, &is_over);
            scope.spawn(move || {
                for n in (0..).take_while(|_| !is_over.load(SeqCst)) {
                    let slot = Slot(n * 3 + thread);
                    log.learn(slot, BALLOT, b"a value").unwrap().blocking_wait().unwrap();
                }
            });
        }
        let outcome = (0..30).try_for_each(|_| {
            let kept = Cell::new(Some((log.clone(), log.watch())));
            let outcome = in_forked_child(|| {
                let (log, mut watch) = kept.take().unwrap();
                forked("learn", log.learn(Slot(0), BALLOT, b"x"));
                forked("watch", watch.blocking_changed());
                forked("checkpoint", log.maintenance().checkpoint());
                forked("close", log.close());
            });
            drop(kept);
            outcome
        });
        is_over.store(true, SeqCst);
        outcome.unwrap();
    });
    log.close().unwrap();
}

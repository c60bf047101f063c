//! Appending under a lock of the caller: the log waits without it.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use esker_disk::sim::SimDisk;
use esker_log::component::{AppendRefusal, LockedAppender, Purpose};
use esker_log::{AppendError, Log, LogError, Seq};

use crate::append::backpressure::{fill, stuck};
use crate::fixture::{self, DIR, all, block_on, driven, payload, payloads, poll_once};

/// While the log has no room, the lock is free, and the attempt is repeated when there is room.
#[test]
fn the_lock_is_free_while_the_log_waits_for_room() {
    let (log, opens) = stuck();
    let full = fill(&log);
    let lock = Arc::new(Mutex::new(Vec::new()));
    let attempt = {
        let lock = Arc::clone(&lock);
        move |log: &LockedAppender<'_>| -> Result<_, AppendRefusal> {
            let mut attempts = lock.lock().unwrap();
            attempts.push(());
            let ticket = log.append(Purpose::Ordinary, payload(full + 1), |_| {})?;
            Ok(ticket.seq())
        }
    };
    assert!(matches!(log.component().try_append_locked(attempt.clone()), Err(AppendError::Full)));
    let mut pending = Box::pin(log.component().append_locked_async(attempt.clone()));
    assert!(poll_once(&mut pending).is_pending());
    drop(pending);
    let blocked = {
        let (log, attempt) = (log.clone(), attempt.clone());
        std::thread::spawn(move || log.component().append_locked(attempt))
    };
    fixture::until("the caller waits", || log.stats().waiting > 0);
    std::thread::sleep(Duration::from_millis(20));
    let before = lock.try_lock().expect("the lock is free").len();
    assert!(!blocked.is_finished() && before >= 3);
    drop(opens);
    assert_eq!(blocked.join().unwrap().unwrap(), Seq(full + 1));
    let after = lock.lock().unwrap().len();
    assert!(after > before && after < before + 10, "{after} attempts");
    log.barrier().unwrap().blocking_wait().unwrap();
    assert_eq!(all(&log), payloads(1..=full + 1));
    log.close().unwrap();
}

#[test]
fn an_attempt_may_decide_not_to_append() {
    let (log, ..) = fixture::log();
    assert_eq!(log.component().append_locked(|_| Ok(7)).unwrap(), 7);
    let failed = log.component().append_locked(|_| {
        Err::<(), _>(AppendError::Conflict { prev: Seq(3), last: Seq(4) }.into())
    });
    assert!(matches!(failed, Err(AppendError::Conflict { .. })));
    assert_eq!((log.accepted(), log.stats().pending), (Seq(0), 0));
    let too_large = log
        .component()
        .append_locked(|log| log.append(Purpose::Ordinary, vec![0; 2 << 20], |_| {}));
    assert!(matches!(too_large, Err(AppendError::TooLarge { .. })));
    log.close().unwrap();
    assert!(matches!(
        log.component().append_locked(|log| log.append(Purpose::Ordinary, "late", |_| {})),
        Err(AppendError::Log(LogError::Closed))
    ));
}

/// Each record of an atomic batch has the place under which it is read.
#[test]
fn an_atomic_batch_names_the_place_of_each_record() {
    let disk = SimDisk::new(1);
    let (options, _engine) = driven(&disk);
    let log = Log::builder(DIR).options(options).open().unwrap();
    log.append(payload(1)).unwrap().blocking_wait().unwrap();
    let batch: Vec<_> = (2..=40).map(payload).collect();
    let mut places = Vec::new();
    let ticket =
        block_on(log.component().append_locked_async(|log| {
            log.append_atomic(&batch, |placed| places = placed.to_vec())
        }));
    let ticket = ticket.unwrap().unwrap();
    let last = places.last().unwrap();
    assert_eq!((ticket.seq(), ticket.position()), (last.seq, last.position));
    ticket.blocking_wait().unwrap();
    assert_eq!(places.len(), 39);
    for (n, place) in places.iter().enumerate() {
        assert_eq!(place.seq, Seq(n as u64 + 2));
        assert_eq!(log.read_at(place.position).unwrap().record().seq, place.seq);
        assert_eq!(*log.component().read_placed(*place).unwrap(), *batch[n]);
    }
    let none: [&[u8]; 0] = [];
    assert!(
        log.component()
            .append_locked(|log| log.append_atomic(&none, |_| panic!("nothing is placed")))
            .unwrap()
            .is_none()
    );
    log.close().unwrap();
}

/// A caller that finds a record durable also sees what `placed` changed: although another thread
/// wants a commit, none happens before.
#[test]
fn no_record_is_durable_before_its_index_names_it() {
    let no_commit = |log: &Log, accepted: Seq| {
        let durable = log.durable();
        let syncing = std::thread::spawn({
            let log = log.clone();
            move || log.barrier().unwrap().blocking_wait().unwrap()
        });
        std::thread::sleep(Duration::from_millis(100));
        assert!(log.accepted() >= accepted && log.durable() == durable && !syncing.is_finished());
        syncing
    };
    let (log, ..) = fixture::log();
    let mut syncing = Vec::new();
    let one = log.component().append_locked(|attempt| {
        attempt.append(Purpose::Ordinary, "one", |place| syncing.push(no_commit(&log, place.seq)))
    });
    one.unwrap().blocking_wait().unwrap();
    let three = ["two", "three", "four"];
    let last = log.component().append_locked(|attempt| {
        attempt.append_atomic(&three, |places| syncing.push(no_commit(&log, places[2].seq)))
    });
    last.unwrap().unwrap().blocking_wait().unwrap();
    assert_eq!(syncing.len(), 2);
    for thread in syncing {
        thread.join().unwrap();
    }
    assert_eq!(log.durable(), Seq(4));
    log.close().unwrap();
}

/// A reader that waits for a long update of an index leaves the log to others.
#[test]
fn a_reader_of_a_record_that_is_not_indexed_yet_holds_no_lock() {
    let (log, ..) = fixture::log();
    let mut waiting = None;
    let ticket = log.component().append_locked(|attempt| {
        attempt.append(Purpose::Ordinary, "one", |place| {
            let reader = std::thread::spawn({
                let log = log.clone();
                move || log.component().read_placed(place).unwrap().to_vec()
            });
            std::thread::sleep(Duration::from_millis(50));
            let (sender, answer) = std::sync::mpsc::channel();
            std::thread::spawn({
                let log = log.clone();
                move || sender.send(log.accepted())
            });
            assert_eq!(answer.recv_timeout(fixture::LONG), Ok(Seq(1)));
            assert!(!reader.is_finished());
            waiting = Some(reader);
        })
    });
    assert_eq!(waiting.unwrap().join().unwrap(), b"one");
    ticket.unwrap().blocking_wait().unwrap();
    log.close().unwrap();
}

/// A panic in the caller's code leaves a log that continues.
#[test]
fn a_panic_while_an_index_is_updated_does_not_stop_the_log() {
    let (log, ..) = fixture::log();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        log.component()
            .append_locked(|log| log.append(Purpose::Ordinary, "one", |_| panic!("as a bug would")))
    }));
    assert!(panicked.is_err());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        log.component()
            .append_locked(|log| log.append_atomic(&["two", "three"], |_| panic!("again")))
    }));
    assert!(panicked.is_err());
    log.append("four").unwrap().blocking_wait().unwrap();
    let expected = [(1, "one"), (2, "two"), (3, "three"), (4, "four")];
    assert_eq!(all(&log), expected.map(|(seq, text)| (seq, text.as_bytes().to_vec())));
    log.close().unwrap();
}

//! Many threads at once: nothing is lost, nothing is torn, nothing hangs.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use esker_consensus::{
    AcceptError, Ballot, CommitError, ConsensusLog, Error, IterateOptions, Mode, Options,
    ReadError, Slot, SnapshotBounds, StorageError,
};
use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, SimDisk};

use crate::fixture::{DIR, HIGH, LOW, MODES};

/// A log with the threads of the process, on a simulated disk.
fn log(mode: Mode, change: impl FnOnce(&mut Options)) -> (ConsensusLog, SimDisk) {
    let disk = SimDisk::new(1);
    let mut options = Options::on(Arc::new(disk.clone()));
    options.mode = mode;
    options.log.segment_size = 64 << 10;
    options.checkpoint_every = 1024;
    change(&mut options);
    (ConsensusLog::builder(DIR).options(options).open().unwrap(), disk)
}

/// A value from which its slot, its ballot and whether it is whole can be checked.
fn value(slot: u64, ballot: Ballot) -> Vec<u8> {
    let seed = slot ^ ballot.number << 32;
    let mut value = seed.to_le_bytes().to_vec();
    value.extend((0..slot % 90).map(|at| (seed.wrapping_mul(31) + at) as u8));
    value
}

fn whole(entry: &esker_consensus::Entry<'_>) {
    assert_eq!(entry.value(), value(entry.slot().0, entry.ballot()), "slot {}", entry.slot());
}

/// Writers, readers, scans, checkpoints and truncation, while the table grows, values leave the
/// cache and segments go.
#[test]
fn every_operation_at_once() {
    const WRITERS: u64 = 8;
    const EACH: u64 = 500;
    for mode in MODES {
        let (log, _disk) = log(mode, |options| {
            options.cache_size = 8 << 10;
            options.mutable_size = 16 << 10;
        });
        let over = AtomicBool::new(false);
        let committed = AtomicU64::new(0);
        std::thread::scope(|threads| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let (log, committed) = (&log, &committed);
                    threads.spawn(move || {
                        for n in 0..EACH {
                            let slot = n * WRITERS + writer;
                            let value = value(slot, LOW);
                            let wait = Duration::from_secs(60);
                            log.accept_timeout(Slot(slot), LOW, &value, wait)
                                .unwrap()
                                .blocking_wait()
                                .unwrap();
                            whole(&log.read(Slot(slot), &log.pin()).unwrap());
                            log.commit(Slot(slot), LOW).unwrap().blocking_wait().unwrap();
                            committed.fetch_add(1, SeqCst);
                        }
                    })
                })
                .collect();
            for _ in 0..4 {
                threads.spawn(|| {
                    while !over.load(SeqCst) {
                        let guard = log.pin();
                        log.maintenance().scan_uncommitted(&guard).unwrap().iter().for_each(whole);
                        let start = log.floor().map_or(0, |floor| floor.0 + 1);
                        for slot in start..start + 64 {
                            match log.read_committed(Slot(slot), &guard) {
                                Ok(entry) => whole(&entry),
                                Err(
                                    ReadError::SlotNotFound { .. }
                                    | ReadError::NotCommitted { .. }
                                    | ReadError::Truncated { .. },
                                ) => {}
                                Err(error) => panic!("{error:?}"),
                            }
                        }
                    }
                });
            }
            threads.spawn(|| {
                while !over.load(SeqCst) {
                    let mut last = None;
                    log.iterate(.., IterateOptions::default(), |entry| {
                        whole(entry);
                        assert!(last.replace(entry.slot()) < Some(entry.slot()));
                        ControlFlow::Continue(())
                    })
                    .unwrap();
                    log.maintenance().checkpoint().unwrap();
                    if let Some(Slot(frontier)) = log.frontier() {
                        log.truncate_before(Slot(frontier / 2)).unwrap().blocking_wait().unwrap();
                    }
                }
            });
            // Whatever happened to the writers, the others come to an end.
            let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            over.store(true, SeqCst);
            ended.into_iter().for_each(|writer| writer.unwrap());
        });
        assert_eq!(committed.load(SeqCst), WRITERS * EACH);
        assert_eq!(log.frontier(), Some(Slot(WRITERS * EACH - 1)));
        assert_eq!(log.stats().mutable_used, 0);
        let floor = log.floor().map_or(0, |floor| floor.0 + 1);
        let guard = log.pin();
        for slot in floor..WRITERS * EACH {
            whole(&log.read_committed(Slot(slot), &guard).unwrap());
        }
        log.close().unwrap();
    }
}

/// Ten that accept 100 slots each, ten that commit the thousand, twenty that read 100 each.
#[test]
fn accepts_commits_and_reads_by_many_threads() {
    for mode in MODES {
        let (log, _disk) = log(mode, |_| {});
        let log = &log;
        let ten = |work: &(dyn Fn(u64) + Sync)| {
            std::thread::scope(|threads| {
                let running: Vec<_> = (0..10)
                    .map(|n| threads.spawn(move || (0..100).for_each(|each| work(each * 10 + n))))
                    .collect();
                running.into_iter().for_each(|thread| thread.join().unwrap());
            });
        };
        ten(&|slot| {
            log.accept(Slot(slot), LOW, &value(slot, LOW)).unwrap().blocking_wait().unwrap();
        });
        assert_eq!(log.stats().uncommitted, 1000);
        ten(&|slot| log.commit(Slot(slot), LOW).unwrap().blocking_wait().unwrap());
        assert_eq!((log.frontier(), log.stats().mutable_used), (Some(Slot(999)), 0));
        std::thread::scope(|threads| {
            for reader in 0..20 {
                threads.spawn(move || {
                    let guard = log.pin();
                    for n in 0..100 {
                        whole(
                            &log.read_committed(Slot((reader * 50 + n * 7) % 1000), &guard)
                                .unwrap(),
                        );
                    }
                });
            }
        });
    }
}

/// Guards against a checkpoint that stops the writers, or that they stop: four that accept and
/// commit 400 slots each, under checkpoints without a pause.
#[test]
fn checkpoints_and_writers_do_not_starve_each_other() {
    for mode in MODES {
        let (log, disk) = log(mode, |_| {});
        let over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !over.load(SeqCst) {
                    log.maintenance().checkpoint().unwrap();
                }
            });
            let writers: Vec<_> = (0..4)
                .map(|writer| {
                    let log = &log;
                    threads.spawn(move || {
                        for slot in (0..400).map(|n| n * 4 + writer) {
                            log.accept(Slot(slot), LOW, &value(slot, LOW))
                                .unwrap()
                                .blocking_wait()
                                .unwrap();
                            log.commit(Slot(slot), LOW).unwrap().blocking_wait().unwrap();
                        }
                    })
                })
                .collect();
            let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            over.store(true, SeqCst);
            ended.into_iter().for_each(|writer| writer.unwrap());
        });
        drop(log);
        let mut options = Options::on(Arc::new(disk));
        options.mode = mode;
        let log = ConsensusLog::builder(DIR).options(options).open().unwrap();
        assert_eq!(log.stats().committed.map(|range| range.count), Some(1600));
        let guard = log.pin();
        (0..1600).for_each(|slot| whole(&log.read_committed(Slot(slot), &guard).unwrap()));
    }
}

/// Guards against a commit that races a higher accept and commits a value that it did not name.
#[test]
fn a_commit_commits_the_ballot_it_names_whatever_races_it() {
    for mode in MODES {
        let (log, _disk) = log(mode, |_| {});
        for slot in 0..200 {
            log.accept(Slot(slot), LOW, &value(slot, LOW)).unwrap().blocking_wait().unwrap();
        }
        let barrier = Barrier::new(2);
        let (won, lost) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|threads| {
            threads.spawn(|| {
                barrier.wait();
                for slot in 0..200 {
                    match log.commit(Slot(slot), LOW) {
                        Ok(ticket) => {
                            ticket.blocking_wait().unwrap();
                            won.fetch_add(1, SeqCst);
                        }
                        Err(CommitError::BallotMismatch { accepted, .. }) => {
                            assert_eq!(accepted, HIGH);
                            lost.fetch_add(1, SeqCst);
                        }
                        Err(error) => panic!("{error:?}"),
                    }
                }
            });
            barrier.wait();
            for slot in (0..200).rev() {
                match log.accept(Slot(slot), HIGH, &value(slot, HIGH)) {
                    Ok(ticket) => ticket.blocking_wait().unwrap(),
                    Err(AcceptError::AlreadyCommitted { entry }) => {
                        assert_eq!(entry.ballot(), LOW);
                        whole(&entry);
                    }
                    Err(error) => panic!("{error:?}"),
                }
            }
        });
        assert_eq!(won.load(SeqCst) + lost.load(SeqCst), 200);
        assert_eq!(log.stats().committed.map_or(0, |range| range.count), won.load(SeqCst));
        let mut seen = 0;
        log.iterate(Slot(0).., IterateOptions::default(), |entry| {
            whole(entry);
            assert_eq!(entry.ballot(), LOW);
            seen += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(seen, won.load(SeqCst));
    }
}

/// Readers run on while the log is closed and dropped under them: a typed error at worst.
#[test]
fn readers_outlive_the_log() {
    for mode in MODES {
        let (log, _disk) = log(mode, |options| options.cache_size = 4 << 10);
        for slot in 0..500 {
            log.accept(Slot(slot), LOW, &value(slot, LOW)).unwrap().blocking_wait().unwrap();
            log.commit(Slot(slot), LOW).unwrap().blocking_wait().unwrap();
        }
        let guard = log.pin();
        let last = log.read_committed(Slot(499), &guard).unwrap();
        let first = log.read_committed(Slot(0), &guard).unwrap();
        std::thread::scope(|threads| {
            let reader = threads.spawn(|| {
                for slot in (0..500).cycle() {
                    match log.read_committed(Slot(slot), &log.pin()) {
                        Ok(entry) => whole(&entry),
                        Err(ReadError::Storage(StorageError::Closed)) => return,
                        Err(error) => panic!("{error:?}"),
                    }
                }
            });
            log.close().unwrap();
            reader.join().unwrap();
        });
        drop(log);
        whole(&last);
        whole(&first);
    }
}

#[test]
fn watch_reports_the_frontier() {
    for mode in MODES {
        let (log, _disk) = log(mode, |_| {});
        let mut watch = log.watch();
        assert_eq!(watch.blocking_changed_timeout(Duration::ZERO).unwrap(), None);
        log.accept(Slot(1), LOW, b"ahead").unwrap().blocking_wait().unwrap();
        log.commit(Slot(1), LOW).unwrap().blocking_wait().unwrap();
        assert_eq!(
            watch.blocking_changed_timeout(Duration::ZERO).unwrap(),
            None,
            "a gap is before it"
        );
        std::thread::scope(|threads| {
            let watcher =
                threads.spawn(|| watch.blocking_changed_timeout(Duration::from_secs(60)).unwrap());
            log.accept(Slot(0), LOW, b"first").unwrap().blocking_wait().unwrap();
            log.commit(Slot(0), LOW).unwrap().blocking_wait().unwrap();
            assert_eq!(watcher.join().unwrap(), Some(Slot(1)));
        });
        log.snapshots()
            .install(SnapshotBounds { floor: Slot(9), frontier: Slot(9) })
            .unwrap()
            .blocking_wait()
            .unwrap();
        assert_eq!(watch.blocking_changed_timeout(Duration::from_secs(60)).unwrap(), Some(Slot(9)));
        std::thread::scope(|threads| {
            let watcher = threads.spawn(|| watch.blocking_changed());
            log.close().unwrap();
            assert!(matches!(watcher.join().unwrap(), Err(StorageError::Closed)));
        });
    }
}

/// A writer gets the failure once; readers continue, from memory and from the files.
#[test]
fn readers_run_on_while_the_disk_is_full() {
    const SLOTS: u64 = 300;
    for mode in MODES {
        let (log, disk) = log(mode, |options| options.cache_size = 8 << 10);
        let write = |slot| {
            log.accept(slot, LOW, &value(slot.0, LOW))?.blocking_wait()?;
            Ok::<_, Error>(log.commit(slot, LOW)?.blocking_wait()?)
        };
        (0..SLOTS).for_each(|slot| write(Slot(slot)).unwrap());
        let (over, passes) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| {
                    while !over.load(SeqCst) {
                        let guard = log.pin();
                        for slot in 0..SLOTS {
                            let entry = log.read_committed(Slot(slot), &guard);
                            over.fetch_or(entry.is_err(), SeqCst);
                            whole(&entry.unwrap());
                        }
                        passes.fetch_add(1, SeqCst);
                    }
                });
            }
            let go_on = || {
                let seen = passes.load(SeqCst);
                while passes.load(SeqCst) < seen + 4 && !over.load(SeqCst) {
                    std::thread::yield_now();
                }
            };
            go_on();
            disk.inject(Fault::on(Op::Write, Effect::NoSpace));
            let reported = [SLOTS, SLOTS + 1].map(|slot| write(Slot(slot)).err());
            go_on();
            over.store(true, SeqCst);
            // What is written ahead may have met it first.
            assert!(
                matches!(
                    &reported,
                    [
                        Some(Error::Storage(StorageError::Log(
                            esker_log::Error::Io(_) | esker_log::Error::Poisoned(_)
                        ))),
                        Some(Error::Storage(StorageError::Log(esker_log::Error::Poisoned(_))))
                    ]
                ),
                "{reported:?}"
            );
        });
    }
}

/// The records of a batch need not be adjacent: a checkpoint appends between them.
#[test]
fn batches_of_values_beside_checkpoints_come_back() {
    const BATCHES: u64 = 60;
    const EACH: u64 = 50;
    let change = |options: &mut Options| options.cache_size = 0;
    let (log, disk) = log(Mode::Volatile, change);
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !over.load(SeqCst) {
                log.maintenance().checkpoint().unwrap();
            }
        });
        for first in (0..BATCHES * EACH).step_by(EACH as usize) {
            let slots = first..first + EACH;
            for slot in slots.clone() {
                drop(log.accept(Slot(slot), LOW, &value(slot, LOW)).unwrap());
            }
            let marks: Vec<_> = slots.map(|slot| (Slot(slot), LOW)).collect();
            log.commit_batch(&marks).unwrap().ticket.blocking_wait().unwrap();
        }
        over.store(true, SeqCst);
    });
    let all = |log: &ConsensusLog| {
        let guard = log.pin();
        (0..BATCHES * EACH)
            .for_each(|slot| whole(&log.read_committed(Slot(slot), &guard).unwrap()));
    };
    all(&log);
    log.maintenance().checkpoint().unwrap();
    log.close().unwrap();
    let mut options = Options::on(Arc::new(disk.clone()));
    options.mode = Mode::Volatile;
    change(&mut options);
    all(&ConsensusLog::builder(DIR).options(options).open().unwrap());
}

//! Random operations between the pages of a checkpoint, and a crash at any point. Opening with the
//! app metadata must reach the same state as opening without them, when every record is replayed.
//!
//! Guards against:
//! - a replay point that is too late
//! - a replay that counts twice, or undoes a change that the page copy includes
//! - a cut, a floor or an install that a copied page survives
//! - a root that omits records that were appended and not yet durable
//!
//! `ESKER_SOAK=n` runs n cases.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use esker_disk::Disk;
use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_log::Engine;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use super::Checkpoint;
use crate::base::ballot::Ballot;
use crate::base::slot::{SLOTS_PER_PAGE, Slot, SnapshotBounds, first_slot_of, page_of};
use crate::errors::Error;
use crate::errors::manager_errors::OpenError;
use crate::index::page::State;
use crate::options::Options;
use crate::record;
use crate::state::commit_tracker::CommittedRange;
use crate::state::inner::ConsensusLog;
use crate::storage_error::StorageError;

const DIR: &str = "/consensus";
/// The number of logical slots: ten from the floor on, and ten at the start of each of the next two
/// pages.
const LOGICAL_SLOTS: u64 = 30;

/// One step. Slots are logical. `wait` says whether the ticket is awaited or dropped.
#[derive(Debug, Clone)]
enum Step {
    Promise {
        rise: u64,
    },
    Accept {
        place: u64,
        rise: u64,
        wait: bool,
    },
    Commit {
        place: u64,
        wait: bool,
    },
    Through {
        place: u64,
    },
    Learn {
        place: u64,
    },
    Cut {
        place: u64,
        wait: bool,
    },
    Floor {
        place: u64,
        wait: bool,
    },
    Install {
        place: u64,
        ahead: u64,
        wait: bool,
    },
    /// Appends a slot's value again, as truncation does. A later `NameCopies` updates the index.
    CopyForward {
        place: u64,
    },
    NameCopies,
    Begin,
    Take,
    End,
    Abandon,
}

fn step() -> impl Strategy<Value = Step> {
    let place = || 0..LOGICAL_SLOTS;
    let wait = || prop::bool::weighted(0.4);
    let rise = || prop_oneof![6 => Just(0u64), 2 => Just(1)];
    prop_oneof![
        1 => rise().prop_map(|rise| Step::Promise { rise }),
        9 => (place(), rise(), wait())
            .prop_map(|(place, rise, wait)| Step::Accept { place, rise, wait }),
        6 => (place(), wait()).prop_map(|(place, wait)| Step::Commit { place, wait }),
        2 => place().prop_map(|place| Step::Through { place }),
        2 => place().prop_map(|place| Step::Learn { place }),
        2 => (place(), wait()).prop_map(|(place, wait)| Step::Cut { place, wait }),
        1 => (place(), wait()).prop_map(|(place, wait)| Step::Floor { place, wait }),
        1 => (place(), 0..6u64, wait())
            .prop_map(|(place, ahead, wait)| Step::Install { place, ahead, wait }),
        2 => place().prop_map(|place| Step::CopyForward { place }),
        1 => Just(Step::NameCopies),
        3 => Just(Step::Begin),
        6 => Just(Step::Take),
        3 => Just(Step::End),
        1 => Just(Step::Abandon),
    ]
}

/// The end of a session: at a disk operation counted from its start, or after its last step.
#[derive(Debug, Clone)]
enum ProgramEnd {
    CutAt(u64, Persist),
    Cut(Persist),
    /// Everything is made durable first, and must be recovered.
    Killed,
    Closed,
}

fn end() -> impl Strategy<Value = ProgramEnd> {
    let how = || prop_oneof![3 => Just(Persist::Random), 1 => Just(Persist::Torn)];
    prop_oneof![
        3 => (20..400u64, how()).prop_map(|(at, how)| ProgramEnd::CutAt(at, how)),
        2 => how().prop_map(ProgramEnd::Cut),
        4 => Just(ProgramEnd::Killed),
        1 => Just(ProgramEnd::Closed),
    ]
}

/// The observable state of a log.
#[derive(Debug, PartialEq)]
struct RecoveredState {
    promised: Option<Ballot>,
    app_state: Vec<u8>,
    bounds: (Option<Slot>, Option<Slot>),
    committed: Option<CommittedRange>,
    slots: Vec<(u64, Ballot, Vec<u8>, bool)>,
    /// The number of uncommitted slots, and the bytes used in the mutable region.
    open: (u64, u64),
    /// For each page, how many slots are committed.
    pages: Vec<(u64, u64)>,
}

struct TestLog {
    log: ConsensusLog,
    engine: Engine,
    checkpoint: Option<Checkpoint>,
    copies: Vec<(u64, u64, u64)>,
    value: u64,
}

impl Drop for TestLog {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

impl TestLog {
    fn open(disk: &SimDisk, value: u64) -> Result<Self, OpenError> {
        let engine = Engine::manual();
        let mut options = Options::on(Arc::new(disk.process()));
        options.log.segment_size = 64 << 10;
        options.checkpoint_every = u64::MAX;
        options.log.engine = Some(engine.clone());
        match ConsensusLog::builder(DIR).options(options).open() {
            Ok(log) => Ok(Self { log, engine, checkpoint: None, copies: Vec::new(), value }),
            Err(error) => {
                engine.stop();
                Err(error)
            }
        }
    }

    /// Maps a logical slot: dense from the floor on, then at the starts of the next pages.
    fn slot(&self, place: u64) -> u64 {
        let start = self.log.inner.start();
        match place / 10 {
            0 => start + place,
            page => (page_of(start) + page) * SLOTS_PER_PAGE as u64 + place % 10,
        }
    }

    fn value(&mut self) -> Vec<u8> {
        self.value += 1;
        let len = 8 + self.value as usize % 50;
        self.value.to_le_bytes().into_iter().cycle().take(len).collect()
    }

    fn ballot(&self, rise: u64) -> Ballot {
        let promised = self.log.promised().unwrap_or(Ballot::ZERO);
        Ballot { number: (promised.number + rise).max(1), node: 1 }
    }

    /// Runs one step. Refusals are expected; the records decide the state.
    fn step(&mut self, step: &Step) -> Result<(), Error> {
        let inner = Arc::clone(&self.log.inner);
        match *step {
            Step::Promise { rise } => drop(self.log.promise(self.ballot(rise), Slot(0))?),
            Step::Accept { place, rise, wait } => {
                let (ballot, value) = (self.ballot(rise), self.value());
                let ticket = self.log.accept(Slot(self.slot(place)), ballot, &value)?;
                if wait { ticket.blocking_wait()? } else { drop(ticket) }
            }
            Step::Commit { place, wait } => {
                let slot = self.slot(place);
                let ballot = self.log.read(Slot(slot), &self.log.pin())?.ballot();
                let ticket = self.log.commit(Slot(slot), ballot)?;
                if wait { ticket.blocking_wait()? } else { drop(ticket) }
            }
            Step::Through { place } => drop(self.log.commit_through(Slot(self.slot(place)))?),
            Step::Learn { place } => {
                let (ballot, value) = (self.ballot(1), self.value());
                drop(self.log.learn(Slot(self.slot(place)), ballot, &value)?);
            }
            Step::Cut { place, wait } => {
                let ticket = inner.cut(self.slot(place))?;
                if wait { ticket.blocking_wait()? } else { drop(ticket) }
            }
            Step::Floor { place, wait } => {
                let slot = self.slot(place).min(inner.frontier.lock().decided());
                let ticket = inner.raise(slot, slot, Some(&place.to_le_bytes()))?;
                if wait { ticket.blocking_wait()? } else { drop(ticket) }
            }
            Step::Install { place, ahead, wait } => {
                let slot = self.slot(place);
                let ticket = inner.raise(slot, slot + ahead, None)?;
                if wait { ticket.blocking_wait()? } else { drop(ticket) }
            }
            Step::CopyForward { place } => {
                let (slot, guard) = (self.slot(place), crossbeam_epoch::pin());
                let _slot_lock = inner.locks.lock_slot(slot);
                let Some(page) = inner.page(slot, &guard)? else { return Ok(()) };
                let word = page.slot(slot).word();
                if word.state() == State::Empty {
                    return Ok(());
                }
                let entry = inner.entry_at(slot, page.slot(slot), &guard)?;
                let (ballot, value) = (entry.ballot(), entry.value());
                let ticket = inner.append(|out| match word.state() {
                    State::Committed => record::chosen(out, slot, ballot, value),
                    _ => record::accept(out, slot, ballot, value),
                })?;
                self.copies.push((slot, word.seq(), ticket.seq().0));
            }
            Step::NameCopies => {
                let barrier = inner.log.barrier().and_then(esker_log::Ticket::blocking_wait);
                barrier.map_err(StorageError::from_log)?;
                let guard = crossbeam_epoch::pin();
                for (slot, from, to) in self.copies.drain(..) {
                    let _slot_lock = inner.locks.lock_slot(slot);
                    let Some(page) = inner.page(slot, &guard)? else { continue };
                    let word = page.slot(slot).word();
                    if word.seq() == from && word.state() != State::Empty {
                        page.slot(slot).set_word(word.moved(to));
                        page.touch();
                    }
                }
            }
            Step::Begin if self.checkpoint.is_none() => {
                let locks = inner.locks.lock_all();
                self.checkpoint = Some(inner.begin_checkpoint(&locks, 0));
            }
            Step::Take => {
                if let Some(checkpoint) = &mut self.checkpoint {
                    inner.take_page(checkpoint)?;
                }
            }
            Step::End => {
                if let Some(mut checkpoint) = self.checkpoint.take() {
                    while inner.take_page(&mut checkpoint)? {}
                    inner.end_checkpoint(checkpoint)?;
                }
            }
            Step::Begin => {}
            Step::Abandon => self.checkpoint = None,
        }
        Ok(())
    }

    fn seen(&self) -> RecoveredState {
        let inner = &self.log.inner;
        let (guard, stats) = (self.log.pin(), self.log.stats());
        let mut slots = Vec::new();
        let options =
            crate::read::iterate::IterateOptions { include_uncommitted: true, skip_errors: false };
        let all = self.log.iterate(.., options, |entry| {
            let value = entry.value().to_vec();
            slots.push((entry.slot().0, entry.ballot(), value, entry.is_committed()));
            ControlFlow::Continue(())
        });
        all.unwrap();
        let pages = inner.index.numbers(0, &guard.0).into_iter().filter_map(|number| {
            let page = inner.page(first_slot_of(number), &guard.0).unwrap()?;
            let words = page.used_from(0).map(|(_, place)| place.word());
            let count = words.filter(|word| word.state() == State::Committed).count() as u64;
            assert_eq!(count, page.committed(), "page {number} counts");
            (count > 0).then_some((number, count))
        });
        RecoveredState {
            promised: self.log.promised(),
            app_state: self.log.app_state().get().to_vec(),
            bounds: (self.log.floor(), self.log.frontier()),
            committed: self.log.stats().committed,
            slots,
            open: (stats.uncommitted, stats.mutable_used),
            pages: pages.collect(),
        }
    }
}

fn with_metadata(disk: &SimDisk) -> bool {
    disk.files(Path::new(DIR)).is_ok_and(|names| names.iter().any(|name| name == "note"))
}

/// Runs one session. Then the disk must open to the same state with and without the app metadata.
fn live(disk: &SimDisk, steps: &[Step], end: &ProgramEnd, value: u64) -> Result<(), String> {
    let reported = |error: StorageError| format!("{error:?}");
    let mut must = None;
    if let ProgramEnd::CutAt(at, how) = end {
        disk.cut_power_at(CutPoint::During(disk.operations() + at), *how);
    }
    match TestLog::open(disk, value) {
        Ok(mut life) => {
            for step in steps {
                // An acceptor refuses some steps; a disk without power refuses all.
                drop(life.step(step));
            }
            if matches!(end, ProgramEnd::Killed | ProgramEnd::Closed) {
                let flushed =
                    life.log.inner.log.barrier().and_then(esker_log::Ticket::blocking_wait);
                flushed.map_err(|error| reported(StorageError::from_log(error)))?;
                must = Some(life.seen());
            }
            match end {
                ProgramEnd::Closed => life.log.close().map_err(reported)?,
                ProgramEnd::Killed => disk.kill(),
                ProgramEnd::Cut(how) => disk.power_cut(*how),
                ProgramEnd::CutAt(_, how) if disk.is_on() => disk.power_cut(*how),
                ProgramEnd::CutAt(..) => {}
            }
        }
        Err(error) if disk.is_on() => return Err(format!("opening: {error:?}")),
        Err(_) => {}
    }
    disk.cancel_cut();
    disk.power_on();
    let seen = |keep_metadata: bool| {
        let fork = disk.fork(value);
        if !keep_metadata && with_metadata(&fork) {
            let dir = fork.process().open_dir(Path::new(DIR)).map_err(|e| format!("{e:?}"))?;
            dir.unlink("note").map_err(|e| format!("{e:?}"))?;
        }
        let life =
            TestLog::open(&fork, value).map_err(|e| format!("note {keep_metadata}: {e:?}"))?;
        Ok::<_, String>(life.seen())
    };
    let (noted, replayed) = (seen(true)?, seen(false)?);
    if noted != replayed {
        return Err(format!("with the note:\n{noted:?}\nwithout it:\n{replayed:?}"));
    }
    match must {
        Some(must) if must != noted => {
            Err(format!("before the end:\n{must:?}\nafter it:\n{noted:?}"))
        }
        _ => Ok(()),
    }
}

#[test]
fn a_checkpoint_taken_beside_callers_says_what_all_records_say() {
    let soak = std::env::var("ESKER_SOAK").ok().and_then(|text| text.parse().ok());
    let config = Config {
        cases: soak.unwrap_or(400),
        failure_persistence: None,
        max_shrink_iters: 5000,
        ..Config::default()
    };
    let lives = vec((vec(step(), 0..60), end()), 1..4);
    let ran = TestRunner::new(config).run(&(lives, 0..1u64 << 32), |(lives, seed)| {
        let disk = SimDisk::new(seed);
        for (n, (steps, end)) in lives.iter().enumerate() {
            live(&disk, steps, end, (n as u64) << 32)
                .map_err(|what| TestCaseError::fail(format!("life {n}: {what}")))?;
        }
        Ok(())
    });
    if let Err(error) = ran {
        panic!("{error}");
    }
}

/// A log on a new disk.
fn new_life() -> (SimDisk, TestLog) {
    let disk = SimDisk::new(1);
    let life = TestLog::open(&disk, 0).unwrap();
    (disk, life)
}

fn kill(disk: &SimDisk, life: TestLog) -> TestLog {
    life.log.inner.log.barrier().unwrap().blocking_wait().unwrap();
    disk.kill();
    drop(life);
    disk.power_on();
    TestLog::open(disk, 0).unwrap()
}

/// Guards against a root that names a page too far above its own floor to be opened.
#[test]
fn a_page_that_only_a_later_floor_reaches_is_left_out() {
    let (disk, mut life) = new_life();
    let far = 1 << 40;
    life.log
        .accept(Slot(0), Ballot { number: 1, node: 1 }, b"near")
        .unwrap()
        .blocking_wait()
        .unwrap();
    life.step(&Step::Begin).unwrap();
    life.log
        .snapshots()
        .install(SnapshotBounds { floor: Slot(far), frontier: Slot(far) })
        .unwrap()
        .blocking_wait()
        .unwrap();
    life.log
        .accept(Slot(far + 5), Ballot { number: 1, node: 1 }, b"far")
        .unwrap()
        .blocking_wait()
        .unwrap();
    life.step(&Step::End).unwrap();
    let seen = life.seen();
    assert_eq!((seen.slots.len(), seen.bounds.0), (1, Some(Slot(far))));
    assert_eq!(kill(&disk, life).seen(), seen);
}

/// Guards against a replay that overwrites what a copied page includes: it would store the page
/// again.
#[test]
fn what_a_copied_page_has_is_not_replayed() {
    let (disk, mut life) = new_life();
    let (low, high) = (Ballot { number: 1, node: 1 }, Ballot { number: 2, node: 1 });
    (0..2).for_each(|slot| drop(life.log.accept(Slot(slot), low, b"before").unwrap()));
    life.step(&Step::Begin).unwrap();
    life.log.accept(Slot(1), high, b"replaces it").unwrap().blocking_wait().unwrap();
    life.log.accept(Slot(2), high, b"goes again").unwrap().blocking_wait().unwrap();
    life.log.truncate_from(Slot(2)).unwrap().blocking_wait().unwrap();
    life.log.accept(Slot(2), high, b"and comes back").unwrap().blocking_wait().unwrap();
    life.log.commit(Slot(0), low).unwrap().blocking_wait().unwrap();
    life.step(&Step::End).unwrap();
    let (seen, life) = (life.seen(), kill(&disk, life));
    assert_eq!(life.seen(), seen);
    let before = life.log.inner.log.accepted().0;
    life.log.maintenance().checkpoint().unwrap();
    assert_eq!(life.log.inner.log.accepted().0, before + 1, "the root alone");
}

/// The record with the promise is missing: the log may have promised even more.
#[test]
fn an_entry_above_the_promise_of_the_root_is_refused() {
    let (disk, mut life) = new_life();
    let ballot = Ballot { number: 2, node: 1 };
    life.log.accept(Slot(0), ballot, b"value").unwrap().blocking_wait().unwrap();
    life.step(&Step::Begin).unwrap();
    life.checkpoint.as_mut().unwrap().root.promise = None;
    life.step(&Step::End).unwrap();
    disk.kill();
    drop(life);
    disk.power_on();
    let refused = TestLog::open(&disk, 0).err();
    assert!(
        matches!(refused, Some(OpenError::Storage(StorageError::CorruptedRecord { .. }))),
        "{refused:?}"
    );
}

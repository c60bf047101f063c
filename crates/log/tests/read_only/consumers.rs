//! Named offsets of consumers: through power cuts, by several handles and threads, and at their
//! limits.
//!
//! Guards: an offset that is lost or goes back after its call returned; an update that another one
//! overwrites unseen; a file of another log that is taken for this one's; offsets after the end of
//! a copy, whose next records a consumer would skip.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use esker_disk::Op;
use esker_disk::sim::{CutPoint, Effect, Fault, Gate, Persist, SimDisk};
use esker_log::{ConsumerError, Consumers, Engine, Log, ReadOnlyLog, Seq};

use crate::fixture::{DIR, LONG, append, driven};

const COPY: &str = "/copy";

fn open(disk: &SimDisk, dir: &str) -> Log {
    Log::builder(dir).options(driven(disk).0).open().unwrap()
}

fn reader(disk: &SimDisk, dir: &str) -> ReadOnlyLog {
    let builder = ReadOnlyLog::builder(dir).disk(Arc::new(disk.clone()));
    builder.engine(Engine::manual()).open().unwrap()
}

fn listed(consumers: &Consumers) -> Vec<(String, u64)> {
    consumers.list().unwrap().into_iter().map(|(name, offset)| (name, offset.0)).collect()
}

fn pairs(all: &[(&str, u64)]) -> Vec<(String, u64)> {
    all.iter().map(|(name, offset)| ((*name).to_owned(), *offset)).collect()
}

#[test]
fn offsets_are_set_compared_listed_and_removed_from_any_handle() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 3);
    let (ours, theirs) = (log.consumers(), reader(&disk, DIR).consumers());
    assert_eq!((ours.get("a").unwrap(), theirs.list().unwrap()), (None, vec![]));
    assert_eq!(theirs.remove("a").unwrap(), None);
    assert_eq!(theirs.set("b", Seq(2)).unwrap(), None);
    assert_eq!(ours.set("b", Seq(1)).unwrap(), Some(Seq(2)));
    ours.compare_and_set("a", None, Seq(7)).unwrap();
    theirs.compare_and_set("a", Some(Seq(7)), Seq(8)).unwrap();
    for expected in [None, Some(Seq(7))] {
        let refused = ours.compare_and_set("a", expected, Seq(9)).unwrap_err();
        assert!(
            matches!(refused, ConsumerError::OffsetChanged { found: Some(Seq(8)), .. }),
            "{refused}"
        );
    }
    let refused = ours.compare_and_set("c", Some(Seq(1)), Seq(9)).unwrap_err();
    assert!(matches!(refused, ConsumerError::OffsetChanged { found: None, .. }), "{refused}");
    assert_eq!(listed(&theirs), pairs(&[("a", 8), ("b", 1)]));
    assert_eq!(ours.remove("a").unwrap(), Some(Seq(8)));
    log.close().unwrap();
    assert_eq!(listed(&ours), pairs(&[("b", 1)]));
    assert_eq!(listed(&open(&disk, DIR).consumers()), pairs(&[("b", 1)]));
}

#[test]
fn names_have_limits() {
    let disk = SimDisk::new(1);
    let consumers = open(&disk, DIR).consumers();
    for name in [String::new(), "n".repeat(256)] {
        let refused = consumers.set(&name, Seq(1)).unwrap_err();
        assert!(matches!(refused, ConsumerError::InvalidConsumer { limit: 255, .. }), "{refused}");
        assert_eq!(consumers.get(&name).unwrap(), None);
    }
    for n in 0..1024u64 {
        consumers.set(&format!("{n:0>255}"), Seq(n)).unwrap();
    }
    let refused = consumers.set("one more", Seq(1)).unwrap_err();
    assert!(matches!(refused, ConsumerError::TooManyConsumers { limit: 1024 }), "{refused}");
    consumers.set(&format!("{:0>255}", 1), Seq(5)).unwrap();
    consumers.remove(&format!("{:0>255}", 0)).unwrap();
    consumers.set("one more", Seq(1)).unwrap();
    assert_eq!(consumers.list().unwrap().len(), 1024);
}

/// Power is lost, or the process killed, at each step of a change, and power in each step of the
/// next one.
#[test]
fn a_change_that_returned_is_durable_through_two_crashes() {
    let sealed = SimDisk::new(1);
    append(&open(&sealed, DIR), 3);
    let mut tried = 0;
    for begun in [false, true] {
        let origin = sealed.fork(u64::from(begun));
        if begun {
            let consumers = reader(&origin, DIR).consumers();
            consumers.set("other", Seq(3)).unwrap();
            consumers.set("one", Seq(4)).unwrap();
        }
        let before = reader(&origin, DIR).consumers().get("one").unwrap();
        for (persist, killed) in
            [(Persist::Nothing, false), (Persist::Random, false), (Persist::Torn, true)]
        {
            for at in 0.. {
                let disk = origin.fork(at);
                let (first, returned) = cut_at(&disk, at, persist, killed, Seq(5));
                assert!(first == before || first == Some(Seq(5)), "{first:?}");
                assert!(!returned || first == Some(Seq(5)), "a change that returned is lost");
                for next in 0.. {
                    let disk = disk.fork(next);
                    let (second, whole) = cut_at(&disk, next, persist, false, Seq(6));
                    let outcomes = [before, Some(Seq(5)), Some(Seq(6))];
                    assert!(outcomes.contains(&second), "{second:?}");
                    // What was read after a power cut is durable; after a kill, what returned is.
                    let durable = first == Some(Seq(5)) && (!killed || returned);
                    assert!(!durable || second >= first, "{first:?}, {second:?}");
                    assert!(!whole || second == Some(Seq(6)), "a change that returned is lost");
                    let other = reader(&disk, DIR).consumers().get("other").unwrap();
                    assert_eq!(other, begun.then_some(Seq(3)));
                    tried += 1;
                    if whole {
                        break;
                    }
                }
                if returned {
                    break;
                }
            }
        }
    }
    assert!(tried > 300, "{tried}");
}

/// Sets an offset on a disk that dies at an operation. Returns what is there afterwards, and
/// whether the change returned.
fn cut_at(
    disk: &SimDisk,
    at: u64,
    persist: Persist,
    killed: bool,
    offset: Seq,
) -> (Option<Seq>, bool) {
    let whole =
        dies_at(disk, at, persist, killed, |consumers| consumers.set("one", offset).is_ok());
    (reader(disk, DIR).consumers().get("one").unwrap(), whole)
}

/// Makes a change on a disk that dies at an operation. Returns whether the change returned.
fn dies_at(
    disk: &SimDisk,
    at: u64,
    persist: Persist,
    killed: bool,
    change: impl FnOnce(&Consumers) -> bool,
) -> bool {
    let consumers = reader(disk, DIR).consumers();
    let point = CutPoint::During(disk.operations() + at);
    match killed {
        true => disk.kill_at(point),
        false => disk.cut_power_at(point, persist),
    }
    let whole = change(&consumers);
    disk.cancel_cut();
    if whole {
        // Right after it returned.
        disk.power_cut(Persist::Nothing);
    }
    disk.power_on();
    whole
}

/// One bad name among many, or one name too many: no offset changes, and nothing is written.
#[test]
fn set_all_sets_all_offsets_or_none() {
    let disk = SimDisk::new(1);
    let consumers = open(&disk, DIR).consumers();
    let many = |n: u64| (0..n).map(|n| (format!("c{n:04}"), Seq(n)));
    consumers.set_all([("a", Seq(1)), ("b", Seq(2)), ("a", Seq(3))]).unwrap();
    assert_eq!(listed(&consumers), pairs(&[("a", 3), ("b", 2)]));
    let begin = disk.stats();
    for bad in [String::new(), "n".repeat(256)] {
        let all = many(500).chain([(bad, Seq(1))]).chain([("z".into(), Seq(1))]);
        let refused = consumers.set_all(all).unwrap_err();
        assert!(matches!(refused, ConsumerError::InvalidConsumer { limit: 255, .. }), "{refused}");
    }
    for all in [1023, 1025, 5000] {
        let mut taken = 0;
        let refused = consumers.set_all(many(all).inspect(|_| taken += 1)).unwrap_err();
        assert!(matches!(refused, ConsumerError::TooManyConsumers { limit: 1024 }), "{refused}");
        // Memory is bounded, whatever an iterator returns.
        assert!(taken <= 1025, "{taken}");
    }
    consumers.set_all(many(0)).unwrap();
    assert_eq!(disk.stats().writes, begin.writes);
    assert_eq!(listed(&consumers), pairs(&[("a", 3), ("b", 2)]));

    consumers.set_all(many(1022)).unwrap();
    assert_eq!(consumers.list().unwrap().len(), 1024);
    // All names are taken. Those that are there can be set, and no other.
    let refused = consumers.set_all([("a", Seq(9)), ("new", Seq(9))]).unwrap_err();
    assert!(matches!(refused, ConsumerError::TooManyConsumers { limit: 1024 }), "{refused}");
    consumers
        .set_all(consumers.list().unwrap().into_iter().map(|(name, _)| (name, Seq(7))))
        .unwrap();
    let found = consumers.list().unwrap();
    assert!(found.len() == 1024 && found.iter().all(|(_, offset)| *offset == Seq(7)));
}

/// As many syncs for a thousand offsets as for one.
#[test]
fn set_all_is_one_replacement() {
    let disk = SimDisk::new(1);
    let consumers = open(&disk, DIR).consumers();
    let names: Vec<String> = (0..1000).map(|n| format!("consumer {n}")).collect();
    let set = |offset| consumers.set_all(names.iter().map(|name| (name, Seq(offset)))).unwrap();
    let syncs = || disk.stats().syncs + disk.stats().dir_syncs;
    set(1);
    set(2);
    let begin = syncs();
    set(3);
    assert_eq!(syncs() - begin, 3);
    consumers.set("consumer 7", Seq(4)).unwrap();
    assert_eq!(syncs() - begin, 6);
    let expected = |name: &str| if name == "consumer 7" { 4 } else { 3 };
    assert!(listed(&consumers).iter().all(|(name, offset)| *offset == expected(name)));
}

/// Power is lost, or the process killed, at each step of a change of many offsets, and power in
/// each step of the next one. The first has to grow the file.
#[test]
fn all_offsets_of_a_change_or_none_through_two_crashes() {
    let many = |offset: u64| -> Vec<(String, u64)> {
        (0..300).map(|n| (format!("consumer {n:03}"), offset + n % 2)).collect()
    };
    let (none, five, six) = (pairs(&[("other", 3)]), many(5), many(6));
    let expected = |all: &[(String, u64)]| [all, &none].concat();
    let origin = SimDisk::new(1);
    append(&open(&origin, DIR), 3);
    let consumers = reader(&origin, DIR).consumers();
    consumers.set("other", Seq(2)).unwrap();
    consumers.set("other", Seq(3)).unwrap();
    let mut tried = 0;
    for (persist, killed) in
        [(Persist::Nothing, false), (Persist::Random, false), (Persist::Torn, true)]
    {
        for at in 0.. {
            let disk = origin.fork(at);
            let (first, returned) = set_all_cut_at(&disk, at, persist, killed, &five);
            assert!(first == expected(&five) || (!returned && first == none), "{at}: {first:?}");
            for next in 0.. {
                let disk = disk.fork(next);
                let (second, whole) = set_all_cut_at(&disk, next, persist, false, &six);
                let outcomes = [none.clone(), expected(&five), expected(&six)];
                assert!(outcomes.contains(&second), "{at}, {next}: {second:?}");
                // What was read after a power cut is durable; after a kill, what returned is.
                let durable = first != none && (!killed || returned);
                assert!(!durable || second != none, "{at}, {next}: a change is lost");
                assert!(!whole || second == outcomes[2], "a change that returned is lost");
                tried += 1;
                if whole {
                    break;
                }
            }
            if returned {
                break;
            }
        }
    }
    assert!(tried > 150, "{tried}");
}

/// Sets offsets on a disk that dies at an operation. Returns what is there afterwards, and whether
/// the change returned.
fn set_all_cut_at(
    disk: &SimDisk,
    at: u64,
    persist: Persist,
    killed: bool,
    all: &[(String, u64)],
) -> (Vec<(String, u64)>, bool) {
    let whole = dies_at(disk, at, persist, killed, |consumers| {
        consumers.set_all(all.iter().map(|(name, offset)| (name, Seq(*offset)))).is_ok()
    });
    (listed(&reader(disk, DIR).consumers()), whole)
}

/// On a real disk, with locks between handles as between processes.
#[test]
fn no_update_is_lost_between_threads_and_handles() {
    const THREADS: usize = 4;
    const EACH: u64 = 12;
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("log");
    let log = Log::open(&dir).unwrap();
    let handles = [
        log.consumers(),
        ReadOnlyLog::open(&dir).unwrap().consumers(),
        ReadOnlyLog::open(&dir).unwrap().consumers(),
    ];
    std::thread::scope(|scope| {
        for consumers in &handles {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    for nth in 1..=EACH {
                        loop {
                            let found = consumers.get("shared").unwrap();
                            let next = Seq(found.unwrap_or_default().0 + 1);
                            match consumers.compare_and_set("shared", found, next) {
                                Ok(()) => break,
                                Err(ConsumerError::OffsetChanged { .. }) => {}
                                Err(error) => panic!("{error}"),
                            }
                        }
                        consumers.set(&format!("own {thread}"), Seq(nth)).unwrap();
                    }
                });
            }
        }
    });
    let total = (handles.len() * THREADS) as u64 * EACH;
    assert_eq!(log.consumers().get("shared").unwrap(), Some(Seq(total)));
    assert_eq!(log.consumers().get("own 3").unwrap(), Some(Seq(EACH)));
}

/// While one change is being made, a hundred others come. They share one replacement.
#[test]
fn changes_that_wait_share_one_replacement() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    let consumers = log.consumers();
    consumers.set("first", Seq(1)).unwrap();
    let begin = disk.stats().syncs;
    consumers.set("first", Seq(2)).unwrap();
    let one = disk.stats().syncs - begin;
    let gate = Gate::new();
    disk.inject(Fault::on(Op::Sync, Effect::Block(gate.clone())).path("offsets").times(1));
    let started = AtomicUsize::new(0);
    let begin = disk.stats().syncs;
    std::thread::scope(|scope| {
        scope.spawn(|| consumers.set("first", Seq(3)).unwrap());
        let waits = gate.wait_for(1, LONG);
        for n in 0..100u64 {
            let (consumers, started) = (&consumers, &started);
            scope.spawn(move || {
                started.fetch_add(1, SeqCst);
                consumers.set(&format!("{n}"), Seq(n)).unwrap();
            });
        }
        let begin = Instant::now();
        while started.load(SeqCst) < 100 && begin.elapsed() < LONG {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        gate.open();
        assert!(waits, "the first change does not wait");
    });
    assert_eq!(consumers.list().unwrap().len(), 101);
    // Threads that the machine did not let run in time come after the second replacement.
    let more = disk.stats().syncs - begin;
    assert!(more <= 20 * one, "{more} syncs for 101 changes, and {one} for one");
}

/// Changes that share a replacement keep their own outcomes: one that is refused changes nothing,
/// and the others are made.
#[test]
fn a_refused_change_leaves_those_that_share_its_replacement() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    let consumers = log.consumers();
    consumers.set_all((0..1020u64).map(|n| (format!("{n}"), Seq(n)))).unwrap();
    let gate = Gate::new();
    disk.inject(Fault::on(Op::Sync, Effect::Block(gate.clone())).path("offsets").times(1));
    std::thread::scope(|scope| {
        scope.spawn(|| consumers.set("0", Seq(3)).unwrap());
        let waits = gate.wait_for(1, LONG);
        let refused = scope.spawn(|| {
            let names = ["x1", "x2", "x3", "x4", "x5"];
            consumers.set_all(names.map(|name| (name, Seq(1)))).unwrap_err()
        });
        let made = scope.spawn(|| consumers.set_all([("1", Seq(8)), ("y", Seq(8))]));
        let other = scope.spawn(|| consumers.compare_and_set("2", Some(Seq(9)), Seq(1)));
        std::thread::sleep(Duration::from_millis(20));
        gate.open();
        assert!(waits, "the first change does not wait");
        let refused = refused.join().unwrap();
        assert!(matches!(refused, ConsumerError::TooManyConsumers { limit: 1024 }), "{refused}");
        made.join().unwrap().unwrap();
        let refused = other.join().unwrap().unwrap_err();
        assert!(
            matches!(refused, ConsumerError::OffsetChanged { found: Some(Seq(2)), .. }),
            "{refused}"
        );
    });
    let found = listed(&consumers);
    assert!(found.len() == 1021 && found.iter().all(|(name, _)| !name.starts_with('x')));
    for (name, offset) in [("0", 3), ("1", 8), ("2", 2), ("y", 8)] {
        assert_eq!(consumers.get(name).unwrap(), Some(Seq(offset)), "{name}");
    }
}

#[test]
fn a_copy_has_no_offset_after_its_end() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 10);
    let consumers = log.consumers();
    log.storage().backup(COPY).unwrap();
    assert!(!disk.files(Path::new(COPY)).unwrap().contains(&"consumers".to_owned()));
    for (name, offset) in [("slow", 4), ("fast", 10), ("ahead", 99)] {
        consumers.set(name, Seq(offset)).unwrap();
    }
    log.storage().backup(COPY).unwrap();
    let copied = || listed(&reader(&disk, COPY).consumers());
    assert_eq!(copied(), pairs(&[("ahead", 10), ("fast", 10), ("slow", 4)]));
    consumers.remove("ahead").unwrap();
    consumers.set("slow", Seq(3)).unwrap();
    log.storage().backup(COPY).unwrap();
    assert_eq!(copied(), pairs(&[("fast", 10), ("slow", 3)]));
}

#[test]
fn another_file_in_its_place_is_an_error() {
    let disk = SimDisk::new(1);
    let (log, other) = (open(&disk, DIR), open(&disk, "/other"));
    log.consumers().set("a", Seq(1)).unwrap();
    other.consumers().set("a", Seq(2)).unwrap();
    let path = Path::new(DIR).join("consumers/offsets");
    let ours = disk.contents(&path).unwrap();
    disk.put(&path, &disk.contents(Path::new("/other/consumers/offsets")).unwrap()).unwrap();
    let found = log.consumers().set("a", Seq(3)).unwrap_err();
    assert!(matches!(&found, ConsumerError::ForeignFile { file } if *file == path), "{found}");
    disk.put(&path, &ours).unwrap();
    assert_eq!(log.consumers().get("a").unwrap(), Some(Seq(1)));
    disk.flip_bit(&path, 8 * 60).unwrap();
    for found in [log.consumers().list().map(drop), log.consumers().set("a", Seq(3)).map(drop)] {
        let found = found.unwrap_err();
        assert!(matches!(&found, ConsumerError::Corrupted(at) if at.file == path), "{found}");
    }
    assert_eq!(disk.contents(&path).unwrap().len(), ours.len());
}

#[test]
fn a_full_disk_leaves_the_offset_before() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 1);
    log.consumers().set("a", Seq(1)).unwrap();
    disk.set_capacity(Some(disk.used()));
    // Its two files have their blocks.
    log.consumers().set("a", Seq(2)).unwrap();
    let many: String = "n".repeat(250);
    let refused = (0..40u64).find_map(|n| log.consumers().set(&format!("{many}{n}"), Seq(n)).err());
    let refused = refused.unwrap();
    assert!(refused.is_no_space(), "{refused}");
    assert_eq!(log.consumers().get("a").unwrap(), Some(Seq(2)));
    log.consumers().set("a", Seq(3)).unwrap();
    assert_eq!(log.consumers().get("a").unwrap(), Some(Seq(3)));
}

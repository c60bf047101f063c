//! A backup of a log: it is read as the original is, and takes nothing under its number.
//!
//! Guards: a restored copy that votes against what the original promised after it was made.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use esker_consensus::{
    BackupError, ConsensusLog, Error, IterateOptions, Mode, OpenError, Options, PromiseError,
    ReadOnlyReason, Slot, SnapshotBounds, StorageError, backup_log, inspect_on,
};
use esker_disk::Disk;
use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_log::{Engine, repair};

use crate::fixture::{DIR, HIGH, HIGHER, LOW, driven, log_with, value};

const COPY: &str = "/copy";

fn own(disk: &SimDisk) -> (Options, Engine) {
    let (mut options, engine) = driven(disk, Mode::Durable);
    options.label = b"users".to_vec();
    (options, engine)
}

/// A log with a floor under a snapshot, committed and accepted slots and a state, and its copy.
fn copied(disk: &SimDisk) {
    let s = crate::fixture::open_on(disk, Mode::Durable, |options| {
        options.label = b"users".to_vec();
    });
    (0..40).for_each(|slot| s.accept(slot, LOW, &value(slot)));
    (0..30).for_each(|slot| s.commit(slot, LOW));
    s.log.snapshots().create(Slot(9), &b"the state"[..]).unwrap();
    s.log.snapshots().truncate_through(Slot(9)).unwrap();
    s.log.app_state().set(b"term 3").unwrap().blocking_wait().unwrap();
    s.log.promise(HIGH, Slot(40)).unwrap().blocking_wait().unwrap();
    s.log.close().unwrap();
    let (options, engine) = own(disk);
    backup_log(DIR, COPY, &options).unwrap();
    engine.stop();
}

type ReadState = (Vec<(u64, bool, Vec<u8>)>, String);

/// Everything that readers get.
fn seen(log: &ConsensusLog) -> ReadState {
    let mut slots = Vec::new();
    let mut add = |entry: &esker_consensus::Entry<'_>| {
        slots.push((entry.slot().0, entry.is_committed(), entry.value().to_vec()));
        ControlFlow::Continue(())
    };
    log.iterate(.., IterateOptions::default(), &mut add).unwrap();
    let guard = log.pin();
    log.maintenance().scan_uncommitted(&guard).unwrap().iter().for_each(|entry| {
        let _ = add(entry);
    });
    let rest = format!(
        "{:?}",
        (
            log.promised(),
            log.floor(),
            log.frontier(),
            log.last_slot(),
            log.app_state().get(),
            &log.options().label,
            log.snapshots().list().unwrap(),
        )
    );
    (slots, rest)
}

fn is_read_only(log: &ConsensusLog) {
    assert_eq!(log.stats().read_only, Some(ReadOnlyReason::Copied));
    let refused = [
        log.promise(HIGHER, Slot(0)).err().map(Error::from),
        log.accept(Slot(40), HIGHER, b"x").err().map(Error::from),
        log.accept_batch(HIGHER, &[(Slot(40), &b"x"[..])]).err().map(Error::from),
        log.commit(Slot(35), LOW).err().map(Error::from),
        log.commit_through(Slot(35)).err().map(Error::from),
        log.learn(Slot(40), HIGHER, b"x").err().map(Error::from),
        log.app_state().set(b"term 4").err().map(Error::from),
        log.snapshots().truncate_through(Slot(12)).err().map(Error::from),
        log.truncate_before(Slot(12)).err().map(Error::from),
        log.truncate_from(Slot(31).next()).err().map(Error::from),
        log.snapshots()
            .install(SnapshotBounds { floor: Slot(50), frontier: Slot(50) })
            .err()
            .map(Error::from),
        log.snapshots().create(Slot(20), &b"x"[..]).err().map(Error::from),
        log.snapshots().keep(1).err().map(Error::from),
        log.maintenance().checkpoint().err().map(Error::from),
        log.maintenance().reclaim().err().map(Error::from),
    ];
    for (number, error) in refused.iter().enumerate() {
        let Some(Error::Storage(StorageError::ReadOnly { reason: ReadOnlyReason::Copied })) = error
        else {
            panic!("{number}: {error:?}");
        };
    }
}

#[test]
fn a_copy_is_read_and_takes_nothing() {
    let disk = SimDisk::new(1);
    copied(&disk);
    let (options, engine) = own(&disk);
    let open = |dir| ConsensusLog::builder(dir).options(options.clone()).open().unwrap();
    let original = open(DIR);
    let expected = seen(&original);
    assert_eq!(expected.0.len(), 30);
    for _ in 0..2 {
        let copy = open(COPY);
        is_read_only(&copy);
        assert_eq!(seen(&copy), expected);
        copy.close().unwrap();
    }
    let found = inspect_on(Arc::new(disk.process()), COPY).unwrap();
    assert_eq!(found.read_only, Some(ReadOnlyReason::Copied));
    assert_eq!(inspect_on(Arc::new(disk.process()), DIR).unwrap().read_only, None);
    // A copy of the copy is one, too.
    original.close().unwrap();
    backup_log(COPY, "/again", &options).unwrap();
    let again = open("/again");
    is_read_only(&again);
    assert_eq!(seen(&again), expected);
    engine.stop();
}

/// Opening it for writing began a session, and needed permission to write.
#[test]
fn a_closed_log_is_copied_without_a_change() {
    let disk = SimDisk::new(1);
    copied(&disk);
    let files = || {
        let names = disk.files(Path::new(DIR)).unwrap();
        let content = |name: &String| disk.contents(&Path::new(DIR).join(name)).unwrap();
        names.iter().map(|name| (name.clone(), content(name))).collect::<Vec<_>>()
    };
    let before = files();
    let (options, engine) = own(&disk);
    assert_eq!(backup_log(DIR, "/second", &options).unwrap().snapshots, 1);
    assert!(files() == before);
    engine.stop();
}

/// It says what to do, for each reason.
#[test]
fn the_error_names_the_reason_and_the_remedy() {
    let says = |reason| StorageError::ReadOnly { reason }.to_string();
    let copied = says(ReadOnlyReason::Copied);
    assert!(copied.contains("copy") && copied.contains("another node ID"), "{copied}");
    assert!(copied.contains("`renumber`"), "{copied}");
    let repaired = says(ReadOnlyReason::Repaired);
    assert!(repaired.contains("quarantined") && repaired.contains("as a new member"), "{repaired}");
}

/// It keeps what it has, is written to, and needs to be renumbered once.
#[test]
fn a_renumbered_copy_is_an_ordinary_log() {
    let disk = SimDisk::new(1);
    copied(&disk);
    let (options, engine) = own(&disk);
    let builder = |dir| ConsensusLog::builder(dir).options(options.clone());
    let original = builder(DIR).open().unwrap();
    let expected = seen(&original);
    // Another label is refused, and changes nothing.
    let refused = builder(COPY).label(b"orders".to_vec()).renumber().open();
    assert!(matches!(refused, Err(OpenError::WrongLabel { .. })), "{refused:?}");
    is_read_only(&builder(COPY).open().unwrap());
    let copy = builder(COPY).renumber().open().unwrap();
    assert_eq!((seen(&copy), copy.stats().read_only), (expected, None));
    copy.commit(Slot(30), LOW).unwrap().blocking_wait().unwrap();
    copy.maintenance().checkpoint().unwrap();
    copy.close().unwrap();
    let copy = builder(COPY).open().unwrap();
    assert_eq!(copy.options().label, b"users");
    copy.accept(Slot(40), HIGHER, b"a new one").unwrap().blocking_wait().unwrap();
    disk.kill();
    drop(copy);
    disk.power_on();
    engine.stop();
    let (options, engine) = own(&disk);
    let builder = |dir| ConsensusLog::builder(dir).options(options.clone());
    let copy = builder(COPY).open().unwrap();
    assert_eq!(copy.read(Slot(40), &copy.pin()).unwrap().value(), b"a new one");
    assert!(copy.read(Slot(30), &copy.pin()).unwrap().is_committed());
    assert_eq!(copy.promised(), Some(HIGHER));
    // An ordinary log stays as it is.
    assert_eq!(builder("/new").renumber().open().unwrap().stats().read_only, None);
    engine.stop();
}

/// A quarantined record may have been a promise, under any number.
#[test]
fn a_repaired_copy_stays_read_only() {
    let disk = SimDisk::new(1);
    copied(&disk);
    let names = disk.files(Path::new(COPY)).unwrap();
    let segment = names.into_iter().find(|name| name.ends_with(".seg")).unwrap();
    disk.flip_bit(&Path::new(COPY).join(segment), (4096 + 100) * 8).unwrap();
    let (options, engine) = own(&disk);
    let mut plain = esker_log::Options::on(Arc::new(disk.process()));
    plain.segment_size = 64 << 10;
    plain.engine = Some(engine.clone());
    repair(COPY, &plain).unwrap();
    for _ in 0..2 {
        let copy = ConsensusLog::builder(COPY).options(options.clone()).renumber().open().unwrap();
        assert_eq!(copy.stats().read_only, Some(ReadOnlyReason::Repaired));
        let refused = copy.promise(HIGHER, Slot(0));
        assert!(matches!(
            refused,
            Err(PromiseError::Storage(StorageError::ReadOnly { reason: ReadOnlyReason::Repaired }))
        ));
        copy.close().unwrap();
    }
    let found = inspect_on(Arc::new(disk.process()), COPY).unwrap();
    assert_eq!(found.read_only, Some(ReadOnlyReason::Repaired));
    // It lacks votes, so it is not copied on, and nothing is created.
    let refused = backup_log(COPY, "/again", &options);
    let is_named = matches!(
        refused,
        Err(BackupError::Storage(StorageError::ReadOnly { reason: ReadOnlyReason::Repaired }))
    );
    assert!(is_named, "{refused:?}");
    assert!(disk.open_dir(Path::new("/again")).is_err());
    engine.stop();
}

/// A power cut at every call leaves a copy, or an ordinary log with all that it had.
#[test]
fn a_cut_while_it_is_renumbered_leaves_a_copy_or_an_ordinary_log() {
    let base = SimDisk::new(1);
    copied(&base);
    let (options, engine) = own(&base);
    let expected = seen(&ConsensusLog::builder(DIR).options(options).open().unwrap());
    engine.stop();
    let all = [Persist::Random, Persist::Nothing, Persist::Torn, Persist::Everything];
    let (mut read_only, mut writable) = (0, 0);
    for cut in 0.. {
        let disk = base.fork(cut);
        disk.cut_power_at(CutPoint::During(disk.operations() + cut), all[(cut % 4) as usize]);
        let (options, engine) = own(&disk);
        let opened = ConsensusLog::builder(COPY).options(options).renumber().open();
        let is_renumbered = opened.is_ok();
        let is_over = opened.is_ok_and(|log| log.close().is_ok()) && disk.is_on();
        engine.stop();
        disk.cancel_cut();
        disk.power_on();
        for renumber in [false, true] {
            let (mut options, engine) = own(&disk);
            // What it has stored counts.
            options.label.clear();
            let builder = ConsensusLog::builder(COPY).options(options);
            let log = if renumber { builder.renumber() } else { builder }.open().unwrap();
            assert_eq!(seen(&log), expected, "cut {cut}");
            match log.stats().read_only {
                Some(ReadOnlyReason::Copied) if !renumber && !is_renumbered => {
                    is_read_only(&log);
                    read_only += 1;
                }
                None => {
                    log.promise(HIGH, Slot(40)).unwrap().blocking_wait().unwrap();
                    writable += 1;
                }
                other => panic!("cut {cut}: {other:?} {renumber} {is_renumbered}"),
            }
            log.close().unwrap();
            engine.stop();
        }
        if is_over {
            break;
        }
    }
    assert!(read_only > 3 && writable > read_only, "{read_only} {writable}");
}

/// In volatile mode, too: what a copy has is in its records.
#[test]
fn a_copy_of_a_volatile_log_is_read_only() {
    let s = log_with(Mode::Volatile, |_| {});
    s.accept(0, LOW, b"only here");
    s.commit(0, LOW);
    s.log.close().unwrap();
    let options = s.log.options().clone();
    backup_log(DIR, COPY, &options).unwrap();
    let copy = ConsensusLog::builder(COPY).options(options).open().unwrap();
    assert_eq!(copy.stats().read_only, Some(ReadOnlyReason::Copied));
    assert_eq!(copy.read_committed(Slot(0), &copy.pin()).unwrap().value(), b"only here");
    copy.close().unwrap();
}

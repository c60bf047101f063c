//! Backups: of a log that is written meanwhile, again to the same place, and through power cuts.
//!
//! Guards: a copy that lacks a durable record, or has one that was dropped; a copy that is taken
//! for a whole one before it is; an earlier backup that is lost in a later one; bytes that are
//! copied unchecked; a log that is overwritten because it looks like a backup.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_disk::{Disk, Op};
use esker_log::{
    Backup, BackupError, Component, Engine, Error, Log, ReadOnlyLog, ReadOptions, Seq, Start,
};
use esker_testkit::{Call, HookedDisk};

use crate::fixture::{
    DIR, ReadRecord, all, append, append_many, driven, follows, payload, payloads, seen, small,
};

const COPY: &str = "/copy";

fn open(disk: &SimDisk, dir: &str) -> Log {
    Log::builder(dir).options(driven(disk).0).open().unwrap()
}

fn reader(disk: &SimDisk, dir: &str) -> Result<ReadOnlyLog, Error> {
    ReadOnlyLog::builder(dir)
        .disk(Arc::new(disk.clone()))
        .engine(Engine::manual())
        .open()
        .map_err(Into::into)
}

fn back_up(disk: &SimDisk) -> Result<Backup, Error> {
    reader(disk, DIR)?.storage().backup(COPY).map_err(Into::into)
}

/// The records that a reader gets of the log in a directory, and of the same log once it was opened
/// for writing, on a copy of the disk.
fn read(disk: &SimDisk, dir: &str) -> Vec<ReadRecord> {
    let reader = reader(disk, dir).unwrap();
    assert!(reader.storage().corruption().is_none(), "{:?}", reader.storage().corruption());
    let mut stream = reader.stream(Start::Oldest).unwrap();
    let records: Vec<_> =
        std::iter::from_fn(|| stream.try_next().unwrap()).flat_map(|batch| seen(&batch)).collect();
    let log = open(&disk.fork(1), dir);
    // Opening finds what a reader cannot know to be durable.
    let opened = all(&log);
    assert!(opened.starts_with(&records), "another log opens than can be read");
    assert!(!reader.storage().is_closed_cleanly() || opened == records);
    let next = log.accepted().0 + 1;
    log.append(payload(next)).unwrap().blocking_wait().unwrap();
    assert_eq!(log.durable(), Seq(next));
    opened
}

/// While it is written, again, and after segments were dropped.
#[test]
fn a_backup_is_the_log_at_a_durable_position() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    let first = log.storage().backup(COPY).unwrap();
    assert_eq!((first.durable, first.segments, first.copied), (Seq(0), 1, 1));
    assert!(read(&disk, COPY).is_empty());
    append(&log, 500);
    drop(log.append("not durable").unwrap());
    let backup = log.storage().backup(COPY).unwrap();
    assert_eq!(backup.durable, Seq(500));
    assert!(backup.segments > 4 && backup.copied == backup.segments, "{backup:?}");
    assert_eq!(read(&disk, COPY), payloads(1..=500));
    assert!(reader(&disk, COPY).unwrap().storage().is_closed_cleanly());
    // Of a log that did not change, the last segment.
    log.barrier().unwrap().blocking_wait().unwrap();
    let again = back_up(&disk).unwrap();
    assert_eq!((again.durable, again.copied), (Seq(501), 1));
    let more = log.storage().metadata().segments;
    for count in [1, 100, 40] {
        append(&log, count);
        let before = log.storage().metadata().segments;
        let backup = back_up(&disk).unwrap();
        assert!(backup.copied <= 2 + before - more.min(before), "{backup:?}");
        assert_eq!(backup.durable, log.durable());
        assert_eq!(read(&disk, COPY), all(&log));
    }
    log.retention().truncate_before(450).unwrap();
    let backup = log.storage().backup(COPY).unwrap();
    assert_eq!(read(&disk, COPY), all(&log));
    assert_eq!(all(&log)[0].0, 450);
    let files = disk.files(Path::new(COPY)).unwrap();
    assert_eq!(files.iter().filter(|name| name.ends_with(".seg")).count(), backup.segments);
}

/// Bug: what a later backup had copied when its disk was full stayed there until the next one.
#[test]
fn a_full_disk_leaves_the_earlier_backup_and_no_other_file() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 300);
    log.storage().backup(COPY).unwrap();
    let files = disk.files(Path::new(COPY)).unwrap();
    append(&log, 500);
    log.barrier().unwrap().blocking_wait().unwrap();
    // Room for one of the segments that are new.
    disk.set_capacity(Some(disk.used() + (100 << 10)));
    let refused = log.storage().backup(COPY).unwrap_err();
    assert!(refused.is_no_space(), "{refused}");
    assert_eq!(disk.files(Path::new(COPY)).unwrap(), files);
    disk.set_capacity(None);
    assert_eq!(read(&disk, COPY), payloads(1..=300));
    log.storage().backup(COPY).unwrap();
    assert_eq!(read(&disk, COPY), payloads(1..=800));
}

/// Bug: while snapshots were copied, a copy of which the log had dropped all records had a gap, and
/// nothing opened it: where a snapshot did not fit or was corrupt, the backup before was lost.
#[test]
fn a_snapshot_that_cannot_be_copied_leaves_the_earlier_backup() {
    for is_corrupt in [false, true] {
        let disk = SimDisk::new(1);
        let log = open(&disk, DIR);
        append(&log, 60);
        write_snapshot(&log, 60, b"state at 60");
        log.storage().backup(COPY).unwrap();
        let (files, earlier) = (disk.files(Path::new(COPY)).unwrap(), snapshots(&disk, COPY));
        append(&log, 300);
        log.retention().truncate_before(250).unwrap();
        write_snapshot(&log, 299, b"state at 299");
        write_snapshot(&log, 300, &[7; 3_000_000]);
        log.barrier().unwrap().blocking_wait().unwrap();
        let snapshot = Path::new(DIR).join("snapshot-00000000000000000300");
        let whole = disk.contents(&snapshot).unwrap();
        match is_corrupt {
            true => disk.overwrite(&snapshot, 2_000_000, b"x").unwrap(),
            false => disk.set_capacity(Some(disk.used() + (1 << 20))),
        }
        let refused = log.storage().backup(COPY).unwrap_err();
        assert!(refused.is_no_space() || matches!(refused, BackupError::Corrupted(_)), "{refused}");
        assert_eq!(disk.files(Path::new(COPY)).unwrap(), files);
        assert_eq!(read(&disk, COPY), payloads(1..=60));
        assert_eq!(snapshots(&disk, COPY), earlier);
        disk.set_capacity(None);
        disk.overwrite(&snapshot, 0, &whole).unwrap();
        log.storage().backup(COPY).unwrap();
        assert_eq!(read(&disk, COPY), payloads(250..=360));
        assert_eq!(snapshots(&disk, COPY), snapshots(&disk, DIR));
    }
}

/// Bug: a snapshot of the copy that was longer than it should be was taken for a new one.
#[test]
fn a_longer_snapshot_of_the_copy_is_cut() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 60);
    write_snapshot(&log, 60, &[7; 100_000]);
    log.storage().backup(COPY).unwrap();
    let snapshot = Path::new(COPY).join("snapshot-00000000000000000060");
    let whole = disk.contents(&snapshot).unwrap();
    disk.overwrite(&snapshot, whole.len() as u64, &[0; 4096]).unwrap();
    append(&log, 10);
    log.storage().backup(COPY).unwrap();
    assert_eq!(disk.contents(&snapshot).unwrap(), whole);
    assert_eq!(read(&disk, COPY), payloads(1..=70));
}

/// Bug: a slot of the watermark page of the backup before hid records that this one has: they were
/// truncated in the log of that one.
#[test]
fn a_backup_of_a_log_that_truncated_less_has_all_its_records() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 300);
    log.close().unwrap();
    reader(&disk, DIR).unwrap().storage().backup("/early").unwrap();
    for _ in 0..5 {
        open(&disk, DIR).close().unwrap();
    }
    let log = open(&disk, DIR);
    log.retention().truncate_before(250).unwrap();
    log.close().unwrap();
    back_up(&disk).unwrap();
    reader(&disk, "/early").unwrap().storage().restore("/restored").unwrap();
    open(&disk, "/restored").close().unwrap();
    reader(&disk, "/restored").unwrap().storage().backup(COPY).unwrap();
    assert_eq!(read(&disk, COPY), payloads(1..=300));
}

/// A recovery moves the last records to another segment, and cuts the one before.
#[test]
fn a_backup_follows_the_log_through_its_recoveries() {
    let disk = SimDisk::new(1);
    for round in 0..6 {
        let process = disk.process();
        let log = open(&process, DIR);
        append(&log, 3 + round * 40);
        drop(log.append(payload(log.accepted().0 + 1)).unwrap());
        log.storage().backup(COPY).unwrap();
        let durable = log.durable().0;
        assert_eq!(read(&disk, COPY), payloads(1..=durable));
        disk.kill();
        disk.power_on();
    }
}

/// Power is lost at each step of the first backup and of a later one, and again in the next.
#[test]
fn a_power_cut_leaves_the_backup_before_or_none() {
    let sealed = SimDisk::new(1);
    let log = open(&sealed, DIR);
    append(&log, 60);
    write_snapshot(&log, 50, b"state at 50");
    log.close().unwrap();
    let later = {
        let disk = sealed.fork(1);
        back_up(&disk).unwrap();
        let log = open(&disk, DIR);
        append(&log, 200);
        log.retention().truncate_before(30).unwrap();
        write_snapshot(&log, 200, b"state at 200");
        log.snapshots().remove(50).unwrap();
        log.close().unwrap();
        disk
    };
    // No record of the backup before is left.
    let much_later = {
        let disk = sealed.fork(1);
        back_up(&disk).unwrap();
        let log = open(&disk, DIR);
        append(&log, 300);
        log.retention().truncate_before(250).unwrap();
        write_snapshot(&log, 300, b"state at 300");
        log.close().unwrap();
        disk
    };
    for (origin, before, oldest, whole) in [
        (sealed, 0, 1, payloads(1..=60)),
        (later, 60, 30, payloads(30..=260)),
        (much_later, 60, 250, payloads(250..=360)),
    ] {
        let operations = {
            let disk = origin.fork(1);
            let begin = disk.operations();
            back_up(&disk).unwrap();
            disk.operations() - begin
        };
        assert!(operations > 20, "{operations}");
        for persist in [Persist::Nothing, Persist::Random, Persist::Everything] {
            for at in 0..operations {
                let disk = origin.fork(at);
                disk.cut_power_at(CutPoint::During(disk.operations() + at), persist);
                back_up(&disk.process()).unwrap_err();
                disk.power_on();
                match open_copy(&disk) {
                    // Nothing opens the first one before it is whole, nor one that has a gap.
                    Err(error) => {
                        assert!(!matches!(error, Error::Corrupted(_)), "at {at}: {error}");
                        assert!(before == 0 || oldest > before, "at {at}, {persist:?}");
                        assert!(before == 0 || 2 * at > operations, "at {at} of {operations}");
                    }
                    Ok(_) => {
                        let found = read(&disk, COPY);
                        let last = found.last().unwrap().0;
                        let first = found[0].0;
                        assert!(first <= oldest && before.max(1) <= last, "{first} to {last}");
                        assert!(before > 0 || found == whole, "at {at}: a part of the first one");
                        assert!(found == payloads(first..=last));
                        assert!(snapshots(&disk, COPY).iter().all(|(at, _)| *at <= last));
                    }
                }
                back_up(&disk).unwrap();
                let files = disk.files(Path::new(COPY)).unwrap();
                assert!(files.iter().all(|name| !name.ends_with(".new")), "{at}: {files:?}");
                assert!(read(&disk, COPY) == whole, "at {at}, {persist:?}");
                assert_eq!(snapshots(&disk, COPY), snapshots(&disk, DIR));
            }
        }
    }
}

fn open_copy(disk: &SimDisk) -> Result<Log, Error> {
    let fork = disk.fork(1);
    Log::builder(COPY).options(driven(&fork).0).must_exist(true).open().map_err(Into::into)
}

fn write_snapshot(log: &Log, at: u64, content: &[u8]) {
    let mut writer = log.snapshots().writer(at).unwrap();
    writer.write_all(content).unwrap();
    writer.publish(b"").unwrap();
}

fn snapshots(disk: &SimDisk, dir: &str) -> Vec<(u64, Vec<u8>)> {
    let log = reader(disk, dir).unwrap();
    let all = log.snapshots().list().unwrap().into_iter();
    all.map(|at| {
        let mut content = Vec::new();
        log.snapshots().reader(at).unwrap().unwrap().read_to_end(&mut content).unwrap();
        (at, content)
    })
    .collect()
}

/// A state of the application that is ahead of the copied records is not of that copy.
#[test]
fn snapshots_are_copied_up_to_the_last_record() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 20);
    write_snapshot(&log, 7, b"seven");
    write_snapshot(&log, 20, &[7; 5_000_000]);
    log.storage().backup(COPY).unwrap();
    assert_eq!(snapshots(&disk, COPY), [(7, b"seven".to_vec()), (20, vec![7; 5_000_000])]);
    write_snapshot(&log, 7, b"SEVEN");
    write_snapshot(&log, 21, b"not durable yet");
    log.snapshots().remove(20).unwrap();
    log.storage().backup(COPY).unwrap();
    assert_eq!(snapshots(&disk, COPY), [(7, b"SEVEN".to_vec())]);
}

/// Each of them keeps what it has.
#[test]
fn what_is_no_backup_of_this_log_is_refused() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 20);
    let refused = |disk: &SimDisk, what: &str| {
        let before = disk.files(Path::new(COPY)).unwrap();
        let error = reader(disk, DIR).unwrap().storage().backup(COPY).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
        assert_eq!(disk.files(Path::new(COPY)).unwrap(), before);
    };
    let other = disk.fork(1);
    open(&other, COPY).close().unwrap();
    refused(&other, "opened for writing");
    let other = disk.fork(1);
    open(&other, "/other").storage().backup(COPY).unwrap();
    refused(&other, "it is of the log");
    let other = disk.fork(1);
    other.create_dir(Path::new(COPY)).unwrap();
    log.storage().backup(COPY).unwrap();
    other.put(&PathBuf::from(COPY).join("notes.txt"), b"mine").unwrap();
    refused(&other, "other files");
    // The copy was opened for writing, and has a record that the log does not have.
    let copy = open(&disk, COPY);
    copy.append("its own").unwrap().blocking_wait().unwrap();
    assert!(matches!(log.storage().backup(COPY), Err(BackupError::Locked { .. })));
    copy.close().unwrap();
    refused(&disk, "opened for writing");
    log.close().unwrap();
    // The log was replaced by an older copy of itself.
    let old = disk.fork(1);
    let log = open(&disk, DIR);
    append(&log, 1);
    log.close().unwrap();
    reader(&disk, DIR).unwrap().storage().backup("/newer").unwrap();
    let error = {
        for name in disk.files(Path::new(DIR)).unwrap() {
            disk.remove(&Path::new(DIR).join(name)).unwrap();
        }
        for name in old.files(Path::new(DIR)).unwrap() {
            let path = Path::new(DIR).join(name);
            disk.put(&path, &old.contents(&path).unwrap()).unwrap();
        }
        reader(&disk, DIR).unwrap().storage().backup("/newer").unwrap_err()
    };
    assert!(error.to_string().contains("newer than the log"), "{error}");
    let mut options = driven(&disk).0;
    options.component = Some(Component(*b"ANOTHER1"));
    let component = Log::builder("/component").options(options).open().unwrap();
    assert!(matches!(
        component.storage().backup("/its copy"),
        Err(BackupError::WrongComponent { .. })
    ));
}

/// A copy of the log went on by itself: also with more records and sessions, it does not replace
/// what only the backup has.
#[test]
fn a_log_that_went_its_own_way_is_refused() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 20);
    log.storage().backup("/restored").unwrap();
    append(&log, 20);
    log.storage().backup(COPY).unwrap();
    let refused = |records: u64, what: &str| {
        for _ in 0..3 {
            open(&disk, "/restored").close().unwrap();
        }
        let restored = open(&disk, "/restored");
        while restored.accepted().0 < records {
            restored.append("its own").unwrap().blocking_wait().unwrap();
        }
        let before = disk.contents(&Path::new(COPY).join("manifest")).unwrap();
        for error in [
            restored.storage().backup(COPY).unwrap_err(),
            reader(&disk, "/restored").unwrap().storage().backup(COPY).unwrap_err(),
        ] {
            assert!(matches!(error, BackupError::NotThisBackup { .. }), "{error}");
            assert!(error.to_string().contains(what), "{error}");
        }
        assert_eq!(disk.contents(&Path::new(COPY).join("manifest")).unwrap(), before);
        assert_eq!(read(&disk, COPY), payloads(1..=40));
        restored.close().unwrap();
    };
    refused(30, "records after 20, where the log");
    refused(60, "records after 20, where the log");
    append(&log, 3);
    assert_eq!(log.storage().backup(COPY).unwrap().durable, Seq(43));
    assert_eq!(read(&disk, COPY), payloads(1..=43));
    let inside = log.storage().backup(Path::new(DIR).join("copy")).unwrap_err();
    assert!(inside.to_string().contains("inside of the log"), "{inside}");
    log.close().unwrap();
}

/// The log drops and reuses segments while each one is copied, so that the oldest is gone by then.
#[test]
fn a_backup_ends_however_fast_the_log_drops_segments() {
    let disk = SimDisk::new(1);
    let mut options = small(&disk);
    options.retention.segments = Some(6);
    let log = Log::builder(DIR).options(options.clone()).open().unwrap();
    let turn = |log: &Log| {
        let before = log.oldest();
        while log.oldest() == before {
            append_many(log, 20);
        }
    };
    (0..10).for_each(|_| turn(&log));
    let writer = log.clone();
    let hook = move |call: &Call<'_>| {
        let copies = call.path.starts_with(COPY) && call.path.to_string_lossy().contains(".seg");
        if copies && call.op == Op::Open && call.how.is_some_and(|how| how.create) {
            turn(&writer);
            turn(&writer);
        }
        Ok(())
    };
    let mut read_options = ReadOptions::on(Arc::new(HookedDisk::new(Arc::new(disk.clone()), hook)));
    read_options.engine = Some(Engine::manual());
    for round in 0..3 {
        let reader = ReadOnlyLog::builder(DIR).options(read_options.clone()).open().unwrap();
        let backup = reader.storage().backup(COPY).unwrap();
        assert!((1..=6).contains(&backup.segments), "round {round}: {backup:?}");
        let copy = read(&disk, COPY);
        assert_eq!(copy.last().unwrap().0, backup.durable.0);
        assert_eq!(copy, payloads(copy[0].0..=backup.durable.0), "round {round}");
    }
    log.close().unwrap();
}

/// Every byte is read back before a segment gets its name.
#[test]
fn corruption_is_reported_and_not_copied() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 200);
    log.close().unwrap();
    let flip = |dir: &str, segment: u64, bit: u64| {
        let path = Path::new(dir).join(format!("{segment:020}.seg"));
        disk.flip_bit(&path, bit).unwrap();
    };
    flip(DIR, 2, 9_000 * 8);
    let Err(Error::Corrupted(corruption)) = back_up(&disk) else { panic!("it is not reported") };
    assert!(corruption.file.ends_with("00000000000000000002.seg"), "{corruption:?}");
    assert!(
        !disk.files(Path::new(COPY)).unwrap().iter().any(|name| name == "00000000000000000002.seg")
    );
    flip(DIR, 2, 9_000 * 8);
    back_up(&disk).unwrap();
    assert_eq!(read(&disk, COPY), payloads(1..=200));
    // In the last segment, under an open log: no later header says where it ends.
    let log = open(&disk, DIR);
    append(&log, 3);
    let last = log.storage().metadata().segments as u64;
    flip(DIR, last, 4_300 * 8);
    assert!(matches!(log.storage().backup(COPY), Err(BackupError::Corrupted(_))));
    assert_eq!(read(&disk, COPY), payloads(1..=200));
    flip(DIR, last, 4_300 * 8);
    log.close().unwrap();
    back_up(&disk).unwrap();
    assert_eq!(read(&disk, COPY), payloads(1..=203));
    // Before anything is changed: the offsets of consumers are a part of the copy.
    let log = open(&disk, DIR);
    append(&log, 3);
    log.consumers().set("reader", Seq(7)).unwrap();
    log.close().unwrap();
    let offsets = Path::new(DIR).join("consumers").join("offsets");
    disk.flip_bit(&offsets, 8 * 21).unwrap();
    let before = disk.contents(&Path::new(COPY).join("manifest")).unwrap();
    let error = back_up(&disk).unwrap_err();
    assert!(error.to_string().contains("offsets"), "{error}");
    assert_eq!(disk.contents(&Path::new(COPY).join("manifest")).unwrap(), before);
    assert_eq!(read(&disk, COPY), payloads(1..=203));
    disk.flip_bit(&offsets, 8 * 21).unwrap();
    back_up(&disk).unwrap();
    assert_eq!(read(&disk, COPY), payloads(1..=206));
    // A copy that rots is not always found by the next backup, but its ends are.
    let header = 8 * 20;
    flip(COPY, 1, header);
    assert_eq!(back_up(&disk).unwrap().copied, 2);
    assert_eq!(read(&disk, COPY), payloads(1..=206));
}

/// Threads append and drop records all the time; each backup is one run of records up to a
/// position that was durable.
#[test]
fn a_backup_beside_writers_is_one_run_of_records() {
    let disk = SimDisk::new(1);
    let mut options = small(&disk);
    options.retention.segments = Some(20);
    let log = Log::builder(DIR).options(options).open().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    log.append(vec![7; 300]).unwrap().blocking_wait().unwrap();
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
        }
        let mut dropped = BTreeSet::new();
        let _stopped = Stop(&stop);
        for round in 0..100 {
            let durable = log.durable();
            let backup = match round % 2 {
                0 => log.storage().backup(COPY).unwrap(),
                _ => ReadOnlyLog::builder(DIR)
                    .disk(Arc::new(disk.clone()))
                    .open()
                    .unwrap()
                    .storage()
                    .backup(COPY)
                    .unwrap(),
            };
            assert!(durable <= backup.durable);
            // The end of a commit is stored for other processes just before this one learns of it.
            // What is accepted later ends after it.
            if round % 2 == 1 {
                log.barrier().unwrap().blocking_wait().unwrap();
            }
            assert!(backup.durable <= log.durable());
            let copy = reader(&disk, COPY).unwrap();
            assert_eq!(copy.durable(), backup.durable);
            let mut stream = copy.stream(Start::Oldest).unwrap();
            let mut next = copy.oldest().0;
            dropped.insert(next);
            while let Some(batch) = stream.try_next().unwrap() {
                for record in &batch {
                    assert_eq!((record.seq.0, record.payload), (next, &[7; 300][..]));
                    next += 1;
                }
            }
            assert_eq!(next, backup.durable.0 + 1);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(dropped.len() > 3, "the log is to drop records meanwhile: {dropped:?}");
    });
    log.close().unwrap();
}

/// Ends the writers, also after a failure.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Segments leave the log while they are copied, and more becomes durable all the time. That is no
/// corruption.
#[test]
fn a_ring_that_turns_while_it_is_copied_is_not_corrupt() {
    let disk = SimDisk::new(1);
    let mut options = small(&disk);
    options.retention.segments = Some(6);
    let log = Log::builder(DIR).options(options.clone()).open().unwrap();
    append_many(&log, 100);
    let reader = ReadOnlyLog::builder(DIR).options(options.clone()).open().unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                append_many(&log, 300);
            }
        });
        // However slow the writer is, it dropped some by then.
        for round in (0..10_000).take_while(|round| *round < 20 || log.oldest() == Seq(1)) {
            let copy = format!("/copy-{round}");
            match reader.storage().backup(&copy) {
                Ok(backup) => {
                    let copy = ReadOnlyLog::builder(&copy).options(options.clone()).open().unwrap();
                    assert_eq!(copy.durable(), backup.durable);
                    let mut stream = copy.stream(Start::Oldest).unwrap();
                    let mut last = copy.oldest().0 - 1;
                    while let Some(batch) = stream.try_next().unwrap() {
                        last = follows(&batch, last);
                    }
                    assert_eq!(last, backup.durable.0);
                }
                Err(BackupError::Trimmed(_)) => {}
                Err(error) => {
                    is_over.store(true, SeqCst);
                    panic!("{error}");
                }
            }
        }
        is_over.store(true, SeqCst);
    });
    assert!(log.oldest() > Seq(1));
    log.close().unwrap();
}

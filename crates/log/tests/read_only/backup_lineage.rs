//! A backup is replaced only by a log that has everything in it, or had and dropped it.
//!
//! Guards: a copy that continued by itself, or a log that lost records in a repair, which replaces
//! a backup whose records nothing else has any more.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use esker_disk::Disk;
use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_log::{
    Append, BackupError, Engine, Log, OnCorruption, ReadOnlyLog, ReadOptions, Start, repair,
};

use crate::fixture::{DIR, ReadRecord, append, driven, payloads, seen};

const COPY: &str = "/copy";
const RESTORED: &str = "/restored";

fn open(disk: &SimDisk, dir: &str) -> Log {
    Log::builder(dir).options(driven(disk).0).open().unwrap()
}

fn read_options(disk: &SimDisk) -> ReadOptions {
    let mut options = ReadOptions::on(Arc::new(disk.clone()));
    options.engine = Some(Engine::manual());
    options
}

fn reader(disk: &SimDisk, dir: &str) -> ReadOnlyLog {
    ReadOnlyLog::builder(dir).options(read_options(disk)).open().unwrap()
}

fn records(disk: &SimDisk, dir: &str) -> Vec<ReadRecord> {
    let mut stream = reader(disk, dir).stream(Start::Oldest).unwrap();
    std::iter::from_fn(|| stream.try_next().unwrap()).flat_map(|batch| seen(&batch)).collect()
}

/// Appends other records than those of the original, up to a number, and drops those below another.
fn go_on(log: &Log, upto: u64, drop_below: u64) {
    while log.accepted().0 < upto {
        log.append("its own").unwrap().blocking_wait().unwrap();
    }
    log.retention().truncate_before(drop_below).unwrap();
}

/// Backs up, in this process and as another one. Neither changes the backup.
fn refused(disk: &SimDisk, log: &Log, dir: &str, what: &str) {
    let before = records(disk, COPY);
    let manifest = disk.contents(&Path::new(COPY).join("manifest")).unwrap();
    for error in [
        log.storage().backup(COPY).unwrap_err(),
        reader(disk, dir).storage().backup(COPY).unwrap_err(),
    ] {
        assert!(matches!(error, BackupError::NotThisBackup { .. }), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
    assert_eq!(disk.contents(&Path::new(COPY).join("manifest")).unwrap(), manifest);
    assert_eq!(records(disk, COPY), before);
}

/// It once replaced the backup silently: the record to compare was not there any more.
#[test]
fn a_restored_log_that_dropped_the_last_record_is_refused() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 20);
    log.storage().backup(RESTORED).unwrap();
    append(&log, 20);
    log.storage().backup(COPY).unwrap();
    for _ in 0..3 {
        open(&disk, RESTORED).close().unwrap();
    }
    let restored = open(&disk, RESTORED);
    go_on(&restored, 60, 50);
    refused(&disk, &restored, RESTORED, "continued by itself");
    // The original dropped that record, too.
    append(&log, 60);
    log.retention().truncate_before(90).unwrap();
    assert_eq!(log.storage().backup(COPY).unwrap().durable.0, 100);
    assert_eq!(records(&disk, COPY), payloads(90..=100));
}

/// A log that was restored after a disaster has all of the backup, and continues it.
#[test]
fn a_restored_log_continues_its_backup_and_the_original_cannot() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 20);
    log.storage().backup(COPY).unwrap();
    reader(&disk, COPY).storage().backup(RESTORED).unwrap();
    let restored = open(&disk, RESTORED);
    go_on(&restored, 30, 1);
    assert_eq!(restored.storage().backup(COPY).unwrap().durable.0, 30);
    // The copy of a copy has its lineage.
    reader(&disk, COPY).storage().backup("/third").unwrap();
    go_on(&restored, 60, 50);
    restored.storage().backup("/third").unwrap();
    log.close().unwrap();
    for _ in 0..3 {
        open(&disk, DIR).close().unwrap();
    }
    let log = open(&disk, DIR);
    append(&log, 10);
    refused(&disk, &log, DIR, "it is of another lineage");
    append(&log, 50);
    log.retention().truncate_before(70).unwrap();
    refused(&disk, &log, DIR, "continued by itself");
    restored.storage().backup(COPY).unwrap();
}

/// Power is lost at each step of the first opening, and again in the next one.
#[test]
fn a_copy_begins_a_lineage_before_its_first_record() {
    let sealed = SimDisk::new(1);
    let log = open(&sealed, DIR);
    append(&log, 10);
    log.storage().backup(RESTORED).unwrap();
    append(&log, 10);
    log.storage().backup(COPY).unwrap();
    log.close().unwrap();
    let first_of = |disk: &SimDisk, at: u64, persist| {
        disk.cut_power_at(CutPoint::During(disk.operations() + at), persist);
        let opened = Log::builder(RESTORED).options(driven(&disk.process()).0).open();
        let done = opened.is_ok();
        drop(opened);
        disk.cancel_cut();
        disk.power_on();
        done
    };
    let mut tried = 0;
    for persist in [Persist::Nothing, Persist::Random, Persist::Everything] {
        for at in 0.. {
            let disk = sealed.fork(at);
            let done = first_of(&disk, at, persist);
            first_of(&disk, at / 2, persist);
            for _ in 0..3 {
                open(&disk, RESTORED).close().unwrap();
            }
            let restored = open(&disk, RESTORED);
            go_on(&restored, 40, 30);
            refused(&disk, &restored, RESTORED, "continued by itself");
            tried += 1;
            if done {
                break;
            }
        }
    }
    assert!(tried > 60, "{tried}");
}

/// Records that a repair gave up may get other contents under the same numbers.
#[test]
fn a_log_that_lost_records_in_a_repair_is_refused() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 40);
    log.storage().backup(COPY).unwrap();
    log.close().unwrap();
    let newest = disk.files(Path::new(DIR)).unwrap();
    let newest = newest.into_iter().filter(|name| name.ends_with(".seg")).max().unwrap();
    disk.flip_bit(&Path::new(DIR).join(newest), 8 * 4_200).unwrap();
    let mut options = driven(&disk).0;
    options.on_corruption = OnCorruption::Truncate;
    let log = Log::builder(DIR).options(options).open().unwrap();
    assert!(log.accepted().0 < 40);
    refused(&disk, &log, DIR, "where the log was restored, copied or repaired");
    go_on(&log, 60, 50);
    refused(&disk, &log, DIR, "continued by itself");
}

/// Its lineage is not known any more.
#[test]
fn a_log_that_lost_its_manifest_needs_another_directory() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 40);
    log.storage().backup(COPY).unwrap();
    log.close().unwrap();
    disk.remove(&Path::new(DIR).join("manifest")).unwrap();
    repair(DIR, read_options(&disk)).unwrap();
    let log = open(&disk, DIR);
    append(&log, 3);
    refused(&disk, &log, DIR, "it is of another lineage");
    log.storage().backup("/new").unwrap();
    append(&log, 17);
    assert_eq!(log.storage().backup("/new").unwrap().durable.0, 60);
}

/// The backup may be the only place that has them.
#[test]
fn quarantined_records_are_not_overwritten_in_the_backup() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 10);
    log.storage().backup(COPY).unwrap();
    append(&log, 3);
    log.close().unwrap();
    let first = Path::new(DIR).join(format!("{:020}.seg", 1));
    disk.flip_bit(&first, 8 * (2 * 4_096 + 100)).unwrap();
    let repaired = repair(DIR, read_options(&disk)).unwrap();
    let lost = &repaired.quarantined[0];
    assert!(lost.from < lost.to && lost.to.0 < 10, "{lost:?}");
    let log = open(&disk, DIR);
    refused(&disk, &log, DIR, "where the log was restored, copied or repaired");
    append(&log, 100);
    refused(&disk, &log, DIR, "where the log was restored, copied or repaired");
    assert_eq!(records(&disk, COPY), payloads(1..=10));
    // A new backup has the gap, and takes what follows.
    log.storage().backup("/new").unwrap();
    append(&log, 1);
    assert_eq!(log.storage().backup("/new").unwrap().durable.0, 114);
}

/// The backup has what the repair of the restored log gave up, before or at its first opening.
#[test]
fn a_restored_log_that_was_repaired_does_not_overwrite_the_backup() {
    for at_opening in [false, true] {
        let disk = SimDisk::new(1);
        let log = open(&disk, DIR);
        append(&log, 10);
        log.storage().backup(COPY).unwrap();
        reader(&disk, COPY).storage().restore(RESTORED).unwrap();
        let first = Path::new(RESTORED).join(format!("{:020}.seg", 1));
        disk.flip_bit(&first, 8 * (2 * 4_096 + 100)).unwrap();
        let mut options = driven(&disk).0;
        if at_opening {
            options.on_corruption = OnCorruption::Quarantine;
        } else {
            repair(RESTORED, read_options(&disk)).unwrap();
        }
        let restored = Log::builder(RESTORED).options(options).open().unwrap();
        append(&restored, 3);
        assert_eq!(reader(&disk, RESTORED).storage().stored().unwrap().quarantined.len(), 1);
        refused(&disk, &restored, RESTORED, "where the log was restored, copied or repaired");
        assert_eq!(records(&disk, COPY), payloads(1..=10));
    }
}

/// It was refused for ever: the last record to compare was in the gap.
#[test]
fn a_backup_that_ends_in_a_gap_is_continued() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 10);
    log.close().unwrap();
    let first = Path::new(DIR).join(format!("{:020}.seg", 1));
    let length = disk.contents(&first).unwrap().len() as u64;
    let last = (0..length / 4096).rev().find(|block| {
        let bytes = disk.contents(&first).unwrap();
        bytes[*block as usize * 4096..][..4096].iter().any(|byte| *byte != 0)
    });
    disk.flip_bit(&first, 8 * (last.unwrap() * 4096 + 70)).unwrap();
    let lost = repair(DIR, read_options(&disk)).unwrap().quarantined;
    assert_eq!(lost[0].to.0, 10, "{lost:?}");
    let log = open(&disk, DIR);
    for more in 0..3 {
        assert_eq!(log.storage().backup(COPY).unwrap().durable.0, 10 + more);
        append(&log, 1);
    }
}

/// Two copies that continue by themselves may have equal records under one number.
#[test]
fn equal_last_records_are_no_common_history() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 5);
    log.storage().backup(COPY).unwrap();
    for own in ["/a", "/b"] {
        reader(&disk, COPY).storage().restore(own).unwrap();
    }
    let [a, b] = ["/a", "/b"].map(|dir| open(&disk, dir));
    for (log, own) in [(&a, "alice"), (&b, "bob")] {
        log.write(Append::records(&[own, "tick"])).unwrap().blocking_wait().unwrap();
    }
    a.storage().backup(COPY).unwrap();
    refused(&disk, &b, "/b", "it is of another lineage");
}

/// Also where none of the records of the backup is left to compare.
#[test]
fn a_restored_log_continues_its_backup_whatever_it_dropped() {
    for (records, kept) in [(0, 1), (20, 1), (20, 21)] {
        let disk = SimDisk::new(1);
        let log = open(&disk, DIR);
        append(&log, records);
        if kept > 1 {
            log.retention().truncate_before(kept).unwrap();
        }
        log.storage().backup(COPY).unwrap();
        log.storage().backup("/old").unwrap();
        reader(&disk, COPY).storage().restore(RESTORED).unwrap();
        // Before it is a log of its own.
        reader(&disk, RESTORED).storage().backup("/second").unwrap();
        let restored = open(&disk, RESTORED);
        go_on(&restored, 60, 50);
        for copy in [COPY, "/second"] {
            assert_eq!(restored.storage().backup(copy).unwrap().durable.0, 60);
        }
        // Of another lineage, more sessions are no sign of a newer log.
        go_on(&restored, 70, 50);
        assert_eq!(restored.storage().backup(COPY).unwrap().durable.0, 70);
        // Through another backup and another restore.
        restored.storage().backup("/new").unwrap();
        reader(&disk, "/new").storage().restore("/twice").unwrap();
        let twice = open(&disk, "/twice");
        go_on(&twice, 80, 75);
        assert_eq!(twice.storage().backup("/old").unwrap().durable.0, 80);
    }
}

/// A copy that was written to is a log of its own, whatever became of the file `lock`.
#[test]
fn a_copy_that_was_opened_for_writing_is_not_replaced() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 20);
    log.storage().backup(COPY).unwrap();
    let process = disk.process();
    let copy = open(&process, COPY);
    go_on(&copy, 22, 1);
    disk.kill();
    disk.power_on();
    disk.remove(&Path::new(COPY).join("lock")).unwrap();
    let before = disk.contents(&Path::new(COPY).join("manifest")).unwrap();
    let error = reader(&disk, DIR).storage().backup(COPY).unwrap_err();
    assert!(error.to_string().contains("opened for writing"), "{error}");
    let error = reader(&disk, DIR).storage().restore(COPY).unwrap_err();
    assert!(error.to_string().contains("opened for writing"), "{error}");
    assert_eq!(disk.contents(&Path::new(COPY).join("manifest")).unwrap(), before);
    assert_eq!(open(&disk, COPY).durable().0, 22);
}

/// The process is killed at each operation of a backup of one log, and then of another. What each
/// leaves is a log or an unfinished backup, never a corrupt one, and has what it had; the one that
/// was interrupted ends it.
#[test]
fn an_interrupted_backup_is_never_corrupt() {
    type Prepare = fn(&SimDisk);
    let dropped: Prepare = |disk| {
        // The segment where the copy ends grew before it was dropped.
        let log = open(disk, DIR);
        append(&log, 8);
        log.storage().backup(COPY).unwrap();
        append(&log, 150);
        log.retention().truncate_before(20).unwrap();
        log.close().unwrap();
        // So that its session is not what tells it from a copy.
        for _ in 0..5 {
            open(disk, DIR).close().unwrap();
        }
    };
    let recovered: Prepare = |disk| {
        // A recovery moves the whole log to another segment.
        let log = open(disk, DIR);
        append(&log, 4);
        log.storage().backup(COPY).unwrap();
        log.close().unwrap();
        for _ in 0..2 {
            let process = disk.process();
            let log = open(&process, DIR);
            append(&log, 1);
            disk.kill();
            disk.power_on();
        }
        let log = open(disk, DIR);
        append(&log, 1);
        log.close().unwrap();
    };
    for prepare in [dropped, recovered] {
        let origin = SimDisk::new(1);
        prepare(&origin);
        let before = records(&origin, COPY);
        reader(&origin, COPY).storage().restore(RESTORED).unwrap();
        let restored = open(&origin, RESTORED);
        go_on(&restored, 200, 1);
        restored.close().unwrap();
        let mut unopened = 0;
        for at in 0.. {
            let disk = origin.fork(at);
            disk.kill_at(CutPoint::During(disk.operations() + at));
            let done = reader(&disk.process(), RESTORED).storage().backup(COPY).is_ok();
            disk.cancel_cut();
            disk.kill();
            disk.power_on();
            let first = check_interrupted(&disk, &before, at);
            check_lineage(&disk, &before, DIR, at);
            // Whatever the first left, the log that it is not of may not mix with it.
            let theirs = reader(&disk, DIR).storage().backup(COPY);
            match theirs {
                Ok(_) => assert_eq!(records(&disk, COPY), records(&disk, DIR), "at {at}"),
                Err(error) => {
                    assert!(matches!(error, BackupError::NotThisBackup { .. }), "at {at}: {error}");
                    reader(&disk, RESTORED).storage().backup(COPY).unwrap();
                    assert_eq!(records(&disk, COPY), records(&disk, RESTORED), "at {at}");
                }
            }
            unopened += u32::from(!first);
            if done {
                break;
            }
        }
        for at in 0.. {
            let disk = origin.fork(at);
            disk.kill_at(CutPoint::During(disk.operations() + at));
            let done = reader(&disk.process(), DIR).storage().backup(COPY).is_ok();
            disk.cancel_cut();
            disk.kill();
            disk.power_on();
            let opened = check_interrupted(&disk, &before, at);
            check_lineage(&disk, &before, RESTORED, at);
            reader(&disk, DIR).storage().backup(COPY).unwrap();
            assert_eq!(records(&disk, COPY), records(&disk, DIR), "at {at}");
            unopened += u32::from(!opened);
            if done {
                break;
            }
        }
        if prepare as usize == recovered as usize {
            assert_eq!(unopened, 0, "nothing was dropped");
        }
    }
}

/// A copy of what an interrupted backup left is of the lineage of its records: the other log, in
/// `dir`, replaces it only if it has nothing but what the backup before had.
fn check_lineage(disk: &SimDisk, before: &[ReadRecord], dir: &str, at: u64) {
    let disk = disk.fork(at);
    let copy = ReadOnlyLog::builder(COPY).options(read_options(&disk)).open();
    if copy.is_ok_and(|copy| copy.storage().restore("/third").is_ok()) {
        let copied = records(&disk, "/third");
        let replaced = reader(&disk, dir).storage().backup("/third").is_ok();
        assert!(!replaced || copied == before, "at {at}");
    }
}

/// Whether the copy opens. Then it has the records that it had, unless the log dropped them.
fn check_interrupted(disk: &SimDisk, before: &[ReadRecord], at: u64) -> bool {
    let found = esker_log::component::identify(COPY, read_options(disk)).unwrap();
    if found == Some(esker_log::component::UNFINISHED_BACKUP) {
        return false;
    }
    let copy = reader(disk, COPY);
    assert!(copy.storage().corruption().is_none(), "at {at}: {:?}", copy.storage().corruption());
    let found = records(disk, COPY);
    assert!(found.starts_with(before) || found[0].0 > before[0].0, "at {at}");
    let fork = disk.fork(1);
    let opened = open(&fork, COPY);
    assert!(opened.durable().0 >= before.last().unwrap().0, "at {at}");
    true
}

/// An interrupted backup left a gap, so that nothing opens the copy and no record can be compared.
#[test]
fn an_interrupted_backup_is_ended_by_its_own_lineage_only() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 40);
    log.storage().backup(COPY).unwrap();
    log.storage().backup(RESTORED).unwrap();
    append(&log, 300);
    log.retention().truncate_before(250).unwrap();
    let mut tried = 0;
    for at in 0.. {
        let disk = disk.fork(at);
        disk.cut_power_at(CutPoint::During(disk.operations() + at), Persist::Everything);
        let process = disk.process();
        let done = reader(&process, DIR).storage().backup(COPY).is_ok();
        disk.cancel_cut();
        disk.power_on();
        if done {
            break;
        }
        let found = esker_log::component::identify(COPY, read_options(&disk)).unwrap();
        if found != Some(esker_log::component::UNFINISHED_BACKUP) {
            continue;
        }
        for _ in 0..3 {
            open(&disk, RESTORED).close().unwrap();
        }
        let restored = open(&disk, RESTORED);
        append(&restored, 300);
        restored.retention().truncate_before(250).unwrap();
        let error = restored.storage().backup(COPY).unwrap_err();
        assert!(error.to_string().contains("continued by itself"), "at {at}: {error}");
        reader(&disk, DIR).storage().backup(COPY).unwrap();
        assert_eq!(records(&disk, COPY), payloads(250..=340));
        tried += 1;
    }
    assert!(tried > 0, "no step leaves a gap");
}

/// Bug: it replaced the later one silently, by what the manifest said of the backup before.
#[test]
fn an_older_copy_does_not_replace_what_an_interrupted_backup_left() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 40);
    log.storage().backup(COPY).unwrap();
    append(&log, 100);
    log.storage().backup(RESTORED).unwrap();
    append(&log, 600);
    let mut tried = 0;
    // A refusal waits for what a writer may have just made durable.
    for at in (0..).step_by(9) {
        let disk = disk.fork(at);
        disk.cut_power_at(CutPoint::During(disk.operations() + at), Persist::Everything);
        let done = reader(&disk.process(), DIR).storage().backup(COPY).is_ok();
        disk.cancel_cut();
        disk.power_on();
        if done {
            break;
        }
        let left = records(&disk, COPY);
        let replaced = reader(&disk, RESTORED).storage().backup(COPY);
        if left.len() > 140 {
            let error = replaced.unwrap_err();
            assert!(matches!(error, BackupError::NotThisBackup { .. }), "at {at}: {error}");
            assert_eq!(records(&disk, COPY), left, "at {at}");
            tried += 1;
        } else {
            replaced.unwrap();
            assert_eq!(records(&disk, COPY), payloads(1..=140), "at {at}");
        }
        assert_eq!(reader(&disk, DIR).storage().backup(COPY).unwrap().durable.0, 740);
        assert_eq!(records(&disk, COPY), payloads(1..=740), "at {at}");
    }
    assert!(tried > 3, "{tried} steps leave later records");
}

/// Bug: the record to compare was dropped from the copy, and that was an error.
#[test]
fn a_restored_log_continues_an_empty_backup() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 2);
    log.storage().backup(COPY).unwrap();
    log.storage().backup(RESTORED).unwrap();
    log.retention().truncate_before(3).unwrap();
    log.storage().backup(COPY).unwrap();
    let restored = open(&disk, RESTORED);
    append(&restored, 1);
    assert_eq!(restored.storage().backup(COPY).unwrap().durable.0, 3);
    assert_eq!(records(&disk, COPY), payloads(1..=3));
}

/// They have one lineage, although each continues by itself.
#[test]
fn copies_made_by_hand_are_compared_by_the_last_record() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 20);
    log.close().unwrap();
    disk.create_dir(Path::new("/hand")).unwrap();
    for name in disk.files(Path::new(DIR)).unwrap() {
        let content = disk.contents(&Path::new(DIR).join(&name));
        disk.put(&Path::new("/hand").join(&name), &content.unwrap()).unwrap();
    }
    let log = open(&disk, DIR);
    append(&log, 20);
    log.storage().backup(COPY).unwrap();
    for (upto, what) in [(30, "durable up to record 30"), (60, "its record 40 is another one")] {
        for _ in 0..3 {
            open(&disk, "/hand").close().unwrap();
        }
        let hand = open(&disk, "/hand");
        go_on(&hand, upto, 1);
        refused(&disk, &hand, "/hand", what);
        hand.close().unwrap();
    }
}

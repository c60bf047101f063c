//! `truncate_before`: exact to the record, durable when it returns, and space comes back.

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Gate, Persist, SimDisk};
use esker_log::{
    AppendError, Log, LogError, OnCorruption, ReadOnlyLog, ReadOptions, RetentionError, Seq,
    salvage_log, verify,
};

use crate::fixture::{
    DIR, LONG, Opens, all, append, driven, in_time, is_eio, log, payload, payloads, small,
};

#[test]
fn truncation_drops_records_below_and_keeps_the_rest() {
    let (log, ..) = log();
    append(&log, 300);
    let mut segments = log.storage().metadata().segments;
    for seq in [1, 2, 3, 60, 61, 150, 299, 300] {
        log.retention().truncate_before(seq).unwrap();
        assert_eq!((log.oldest(), log.storage().metadata().after), (Seq(seq), Seq(seq - 1)));
        assert_eq!(all(&log), payloads(seq..=300), "before {seq}");
        assert!(log.storage().metadata().segments <= segments);
        segments = log.storage().metadata().segments;
    }
    assert_eq!(segments, 1);
    log.close().unwrap();
}

#[test]
fn a_number_at_or_below_the_oldest_changes_nothing() {
    let (log, disk, _) = log();
    append(&log, 50);
    log.retention().truncate_before(20).unwrap();
    let before = disk.fingerprint();
    for seq in [0, 1, 19, 20] {
        log.retention().truncate_before(seq).unwrap();
    }
    assert_eq!((disk.fingerprint(), log.oldest()), (before, Seq(20)));
    log.close().unwrap();
}

#[test]
fn everything_can_be_dropped_and_numbers_continue() {
    let (log, disk, _) = log();
    append(&log, 50);
    log.retention().truncate_before(51).unwrap();
    assert!(all(&log).is_empty());
    assert_eq!((log.oldest(), log.durable()), (Seq(51), Seq(50)));
    log.close().unwrap();
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!((all(&log), log.durable()), (vec![], Seq(50)));
    append(&log, 2);
    assert_eq!(all(&log), payloads(51..=52));
    log.close().unwrap();
}

#[test]
fn truncation_above_the_durable_end_is_refused() {
    let (log, ..) = log();
    append(&log, 5);
    let ticket = log.append(payload(6)).unwrap();
    assert!(matches!(
        log.retention().truncate_before(7),
        Err(RetentionError::NotFound { seq: Seq(7) })
    ));
    assert!(matches!(
        log.retention().truncate_before(u64::MAX),
        Err(RetentionError::NotFound { .. })
    ));
    assert_eq!(all(&log), payloads(1..=5));
    ticket.blocking_wait().unwrap();
    log.retention().truncate_before(7).unwrap();
    assert!(all(&log).is_empty());
    log.close().unwrap();
}

#[test]
fn a_truncation_that_returned_survives_a_power_cut() {
    for persist in [Persist::Nothing, Persist::Everything, Persist::Random] {
        let (log, disk, _) = log();
        append(&log, 200);
        log.retention().truncate_before(120).unwrap();
        disk.power_cut(persist);
        disk.power_on();
        drop(log);
        let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
        assert_eq!(all(&log), payloads(120..=200));
        append(&log, 1);
        assert_eq!(all(&log), payloads(120..=201));
        log.close().unwrap();
    }
}

#[test]
fn space_comes_back() {
    let (log, disk, engine) = log();
    append(&log, 500);
    engine.run();
    let used = disk.used();
    log.retention().truncate_before(480).unwrap();
    assert!(disk.used() < used - (300 << 10), "{} of {used}", disk.used());
    log.close().unwrap();
}

#[test]
fn a_truncation_that_fails_poisons_the_log_and_loses_nothing() {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    append(&log, 200);
    disk.inject(Fault::on(Op::Sync, Effect::Io).path("manifest"));
    let failed = log.retention().truncate_before(100).unwrap_err();
    assert!(
        matches!(failed, RetentionError::Log(LogError::Io(_))) && is_eio(&failed),
        "{failed:?}"
    );
    disk.clear_faults();
    let refused = log.append(b"x").unwrap_err();
    assert!(
        matches!(refused, AppendError::Log(LogError::Poisoned(_))) && is_eio(&refused),
        "{refused:?}"
    );
    drop(log);
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    let left = all(&log);
    assert!(left == payloads(1..=200) || left == payloads(100..=200));
    log.close().unwrap();
}

/// It syncs the watermark page, into which each commit stores before it is acknowledged.
#[test]
fn a_commit_does_not_wait_for_the_sync_of_a_truncation() {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(small(&disk)).open().unwrap();
    append(&log, 20);
    let held = Opens(disk.clone(), Gate::new());
    disk.inject(Fault::on(Op::Sync, Effect::Block(held.1.clone())).path("mark").nth(1));
    let truncating = log.clone();
    let truncating = std::thread::spawn(move || truncating.retention().truncate_before(10));
    assert!(held.1.wait_for(1, LONG));
    let appending = log.clone();
    in_time("an append", move || append(&appending, 1));
    drop(held);
    truncating.join().unwrap().unwrap();
    assert_eq!((log.oldest(), log.durable()), (Seq(10), Seq(21)));
    log.close().unwrap();
}

/// Bug: a manifest of before a truncation that was put back, or copied first by hand, undid it,
/// although the watermark page knew of it.
#[test]
fn an_older_manifest_does_not_undo_a_truncation() {
    let disk = SimDisk::new(1);
    let open = || Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    let log = open();
    append(&log, 10);
    log.close().unwrap();
    let path = std::path::Path::new(DIR).join("manifest");
    let older = disk.contents(&path).unwrap();
    let log = open();
    log.retention().truncate_before(6).unwrap();
    log.close().unwrap();
    disk.overwrite(&path, 0, &older).unwrap();
    let options = || ReadOptions::on(std::sync::Arc::new(disk.clone()));
    let report = verify(DIR, options()).unwrap();
    assert!(report.corruption.is_empty(), "{report:?}");
    assert_eq!((report.after, report.records), (Seq(5), 5));
    let reader = ReadOnlyLog::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!(reader.oldest(), Seq(6));
    assert_eq!(salvage_log(DIR, options()).unwrap().count(), 5);
    // Nor does a repair, whichever.
    for on_corruption in [OnCorruption::Quarantine, OnCorruption::Truncate] {
        let disk = disk.fork(1);
        // The last unit: a header of the segment and nine units come before it.
        let segment = std::path::Path::new(DIR).join("00000000000000000001.seg");
        disk.overwrite(&segment, 10 * 4096, &[1; 8]).unwrap();
        let mut options = driven(&disk).0;
        options.on_corruption = on_corruption;
        let log = Log::builder(DIR).options(options).open().unwrap();
        assert!(log.storage().was_repaired().unwrap());
        assert_eq!(log.oldest(), Seq(6), "{on_corruption:?}");
        log.close().unwrap();
    }
    let log = open();
    assert_eq!(all(&log), payloads(6..=10));
    log.close().unwrap();
}

//! The metadata of a log are read from memory alone, and are correct.

use esker_disk::sim::SimDisk;
use esker_log::{Append, Log, Position, PriorShutdown, Seq, Sink, verify};

use crate::fixture::{self, DIR, append, driven, log, payload};

#[test]
fn an_empty_log_has_nothing_and_says_so() {
    let (log, ..) = log();
    let (metadata, stats) = (log.storage().metadata(), log.stats());
    assert_eq!((log.durable(), log.accepted()), (Seq(0), Seq(0)));
    assert_eq!((metadata.after, metadata.durable, stats.accepted), (Seq(0), Seq(0), Seq(0)));
    assert_eq!((metadata.records, stats.pending, metadata.index_entries), (0, 0, 0));
    assert_eq!(
        (log.storage().recovery().prior_shutdown, log.storage().recovery().session),
        (PriorShutdown::New, 1)
    );
    log.close().unwrap();
}

#[test]
fn metadata_counts_operations() {
    let (log, disk, _) = log();
    append(&log, 100);
    log.retention().truncate_before(11).unwrap();
    let kept = [log.append(payload(101)).unwrap(), log.append(payload(102)).unwrap()];
    let reads = disk.reads();
    let (metadata, stats) = (log.storage().metadata(), log.stats());
    assert_eq!(disk.reads(), reads, "from memory alone");
    assert_eq!((metadata.after, metadata.durable), (Seq(10), Seq(100)));
    assert_eq!((stats.accepted, stats.pending), (Seq(102), 2));
    assert_eq!(log.durable(), Seq(100));
    assert_eq!(metadata.records, 100);
    // A lonely commit takes one block, a segment holds fifteen and its header.
    assert_eq!((metadata.segments, stats.commits), (7, 100));
    assert_eq!((stats.records, stats.bytes), (100, 100 * 4096));
    assert_eq!(metadata.disk_bytes, 107 * 4096);
    assert_eq!(metadata.position, Position(metadata.disk_bytes));
    assert!(stats.syncs >= 100);
    assert!(stats.memory_bytes > 0 && metadata.index_entries >= 7);
    drop(kept);
    log.close().unwrap();
}

#[test]
fn metadata_counts_waiting_callers() {
    let (log, ..) = log();
    let mut tickets: Vec<_> = (1..=3).map(|seq| log.append(payload(seq)).unwrap()).collect();
    assert_eq!(log.stats().waiting, 0);
    for ticket in &mut tickets {
        assert!(fixture::poll_once(ticket).is_pending());
    }
    assert_eq!(log.stats().waiting, 3);
    tickets.pop();
    assert_eq!(log.stats().waiting, 2);
    tickets.clear();
    assert_eq!(log.stats().waiting, 0);
    log.close().unwrap();
}

#[test]
fn metadata_is_the_same_after_reopen() {
    let disk = SimDisk::new(1);
    let mut before = None;
    for round in 0..5 {
        let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
        let metadata = log.storage().metadata();
        assert_eq!(metadata.session, round + 1);
        if let Some((id, last, records)) = before {
            assert_eq!((metadata.id, log.durable(), metadata.records), (id, last, records));
            assert_eq!(log.storage().recovery().last, last);
        }
        append(&log, 30);
        before = Some((metadata.id, log.durable(), metadata.records + 30));
        if round % 2 == 0 {
            log.close().unwrap();
        } else {
            disk.kill();
            disk.power_on();
        }
    }
    let report = verify(DIR, &driven(&disk).0).unwrap();
    assert_eq!((report.records, report.last, report.corruption), (150, Seq(150), vec![]));
}

#[test]
fn every_log_has_a_number_of_its_own() {
    let (one, ..) = log();
    let (other, ..) = log();
    assert_ne!(one.storage().metadata().id, other.storage().metadata().id);
    one.close().unwrap();
    other.close().unwrap();
}

/// Where the first record starts above one, nothing below it was ever there.
#[test]
fn the_lower_bound_is_what_the_first_record_follows() {
    let (log, disk, _) = log();
    log.write(Append::numbered(Seq(499), &[(Seq(500), b"first")]))
        .unwrap()
        .blocking_wait()
        .unwrap();
    assert_eq!(log.oldest(), Seq(500));
    log.close().unwrap();
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!((log.oldest(), log.durable()), (Seq(500), Seq(500)));
    assert_eq!(log.storage().metadata().after, Seq(499));
    log.close().unwrap();
}

/// Guards: a `{:?}` of a log, a stream or a sink that prints every segment with its index.
#[test]
fn debug_output_does_not_grow_with_the_log() {
    let (log, _disk, _engine) = log();
    let (stream, sink) = (log.stream(esker_log::Start::Oldest).unwrap(), Sink::new(&log).unwrap());
    let lengths =
        || [format!("{log:?}"), format!("{stream:?}"), format!("{sink:?}")].map(|s| s.len());
    let before = lengths();
    append(&log, 500);
    for (before, after) in before.into_iter().zip(lengths()) {
        assert!(after < before + 50, "{after} characters, and {before} of an empty log");
    }
}

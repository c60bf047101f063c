//! Batches of any size: split over commit units and segments, or kept whole.
//!
//! Guards: a batch that is larger than a segment and turns the ring for ever, or wipes it.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use esker_disk::sim::{Persist, SimDisk};
use esker_log::{Append, AppendError, Log, RECORD_LIMIT_MAX, Seq, WriteError};

use crate::fixture::{DIR, all, append, block_on, driven, in_time, log, payload, payloads, small};

fn batch(numbers: std::ops::RangeInclusive<u64>) -> Vec<Vec<u8>> {
    numbers.map(payload).collect()
}

fn refs(batch: &[Vec<u8>]) -> Vec<&Vec<u8>> {
    batch.iter().collect()
}

#[test]
fn a_batch_larger_than_every_buffer_is_split() {
    let (log, disk, _) = log();
    // About 375 KiB, and a segment is 64 KiB, a buffer 8 KiB.
    let records = batch(1..=500);
    let log = in_time("the batch", move || {
        let ticket = log.write(Append::records(&refs(&records))).unwrap();
        assert_eq!(ticket.seq(), Seq(500));
        ticket.blocking_wait().unwrap();
        log
    });
    assert_eq!(all(&log), payloads(1..=500));
    let segments = log.storage().metadata().segments;
    assert!((6..=8).contains(&segments), "{segments} segments for 375 KiB in 64 KiB each");
    log.close().unwrap();
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!(all(&log), payloads(1..=500));
    log.close().unwrap();
}

/// The same in async code: waits for room are pending futures, and nothing is accepted of a batch
/// with a record that is refused.
#[test]
fn an_async_batch_larger_than_every_buffer_is_split() {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(small(&disk)).open().unwrap();
    let mut records = batch(1..=500);
    block_on(async {
        let ticket = log.write_async(Append::records(&refs(&records))).await.unwrap();
        assert_eq!(ticket.await.unwrap().seq, Seq(500));
        records[499] = vec![0; 2 << 20];
        let refused = log.write_async(Append::records(&refs(&records))).await;
        assert!(matches!(
            refused,
            Err(WriteError { error: AppendError::TooLarge { .. }, accepted: 0, .. })
        ));
    });
    assert_eq!((log.accepted(), all(&log)), (Seq(500), payloads(1..=500)));
    log.close().unwrap();
}

#[test]
fn a_batch_with_more_records_than_a_segment_holds_is_split() {
    let disk = SimDisk::new(1);
    let (mut options, _) = driven(&disk);
    options.segment_records = Some(3);
    options.index_records = 1;
    let log = Log::builder(DIR).options(options).open().unwrap();
    let log = in_time("the batch", move || {
        log.write(Append::records(&refs(&batch(1..=20)))).unwrap().blocking_wait().unwrap();
        log
    });
    assert_eq!(all(&log), payloads(1..=20));
    assert_eq!(log.storage().metadata().segments, 7);
    log.close().unwrap();
}

/// No more is recycled than the batch needs: with room for all of it, the ring keeps the rest.
#[test]
fn a_large_batch_recycles_what_its_size_needs_and_no_more() {
    let disk = SimDisk::new(1);
    let (mut options, engine) = driven(&disk);
    options.retention.segments = Some(8);
    let log = Log::builder(DIR).options(options).open().unwrap();
    // Three segments.
    log.write(Append::records(&refs(&batch(1..=200)))).unwrap().blocking_wait().unwrap();
    engine.run();
    assert_eq!(log.oldest(), Seq(1));
    let before = log.storage().metadata().segments;
    // Four more fit beside them.
    log.write(Append::records(&refs(&batch(201..=440)))).unwrap().blocking_wait().unwrap();
    engine.run();
    assert!(log.storage().metadata().segments - before <= 4);
    assert_eq!(all(&log), payloads(1..=440));
    log.close().unwrap();
}

#[test]
fn batches_recycle_the_ring_three_times() {
    let disk = SimDisk::new(1);
    let (mut options, engine) = driven(&disk);
    options.retention.segments = Some(4);
    let log = Log::builder(DIR).options(options).open().unwrap();
    let mut segments = 0;
    for round in 0..24 {
        let numbers = round * 50 + 1..=round * 50 + 50;
        log.write(Append::records(&refs(&batch(numbers.clone()))))
            .unwrap()
            .blocking_wait()
            .unwrap();
        engine.run();
        let kept = all(&log);
        let oldest = kept[0].0;
        assert_eq!(kept, payloads(oldest..=*numbers.end()), "one run, which ends with the newest");
        assert_eq!(log.oldest(), Seq(oldest));
        assert!(
            oldest == 1 || log.storage().metadata().segments == 4,
            "no more was dropped than had to be"
        );
        segments = segments.max(log.storage().metadata().segments);
    }
    assert_eq!(segments, 4);
    assert!(log.oldest() > Seq(600), "{}", log.oldest());
    log.close().unwrap();
}

#[test]
fn an_atomic_batch_larger_than_a_segment_is_one_commit() {
    let (log, disk, _) = log();
    append(&log, 3);
    let before = log.stats().commits;
    let records = batch(4..=300);
    let ticket = log.write(Append::records(&refs(&records)).atomic()).unwrap();
    assert_eq!(ticket.blocking_wait().unwrap().seq, Seq(300));
    assert_eq!(log.stats().commits, before + 1);
    append(&log, 1);
    disk.power_cut(Persist::Nothing);
    disk.power_on();
    drop(log);
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!(all(&log), payloads(1..=301));
    log.close().unwrap();
}

#[test]
fn an_atomic_batch_over_the_limit_is_refused() {
    let disk = SimDisk::new(1);
    let (mut options, _) = driven(&disk);
    options.record_limit = RECORD_LIMIT_MAX;
    let log = Log::builder(DIR).options(options).open().unwrap();
    let half = vec![7; 48 << 20];
    let error = log.write(Append::records(&[&half, &half]).atomic()).unwrap_err().error;
    let AppendError::BatchTooLarge { size, limit } = error else { panic!("{error:?}") };
    assert!(size > 96 << 20 && size < 97 << 20, "{size}");
    assert!((64 << 20..96 << 20).contains(&limit), "{limit}");
    assert_eq!(log.accepted(), Seq(0));
    append(&log, 1);
    assert_eq!(all(&log), payloads(1..=1));
    log.close().unwrap();
}

//! Finding a record by its number: everywhere, without reading the records before it; and the
//! density of the index, which says how much is read for it.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::path::Path;

use esker_disk::sim::SimDisk;
use esker_log::{Append, Log, ReadError, Seq, Start};

use crate::fixture::{self, DIR, append, driven, payload, read_from};

/// A closed and opened log with one large segment of small records: 4,000 of about 56 bytes.
fn dense(index_bytes: u32, index_records: u32) -> (Log, SimDisk) {
    let disk = SimDisk::new(1);
    let (mut options, _) = driven(&disk);
    options.segment_size = 1 << 20;
    options.buffer_size = 64 << 10;
    options.index_bytes = index_bytes;
    options.index_records = index_records;
    let log = Log::builder(DIR).options(options.clone()).open().unwrap();
    for batch in 0..40 {
        let records: Vec<_> = (batch * 100..batch * 100 + 100).map(record).collect();
        let records: Vec<_> = records.iter().collect();
        log.write(Append::records(&records)).unwrap().blocking_wait().unwrap();
    }
    log.close().unwrap();
    (Log::builder(DIR).options(options).open().unwrap(), disk)
}

fn record(n: u64) -> Vec<u8> {
    format!("record number {:>20}", n + 1).into_bytes()
}

#[test]
fn every_record_is_found_by_its_number() {
    let (log, ..) = fixture::log();
    append(&log, 200);
    for seq in 1..=200 {
        let view = log.read(seq).unwrap();
        assert_eq!((view.record().seq, view.payload()), (Seq(seq), &payload(seq)[..]));
        assert_eq!(log.read_at(view.record().position).unwrap().record().seq, Seq(seq));
    }
    for seq in [0, 201, u64::MAX] {
        assert!(
            matches!(log.read(seq), Err(ReadError::NotFound { seq: Seq(reported) }) if reported == seq)
        );
    }
    log.close().unwrap();
}

/// The index has one entry for many units, so that a lookup reads them together.
#[test]
fn an_unreadable_unit_hides_no_record_before_it() {
    let (log, disk, _) = fixture::log();
    append(&log, 12);
    log.close().unwrap();
    let name = disk.files(Path::new(DIR)).unwrap().into_iter().find(|n| n.ends_with(".seg"));
    let segment = Path::new(DIR).join(name.unwrap());
    for unit in 1..=12 {
        let disk = disk.fork(unit);
        let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
        disk.make_unreadable(&segment, unit * 4096).unwrap();
        for seq in 1..unit {
            assert_eq!(log.read(seq).unwrap().payload(), payload(seq), "{seq} before {unit}");
        }
        assert!(fixture::is_eio(&log.read(unit).unwrap_err()));
    }
}

#[test]
fn lookup_reads_one_index_interval() {
    for (bytes, records, most) in [(4 << 10, 1_000_000, 16 << 10), (64 << 10, 50, 16 << 10)] {
        let (log, disk) = dense(bytes, records);
        for seq in (1..=4000).step_by(97) {
            let before = disk.stats().bytes_read;
            assert_eq!(log.read(seq).unwrap().payload(), record(seq - 1));
            let read = disk.stats().bytes_read - before;
            assert!(read <= most, "{read} bytes for record {seq}");
        }
        log.close().unwrap();
    }
}

#[test]
fn the_index_is_as_dense_as_asked() {
    let entries = |bytes, records| {
        let (log, _) = dense(bytes, records);
        let entries = log.storage().metadata().index_entries;
        log.close().unwrap();
        entries
    };
    // 4,000 records in about 230 KiB.
    let by_records = entries(512 << 10, 100);
    assert!((40..=80).contains(&by_records), "{by_records}");
    let by_bytes = entries(8 << 10, 1_000_000);
    assert!((26..=60).contains(&by_bytes), "{by_bytes}");
    assert!(entries(4 << 10, 10) >= 400);
}

#[test]
fn stream_from_the_middle_reads_nothing_before_its_start() {
    let (log, disk) = dense(4 << 10, 100);
    let before = disk.stats().bytes_read;
    let mut stream = log.stream(Start::From(Seq(3_900))).unwrap();
    let batch = stream.try_next().unwrap().unwrap();
    assert_eq!(batch.iter().next().unwrap().seq, Seq(3_900));
    let read = disk.stats().bytes_read - before;
    assert!(read <= 32 << 10, "{read} bytes");
    assert_eq!(read_from(&log, Start::From(Seq(3_900))).unwrap().len(), 101);
    log.close().unwrap();
}

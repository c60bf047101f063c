//! One write carries the units that wait in one staging buffer.
//!
//! Guards: a unit that is written twice, or not at all; a write over two buffers, which are not
//! neighbours in memory; a torn write of which a unit is kept without the ones before it, or that
//! is taken for corruption.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::collections::BTreeSet;
use std::sync::Arc;

use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_log::{Engine, Log, Options, ReadOptions, verify};

use crate::fixture::{DIR, all, driven};

/// A quarter of a buffer is a unit, and holds three records.
const BUFFER: u32 = 64 << 10;
const LEN: usize = 5000;
const PER_UNIT: u64 = 3;

fn payload(seq: u64) -> Vec<u8> {
    (0..LEN as u64).map(|at| (seq * 31 + at * 7) as u8).collect()
}

fn payloads(last: u64) -> Vec<(u64, Vec<u8>)> {
    (1..=last).map(|seq| (seq, payload(seq))).collect()
}

fn options(disk: &SimDisk) -> (Options, Engine) {
    let (mut options, engine) = driven(disk);
    options.buffer_size = BUFFER;
    options.segment_size = 256 << 10;
    (options, engine)
}

/// Appends so many records, and runs the engine once.
fn append_together(log: &Log, engine: &Engine, count: u64) {
    for _ in 0..count {
        drop(log.append(payload(log.accepted().0 + 1)).unwrap());
    }
    drop(log.barrier().unwrap());
    engine.run();
}

#[test]
fn units_of_one_buffer_are_one_write() {
    let disk = SimDisk::new(1);
    let (options, engine) = options(&disk);
    let log = Log::builder(DIR).options(options.clone()).open().unwrap();
    append_together(&log, &engine, 10);
    assert_eq!((log.stats().commits, log.durable().0, log.stats().pending), (1, 10, 0));
    // The rest of that buffer, and the next one.
    append_together(&log, &engine, 12);
    assert_eq!((log.stats().commits, log.durable().0), (3, 22));
    assert_eq!(log.storage().metadata().payload_bytes, Some(22 * LEN as u64));
    assert_eq!(all(&log), payloads(22));
    for seq in 1..=22 {
        assert_eq!(&*log.read(esker_log::Seq(seq)).unwrap(), payload(seq));
    }
    log.close().unwrap();
    let report = verify(DIR, ReadOptions::on(Arc::new(disk.clone()))).unwrap();
    assert_eq!((report.records, report.units, report.corruption.len()), (22, 9, 0));
    let (options, _engine) = self::options(&disk);
    let log = Log::builder(DIR).options(options).open().unwrap();
    assert_eq!(all(&log), payloads(22));
    log.close().unwrap();
}

/// Power fails within the write of four units, and again within the next one. What is there after
/// it is what was durable, and then whole units, in order.
#[test]
fn a_torn_write_keeps_a_run_of_its_units() {
    let mut kept = BTreeSet::new();
    for seed in 0..60 {
        let disk = SimDisk::new(seed);
        let mut durable = 0;
        for life in 0..2 {
            let (options, engine) = options(&disk);
            let log = Log::builder(DIR).options(options).open().unwrap();
            append_together(&log, &engine, 2);
            durable += 2;
            assert_eq!(log.durable().0, durable, "seed {seed}");
            disk.cut_power_at(CutPoint::During(disk.operations()), Persist::Random);
            append_together(&log, &engine, 4 * PER_UNIT);
            drop(log);
            engine.stop();
            disk.power_on();

            let (options, engine) = self::options(&disk);
            let log = Log::builder(DIR).options(options).open().unwrap();
            let last = log.durable().0;
            assert!((durable..=durable + 12).contains(&last), "seed {seed}, life {life}: {last}");
            let units = (last - durable) / PER_UNIT;
            assert_eq!(
                (last - durable) % PER_UNIT,
                0,
                "seed {seed}, life {life}: a part of a unit"
            );
            assert_eq!(all(&log), payloads(last), "seed {seed}, life {life}");
            kept.insert(units);
            durable = last;
            log.close().unwrap();
            engine.stop();
        }
    }
    assert!(kept.len() >= 3, "only {kept:?} units of a torn write were kept");
}

//! After a burst, an idle log prewrites as many blocks as the burst took.
//!
//! Guards: zeros over a record; zeros without end, or while the log is busy; a commit that waits
//! for zeros elsewhere; a full disk or one without descriptors that fails the log; records that
//! are lost or changed by two power cuts among the zeros.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use esker_disk::Op;
use esker_disk::sim::{CutPoint, Effect, Fault, Gate, Persist, SimDisk};
use esker_log::{Engine, Log, Options, Seq};
use esker_testkit::{Call, HookedDisk};

use crate::fixture::{DIR, LONG, Opens, all, driven};

/// So large that commits stop the prewriting beside them.
const LEN: usize = 500_000;
const BURST: u64 = 4;
const SECOND: Duration = Duration::from_secs(1);

fn payload(seq: u64) -> Vec<u8> {
    (0..LEN as u64).map(|at| (seq * 31 + at * 7) as u8 | 1).collect()
}

fn payloads(last: u64) -> Vec<(u64, Vec<u8>)> {
    (1..=last).map(|seq| (seq, payload(seq))).collect()
}

fn options(disk: &SimDisk, segment_size: u32) -> (Options, Engine) {
    let (mut options, engine) = driven(disk);
    options.disk = Arc::new(disk.process());
    options.buffer_size = 1 << 20;
    options.buffers = 4;
    options.segment_size = segment_size;
    (options, engine)
}

/// A burst: each record is durable before the next.
fn burst(log: &Log, records: u64) {
    for _ in 0..records {
        log.append(payload(log.accepted().0 + 1)).unwrap().blocking_wait().unwrap();
    }
}

/// Two seconds without a commit: the end of the burst is seen in the second.
fn idle(engine: &Engine) {
    engine.advance(SECOND);
    engine.advance(SECOND);
}

/// The ranges of each segment that were written with zeros, and with anything else.
#[derive(Debug, Default)]
struct Written {
    zeros: BTreeMap<PathBuf, Vec<Range<u64>>>,
    records: BTreeMap<PathBuf, Vec<Range<u64>>>,
}

fn bytes(ranges: &BTreeMap<PathBuf, Vec<Range<u64>>>) -> u64 {
    ranges.values().flatten().map(|range| range.end - range.start).sum()
}

fn overlaps(ranges: &[Range<u64>], with: &Range<u64>) -> bool {
    ranges.iter().any(|range| range.start < with.end && with.start < range.end)
}

fn watched(disk: &SimDisk) -> (HookedDisk, Arc<Mutex<Written>>) {
    let written = Arc::<Mutex<Written>>::default();
    let noted = Arc::clone(&written);
    let note = move |call: &Call<'_>| {
        let segment = call.path.extension().is_some_and(|extension| extension == "seg");
        if segment && call.op == Op::Write {
            let range = call.offset..call.offset + call.bytes.len() as u64;
            let mut noted = noted.lock().unwrap();
            let path = call.path.to_owned();
            if call.bytes.iter().all(|byte| *byte == 0) {
                let records = noted.records.entry(path.clone()).or_default();
                assert!(!overlaps(records, &range), "zeros over records: {range:?}");
                noted.zeros.entry(path).or_default().push(range);
            } else {
                noted.records.entry(path).or_default().push(range);
            }
        }
        Ok(())
    };
    (HookedDisk::new(Arc::new(disk.process()), note), written)
}

fn open_watched(disk: &SimDisk, segment_size: u32) -> (Log, Engine, Arc<Mutex<Written>>) {
    let (mut options, engine) = options(disk, segment_size);
    let (hooked, written) = watched(disk);
    options.disk = Arc::new(hooked);
    let log = Log::builder(DIR).options(options).open().unwrap();
    (log, engine, written)
}

#[test]
fn the_next_burst_finds_written_blocks() {
    // One segment, and several.
    for segment_size in [8 << 20, 2 << 20] {
        let disk = SimDisk::new(1);
        let (log, engine, written) = open_watched(&disk, segment_size);
        burst(&log, BURST);
        let before = bytes(&written.lock().unwrap().zeros);
        idle(&engine);
        let taken = bytes(&written.lock().unwrap().records);
        let zeros = bytes(&written.lock().unwrap().zeros) - before;
        assert!(zeros > taken / 2 && zeros <= taken, "{zeros} bytes after a burst of {taken}");

        // Nothing more, however long it is idle.
        let operations = disk.operations();
        engine.advance(100 * SECOND);
        assert_eq!(disk.operations(), operations);

        let ahead = std::mem::take(&mut *written.lock().unwrap()).zeros;
        burst(&log, 3);
        let found = std::mem::take(&mut *written.lock().unwrap()).records;
        for (path, ranges) in found {
            // The header of a segment is its first block.
            for range in ranges.into_iter().filter(|range| range.start > 0) {
                let is_ahead = ahead.get(&path).is_some_and(|ahead| {
                    range.clone().step_by(4096).all(|at| overlaps(ahead, &(at..at + 1)))
                });
                assert!(is_ahead, "{} at {range:?} was not written ahead", path.display());
            }
        }
        let last = BURST + 3;
        assert_eq!(all(&log), payloads(last));
        log.close().unwrap();
        let (log, ..) = open_watched(&disk, segment_size);
        assert_eq!(all(&log), payloads(last));
        log.close().unwrap();
    }
}

#[test]
fn a_busy_log_and_a_small_burst_prewrite_nothing_more() {
    let disk = SimDisk::new(1);
    let (log, engine, written) = open_watched(&disk, 8 << 20);
    // Less than a burst, and more than what is prewritten beside small commits.
    for _ in 0..2 {
        log.append(&payload(1)[..120_000]).unwrap().blocking_wait().unwrap();
        engine.run();
    }
    let few = bytes(&written.lock().unwrap().zeros);
    for _ in 0..5 {
        engine.advance(SECOND);
    }
    assert_eq!(bytes(&written.lock().unwrap().zeros), few, "after two records");
    burst(&log, BURST);
    let few = bytes(&written.lock().unwrap().zeros);
    for _ in 0..BURST {
        engine.advance(SECOND / 2);
        burst(&log, 1);
    }
    assert_eq!(bytes(&written.lock().unwrap().zeros), few, "while records came");
    idle(&engine);
    assert!(bytes(&written.lock().unwrap().zeros) > few + BURST * LEN as u64);
    log.close().unwrap();
}

/// Zeros that hang keep no commit that goes elsewhere, and closing waits for them.
#[test]
fn a_commit_waits_for_no_zeros_elsewhere() {
    let disk = SimDisk::new(1);
    let (mut options, _) = options(&disk, 8 << 20);
    let engine = Engine::new(2).unwrap();
    options.engine = Some(engine.clone());
    let (hooked, written) = watched(&disk);
    options.disk = Arc::new(hooked);
    let log = Log::builder(DIR).options(options).open().unwrap();
    burst(&log, BURST);
    let gate = Gate::new();
    let _opens = Opens(disk.clone(), gate.clone());
    // The first zeros are there, and the next hang.
    disk.inject(Fault::on(Op::Sync, Effect::Block(gate.clone())).path(".seg").nth(2));
    assert!(gate.wait_for(1, LONG));
    assert!(bytes(&written.lock().unwrap().zeros) > 0);
    // The first zeros take this one.
    let ticket = log.append(b"small").unwrap();
    let seq = ticket.seq();
    ticket.blocking_wait_timeout(LONG).unwrap();
    assert_eq!(log.durable(), seq);
    gate.open();
    log.close().unwrap();
}

#[test]
fn zeros_without_room_or_descriptors_fail_nothing() {
    for fault in [
        Fault::on(Op::Write, Effect::NoSpace).path(".seg"),
        Fault::on(Op::Open, Effect::Os(24)).path(".seg"),
    ] {
        let disk = SimDisk::new(1);
        let (log, engine, _) = open_watched(&disk, 8 << 20);
        burst(&log, BURST);
        disk.inject(fault.clone());
        let faults = disk.stats().faults;
        idle(&engine);
        assert_eq!(disk.stats().faults, faults + 1, "it is tried once: {fault:?}");
        disk.clear_faults();
        burst(&log, BURST);
        idle(&engine);
        assert_eq!(log.durable(), Seq(2 * BURST));
        assert_eq!(all(&log), payloads(2 * BURST));
        log.close().unwrap();
    }
}

/// Power fails among the zeros, and among the commits that follow, twice.
#[test]
fn two_power_cuts_among_zeros_lose_nothing_durable() {
    let mut cut_in_zeros = 0;
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let mut last = 0;
        for life in 0..2 {
            let what = format!("seed {seed}, life {life}");
            let segment_size = if seed % 2 == 0 { 2 << 20 } else { 8 << 20 };
            let (log, engine, written) = open_watched(&disk, segment_size);
            assert_eq!(all(&log), payloads(last), "{what}");
            burst(&log, BURST);
            let durable = log.durable().0;
            let before = bytes(&written.lock().unwrap().zeros);
            let at = disk.operations() + seed % 11;
            disk.cut_power_at(CutPoint::During(at), Persist::Random);
            idle(&engine);
            cut_in_zeros +=
                u64::from(!disk.is_on() && bytes(&written.lock().unwrap().zeros) > before);
            while disk.is_on() && log.append(payload(log.accepted().0 + 1)).is_ok() {
                engine.run();
            }
            let (acknowledged, accepted) = (log.durable().0.max(durable), log.accepted().0);
            drop(log);
            engine.stop();
            disk.power_on();
            let (log, engine, _) = open_watched(&disk, segment_size);
            last = log.durable().0;
            assert!((acknowledged..=accepted).contains(&last), "{what}: {acknowledged} {last}");
            assert_eq!(all(&log), payloads(last), "{what}");
            disk.kill();
            drop(log);
            engine.stop();
            disk.power_on();
        }
    }
    assert!(cut_in_zeros >= 20, "only {cut_in_zeros} cuts were among zeros");
}

//! Readers at the tip and lagging ones follow a writer until power fails: what any of them was
//! given is there afterwards.
//!
//! Guards, where many read: a record that is handed out before it is durable. A run is not
//! repeatable; it says which seed the disk had.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_log::{Batch, Engine, Log, LogStream, Options, ReadError, Result, Start};
use futures_util::StreamExt;

use crate::fixture::{DIR, all, block_on, follows, in_time, payload, payloads, small};

/// Operations of the disk until a writer has had enough.
const SPAN: u64 = 300;
const RECORDS: u64 = 250;

fn options(disk: &SimDisk, seed: u64) -> (Options, Engine) {
    let engine = Engine::new(1).unwrap();
    let mut options = small(disk);
    options.engine = Some(engine.clone());
    options.dsync = seed.is_multiple_of(2);
    // Some of the readers find what they want in memory, and those who lag do not.
    options.tail_cache = (seed % 3) * (16 << 10);
    (options, engine)
}

/// Reads until an error; the number of the last record that it was given.
fn follow(
    mut stream: LogStream,
    mut last: u64,
    next: fn(&mut LogStream) -> Result<Batch, ReadError>,
) -> u64 {
    while let Ok(batch) = next(&mut stream) {
        last = follows(&batch, last);
    }
    last
}

fn waiting(stream: &mut LogStream) -> Result<Batch, ReadError> {
    block_on(stream.next()).unwrap()
}

/// A life with many readers; the number of the last record that was handed out.
fn life(log: &Log, disk: &SimDisk) -> u64 {
    let begin = log.durable().0;
    std::thread::scope(|scope| {
        let readers = [
            scope.spawn(|| follow(log.stream(Start::Oldest).unwrap(), 0, waiting)),
            scope.spawn(|| follow(log.stream(Start::Oldest).unwrap(), 0, LogStream::blocking_next)),
            scope.spawn(|| {
                // Comes late to a place that others have passed.
                let stream = log.stream(Start::Oldest).unwrap();
                drop(block_on(log.wait_durable(begin + RECORDS / 4)));
                follow(stream, 0, waiting)
            }),
        ];
        let tip = log.stream(Start::Tip).unwrap();
        let tips = scope.spawn(move || follow(tip, begin, waiting));
        for seq in begin + 1..=begin + RECORDS {
            let appended = log.append(payload(seq)).and_then(|ticket| Ok(ticket.blocking_wait()?));
            if appended.is_err() {
                break;
            }
        }
        disk.cancel_cut();
        if disk.is_on() {
            disk.power_cut(Persist::Nothing);
        }
        // The next commit wakes the readers that read everything, and they see the end.
        drop(log.append([]).and_then(|ticket| Ok(ticket.blocking_wait()?)));
        readers.into_iter().chain([tips]).map(|reader| reader.join().unwrap()).max().unwrap()
    })
}

#[test]
fn records_given_to_a_reader_survive_a_power_cut() {
    let mut handed_out = 0;
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let given = in_time("a life with readers", {
            let disk = disk.clone();
            move || {
                let mut given = 0;
                for life_number in 0..2 {
                    let (options, engine) = options(&disk, seed);
                    let log = Log::builder(DIR).options(options).open().unwrap();
                    assert!(log.durable().0 >= given, "seed {seed}: {given} was handed out");
                    let at = disk.operations() + 20 + (seed * 97 + life_number * 41) % SPAN;
                    let how = if seed % 4 < 2 { Persist::Random } else { Persist::Nothing };
                    disk.cut_power_at(CutPoint::During(at), how);
                    given = given.max(life(&log, &disk));
                    drop(log);
                    engine.stop();
                    disk.power_on();
                }
                given
            }
        });
        let (options, _engine) = options(&disk, seed);
        let log = Log::builder(DIR).options(options).open().unwrap();
        let there = all(&log);
        assert!(there.len() as u64 >= given, "seed {seed}: {given} was handed out");
        assert_eq!(there, payloads(1..=log.durable().0), "seed {seed}");
        handed_out += given;
        log.close().unwrap();
    }
    assert!(handed_out > 0, "no reader got a record");
}

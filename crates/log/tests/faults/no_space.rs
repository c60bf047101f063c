//! `NoSpace`: who gets it, what it says, and that appending continues by every way when there is
//! room.
//!
//! Guards: a full disk that poisons; a caller that may not block and waits for ever; space that is
//! left over because a whole segment does not fit; what a process that died was making.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::path::Path;
use std::time::Duration;

use esker_disk::sim::{Persist, SimDisk};
use esker_disk::{Disk, Open};
use esker_log::{Error, Log, Seq};

use crate::fixture::{DIR, LONG, all, append, block_on, driven, in_time, payload, payloads, small};

const MIB: u64 = 1 << 20;

fn is_full<T: std::fmt::Debug>(outcome: Result<T, Error>) {
    match outcome {
        Err(Error::NoSpace { dir, wanted, .. }) => {
            assert_eq!(dir, Path::new(DIR));
            assert!(wanted > 0);
        }
        other => panic!("on a full disk: {other:?}"),
    }
}

/// Appends until the disk is full; the last record.
fn fill(log: &Log) -> u64 {
    loop {
        let seq = log.accepted().0 + 1;
        match log.append(payload(seq)) {
            Ok(ticket) => drop(ticket.blocking_wait().unwrap()),
            Err(error) => {
                let Error::NoSpace { durable, .. } = error else { panic!("{error:?}") };
                assert_eq!(durable, Seq(seq - 1));
                return seq - 1;
            }
        }
    }
}

#[test]
fn every_append_variant_returns_no_space_and_works_with_room_again() {
    in_time("a full disk", || {
        let disk = SimDisk::new(1);
        disk.set_capacity(Some(MIB));
        let mut options = small(&disk);
        options.reserve = Some(128 << 10);
        let log = Log::builder(DIR).options(options).open().unwrap();
        let last = fill(&log);
        let large = vec![7; 70_000];
        let again = || {
            let mut tries = 0;
            loop {
                match log.try_append(&large) {
                    // The engine is at it.
                    Err(Error::Full) => std::thread::sleep(Duration::from_millis(1)),
                    other => return other,
                }
                tries += 1;
                assert!(tries < 10_000, "full for ever");
            }
        };
        is_full(log.append(&large));
        is_full(log.append_timeout(&large, LONG));
        is_full(block_on(log.append_async(&large)));
        is_full(block_on(log.append_batch_async(&[&large])));
        is_full(log.append_atomic(&[&large, &large]));
        is_full(log.sink().unwrap().blocking_push(&large));
        is_full(again());
        assert_eq!(all(&log), payloads(1..=last));
        disk.set_capacity(None);
        block_on(log.append_async(&large)).unwrap().blocking_wait().unwrap();
        log.append_timeout(&large, LONG).unwrap().blocking_wait().unwrap();
        again().unwrap().blocking_wait().unwrap();
        log.append_atomic(&[&large, &large]).unwrap().blocking_wait().unwrap();
        log.close().unwrap();
    });
}

/// The last megabytes are used, too, and a record that is too large for them is refused alone.
#[test]
fn segments_become_smaller_where_the_disk_is_small() {
    let disk = SimDisk::new(1);
    let capacity = 24 * MIB;
    disk.set_capacity(Some(capacity));
    let (mut options, _) = driven(&disk);
    options.segment_size = 16 << 20;
    options.buffer_size = 4 << 20;
    options.buffers = 4;
    options.reserve = Some(MIB);
    let log = Log::builder(DIR).options(options.clone()).open().unwrap();
    let mut bytes = 0;
    loop {
        match log.append(vec![3; 500_000]) {
            Ok(ticket) => drop(ticket.blocking_wait().unwrap()),
            Err(error) => break is_full::<()>(Err(error)),
        }
        bytes += 500_000;
    }
    // The reserve, a step that was not to be had, and what blocks leave over.
    assert!(bytes > capacity - 5 * MIB, "{bytes} bytes on a disk of {capacity}");
    is_full(log.append(vec![3; 1_000_000]));
    log.append(b"small").unwrap().blocking_wait().unwrap();
    log.close().unwrap();
    let log = Log::builder(DIR).options(options).open().unwrap();
    assert_eq!(log.durable().0, bytes / 500_000 + 1);
    log.close().unwrap();
}

/// Dropped segments are kept as spare files, and their space is used before an append is refused,
/// also where a segment grows.
#[test]
fn spare_files_make_room_for_a_segment_that_grows() {
    let disk = SimDisk::new(1);
    let (mut options, _) = driven(&disk);
    options.segment_size = 4 << 20;
    options.retention.segments = Some(9);
    options.reserve = Some(128 << 10);
    disk.set_capacity(Some(10 * MIB));
    let log = Log::builder(DIR).options(options).open().unwrap();
    let large = vec![7; 100_000];
    let append = || log.append(&large).map(|ticket| ticket.blocking_wait().unwrap());
    while append().is_ok() {}
    let newest = log.segments().pop().unwrap();
    assert!(newest.bytes < 2 * MIB, "{newest:?} has all of its size");
    log.truncate_before(log.accepted()).unwrap();
    let spares = || {
        let files = disk.files(Path::new(DIR)).unwrap();
        files.iter().filter(|name| name.ends_with(".spare")).count()
    };
    assert_eq!(spares(), 2);
    for n in 0..20 {
        let appended = append();
        assert!(appended.is_ok(), "record {n}, {} spare files: {appended:?}", spares());
    }
    assert_eq!(log.segments().len(), 1);
    log.close().unwrap();
}

/// A process died while it reserved the next segment, and the disk is full of that.
#[test]
fn space_reserved_by_a_dead_process_is_released() {
    let disk = SimDisk::new(1);
    let (mut options, _) = driven(&disk);
    options.reserve = Some(0);
    let log = Log::builder(DIR).options(options.clone()).open().unwrap();
    append(&log, 5);
    disk.kill();
    drop(log);
    disk.power_on();
    let dir = disk.open_dir(Path::new(DIR)).unwrap();
    let file = dir.open("00000000000000000009.seg", Open::create()).unwrap();
    file.preallocate(0, 10 * MIB).unwrap();
    drop((file, dir));
    disk.set_capacity(Some(disk.used()));
    let log = Log::builder(DIR).options(options).open().unwrap();
    assert_eq!(all(&log), payloads(1..=5));
    append(&log, 100);
    log.close().unwrap();
    assert!(disk.used() < MIB, "{} bytes are in use", disk.used());
}

/// Internal appends continue in the reserve, and ordinary ones only when it is filled again.
#[test]
fn the_reserve_is_for_internal_appends() {
    let disk = SimDisk::new(1);
    disk.set_capacity(Some(MIB));
    let (mut options, _) = driven(&disk);
    options.reserve = Some(256 << 10);
    let log = Log::builder(DIR).options(options.clone()).open().unwrap();
    let last = fill(&log);
    let large = vec![7; 20_000];
    // Half of it is for them.
    for _ in 0..4 {
        log.append_internal(&large).unwrap().blocking_wait().unwrap();
    }
    is_full(log.append(b"there would be room in that segment"));
    log.truncate_before(last).unwrap();
    append_one(&log);
    assert!(fill_more(&log) > 10);
    // It is whole again.
    for _ in 0..4 {
        log.append_internal(&large).unwrap().blocking_wait().unwrap();
    }
    log.close().unwrap();
    let log = Log::builder(DIR).options(options).open().unwrap();
    assert_eq!(log.oldest(), Seq(last));
    log.close().unwrap();
}

fn append_one(log: &Log) {
    log.append(b"room").unwrap().blocking_wait().unwrap();
}

fn fill_more(log: &Log) -> u64 {
    (0..)
        .find(|_| log.append([1; 9000]).and_then(esker_log::Ticket::blocking_wait).is_err())
        .unwrap()
}

/// A log that fills its disk alone, with internal appends too, opens after every kill.
///
/// Guards: a reserve that internal appends use up, so that nothing is left for opening.
#[test]
fn internal_appends_leave_the_space_that_opening_needs() {
    for power in [None, Some(Persist::Random), Some(Persist::Nothing)] {
        for (len, waits) in [10, 3000, 20_000].into_iter().flat_map(|n| [(n, true), (n, false)]) {
            let disk = SimDisk::new(1);
            disk.set_capacity(Some(MIB));
            let mut expected = Vec::new();
            for life in 0..40 {
                let (mut options, _engine) = driven(&disk);
                options.reserve = Some(128 << 10);
                let opened = Log::builder(DIR).options(options).open();
                let log = opened.unwrap_or_else(|error| panic!("{power:?} {len} {life}: {error}"));
                let found = all(&log);
                let case = format!("{power:?}, {len} bytes, waits: {waits}, life {life}");
                assert!(expected.starts_with(&found), "{case}");
                assert!(!waits || found.len() == expected.len(), "{case}");
                expected = found;
                let record = vec![life as u8; len];
                for internal in [false, true] {
                    while let Ok(ticket) = match internal {
                        false => log.append(&record),
                        true => log.append_internal(&record),
                    } {
                        expected.push((ticket.seq().0, record.clone()));
                        if waits {
                            ticket.blocking_wait().unwrap();
                        }
                    }
                }
                if life == 0 {
                    let left = disk.contents(&Path::new(DIR).join("reserve")).unwrap().len();
                    assert!(left >= 64 << 10, "{case}: {left} bytes");
                }
                match power {
                    Some(persist) => disk.power_cut(persist),
                    None => disk.kill(),
                }
                drop(log);
                disk.power_on();
            }
        }
    }
}

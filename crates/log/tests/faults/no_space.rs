//! `NoSpace`: who gets it, what it says, and that appending continues by every way when there is
//! room.
//!
//! Guards: a full disk that poisons; a caller that may not block and waits for ever; space that is
//! left over because a whole segment does not fit; what a process that died was making.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::path::Path;
use std::time::Duration;

use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_disk::{Disk, OpenMode};
use esker_log::component::Purpose;
use esker_log::{Append, AppendError, Error, Log, Policy, Retention, Seq, Sink};

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
                let AppendError::NoSpace { durable, .. } = error else { panic!("{error:?}") };
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
                    Err(AppendError::Full) => std::thread::sleep(Duration::from_millis(1)),
                    other => return other,
                }
                tries += 1;
                assert!(tries < 10_000, "full for ever");
            }
        };
        is_full(log.append(&large).map_err(Into::into));
        is_full(log.append_timeout(&large, LONG).map_err(Into::into));
        is_full(block_on(log.append_async(&large)).map_err(Into::into));
        is_full(
            block_on(log.write_async(Append::records(&[&large, &large])))
                .map_err(AppendError::from)
                .map_err(Into::into),
        );
        is_full(
            log.write(Append::records(&[&large, &large]).atomic())
                .map_err(AppendError::from)
                .map_err(Into::into),
        );
        is_full(Sink::new(&log).unwrap().blocking_append(&large).map_err(Into::into));
        is_full(again().map_err(Into::into));
        assert_eq!(all(&log), payloads(1..=last));
        disk.set_capacity(None);
        block_on(log.append_async(&large)).unwrap().blocking_wait().unwrap();
        log.append_timeout(&large, LONG).unwrap().blocking_wait().unwrap();
        again().unwrap().blocking_wait().unwrap();
        log.write(Append::records(&[&large, &large]).atomic()).unwrap().blocking_wait().unwrap();
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
            Err(error) => break is_full::<()>(Err(error.into())),
        }
        bytes += 500_000;
    }
    // The reserve, a step that was not to be had, and what blocks leave over.
    assert!(bytes > capacity - 5 * MIB, "{bytes} bytes on a disk of {capacity}");
    is_full(log.append(vec![3; 1_000_000]).map_err(Into::into));
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
    let newest = log.storage().segments().pop().unwrap();
    assert!(newest.bytes < 2 * MIB, "{newest:?} has all of its size");
    log.retention().truncate_before(log.accepted()).unwrap();
    let spares = || {
        let files = disk.files(Path::new(DIR)).unwrap();
        files.iter().filter(|name| name.ends_with(".spare")).count()
    };
    assert_eq!(spares(), 2);
    for n in 0..20 {
        let appended = append();
        assert!(appended.is_ok(), "record {n}, {} spare files: {appended:?}", spares());
    }
    assert_eq!(log.storage().segments().len(), 1);
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
    let file = dir.open("00000000000000000009.seg", OpenMode::create()).unwrap();
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
        log.component().append(Purpose::Internal, &large).unwrap().blocking_wait().unwrap();
    }
    is_full(log.append(b"there would be room in that segment").map_err(Into::into));
    log.retention().truncate_before(last).unwrap();
    append_one(&log);
    assert!(fill_more(&log) > 10);
    // It is whole again.
    for _ in 0..4 {
        log.component().append(Purpose::Internal, &large).unwrap().blocking_wait().unwrap();
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
        .find(|_| log.append([1; 9000]).and_then(|ticket| Ok(ticket.blocking_wait()?)).is_err())
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
                        true => log.component().append(Purpose::Internal, &record),
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

/// Appends to a ring without waiting for durability, in each way that there is.
fn lap(log: &Log, records: u64, way: usize) -> Result<(), Error> {
    for n in 0..records {
        let record = payload(n);
        let appended = match way {
            0 => log.append(&record),
            1 => log.append_timeout(&record, LONG),
            2 => block_on(log.append_async(&record)),
            3 => log.write(Append::records(&[&record, &record])).map_err(AppendError::from),
            4 => {
                log.write(Append::records(&[&record, &record]).atomic()).map_err(AppendError::from)
            }
            _ => loop {
                match log.try_append(&record) {
                    // The engine is at it.
                    Err(AppendError::Full) => std::thread::sleep(Duration::from_micros(50)),
                    other => break other,
                }
            },
        };
        appended?.detach();
    }
    Ok(())
}

/// Bug: a writer at full speed was ahead of the segments that leave a ring, and got `NoSpace`
/// although they were about to.
#[test]
fn a_ring_on_a_full_disk_waits_for_the_segments_that_leave() {
    in_time("laps of a ring", || {
        // Without threads, those wait for ever that leave commits to the engine.
        for (way, threads) in (0..6).map(|way| (way, true)).chain([0, 3, 4].map(|way| (way, false)))
        {
            let disk = SimDisk::new(1);
            // The reserve, two segments, and less than two more.
            disk.set_capacity(Some(320 << 10));
            let mut options = if threads { small(&disk) } else { driven(&disk).0 };
            // All that the disk has room for is accepted before any of it is durable.
            options.buffers = if threads { 2 } else { 64 };
            options.reserve = Some(64 << 10);
            options.retention.segments = Some(2);
            let log = Log::builder(DIR).options(options).open().unwrap();
            let outcome = lap(&log, 2000, way);
            assert!(outcome.is_ok(), "way {way}, threads: {threads}: {outcome:?}");
            log.barrier().unwrap().blocking_wait().unwrap();
            let (first, last) = (log.oldest().0, log.durable().0);
            assert!(last - first > 20 && all(&log).len() as u64 == last - first + 1);
            log.close().unwrap();
        }
    });
}

fn reserve_of(disk: &SimDisk) -> u64 {
    disk.contents(&Path::new(DIR).join("reserve")).map_or(0, |bytes| bytes.len() as u64)
}

/// Bug: each time that a ring dropped a segment, its reserve took half of what was free, until the
/// ring had no room.
#[test]
fn the_reserve_of_a_ring_keeps_its_size() {
    let disk = SimDisk::new(1);
    disk.set_capacity(Some(900 << 10));
    let (mut options, engine) = driven(&disk);
    // It takes a quarter of that at first: half would leave less than half.
    options.reserve = Some(MIB - (64 << 10));
    options.retention.segments = Some(3);
    let log = Log::builder(DIR).options(options.clone()).open().unwrap();
    let first = reserve_of(&disk);
    assert!((200 << 10..300 << 10).contains(&first), "{first}");
    for _ in 0..50 {
        lap(&log, 20, 0).unwrap();
        engine.run();
        assert_eq!(reserve_of(&disk), first);
    }
    log.close().unwrap();
    drop(log);
    // Openings leave it, also those that are about to do something else.
    options.reserve = None;
    for n in 0..6 {
        options.retention.segments = (n % 2 == 0).then_some(3);
        let log = Log::builder(DIR).options(options.clone()).open().unwrap();
        assert_eq!(reserve_of(&disk), first);
        match n % 2 {
            0 => lap(&log, 200, 0).unwrap(),
            _ => log.retention().truncate_before(log.durable()).unwrap(),
        }
        log.close().unwrap();
        engine.run();
    }
    // Only one with a size of its own changes it: it leaves as much as it has then.
    for (wanted, expected) in
        [(MIB, first..=340 << 10), (100 << 10, 100 << 10..=100 << 10), (0, 0..=0)]
    {
        options.reserve = Some(wanted);
        options.retention.segments = Some(3);
        let log = Log::builder(DIR).options(options.clone()).open().unwrap();
        assert!(expected.contains(&reserve_of(&disk)), "{wanted}: {}", reserve_of(&disk));
        lap(&log, 200, 0).unwrap();
        log.close().unwrap();
        // What is queued there holds the log, and its files.
        engine.run();
    }
    // Without a retention it grows when space was freed, and leaves as much as it has.
    options.retention = Retention::NONE;
    options.reserve = Some(MIB - (64 << 10));
    disk.set_capacity(Some(3 * MIB));
    let log = Log::builder(DIR).options(options).open().unwrap();
    assert!(reserve_of(&disk) > MIB / 2, "{}", reserve_of(&disk));
    log.close().unwrap();
}

/// A disk that holds nothing but the log, all of whose records were truncated: the newest segment
/// has all of the space, and is never dropped.
///
/// Bug: the append that would have begun another segment found no room for it, beside a reserve.
#[test]
fn where_all_was_truncated_the_next_segment_comes_from_the_reserve() {
    for segment_size in [64 << 10, 64 << 20] {
        let disk = SimDisk::new(1);
        disk.set_capacity(Some(8 * MIB));
        let (mut options, engine) = driven(&disk);
        options.segment_size = 64 << 20;
        options.reserve = Some(4 * MIB);
        let log = Log::builder(DIR).options(options.clone()).open().unwrap();
        let last = fill(&log);
        log.close().unwrap();
        drop(log);
        options.segment_size = segment_size;
        let log = Log::builder(DIR).options(options.clone()).open().unwrap();
        let reserve = reserve_of(&disk);
        // Where a record is left, the reserve is for others.
        log.retention().truncate_before(last).unwrap();
        let large = vec![7; 10_000];
        is_full(log.append(&large).map_err(Into::into));
        assert_eq!(reserve_of(&disk), reserve);
        log.retention().truncate_before(last + 1).unwrap();
        log.append(&large).unwrap().blocking_wait().unwrap();
        engine.run();
        assert!(disk.used() < 5 * MIB, "{} bytes are in use", disk.used());
        assert!(log.storage().segments().len() == 1 && reserve_of(&disk) >= reserve);
        assert!(fill_more(&log) > 200);
        assert_eq!(all(&log)[0], (last + 1, large));
        log.close().unwrap();
    }
}

/// Power cuts while the next segment comes from the reserve.
#[test]
fn a_segment_from_the_reserve_is_safe_against_power_cuts() {
    let filled = || {
        let disk = SimDisk::new(1);
        disk.set_capacity(Some(2 * MIB));
        let (mut options, _) = driven(&disk);
        options.segment_size = 64 << 20;
        options.reserve = Some(MIB);
        let log = Log::builder(DIR).options(options).open().unwrap();
        let last = fill(&log);
        log.retention().truncate_before(last + 1).unwrap();
        (disk, log, last)
    };
    let records = |last: u64| [(last + 1, vec![1; 5000]), (last + 2, vec![2; 5000])];
    for at in 0.. {
        let mut cut_early = false;
        for persist in [Persist::Nothing, Persist::Everything, Persist::Random] {
            let (disk, log, last) = filled();
            let begin = disk.operations();
            disk.cut_power_at(CutPoint::Before(begin + at), persist);
            let mut durable = 0;
            for (_, record) in &records(last) {
                match log.append(record).and_then(|ticket| Ok(ticket.blocking_wait()?)) {
                    Ok(_) => durable += 1,
                    Err(_) => break,
                }
            }
            cut_early |= durable < 2;
            drop(log);
            disk.power_on();
            // The second crash comes before anything was appended.
            for _ in 0..2 {
                let (mut options, _) = driven(&disk);
                options.segment_size = 64 << 20;
                let log = Log::builder(DIR).options(options).open().unwrap();
                let found = all(&log);
                assert!(found.len() >= durable && records(last).starts_with(&found), "{at}");
                disk.power_cut(persist);
                drop(log);
                disk.power_on();
            }
            let (options, _) = driven(&disk);
            let log = Log::builder(DIR).options(options).open().unwrap();
            append_one(&log);
            log.close().unwrap();
        }
        if !cut_early {
            assert!(at > 10, "{at}");
            return;
        }
    }
}

/// Bug: a segment of a ring kept all blocks of its file for the one after it, also where large
/// records left half of it unused, so a ring took up to twice its limit.
#[test]
fn a_ring_of_large_records_takes_little_more_than_its_limit() {
    for len in [37_000, 20_000, 300_000] {
        let disk = SimDisk::new(1);
        let (mut options, engine) = driven(&disk);
        options.reserve = Some(64 << 10);
        options.retention.bytes = Some(MIB);
        let log = Log::builder(DIR).options(options).open().unwrap();
        for n in 0..200u32 {
            // The next one after a large record is small, and begins a segment of the usual size.
            let len = if len > 64 << 10 && n % 2 == 0 { 9_000 } else { len };
            log.append(vec![1; len]).unwrap().blocking_wait().unwrap();
            engine.run();
            // The next segment, two spares and the small files beside it.
            let most = MIB * 8 / 7 + 3 * (72 << 10) + (64 << 10) + (110 << 10);
            assert!(disk.used() <= most, "{len}: {} bytes", disk.used());
            for name in disk.files(Path::new(DIR)).unwrap() {
                let bytes = disk.contents(&Path::new(DIR).join(&name)).unwrap().len();
                assert!(!name.ends_with(".spare") || bytes <= 80 << 10, "{name}: {bytes} bytes");
            }
        }
        log.close().unwrap();
    }
}

/// Bug: on a disk that was nearly full, each unit extended its segment by itself, after an attempt
/// that failed.
#[test]
fn the_rest_of_a_disk_is_reserved_in_few_steps() {
    let disk = SimDisk::new(1);
    disk.set_capacity(Some(60 * MIB));
    let (mut options, _) = driven(&disk);
    options.segment_size = 64 << 20;
    options.reserve = Some(64 << 10);
    let log = Log::builder(DIR).options(options).open().unwrap();
    let before = disk.stats().resizes;
    let mut appended = 0;
    while log.append(vec![1; 5_000]).and_then(|ticket| Ok(ticket.blocking_wait()?)).is_ok() {
        appended += 1;
    }
    assert!(appended > 7_000, "{appended}");
    let steps = disk.stats().resizes - before;
    assert!(steps < 1_000, "{steps} steps for {appended} records");
    log.close().unwrap();
}

/// Bug: an opening that has to copy the end of the log used free space or the reserve, and never
/// both.
#[test]
fn recovery_uses_free_space_and_the_reserve_together() {
    for extra in (0..80).map(|pages| pages * 4096) {
        let disk = SimDisk::new(1);
        let (mut options, engine) = driven(&disk);
        options.segment_size = 256 << 10;
        options.policy = Policy::OsBuffered;
        // Less than the copy takes, some 210 KiB. What was reserved ahead is free after a crash.
        options.reserve = Some(64 << 10);
        let log = Log::builder(DIR).options(options.clone()).open().unwrap();
        let records: Vec<_> = (1..=40).map(|n| (n, vec![n as u8; 5000])).collect();
        for (_, record) in &records {
            drop(log.append(record).unwrap());
            engine.run();
        }
        disk.kill();
        drop(log);
        disk.power_on();
        disk.set_capacity(Some(disk.used() + extra));
        let opened = Log::builder(DIR).options(options.clone()).open();
        let log = opened.unwrap_or_else(|error| panic!("{extra} bytes are free: {error}"));
        assert_eq!(all(&log), records);
        log.close().unwrap();
    }
}

//! Records that are read out of corrupt files.
//!
//! Guards: a valid record that is not found, or found twice; bytes that are taken for a record; a
//! record that was truncated, or cut off by a recovery, or not known to be durable.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_disk::sim::SimDisk;
use esker_log::{
    Log, ReadError, ReadOptions, RepairError, Salvage, Salvaged, Start, repair, salvage,
    salvage_log,
};

use crate::corruption_kit::map::{Map, segment_path};
use crate::fixture::{DIR, ReadRecord, all, append, append_many, driven, payload, payloads, seen};

fn open(disk: &SimDisk) -> Log {
    Log::builder(DIR).options(driven(disk).0).open().unwrap()
}

fn options(disk: &SimDisk) -> ReadOptions {
    ReadOptions::from(driven(disk).0)
}

/// The records, and the bytes that were skipped.
fn read(salvage: Salvage) -> (Vec<ReadRecord>, u64) {
    let (records, skipped, _) = read_all(salvage);
    (records, skipped)
}

/// The records, the bytes that were skipped, and the numbers that are missing.
fn read_all(salvage: Salvage) -> (Vec<ReadRecord>, u64, Vec<u64>) {
    let (mut records, mut skipped, mut missing) = (Vec::<ReadRecord>::new(), 0, Vec::new());
    for found in salvage {
        match found.unwrap() {
            Salvaged::Record(record) => {
                if let (Some(prev), Some(last)) = (record.prev, records.last()) {
                    assert!(last.0 <= prev.0 && prev < record.seq, "{prev} before {}", record.seq);
                }
                records.push((record.seq.0, record.payload));
            }
            Salvaged::Skipped { bytes, .. } => skipped += bytes,
            Salvaged::Missing { from, to } => missing.extend(from.0 + 1..=to.0),
            other => panic!("{other:?}"),
        }
    }
    (records, skipped, missing)
}

/// Several segments, with commits of one record and of a hundred, truncated in the middle of one,
/// and continued after a crash that cut records off.
fn sample() -> (SimDisk, Vec<ReadRecord>) {
    let disk = SimDisk::new(1);
    let process = disk.process();
    let log = open(&process);
    append(&log, 30);
    append_many(&log, 250);
    log.retention().truncate_before(12).unwrap();
    append(&log, 3);
    drop(log.append("cut off").unwrap());
    disk.kill();
    disk.power_on();
    let log = open(&disk);
    let next = log.accepted().0 + 1;
    append_many(&log, 120);
    let written: Vec<_> = all(&log);
    assert!(written == payloads(12..next + 120));
    log.close().unwrap();
    (disk, written)
}

fn segments(disk: &SimDisk) -> Vec<PathBuf> {
    let names = disk.files(Path::new(DIR)).unwrap();
    let names = names.into_iter().filter(|name| name.ends_with(".seg"));
    names.map(|name| Path::new(DIR).join(name)).collect()
}

#[test]
fn a_valid_log_is_salvaged_whole() {
    let (disk, written) = sample();
    let before = disk.fingerprint();
    assert!(segments(&disk).len() > 2);
    let (found, skipped, missing) = read_all(salvage_log(DIR, options(&disk)).unwrap());
    assert!(found == written, "{} of {} records", found.len(), written.len());
    assert_eq!((skipped, missing), (0, vec![]));
    assert_eq!(disk.fingerprint(), before);
    // Each file by itself has no durable lower bound and no trim point.
    let files = segments(&disk).into_iter();
    let found: BTreeSet<_> =
        files.flat_map(|file| read(salvage(&file, options(&disk)).unwrap()).0).collect();
    assert!((12..=400).all(|seq| found.contains(&(seq, payload(seq)))));
}

/// A recovery cut the segment, and a crash kept what follows the cut: a record whose number was
/// assigned again.
#[test]
fn what_follows_a_cut_is_dead() {
    let disk = SimDisk::new(1);
    append(&open(&disk), 5);
    let segment = segments(&disk).remove(0);
    let other = disk.fork(1);
    open(&other).append("cut off").unwrap().blocking_wait().unwrap();
    let longer = other.contents(&segment).unwrap();
    let killed = open(&disk.process());
    disk.kill();
    drop(killed);
    disk.power_on();
    let log = open(&disk);
    append(&log, 3);
    log.close().unwrap();
    disk.put(&segment, &longer).unwrap();
    assert_eq!(segments(&disk).len(), 2);
    let (found, _) = read(salvage_log(DIR, options(&disk)).unwrap());
    assert!(found == payloads(1..=8), "{} records", found.len());
    let alone = read(salvage(&segment, options(&disk)).unwrap()).0;
    assert_eq!(alone.last(), Some(&(6, b"cut off".to_vec())));
}

/// Files that are gone or cut, and blocks that read as zeros, leave no bytes to skip.
#[test]
fn what_is_in_no_file_is_reported_as_missing() {
    let (disk, written) = sample();
    let mut lost_any = 0;
    for file in &segments(&disk) {
        let len = disk.contents(file).unwrap().len();
        for harm in 0..3 {
            let disk = disk.fork(harm);
            match harm {
                0 => disk.remove(file).unwrap(),
                1 => disk.truncate(file, (len / 2) as u64).unwrap(),
                _ => disk.overwrite(file, 4096, &vec![0; len - 4096]).unwrap(),
            }
            let (found, _, missing) = read_all(salvage_log(DIR, options(&disk)).unwrap());
            let found: BTreeSet<u64> = found.into_iter().map(|(seq, _)| seq).collect();
            let lost: Vec<u64> =
                written.iter().map(|(seq, _)| *seq).filter(|seq| !found.contains(seq)).collect();
            assert!(lost == missing, "{harm}, {}: {lost:?}, {missing:?}", file.display());
            lost_any += lost.len();
        }
    }
    assert!(lost_any > 800, "{lost_any}");
}

/// One flipped bit costs the record that it is in, at most.
#[test]
fn a_flipped_bit_costs_one_record() {
    let (disk, written) = sample();
    let mut lost = 0;
    for file in segments(&disk) {
        let bytes = disk.contents(&file).unwrap().len() as u64;
        for byte in (0..bytes).step_by(211) {
            let disk = disk.fork(byte);
            disk.flip_bit(&file, byte * 8 + byte % 8).unwrap();
            let (found, skipped) = read(salvage_log(DIR, options(&disk)).unwrap());
            let at = format!("byte {byte} of {}", file.display());
            assert!(found.len() + 1 >= written.len(), "{at}: {} records", found.len());
            assert!(found.iter().all(|record| written.binary_search(record).is_ok()), "{at}");
            assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0), "{at}");
            assert!(skipped > 0 || found.len() == written.len(), "{at}: silently skipped");
            lost += written.len() - found.len();
        }
    }
    assert!(lost > 300, "{lost}");
}

/// No checksum covers the zeros after a record.
#[test]
fn a_flipped_bit_in_the_padding_costs_no_record() {
    let (disk, written) = sample();
    let mut flips = 0;
    for segment in Map::read(&disk).segments {
        let file = segment_path(segment.number);
        for record in segment.units.iter().flat_map(|unit| &unit.records).step_by(7) {
            for byte in record.payload.end..record.at.end {
                let disk = disk.fork(byte as u64);
                disk.flip_bit(&file, byte as u64 * 8 + 3).unwrap();
                let (found, _, missing) = read_all(salvage_log(DIR, options(&disk)).unwrap());
                let at = format!("byte {byte} of {}, record {}", file.display(), record.seq);
                assert!(found == written, "{at}: {} records", found.len());
                assert!(missing.is_empty(), "{at}");
                flips += 1;
            }
        }
    }
    assert!(flips > 100, "{flips}");
}

/// `repair` quarantines whole commits: what it took, and what is left, are all but one record.
#[test]
fn quarantined_bytes_and_the_repaired_log_are_all_but_one_record() {
    let (disk, written) = sample();
    let mut quarantined = 0;
    for file in segments(&disk) {
        let bytes = disk.contents(&file).unwrap().len() as u64;
        for byte in (4096..bytes).step_by(3011) {
            let disk = disk.fork(byte);
            disk.flip_bit(&file, byte * 8).unwrap();
            let repaired = repair(DIR, options(&disk)).unwrap();
            let mut found = kept(&disk);
            for range in &repaired.quarantined {
                let Some(kept_in) = &range.kept_in else { continue };
                let salvaged = read(salvage(kept_in, options(&disk)).unwrap()).0;
                quarantined += salvaged.len();
                found.extend(salvaged.into_iter().filter(|(seq, _)| *seq >= 12));
            }
            let missing = written.iter().filter(|record| !found.contains(record)).count();
            assert!(missing <= 1, "byte {byte} of {}: {missing} are missing", file.display());
            assert!(found.iter().all(|record| written.binary_search(record).is_ok()));
        }
    }
    assert!(quarantined > 300, "{quarantined}");
}

/// The records of the repaired log, without its gaps.
fn kept(disk: &SimDisk) -> BTreeSet<ReadRecord> {
    let log = open(disk);
    let mut stream = log.stream(Start::Oldest).unwrap();
    let mut kept = BTreeSet::new();
    loop {
        match stream.try_next() {
            Ok(Some(batch)) => kept.extend(seen(&batch)),
            Ok(None) => return kept,
            Err(ReadError::Quarantined(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn what_is_no_file_of_a_log_is_refused() {
    let (disk, _) = sample();
    let file = segments(&disk).remove(0);
    let bytes = Arc::new(disk.contents(&file).unwrap());
    for name in ["manifest", "lock", "x.bytes", "1-4294963200.bytes", "1-4097.bytes"] {
        let path = Path::new(DIR).join(name);
        let error = salvage(&path, options(&disk)).unwrap_err();
        assert!(matches!(error, RepairError::NotALog { .. }), "{name}: {error}");
    }
    // Of another log: nothing in it matches.
    let other = Log::builder("/other").options(driven(&disk).0).open().unwrap();
    append(&other, 3);
    let name = file.file_name().unwrap();
    disk.put(&Path::new("/other").join(name), &bytes).unwrap();
    let (found, skipped) = read(salvage(Path::new("/other").join(name), options(&disk)).unwrap());
    assert!(found.is_empty() && skipped > 0);
}

//! A log whose files were copied by hand, one by one, beside its writer: it opens as it was at some
//! moment, or the corruption names which file is newer than which.
//!
//! Bug: it said that a segment is missing, as if the disk had lost it.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;

use esker_disk::Disk;
use esker_disk::sim::SimDisk;
use esker_log::{Log, LogBuilder, OpenError, Options, ReadOnlyLog, Start, verify};

use crate::corruption_kit::edits::{put, unlink};
use crate::corruption_kit::{DIR, map::in_dir};

/// When the writer is opened again.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Reopens {
    Never,
    Sometimes,
}

fn payload(seq: u64) -> Vec<u8> {
    let len = 1500 + seq * 37 % 500;
    (0..len).map(|at| (seq * 31 + at) as u8).collect()
}

fn options(disk: &SimDisk) -> Options {
    Options::on(Arc::new(disk.clone()))
}

fn builder(disk: &SimDisk) -> LogBuilder {
    Log::builder(DIR).options(options(disk)).segment_size(64 << 10)
}

fn open(disk: &SimDisk) -> Log {
    builder(disk).retain_segments(3).open().unwrap()
}

fn append(log: &Log, count: u64) {
    for _ in 0..count {
        let next = log.accepted().0 + 1;
        log.append(payload(next)).unwrap().blocking_wait().unwrap();
    }
}

fn files(disk: &SimDisk) -> Vec<String> {
    disk.files(Path::new(DIR)).unwrap()
}

/// Copies a file to the same name on another disk, if the log still has it.
fn copy_file(from: &SimDisk, to: &SimDisk, name: &str) {
    if let Ok(content) = from.contents(&in_dir(name)) {
        put(to, &in_dir(name), &content);
    }
}

fn new_copy() -> SimDisk {
    let copy = SimDisk::new(2);
    copy.create_dir(Path::new(DIR)).unwrap();
    copy
}

/// Copies the files in this order, with so many appends after each of them.
fn copy(order: impl Fn(&mut Vec<String>), appends: u64, reopens: Reopens) -> SimDisk {
    let (disk, copy) = (SimDisk::new(1), new_copy());
    let mut log = open(&disk);
    append(&log, 150);
    let mut names = files(&disk);
    names.sort();
    order(&mut names);
    for (n, name) in names.iter().enumerate() {
        copy_file(&disk, &copy, name);
        append(&log, appends);
        if reopens == Reopens::Sometimes && n % 2 == 1 {
            log.close().unwrap();
            drop(log);
            log = open(&disk);
        }
    }
    log.close().unwrap();
    copy
}

/// Whether the copy opens, with records that are those of the log and have no gap.
fn is_sound_or_says_why(copy: &SimDisk, what: &str) -> bool {
    let report = verify(DIR, options(copy));
    let reader = ReadOnlyLog::builder(DIR).options(options(copy)).open();
    let read = reader.map(|reader| reader.storage().corruption());
    let opened = builder(copy).open();
    match opened {
        Ok(log) => {
            let mut stream = log.stream(Start::Oldest).unwrap();
            let mut next = None;
            while let Some(batch) = stream.try_next().unwrap() {
                for record in &batch {
                    assert_eq!(record.seq.0, next.unwrap_or(record.seq.0), "{what}");
                    assert_eq!(record.payload, payload(record.seq.0), "{what}");
                    next = Some(record.seq.0 + 1);
                }
            }
            assert_eq!(next.map_or(0, |next| next - 1), log.durable().0, "{what}");
            true
        }
        Err(error) => {
            let names = |what: &str, said: &str| {
                let says = said.contains(" is newer than ");
                assert!(says, "{what}: {said}");
            };
            assert!(matches!(error, OpenError::Corrupted(_)), "{what}: {error:?}");
            names(what, &error.to_string());
            if let Some(first) = report.iter().find_map(|report| report.corruption.first()) {
                names(what, &first.to_string());
            }
            if let Ok(Some(corruption)) = &read {
                names(what, &corruption.to_string());
            }
            false
        }
    }
}

#[test]
fn a_copy_by_hand_opens_or_says_which_file_is_newer() {
    let mut outcomes = [0; 2];
    for appends in [0, 1, 5, 20, 40, 120] {
        for reopens in [Reopens::Never, Reopens::Sometimes] {
            for is_reversed in [false, true] {
                let what = format!("{appends} appends, {reopens:?}, reversed: {is_reversed}");
                let order = |names: &mut Vec<String>| {
                    if is_reversed {
                        names.reverse();
                    }
                };
                let is_sound = is_sound_or_says_why(&copy(order, appends, reopens), &what);
                outcomes[usize::from(is_sound)] += 1;
            }
        }
    }
    assert!(outcomes.iter().all(|count| *count > 2), "{outcomes:?}");
}

/// The files of a closed log, and of the same log later, in which the manifest was exchanged.
#[test]
fn a_manifest_of_another_moment_is_named() {
    let disk = SimDisk::new(1);
    let [early, late] = [new_copy(), new_copy()];
    for dest in [&early, &late] {
        let log = open(&disk);
        append(&log, 120);
        log.close().unwrap();
        drop(log);
        files(&disk).iter().for_each(|name| copy_file(&disk, dest, name));
    }
    let manifest = in_dir("manifest");
    let manifests = [&early, &late].map(|disk| disk.contents(&manifest).unwrap());
    put(&early, &manifest, &manifests[1]);
    put(&late, &manifest, &manifests[0]);
    let said = |disk: &SimDisk| builder(disk).open().unwrap_err().to_string();
    let newer = said(&early);
    assert!(newer.contains("; manifest is newer than "), "{newer}");
    assert!(newer.contains("the log begins with segment "), "{newer}");
    let older = said(&late);
    assert!(older.contains(".seg is newer than manifest: it is of session 2"), "{older}");
}

/// A file of its own moment explains nothing: a segment that is lost is reported as that.
#[test]
fn a_lost_segment_is_not_explained() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    append(&log, 60);
    log.close().unwrap();
    drop(log);
    let mut segments = files(&disk);
    segments.retain(|name| name.ends_with(".seg"));
    segments.sort();
    assert!(segments.len() > 2, "{segments:?}");
    unlink(&disk, &in_dir(&segments[1]));
    let error = builder(&disk).open().unwrap_err();
    assert!(error.to_string().ends_with("the segment is missing"), "{error}");
}

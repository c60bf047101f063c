//! A log whose files were copied by hand, one by one, beside its writer: it opens as it was at some
//! moment, or the corruption names which file is newer than which.
//!
//! Bug: it said that a segment is missing, as if the disk had lost it.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::Path;

use esker_log::{Error, Log, ReadOnlyLog, ReadOptions, Start, verify};

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

fn open(dir: &Path) -> Log {
    let builder = Log::builder(dir).segment_size(64 << 10).retain_segments(3);
    builder.open().unwrap()
}

fn append(log: &Log, count: u64) {
    for _ in 0..count {
        let next = log.accepted().0 + 1;
        log.append(payload(next)).unwrap().blocking_wait().unwrap();
    }
}

/// Copies the files in this order, with so many appends after each of them.
fn copy(root: &Path, order: impl Fn(&mut Vec<String>), appends: u64, reopens: Reopens) {
    let (dir, dest) = (root.join("log"), root.join("copy"));
    fs::create_dir_all(&dest).unwrap();
    let mut log = open(&dir);
    append(&log, 150);
    let entries = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    let mut names: Vec<_> = files.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    order(&mut names);
    for (n, name) in names.iter().enumerate() {
        // It may have left the log, as for `cp`.
        let _ = fs::copy(dir.join(name), dest.join(name));
        append(&log, appends);
        if reopens == Reopens::Sometimes && n % 2 == 1 {
            log.close().unwrap();
            drop(log);
            log = open(&dir);
        }
    }
    log.close().unwrap();
}

/// Whether the copy opens, with records that are those of the log and have no gap.
fn is_sound_or_says_why(copy: &Path, what: &str) -> bool {
    let report = verify(copy, ReadOptions::default());
    let read = ReadOnlyLog::open(copy).map(|reader| reader.corruption());
    let opened = Log::builder(copy).segment_size(64 << 10).open();
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
            assert!(matches!(error, Error::Corrupted(_)), "{what}: {error:?}");
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
                let root = tempfile::tempdir().unwrap();
                let order = |names: &mut Vec<String>| {
                    if is_reversed {
                        names.reverse();
                    }
                };
                copy(root.path(), order, appends, reopens);
                let is_sound = is_sound_or_says_why(&root.path().join("copy"), &what);
                outcomes[usize::from(is_sound)] += 1;
            }
        }
    }
    assert!(outcomes.iter().all(|count| *count > 2), "{outcomes:?}");
}

/// The files of a closed log, and of the same log later, in which the manifest was exchanged.
#[test]
fn a_manifest_of_another_moment_is_named() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("log");
    let [early, late] = ["early", "late"].map(|name| root.path().join(name));
    for dest in [&early, &late] {
        let log = open(&dir);
        append(&log, 120);
        log.close().unwrap();
        drop(log);
        fs::create_dir(dest).unwrap();
        let entries = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap());
        for entry in entries.filter(|entry| entry.file_type().unwrap().is_file()) {
            fs::copy(entry.path(), dest.join(entry.file_name())).unwrap();
        }
    }
    let manifests = [&early, &late].map(|dir| fs::read(dir.join("manifest")).unwrap());
    fs::write(early.join("manifest"), &manifests[1]).unwrap();
    fs::write(late.join("manifest"), &manifests[0]).unwrap();
    let said = |dir: &Path| {
        let opened = Log::builder(dir).segment_size(64 << 10).open();
        opened.unwrap_err().to_string()
    };
    let newer = said(&early);
    assert!(newer.contains("; manifest is newer than "), "{newer}");
    assert!(newer.contains("the log begins with segment "), "{newer}");
    let older = said(&late);
    assert!(older.contains(".seg is newer than manifest: it is of session 2"), "{older}");
}

/// A file of its own moment explains nothing: a segment that is lost is reported as that.
#[test]
fn a_lost_segment_is_not_explained() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("log");
    let log = open(&dir);
    append(&log, 60);
    log.close().unwrap();
    drop(log);
    let names = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> =
        names.filter(|path| path.extension().is_some_and(|found| found == "seg")).collect();
    segments.sort();
    assert!(segments.len() > 2, "{segments:?}");
    fs::remove_file(&segments[1]).unwrap();
    let error = Log::builder(&dir).segment_size(64 << 10).open().unwrap_err();
    assert!(error.to_string().ends_with("the segment is missing"), "{error}");
}

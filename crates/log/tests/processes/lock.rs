//! One owner: a second opening for writing fails at once and names the directory, in this process
//! and in another; reading needs no lock; a dead owner leaves none.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use esker_disk::sim::SimDisk;
use esker_log::{Error, Log, ReadOnlyLog, Start, repair};

use crate::fixture::{DIR, all, append, driven, log, payloads};

const CHILD: &str = "ESKER_TEST_LOCKED_CHILD";

fn locked<T>(outcome: esker_log::Result<T>, dir: &Path) {
    match outcome.err() {
        Some(Error::Locked { dir: reported, .. }) if reported == dir => {}
        other => panic!("not locked: {other:?}"),
    }
}

#[test]
fn a_second_opening_is_refused_while_the_first_lives() {
    let (log, disk, _) = log();
    append(&log, 3);
    let before = disk.fingerprint();
    for _ in 0..2 {
        let refused = Log::builder(DIR).options(driven(&disk).0).open();
        locked(refused.map_err(Into::into), Path::new(DIR));
    }
    locked(repair(DIR, &driven(&disk).0).map_err(Into::into), Path::new(DIR));
    assert_eq!(disk.fingerprint(), before, "a refused opening changes nothing");
    // The first continues.
    append(&log, 2);
    let reader = ReadOnlyLog::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert!(reader.stream(Start::Oldest).unwrap().try_next().unwrap().is_some());
    log.close().unwrap();
    // Closed is free, also while the handle is still there.
    let again = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!(all(&again), payloads(1..=5));
    again.close().unwrap();
    drop(log);
}

#[test]
fn a_refused_opening_frees_nothing() {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    drop(Log::builder(DIR).options(driven(&disk).0).open());
    locked(Log::builder(DIR).options(driven(&disk).0).open().map_err(Into::into), Path::new(DIR));
    log.close().unwrap();
}

fn child(dir: &Path) -> (Child, impl BufRead) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "lock::another_process_is_refused_and_a_dead_one_leaves_no_lock",
            "--nocapture",
        ])
        .env(CHILD, dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let reported = BufReader::new(child.stdout.take().unwrap());
    (child, reported)
}

#[test]
fn another_process_is_refused_and_a_dead_one_leaves_no_lock() {
    if let Some(dir) = std::env::var_os(CHILD) {
        let log = Log::open(dir).unwrap();
        append(&log, 10);
        println!("open");
        std::io::stdout().flush().unwrap();
        // Until the parent kills it, or is gone.
        let _ = std::io::stdin().read_line(&mut String::new());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("log");
    let (mut child, reported) = child(&dir);
    assert!(reported.lines().any(|line| line.unwrap().ends_with("open")));
    locked(Log::open(&dir).map_err(Into::into), &dir);
    let reader = ReadOnlyLog::open(&dir).unwrap();
    assert_eq!(reader.durable().0, 10);
    child.kill().unwrap();
    child.wait().unwrap();
    let log = Log::open(&dir).unwrap();
    assert_eq!(all(&log), payloads(1..=10));
    log.close().unwrap();
}

//! A directory that another process has open, that holds no log, or that is not a directory.
//!
//! Guards: two writers on one log; a log laid into a directory that holds other files, or an
//! unrelated file removed from it; a lost manifest taken for a new log; anything written before
//! the lock is held.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::path::Path;
use std::sync::Arc;

use esker_disk::sim::SimDisk;
use esker_disk::{Disk, StdDisk};
use esker_log::{
    Engine, Error, Log, OnCorruption, OpenError, Options, ReadOnlyLog, RepairError, Seq, repair,
    verify,
};

use crate::corruption_kit::edits::{delete, put};
use crate::corruption_kit::map::{in_dir, segment_path};
use crate::corruption_kit::repairs::{check_log, continues, open};
use crate::corruption_kit::sample::{self, options};
use crate::corruption_kit::{self, DIR, cases, outcomes};

const CHILD: &str = "ESKER_TEST_LOCKED_DIR";

fn is_locked(outcome: Result<Log, Error>, at: &Path) {
    match outcome {
        Err(error @ Error::Locked { .. }) => {
            let reported = error.to_string();
            assert!(reported.contains(&at.display().to_string()), "{reported}");
        }
        other => panic!("{other:?}"),
    }
}

fn not_a_log<T: std::fmt::Debug>(outcome: Result<T, impl Into<Error>>, at: &str) -> String {
    match outcome.map_err(Into::into) {
        Err(Error::NotALog { dir, found }) => {
            assert_eq!(dir, Path::new(at));
            found
        }
        other => panic!("{other:?}"),
    }
}

fn must_exist(disk: &SimDisk, engine: &Engine) -> Options {
    let mut options = options(disk, engine);
    options.must_exist = true;
    options
}

#[test]
fn a_second_writer_of_the_same_process_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("log");
    let log = Log::open(&dir).unwrap();
    log.append(b"first").unwrap().blocking_wait().unwrap();
    is_locked(Log::open(&dir).map_err(Into::into), &dir);
    assert!(matches!(repair(&dir, Options::default()), Err(RepairError::Locked { .. })));
    // The first is none the worse for it, and readers need no lock.
    log.append(b"second").unwrap().blocking_wait().unwrap();
    let reader = ReadOnlyLog::open(&dir).unwrap();
    assert_eq!(&*reader.read(2).unwrap(), b"second");
    log.close().unwrap();
    assert_eq!(Log::open(&dir).unwrap().durable(), Seq(2));
}

#[test]
fn a_second_writer_of_another_process_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("log");
    let log = Log::open(&dir).unwrap();
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "locks_and_unknown_files::second_writer_process",
            "--ignored",
            "--nocapture",
        ])
        .env(CHILD, &dir)
        .output()
        .unwrap();
    let reported = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && reported.contains("refused as locked"), "{reported}");
    drop(log);
}

#[test]
#[ignore = "the other process of a_second_writer_of_another_process_is_refused"]
fn second_writer_process() {
    let dir = std::env::var_os(CHILD).unwrap();
    is_locked(Log::open(&dir).map_err(Into::into), Path::new(&dir));
    println!("refused as locked");
}

#[test]
fn refused_writer_writes_nothing() {
    // Not even when the manifest is missing and the second one came to repair.
    let sample = sample::killed();
    for on_corruption in [OnCorruption::Fail, OnCorruption::Quarantine, OnCorruption::Truncate] {
        let (disk, _) = delete(&sample, &in_dir("manifest"));
        let _lock = disk.open_dir(Path::new(DIR)).unwrap().lock().unwrap();
        let before = disk.fingerprint();
        let engine = Engine::manual();
        let mut options = options(&disk, &engine);
        options.on_corruption = on_corruption;
        match Log::builder(DIR).options(options).open() {
            Err(OpenError::Locked { .. } | OpenError::Corrupted(_)) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(disk.fingerprint(), before, "{on_corruption:?}");
    }
}

#[test]
fn a_file_where_the_directory_should_be() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"a letter").unwrap();
    let at = file.to_str().unwrap();
    let mut must = Options::default();
    must.must_exist = true;
    for options in [Options::default(), must] {
        not_a_log(Log::builder(&file).options(options.clone()).open(), at);
        not_a_log(ReadOnlyLog::builder(&file).options(options.clone()).open(), at);
        not_a_log(verify(&file, &options), at);
        not_a_log(repair(&file, &options), at);
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"a letter");
}

#[test]
fn a_directory_with_other_files_is_left_alone() {
    // Some have names that look almost like a log's.
    let unknown_files = [
        "letter.txt",
        "thesis.new",
        "1.seg",
        "00000000000000000001.seg.bak",
        "+0000000000000000001.seg",
        "+5.spare",
        "007.spare",
        ".esker-probe",
    ];
    let engine = Engine::manual();
    for name in unknown_files {
        let disk = SimDisk::new(1);
        disk.create_dir(Path::new(DIR)).unwrap();
        put(&disk, &in_dir(name), b"dear");
        let before = disk.fingerprint();
        not_a_log(Log::builder(DIR).options(options(&disk, &engine)).open(), DIR);
        not_a_log(ReadOnlyLog::builder(DIR).options(options(&disk, &engine)).open(), DIR);
        not_a_log(verify(DIR, options(&disk, &engine)), DIR);
        not_a_log(repair(DIR, options(&disk, &engine)), DIR);
        assert_eq!(disk.fingerprint(), before, "{name}");
    }
}

#[test]
fn unknown_files_in_the_directory_of_a_log_are_kept() {
    let mut cases = cases::Cases::default();
    let names =
        ["letter.txt", "thesis.new", "1.seg", "+0000000000000000001.seg", "+5.spare", "007.spare"];
    for sample in [sample::closed(), sample::killed()] {
        for name in names {
            cases.run(format!("{}, {name}", sample.name), || {
                let disk = sample.disk.fork(1);
                put(&disk, &in_dir(name), b"dear");
                check_log(&open(&disk, OnCorruption::Fail)?, &sample.items)?;
                continues(&sample, disk.clone(), sample.items.clone())?;
                let content = disk.contents(&in_dir(name)).map_err(|error| error.to_string())?;
                if content == b"dear" { Ok(()) } else { Err("it is another".into()) }
            });
        }
    }
    cases.finish(12);
}

#[test]
fn an_empty_directory_becomes_a_log_unless_one_must_exist() {
    let engine = Engine::manual();
    let disk = SimDisk::new(1);
    let missing = not_a_log(Log::builder(DIR).options(must_exist(&disk, &engine)).open(), DIR);
    assert!(missing.contains("no such directory"), "{missing}");
    not_a_log(ReadOnlyLog::builder(DIR).options(options(&disk, &engine)).open(), DIR);
    not_a_log(verify(DIR, options(&disk, &engine)), DIR);
    not_a_log(repair(DIR, options(&disk, &engine)), DIR);
    assert!(disk.files(Path::new(DIR)).is_err(), "it was made");

    disk.create_dir(Path::new(DIR)).unwrap();
    let empty = not_a_log(Log::builder(DIR).options(must_exist(&disk, &engine)).open(), DIR);
    assert!(empty.contains("empty"), "{empty}");
    for outcome in [
        ReadOnlyLog::builder(DIR)
            .options(options(&disk, &engine))
            .open()
            .map(drop)
            .map_err(Error::from),
        verify(DIR, options(&disk, &engine)).map(drop).map_err(Error::from),
        repair(DIR, options(&disk, &engine)).map(drop).map_err(Error::from),
    ] {
        not_a_log(outcome, DIR);
    }
    assert!(disk.files(Path::new(DIR)).unwrap().is_empty(), "something was left in it");

    Log::builder(DIR).options(options(&disk, &engine)).open().unwrap().close().unwrap();
    Log::builder(DIR).options(must_exist(&disk, &engine)).open().unwrap().close().unwrap();
}

#[test]
fn lost_manifest_is_corruption_and_not_a_new_log() {
    for sample in sample::all() {
        let manifest = in_dir("manifest");
        let (disk, _) = delete(&sample, &manifest);
        let engine = Engine::manual();
        let before = disk.fingerprint();
        for options in [options(&disk, &engine), must_exist(&disk, &engine)] {
            match Log::builder(DIR).options(options).open() {
                Err(OpenError::Corrupted(damage)) => assert_eq!(damage.file, manifest),
                other => panic!("{other:?}"),
            }
        }
        match ReadOnlyLog::builder(DIR).options(options(&disk, &engine)).open().map(drop) {
            Err(OpenError::Corrupted(damage)) => assert_eq!(damage.file, manifest),
            other => panic!("{other:?}"),
        }
        // Everything else is checked all the same.
        let report = verify(DIR, options(&disk, &engine)).unwrap();
        assert_eq!(report.corruption.len(), 1, "{:?}", report.corruption);
        assert_eq!(report.corruption[0].file, manifest);
        assert_eq!(disk.fingerprint(), before, "{}", sample.name);
        assert!(repair(DIR, options(&disk, &engine)).unwrap().manifest_rebuilt);
        check_log(&open(&disk, OnCorruption::Fail).unwrap(), &sample.items).unwrap();
        continues(&sample, disk, sample.items.clone()).unwrap();
    }
}

#[test]
fn garbage_in_a_segment_names_the_file() {
    let sample = sample::closed();
    let engine = Engine::manual();
    for segment in &sample.map.segments {
        let file = segment_path(segment.number);
        for garbage in [sample::payload("garbage", 1, 30_000), b"dear".to_vec(), Vec::new()] {
            let (disk, edit) = corruption_kit::edits::replace(&sample, &file, &garbage);
            let opened = outcomes::open_with(&sample, &disk, &edit, outcomes::Openers::All);
            let reported = match opened.unwrap() {
                outcomes::Opened::Refused(damage) => damage,
                other => panic!("{other:?}"),
            };
            let error =
                Log::builder(DIR).options(options(&disk, &engine)).open().unwrap_err().to_string();
            assert!(error.contains(&file.display().to_string()), "{error}");
            assert_eq!((reported.file, reported.offset), (file.clone(), 0));
        }
    }
}

#[test]
fn a_directory_in_the_place_of_a_file_is_an_error_and_not_a_panic() {
    let sample = sample::closed();
    let engine = Engine::manual();
    for name in ["manifest", "mark", "lock", "00000000000000000002.seg", "00000000000000000009.seg"]
    {
        let disk = sample.disk.fork(1);
        let _ = disk.open_dir(Path::new(DIR)).unwrap().unlink(name);
        disk.create_dir(&in_dir(name)).unwrap();
        let before = disk.fingerprint();
        assert!(Log::builder(DIR).options(options(&disk, &engine)).open().is_err(), "{name}");
        assert_eq!(disk.fingerprint(), before, "{name}");
    }
}

#[test]
fn unknown_files_on_the_real_disk_are_treated_alike() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("thesis.new"), b"dear").unwrap();
    let options = Options::on(Arc::new(StdDisk::new()));
    not_a_log(Log::builder(dir.path()).options(options).open(), dir.path().to_str().unwrap());
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

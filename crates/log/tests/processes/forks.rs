//! Forks of a process whose other tests have not used the log: each test runs in a process
//! of its own.
#![allow(clippy::unwrap_used)] // The helpers of a test stop as loudly as it does.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use esker_log::{Log, LogError, OpenError};
use esker_testkit::{ForkedChild, in_forked_child};

use crate::fixture::{all, append, payloads};

const WORKDIR: &str = "ESKER_TEST_FORKING_PROCESS";
const PATIENCE: Duration = Duration::from_secs(180);

/// The working directory, in a process that [`run`] started.
fn is_started() -> Option<PathBuf> {
    std::env::var_os(WORKDIR).map(PathBuf::from)
}

/// Runs this test in a process of its own, where no other test has opened a log.
#[track_caller]
fn run(test: &str, workdir: &Path) {
    let test = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(WORKDIR, workdir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    assert!(test.unwrap().success());
}

/// `Locked` named a process that was dead, while a child of it held the lock.
#[test]
fn the_holder_of_a_lock_is_unknown_where_only_a_child_of_it_lives() {
    if let Some(workdir) = is_started() {
        std::mem::forget(Log::open(workdir.join("log")).unwrap());
        let child = ForkedChild::start(|| {
            let deadline = Instant::now() + PATIENCE;
            while !workdir.join("ends").exists() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        child.unwrap();
        return;
    }
    let workdir = tempfile::tempdir().unwrap();
    let workdir = workdir.path();
    run("forks::the_holder_of_a_lock_is_unknown_where_only_a_child_of_it_lives", workdir);
    match Log::open(workdir.join("log")) {
        Err(error @ OpenError::Locked { pid: None, .. }) => {
            assert!(error.to_string().contains("whose number is unknown"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    std::fs::write(workdir.join("ends"), "").unwrap();
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = Log::open(workdir.join("log")) {
        assert!(matches!(error, OpenError::Locked { .. }) && Instant::now() < deadline, "{error}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The advice of `Error::Forked` works.
#[test]
fn a_child_that_is_made_before_the_first_use_opens_a_log() {
    if let Some(workdir) = is_started() {
        let child = ForkedChild::start(|| {
            let log = Log::open(workdir.join("log")).unwrap();
            append(&log, 3);
            // Its own child is one of a process that uses the log.
            in_forked_child(|| {
                assert!(matches!(
                    Log::open(workdir.join("new")),
                    Err(OpenError::Log(LogError::Forked))
                ));
            })
            .unwrap();
            log.close().unwrap();
        });
        let log = Log::open(workdir.join("of-the-parent")).unwrap();
        append(&log, 3);
        child.unwrap().wait().unwrap();
        return log.close().unwrap();
    }
    let workdir = tempfile::tempdir().unwrap();
    let workdir = workdir.path();
    run("forks::a_child_that_is_made_before_the_first_use_opens_a_log", workdir);
    for name in ["log", "of-the-parent"] {
        assert_eq!(all(&Log::open(workdir.join(name)).unwrap()), payloads(1..=3));
    }
    assert!(!workdir.join("new").exists());
}

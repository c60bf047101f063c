//! The library prints nothing: what it has to say goes through the logging facade.
//!
//! Guards: a library that prints to standard error.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::process::Command;

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Persist};
use esker_log::Log;

use crate::fixture::{DIR, append, driven, log};

const CHILD: &str = "ESKER_TEST_QUIET_CHILD";

/// Everything that gives reason to complain: a failed commit, a log that is not closed cleanly, a
/// torn tail, corruption, a stopped engine.
fn a_bad_day() {
    let (log, disk, _) = log();
    append(&log, 20);
    disk.inject(Fault::on(Op::Write, Effect::Io).path(".seg"));
    drop(log.append(b"x").unwrap().blocking_wait());
    drop(log);
    disk.clear_faults();
    disk.power_cut(Persist::Random);
    disk.power_on();
    let (options, engine) = driven(&disk);
    let log = Log::builder(DIR).options(options).open().unwrap();
    append(&log, 5);
    engine.stop();
    drop(log);
    disk.flip_bit(format!("{DIR}/00000000000000000001.seg").as_ref(), 8 * 9000).unwrap();
    drop(Log::builder(DIR).options(driven(&disk).0).open());
    let (mut options, _) = driven(&disk);
    options.on_corruption = esker_log::OnCorruption::Quarantine;
    options.check = esker_log::OpenCheck::Full;
    drop(Log::builder(DIR).options(options).open());
}

#[test]
fn nothing_is_printed() {
    if std::env::var_os(CHILD).is_some() {
        return a_bad_day();
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "no_output::nothing_is_printed", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
    assert_eq!(String::from_utf8_lossy(&child.stderr), "");
    let stdout = String::from_utf8_lossy(&child.stdout);
    assert!(stdout.contains("1 passed"), "nothing ran: {stdout}");
    let ours =
        |line: &&str| line.is_empty() || line.starts_with("running") || line.starts_with("test");
    let printed: Vec<_> = stdout.lines().filter(|line| !ours(line)).collect();
    assert_eq!(printed, [""; 0]);
}

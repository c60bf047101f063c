//! Bug: one commit with the clock ahead, and `--retain-age` silently never dropped anything again,
//! also after everything had been truncated.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use esker_log::{Engine, Log};

use crate::esker::{log, workdir};

/// Appends a record with the clock in 2099.
fn append_in_2099(dir: &Path) {
    let engine = Engine::manual();
    engine.set_wall_clock(UNIX_EPOCH + Duration::from_secs(4_080_000_000));
    let log = Log::builder(dir).engine(engine).open().unwrap();
    log.append("of 2099").unwrap().blocking_wait().unwrap();
    log.close().unwrap();
}

#[test]
fn a_record_ahead_of_the_clock_is_noted_until_everything_is_truncated() {
    let (_guard, dir) = workdir();
    append_in_2099(&dir);
    let aged = ["--retain-age", "1h"];
    let noted = log("append", &dir, &aged, b"a\n").ok();
    let lasts = "kept until one run lasts as long as that age";
    noted.says(&["ahead of the clock", "--retain-age", lasts, "--before 2`"]);
    assert_eq!(log("append", &dir, &[], b"b\n").ok().err.matches("ahead").count(), 0);
    let stat = log("stat", &dir, &["--json"], b"").ok().json();
    assert!(stat["newest_time"].as_str().unwrap().starts_with("2099-"), "{stat}");
    assert!(log("stat", &dir, &[], b"").ok().text().contains("ahead of the clock"));
    // Times never decrease: what is ahead is printed, and so is what follows it.
    let since = || log("cat", &dir, &["--since", "1h"], b"").ok().text().to_owned();
    assert_eq!(since(), "of 2099\na\nb\n");

    log("truncate", &dir, &["--before", "4"], b"").ok();
    assert_eq!(log("append", &dir, &aged, b"c\n").ok().err, "");
    let stat = log("stat", &dir, &["--json"], b"").ok().json();
    assert!(stat["newest_time"].as_str().unwrap() < "2099-", "{stat}");
    assert_eq!((stat["oldest_time"].clone(), since()), (stat["newest_time"].clone(), "c\n".into()));
    // And again.
    assert_eq!(log("append", &dir, &aged, b"d\n").ok().err, "");
    assert_eq!(since(), "c\nd\n");
}

//! The output of `stat`: records and the bytes of their payloads, beside those of the files; the
//! writer; the age of the oldest record.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::esker::{command, lines, log, segments, spawn, until, workdir};

#[test]
fn payload_bytes_are_those_of_the_records_that_can_be_read() {
    let (_guard, dir) = workdir();
    let all = lines(1, 20_000);
    log("append", &dir, &["--segment-size", "64K"], all.as_bytes()).ok();
    assert!(segments(&dir).len() > 3);
    let stat = log("stat", &dir, &["--json"], b"").ok().json();
    assert_eq!(stat["payload_bytes"], all.len() - 20_000);
    assert!(stat["bytes"].as_u64() > stat["payload_bytes"].as_u64());
    let text = log("stat", &dir, &[], b"").ok();
    let row = format!("payload      {} (", all.len() - 20_000);
    assert!(text.text().contains(&row), "{}", text.text());

    log("truncate", &dir, &["--before", "15000"], b"").ok();
    let stat = log("stat", &dir, &["--json"], b"").ok().json();
    assert_eq!(stat["payload_bytes"], lines(15_000, 20_000).len() - 5_001);
    assert_eq!(stat["records"], 5_001);
}

/// Segments of before footers had the bytes of their payloads.
#[test]
fn payload_bytes_that_are_not_known_are_said_to_be() {
    let (_guard, dir) = workdir();
    std::fs::create_dir(&dir).unwrap();
    let older = Path::new(env!("CARGO_MANIFEST_DIR")).join("../log/tests/golden/v2/clean");
    for name in ["00000000000000000001.seg", "00000000000000000002.seg", "manifest", "mark"] {
        std::fs::copy(older.join(name), dir.join(name)).unwrap();
    }
    let stat = log("stat", &dir, &["--json"], b"").ok().json();
    assert_eq!((stat["payload_bytes"].is_null(), stat["records"].is_null()), (true, false));
    let text = log("stat", &dir, &[], b"").ok();
    assert!(text.text().contains("payload      not known"), "{}", text.text());
}

/// Numbers between those that the writer brought are no gap. The first record says which number it
/// follows.
#[test]
fn numbers_that_no_record_was_given_are_counted() {
    let (_guard, dir) = workdir();
    let records = br#"{"seq":5,"prev":0,"payload":"a"}
{"seq":9,"prev":5,"payload":"b"}
"#;
    log("append", &dir, &["--framing", "json", "--keep-seq"], records).ok();
    let stat = log("stat", &dir, &["--json"], b"").ok().json();
    assert_eq!((&stat["gaps"], &stat["skipped"]), (&0.into(), &7.into()));
    let text = log("stat", &dir, &[], b"").ok();
    assert!(text.text().contains("skipped      7 numbers"), "{}", text.text());
}

/// A process counted if it had the number in the file `lock`: any process that got it meanwhile, or
/// that of the original for a copy.
#[test]
fn the_writer_is_the_process_that_has_the_lock() {
    let (guard, dir) = workdir();
    log("append", &dir, &[], b"one\n").ok();
    let mut writer = spawn(command(&["log", "append"]).arg(&dir), Stdio::piped());
    let pid = |dir: &Path| log("stat", dir, &["--json"], b"").ok().json()["writer_pid"].as_u64();
    until("the writer is shown", || pid(&dir) == Some(writer.id().into()));
    let copy = guard.path().join("copy");
    Command::new("cp").arg("-r").args([&dir, &copy]).status().unwrap();
    assert_eq!(pid(&copy), None);
    std::fs::write(dir.join("lock"), "1         \n").unwrap();
    assert_eq!(pid(&dir), Some(writer.id().into()));
    writer.kill().unwrap();
    writer.wait().unwrap();
    assert_eq!(pid(&dir), None);
    let text = log("stat", &dir, &[], b"").ok();
    assert!(text.text().contains("shutdown     not closed"), "{}", text.text());
}

/// The time was silently missing where the oldest record was corrupt or quarantined.
#[test]
fn the_oldest_time_is_that_of_the_oldest_readable_record() {
    // Opening reads the newest segment: it finds what is corrupt there, and nothing in older ones.
    for (options, len, files) in [(&[][..], 1, 1), (&["--segment-size", "64K"][..], 40_000, 3)] {
        let (_guard, dir) = workdir();
        for record in ["first", "second", "third"] {
            let record = format!("{record:<len$}\n");
            log("append", &dir, options, record.as_bytes()).ok();
        }
        assert_eq!(segments(&dir).len(), files);
        let first = std::fs::File::options().write(true).open(&segments(&dir)[0]).unwrap();
        first.write_all_at(b"X", 4096 + 70).unwrap();
        let stat = log("stat", &dir, &["--json"], b"").exits(3);
        assert!(stat.json()["damage"]["offset"] == 4096, "{}", stat.text());
        log("repair", &dir, &[], b"").ok();
        let stat = log("stat", &dir, &["--json"], b"").ok().json();
        assert_eq!((&stat["records"], &stat["gaps"]), (&2.into(), &1.into()));
        assert!(stat["oldest_time"].is_string(), "{stat}");
    }
}

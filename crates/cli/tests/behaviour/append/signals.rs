//! SIGINT and SIGTERM end `append`: what was read is durable, the log is closed cleanly, and the
//! summary is printed. A line without its end is no record.
//!
//! Bug: an import that a user had broken off with Ctrl-C exited with 0, as one that was complete.
//! Now SIGINT before the end of the input is status 130, and says how much of how much was read;
//! SIGTERM and SIGHUP, which end a service, are status 0.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::esker::{self, command, end, follow, log, signal, spawn, workdir};

fn writer(dir: &Path, flags: &[&str], input: Stdio) -> Child {
    let mut writer = command(&["log", "append"]);
    writer.arg(dir).args(flags);
    spawn(&mut writer, input)
}

#[test]
fn every_complete_line_is_kept() {
    for (name, status) in [("INT", 130), ("TERM", 0), ("HUP", 0)] {
        let (_guard, dir) = workdir();
        let mut writer = writer(&dir, &["--policy", "os"], Stdio::piped());
        let mut input = writer.stdin.take().unwrap();
        input.write_all(b"one\ntwo\nthr").unwrap();
        esker::until("two records", || log("cat", &dir, &[], b"").out == b"one\ntwo\n");
        signal(&writer, name);
        let ended = end(writer).exits(status).says(&["3 bytes of an unfinished record"]);
        assert!(ended.text().starts_with("appended 2 records"), "{}", ended.text());
        if name == "INT" {
            ended.says(&["interrupted: 11 bytes of the input were read", "records through 2 are"]);
        }
        drop(input);
        assert_eq!(log("cat", &dir, &[], b"").ok().out, b"one\ntwo\n");
        assert_eq!(log("append", &dir, &[], b"").ok().err, "", "it was closed cleanly");
    }
}

#[test]
fn signal_during_input_loses_nothing_accepted() {
    for (name, status) in [("INT", 130), ("TERM", 0)] {
        let (_guard, dir) = workdir();
        let mut writer = writer(&dir, &["--json"], Stdio::piped());
        let mut input = writer.stdin.take().unwrap();
        let feeder = std::thread::spawn(move || {
            let mut line = 0u64;
            loop {
                line += 1;
                if writeln!(input, "line {line}").is_err() {
                    return line;
                }
            }
        });
        esker::until("some records", || !log("cat", &dir, &[], b"").out.is_empty());
        signal(&writer, name);
        let reported = end(writer).exits(status).json();
        let fed = feeder.join().unwrap();
        let records = reported["records"].as_u64().unwrap();
        assert!(0 < records && records <= fed);
        assert_eq!(reported["durable"], records);
        assert_eq!(
            (&reported["ended_by"], &reported["input_bytes"]),
            (&"signal".into(), &().into())
        );
        assert_eq!(log("cat", &dir, &[], b"").ok().text(), esker::lines(1, records));
    }
}

/// The size of an input file is known, so that the progress names it. The import can be continued
/// from that offset.
#[test]
fn interrupted_import_reports_its_progress() {
    const SIZE: u64 = 24_000_000;
    let (guard, dir) = workdir();
    let file = guard.path().join("lines");
    std::fs::write(&file, b"x\n".repeat(SIZE as usize / 2)).unwrap();
    let writer = writer(&dir, &["--json"], std::fs::File::open(&file).unwrap().into());
    esker::until("a record", || {
        let stat = log("stat", &dir, &["--json"], b"");
        stat.status == 0 && stat.json()["records"].as_u64() > Some(0)
    });
    signal(&writer, "INT");
    let ended = end(writer).exits(130);
    let reported = ended.json();
    let read = reported["read_bytes"].as_u64().unwrap();
    assert!(0 < read && read < SIZE, "{read} of {SIZE}");
    assert_eq!(reported["input_bytes"], SIZE);
    let records = reported["records"].as_u64().unwrap();
    assert!(records == read / 2 && reported["durable"] == records, "{reported}");
    let read = format!("interrupted: {read} of {SIZE} bytes of the input were read");
    ended.says(&[&read, &format!("records through {records} are durable")]);
    assert_eq!(log("stat", &dir, &["--json"], b"").ok().json()["records"], records);
}

/// The whole input was read, or is in a pipe without a writer: nothing was interrupted. The
/// process is stopped so that it sees the end and the signal at once.
#[test]
fn a_signal_at_the_end_of_the_input_interrupts_nothing() {
    for name in ["INT", "TERM"] {
        let (_guard, dir) = workdir();
        let mut writer = writer(&dir, &["--json"], Stdio::piped());
        let mut input = writer.stdin.take().unwrap();
        input.write_all(b"one\ntwo").unwrap();
        esker::until("a record", || log("cat", &dir, &[], b"").out == b"one\n");
        signal(&writer, "STOP");
        drop(input);
        signal(&writer, name);
        signal(&writer, "CONT");
        let ended = end(writer).ok();
        assert_eq!(ended.err, "");
        let reported = ended.json();
        assert_eq!(
            (&reported["ended_by"], &reported["records"]),
            (&"end of input".into(), &2.into())
        );
        assert_eq!(log("cat", &dir, &[], b"").ok().out, b"one\ntwo\n");
    }
}

#[test]
fn a_follower_ends_with_status_0() {
    let (_guard, dir) = workdir();
    log("append", &dir, &[], b"only\n").ok();
    let mut follower = follow(&dir);
    assert_eq!(esker::read_lines(follower.stdout.as_mut().unwrap(), 1), "only\n");
    signal(&follower, "INT");
    assert_eq!(end(follower).ok().err, "");
}

/// Bug: a follower that had more to print when the signal came found its reader closed, and exited
/// with 1. The pipe is full when the signal comes, and is read afterwards.
#[test]
fn a_follower_with_more_to_print_ends_with_status_0() {
    let (_guard, dir) = workdir();
    // The reader returns a megabyte at a time.
    log("append", &dir, &[], esker::lines(1, 100_000).as_bytes()).ok();
    for name in ["INT", "TERM", "HUP"] {
        let mut follower = follow(&dir);
        let mut printed = esker::read_lines(follower.stdout.as_mut().unwrap(), 1);
        std::thread::sleep(Duration::from_millis(100));
        signal(&follower, name);
        std::thread::sleep(Duration::from_millis(100));
        let ended = end(follower).ok();
        assert_eq!(ended.err, "");
        printed += ended.text();
        let count = printed.lines().count() as u64;
        assert_eq!(printed, esker::lines(1, count));
        // What the pipe and the buffers held.
        assert!(count < 20_000, "{name}: {count}");
    }
}

/// Its output is not read at all. It waited until a second signal terminated it.
#[test]
fn a_follower_whose_output_is_blocked_ends_with_status_0() {
    let (_guard, dir) = workdir();
    log("append", &dir, &[], esker::lines(1, 100_000).as_bytes()).ok();
    let mut follower = follow(&dir);
    let mut out = follower.stdout.take().unwrap();
    esker::read_lines(&mut out, 1);
    signal(&follower, "TERM");
    esker::until("the follower ends", || follower.try_wait().unwrap().is_some());
    end(follower).ok().says(&["standard output is blocked"]);
}

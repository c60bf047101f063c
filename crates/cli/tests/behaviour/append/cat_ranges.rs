//! The part of the log that `cat` prints.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use esker_log::{Append, Log, Seq};

use crate::esker::{command, lines, log, read_lines, signal, spawn, until, workdir};

fn cat(dir: &Path, flags: &[&str]) -> String {
    log("cat", dir, flags, b"").ok().text().to_owned()
}

#[test]
fn a_range_has_its_ends() {
    let (_guard, dir) = workdir();
    log("append", &dir, &["--segment-size", "64K"], lines(1, 9_000).as_bytes()).ok();
    for (flags, expected) in [
        (&["--to", "3"][..], lines(1, 3)),
        (&["--from", "8000", "--to", "8002"], lines(8_000, 8_002)),
        (&["--from", "5", "--to", "4"], String::new()),
        // It waited forever.
        (&["-f", "--from", "30000", "--to", "20000"], String::new()),
        (&["--limit", "2"], lines(1, 2)),
        (&["--limit", "0"], String::new()),
        (&["--from", "8999", "--limit", "7"], lines(8_999, 9_000)),
        (&["-n", "1"], lines(9_000, 9_000)),
        (&["--last", "4001"], lines(5_000, 9_000)),
        (&["--last", "0"], String::new()),
        (&["--last", "99999999"], lines(1, 9_000)),
        (&["--last", "10", "--limit", "3"], lines(8_991, 8_993)),
        (&["--last", "10", "--to", "8991"], lines(8_991, 8_991)),
        (&["--since", "1h"], lines(1, 9_000)),
        (&["--since", "100000d"], lines(1, 9_000)),
    ] {
        assert!(cat(&dir, flags) == expected, "{flags:?}");
    }
    for flags in [["-n", "1", "--from", "1"], ["--since", "1h", "-n", "1"]] {
        log("cat", &dir, &flags, b"").exits(2);
    }
    log("cat", &dir, &["--json", "--framing", "lines"], b"").exits(2);
}

/// The last ones are counted, not guessed from their numbers.
#[test]
fn the_last_records_may_have_any_numbers() {
    let (_guard, dir) = workdir();
    let sparse = Log::open(&dir).unwrap();
    let mut prev = Seq(0);
    for nth in 1..=60u64 {
        let seq = Seq(nth * nth);
        drop(sparse.write(Append::numbered(prev, &[(seq, format!("{nth}"))])).unwrap());
        prev = seq;
    }
    sparse.close().unwrap();
    for last in [1, 2, 7, 59, 60, 61] {
        let expected: String = (61 - last.min(60)..=60).map(|nth| format!("{nth}\n")).collect();
        assert_eq!(cat(&dir, &["--last", &last.to_string()]), expected, "the last {last}");
    }
}

#[test]
fn a_time_ago_is_a_start() {
    let (_guard, dir) = workdir();
    log("append", &dir, &[], b"early\n").ok();
    let begin = Instant::now();
    std::thread::sleep(Duration::from_millis(2_500));
    log("append", &dir, &[], b"late\n").ok();
    // Half a second after the first: `cat` has two seconds to start.
    let since = begin.elapsed().as_millis() - 500;
    assert_eq!(cat(&dir, &["--since", &format!("{since}ms")]), "late\n");
    assert_eq!(cat(&dir, &["--since", "0"]), "");
    let shown = log("stat", &dir, &["--json"], b"").ok().json();
    let time = |name: &str| shown[name].as_str().unwrap().to_owned();
    assert!(time("oldest_time") < time("newest_time"));
    let printed = cat(&dir, &["--json", "--last", "1"]);
    assert!(printed.contains(&format!("\"time\":\"{}\"", time("newest_time"))), "{printed}");
}

/// As `tail -f -n`: what is there, then what comes, and the end of a range ends it.
#[test]
fn following_has_a_start_and_an_end() {
    let (_guard, dir) = workdir();
    log("append", &dir, &[], lines(1, 100).as_bytes()).ok();
    let mut tail = spawn(command(&["log", "cat", "-f", "-n", "2"]).arg(&dir), Stdio::null());
    let mut bounded = spawn(
        command(&["log", "cat", "-f", "--from", "100", "--to", "101"]).arg(&dir),
        Stdio::null(),
    );
    let mut out = tail.stdout.take().unwrap();
    assert_eq!(read_lines(&mut out, 2), lines(99, 100));
    log("append", &dir, &[], lines(101, 101).as_bytes()).ok();
    // At its last record, not at one after it.
    until("the range ends", || bounded.try_wait().unwrap().is_some());
    assert!(bounded.wait().unwrap().success());
    let mut bounded_out = bounded.stdout.take().unwrap();
    assert_eq!(read_lines(&mut bounded_out, 3), lines(100, 101));
    log("append", &dir, &[], lines(102, 102).as_bytes()).ok();
    assert_eq!(read_lines(&mut out, 2), lines(101, 102));
    signal(&tail, "TERM");
    assert!(tail.wait().unwrap().success());
}

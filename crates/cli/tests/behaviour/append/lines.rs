//! Lines that `append` reads and `cat` prints: empty lines, lines of any bytes, and a last line
//! without a newline.

use crate::esker::{self, log, workdir};

#[test]
fn empty_lines_are_empty_records() {
    let (_guard, dir) = workdir();
    let input = b"\nfirst\n\n\n  spaces \r\n\xff\xfe bytes \0\nlast\n";
    log("append", &dir, &[], input).ok();
    assert_eq!(log("cat", &dir, &[], b"").ok().out, input);
}

#[test]
fn a_last_line_without_a_newline_is_a_record() {
    let (_guard, dir) = workdir();
    let reported = log("append", &dir, &["--json"], b"a\nb").ok().json();
    assert_eq!(
        (&reported["records"], &reported["bytes"], &reported["durable"]),
        (&2.into(), &2.into(), &2.into())
    );
    assert_eq!(log("cat", &dir, &[], b"").ok().out, b"a\nb\n");
}

#[test]
fn no_input_makes_an_empty_log() {
    let (_guard, dir) = workdir();
    let reported = log("append", &dir, &["--json"], b"").ok().json();
    assert_eq!(
        (&reported["records"], &reported["first_seq"]),
        (&0.into(), &serde_json::Value::Null)
    );
    assert!(log("cat", &dir, &[], b"").ok().out.is_empty());
}

#[test]
fn next_run_continues_after_the_last() {
    let (_guard, dir) = workdir();
    for round in 0..5 {
        let reported = log("append", &dir, &["--json"], b"one\ntwo\n").ok();
        assert_eq!(reported.err, "");
        let reported = reported.json();
        assert_eq!(reported["first_seq"], 2 * round + 1);
        assert_eq!(reported["last_seq"], 2 * round + 2);
    }
    assert_eq!(log("cat", &dir, &[], b"").ok().out, b"one\ntwo\n".repeat(5));
    assert_eq!(log("cat", &dir, &["--from", "9"], b"").ok().out, b"one\ntwo\n");
    assert!(log("cat", &dir, &["--from", "11"], b"").ok().out.is_empty());
}

#[test]
fn a_large_input_crosses_segments_under_every_policy() {
    for policy in ["always", "batch:100", "periodic:5", "os"] {
        let (_guard, dir) = workdir();
        let input = esker::lines(1, 60_000);
        let flags = ["--policy", policy, "--segment-size", "128K"];
        log("append", &dir, &flags, input.as_bytes()).ok();
        assert!(esker::segments(&dir).len() > 3);
        assert!(log("cat", &dir, &[], b"").ok().out == input.as_bytes(), "{policy}");
        log("verify", &dir, &[], b"").ok();
    }
}

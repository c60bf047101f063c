//! Export and import: what `cat` prints, `append` reads.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use esker_log::{Append, Log, Seq};
use esker_testkit::Rng;
use serde_json::Value;

use crate::append::length_prefixed_records::framed;
use crate::esker::{self, lines as lines_of, log, workdir};

/// Empty, long, of text with all that JSON escapes, and of any bytes.
fn records() -> Vec<Vec<u8>> {
    let mut rng = Rng::new(17, 0);
    let text = "two\nlines, \"quoted\" \\ \u{1F9CA} \u{7f}\u{0}\u{2028}";
    let mut all =
        vec![b"".to_vec(), b"\n".to_vec(), text.into(), vec![0xff, 0xfe, 0], vec![b'x'; 300_000]];
    all.extend((0..200).map(|_| (0..rng.below(2_000)).map(|_| rng.next() as u8).collect()));
    all
}

fn framed_all(records: &[Vec<u8>]) -> Vec<u8> {
    framed(&records.iter().map(|record| &**record).collect::<Vec<_>>())
}

fn cat(dir: &Path, flags: &[&str]) -> Vec<u8> {
    log("cat", dir, flags, b"").ok().out
}

/// All but position and time of each record.
fn lines(json: &[u8]) -> Vec<Value> {
    let lines = std::str::from_utf8(json).unwrap().lines();
    let without = |line: &str| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        let fields = line.as_object_mut().unwrap();
        assert!(fields.remove("position").is_some() && fields.remove("time").is_some());
        line
    };
    lines.map(without).collect()
}

#[test]
fn len32_comes_back_byte_for_byte() {
    let (guard, dir) = workdir();
    let input = framed_all(&records());
    log("append", &dir, &["--framing", "len32"], &input).ok();
    let exported = cat(&dir, &["--framing", "len32"]);
    assert!(exported == input);
    let copy = guard.path().join("copy");
    log("append", &copy, &["--framing", "len32"], &exported).ok();
    assert!(cat(&copy, &["--framing", "len32"]) == input);
}

#[test]
fn json_comes_back_with_the_same_payloads() {
    let (guard, dir) = workdir();
    let input = framed_all(&records());
    log("append", &dir, &["--framing", "len32"], &input).ok();
    let exported = cat(&dir, &["--json"]);
    assert!(cat(&dir, &["--framing", "json"]) == exported);
    // Under new numbers, after what is there.
    let copy = guard.path().join("copy");
    log("append", &copy, &[], b"first\n").ok();
    let report = log("append", &copy, &["--framing", "json", "--json"], &exported).ok().json();
    assert_eq!((&report["first_seq"], &report["last_seq"]), (&2.into(), &206.into()));
    assert!(cat(&copy, &["--framing", "len32", "--from", "2"]) == input);
}

/// Numbers that are missing stay so, and the first may be any.
#[test]
fn numbers_are_kept_on_demand() {
    let (guard, dir) = workdir();
    let log_of_numbers = Log::open(&dir).unwrap();
    for (prev, seq) in [(6, 7), (7, 9), (9, 1000)] {
        let append =
            log_of_numbers.write(Append::numbered(Seq(prev), &[(Seq(seq), format!("r{seq}"))]));
        append.unwrap().blocking_wait().unwrap();
    }
    log_of_numbers.close().unwrap();
    let exported = cat(&dir, &["--json"]);
    let copy = guard.path().join("copy");
    let flags = ["--framing", "json", "--keep-seq", "--json"];
    let report = log("append", &copy, &flags, &exported).ok().json();
    assert_eq!((&report["first_seq"], &report["records"]), (&7.into(), &3.into()));
    assert_eq!(lines(&cat(&copy, &["--json"])), lines(&exported));

    // Again: they do not follow the last one.
    let again = log("append", &copy, &flags, &exported).exits(1);
    assert!(again.err.contains("1000") && again.json()["records"] == 0, "{again:?}");
    // More of them do.
    let more = b"\n{\"seq\":1002,\"prev\":1000,\"payload\":\"more\"}\n";
    log("append", &copy, &flags, more).ok();
    assert_eq!(cat(&copy, &["-n", "1"]), b"more\n");
    for (line, what) in [
        ("{\"seq\":1004,\"prev\":1001,\"payload\":\"a\"}", "1002"),
        ("{\"seq\":1002,\"prev\":1002,\"payload\":\"a\"}", "cannot follow"),
        ("{\"payload\":\"a\"}", "--keep-seq"),
        (
            "{\"seq\":18446744073709551615,\"payload\":\"a\"}",
            "numbers end with 18446744073709551614",
        ),
        (
            "{\"seq\":1003,\"prev\":1002,\"payload\":\"a\"}\n{\"seq\":1003,\"prev\":1002,\"payload\":\"a\"}",
            "line 2",
        ),
    ] {
        let refused = log("append", &copy, &flags[..3], line.as_bytes()).exits(1);
        assert!(refused.err.contains(what), "{line}: {}", refused.err);
    }
    // What came before the line that is wrong is kept.
    assert_eq!(
        cat(&copy, &["--from", "1003", "--json"]).iter().filter(|b| **b == b'\n').count(),
        1
    );
    log("append", &copy, &["--keep-seq"], b"").exits(2).says(&["--framing json"]);
}

/// Records that a repair quarantined, or that `--skip-corrupt` skips, are missing in an export. It
/// was refused: "record 21 follows record 20, and the line before has 10", and "it has no `seq` and
/// `prev`".
#[test]
fn an_export_with_gaps_is_imported_under_its_numbers() {
    let (guard, dir) = workdir();
    for from in [1, 11, 21] {
        log("append", &dir, &[], lines_of(from, from + 9).as_bytes()).ok();
    }
    corrupt(&dir, b"line 14");
    let keep = ["--framing", "json", "--keep-seq"];
    let numbers = |dir: &Path| -> Vec<u64> {
        let all = lines(&cat(dir, &["--json"]));
        all.iter().map(|line| line["seq"].as_u64().unwrap()).collect()
    };
    let import = |exported: &[u8], to: &str, missing: &str| {
        let copy = guard.path().join(to);
        let imported = log("append", &copy, &keep, exported).ok();
        assert_eq!(imported.err.lines().count(), 1, "{}", imported.err);
        assert!(imported.err.contains(missing), "{}", imported.err);
        copy
    };
    // The record after the gap has no `prev`.
    let skipped = log("cat", &dir, &["--skip-corrupt", "--json"], b"").exits(3);
    let copy = import(&skipped.out, "skipped", "records above 13 up to 14 are missing");
    let all: Vec<u64> = (1..=13).chain(15..=30).collect();
    assert_eq!(numbers(&copy), all);

    log("repair", &dir, &[], b"").ok();
    let exported = log("cat", &dir, &["--json"], b"").ok().out;
    let copy = import(&exported, "repaired", "records above 10 up to 20 are missing");
    let all: Vec<u64> = (1..=10).chain(21..=30).collect();
    assert_eq!(numbers(&copy), all);
    // Once more, from the copy: now nothing is missing.
    let again = guard.path().join("again");
    let second = log("append", &again, &keep, &cat(&copy, &["--json"])).ok();
    assert_eq!((second.err.as_str(), numbers(&again)), ("", all));

    // After the last record of a log that has some.
    let tail = log("cat", &dir, &["--json", "--from", "25"], b"").ok().out;
    let short = guard.path().join("short");
    log("append", &short, &[], lines_of(1, 3).as_bytes()).ok();
    let appended = log("append", &short, &keep, &tail).ok();
    assert!(appended.err.contains("records above 3 up to 24 are missing"), "{}", appended.err);
    assert_eq!(numbers(&short)[3..], [25, 26, 27, 28, 29, 30]);
    log("append", &short, &keep, &tail).exits(1).says(&["line 1", "record 25", "30"]);
}

/// Changes one byte of the first record with this payload.
fn corrupt(dir: &Path, payload: &[u8]) {
    let segment = &esker::segments(dir)[0];
    let mut bytes = std::fs::read(segment).unwrap();
    let at = bytes.windows(payload.len()).position(|found| found == payload).unwrap();
    bytes[at] ^= 0xff;
    std::fs::write(segment, bytes).unwrap();
}

/// The records before it are kept, and the message names its line.
#[test]
fn a_line_that_is_no_record_ends_the_import() {
    let (_guard, dir) = workdir();
    let input =
        b"{\"payload\":\"a\"}\n\n{\"payload\":\"b\"}\n{\"payload\":1}\n{\"payload\":\"c\"}\n";
    let ended = log("append", &dir, &["--framing", "json"], input).exits(1);
    assert!(ended.err.contains("line 4 of the input"), "{}", ended.err);
    assert_eq!(cat(&dir, &[]), b"a\nb\n");
    for (line, word) in [
        ("[1]", "it is no JSON object"),
        ("{\"payload\":\"a\"", "at column 14"),
        ("{\"payload\":\"a\",\"seq\":-1}", "expected a number at column"),
    ] {
        let refused = log("append", &dir, &["--framing", "json"], line.as_bytes()).exits(1);
        assert!(refused.err.contains(word), "{}", refused.err);
        assert!(!refused.err.contains("struct") && !refused.err.contains("line 1 column"));
    }
}

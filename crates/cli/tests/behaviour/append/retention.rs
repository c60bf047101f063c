//! `truncate` and the retention flags drop the oldest records, and nothing else ever does.

use crate::esker::{lines, log, segments, workdir};

#[test]
fn truncate_drops_what_is_below() {
    let (_guard, dir) = workdir();
    log("append", &dir, &["--segment-size", "64K"], lines(1, 20_000).as_bytes()).ok();
    let before = segments(&dir).len();
    let reported = log("truncate", &dir, &["--before", "15000", "--json"], b"").ok().json();
    assert_eq!((&reported["oldest"], &reported["durable"]), (&15_000.into(), &20_000.into()));
    assert!(segments(&dir).len() < before);
    assert_eq!(log("cat", &dir, &[], b"").ok().text(), lines(15_000, 20_000));
    log("cat", &dir, &["--from", "3"], b"")
        .exits(1)
        .says(&["oldest stored is 15000", "--from 15000"]);
    // Again, and below: nothing changes.
    log("truncate", &dir, &["--before", "10"], b"").ok();
    assert_eq!(log("cat", &dir, &[], b"").ok().text(), lines(15_000, 20_000));
    let metadata = log("stat", &dir, &["--json"], b"").ok().json();
    assert_eq!((&metadata["oldest"], &metadata["durable"]), (&15_000.into(), &20_000.into()));
}

#[test]
fn truncate_beyond_the_end_is_refused() {
    let (_guard, dir) = workdir();
    log("append", &dir, &[], lines(1, 10).as_bytes()).ok();
    log("truncate", &dir, &["--before", "12"], b"").exits(1).says(&["ends with record 10"]);
    assert_eq!(log("cat", &dir, &[], b"").ok().text(), lines(1, 10));
    log("truncate", &dir, &["--before", "11"], b"").ok();
    assert_eq!(log("cat", &dir, &[], b"").ok().text(), "");
}

#[test]
fn retention_applies_only_when_requested() {
    let (_guard, dir) = workdir();
    let input = lines(1, 60_000);
    let small = ["--segment-size", "64K"];
    log("append", &dir, &small, input.as_bytes()).ok();
    assert_eq!(log("cat", &dir, &[], b"").ok().text(), input);

    log(
        "append",
        &dir,
        &[&small[..], &["--retain-segments", "3"]].concat(),
        lines(60_001, 80_000).as_bytes(),
    )
    .ok();
    let cat = log("cat", &dir, &[], b"").ok();
    let kept = cat.text().lines().count() as u64;
    assert!(kept < 20_000, "{kept}");
    assert_eq!(cat.text(), lines(80_001 - kept, 80_000));
    assert!(segments(&dir).len() <= 4, "{:?}", segments(&dir));
}

/// The limits of one run do not hold for the next, which says so; also before anything was dropped,
/// and not because something was truncated by hand.
#[test]
fn an_append_without_the_retention_of_the_last_run_says_so() {
    let (_guard, dir) = workdir();
    let small = ["--segment-size", "64K"];
    let limited = [&small[..], &["--retain-bytes", "1G", "--retain-age", "2h"]].concat();
    assert_eq!(log("append", &dir, &small, lines(1, 40_000).as_bytes()).ok().err, "");
    log("truncate", &dir, &["--before", "20000"], b"").ok();
    assert_eq!(log("append", &dir, &small, b"one\n").ok().err, "");
    assert_eq!(log("append", &dir, &limited, b"two\n").ok().err, "");
    log("append", &dir, &small, b"three\n")
        .ok()
        .says(&["--retain-bytes 1G and --retain-age 2h", "nothing is dropped now"]);
    assert_eq!(log("append", &dir, &small, b"four\n").ok().err, "");
    assert_eq!(log("append", &dir, &limited, b"five\n").ok().err, "");
}

/// Bug: the command in between had no retention, and so the append after it said nothing.
#[test]
fn a_command_that_appends_nothing_keeps_the_retention_of_the_last_run() {
    let (_guard, dir) = workdir();
    log("append", &dir, &["--retain-bytes", "1G"], lines(1, 100).as_bytes()).ok();
    log("truncate", &dir, &["--before", "20"], b"").ok();
    log("repair", &dir, &[], b"").ok();
    log("offsets", &dir, &["set", "billing", "30"], b"").ok();
    for input in [&b""[..], b"one\n"] {
        let says = &["--retain-bytes 1G", "nothing is dropped now"];
        log("append", &dir, &[], input).ok().says(says);
    }
    assert_eq!(log("append", &dir, &[], b"two\n").ok().err, "");
}

/// Bug: truncating all records of a log with one segment freed nothing, and did not say so.
#[test]
fn a_truncation_that_frees_nothing_says_what_frees_space() {
    let (_guard, dir) = workdir();
    log("append", &dir, &[], lines(1, 200_000).as_bytes()).ok();
    let truncate = |before: &str| log("truncate", &dir, &["--before", before], b"").ok();
    let small = dir.with_file_name("small");
    log("append", &small, &[], lines(1, 10).as_bytes()).ok();
    log("truncate", &small, &["--before", "5"], b"").ok().says_nothing();
    let bytes = || segments(&dir).iter().map(|path| path.metadata().unwrap().len()).sum::<u64>();
    truncate("1").says_nothing();
    // Another segment alone frees nothing while records are left in this one.
    for (before, remedy) in [
        ("100", "is freed when they are truncated, too, with --before 200001"),
        ("200001", "append a record with --segment-size 64K"),
    ] {
        truncate(before).says(&["no space was freed", remedy]);
        assert!(bytes() > 2_000_000);
    }
    // The remedy.
    log("append", &dir, &["--segment-size", "64K"], b"a new segment\n").ok();
    truncate("200001").says_nothing();
    assert!(bytes() < 100_000, "{}", bytes());
    assert_eq!(log("cat", &dir, &[], b"").ok().text(), "a new segment\n");

    log("append", &dir, &["--segment-size", "64K"], lines(1, 20_000).as_bytes()).ok();
    truncate("200002").says(&["no space was freed", "the oldest segment also has records up to"]);
}

/// A log that never fills a segment obeys its age, too.
#[test]
fn old_records_are_dropped_from_the_active_segment() {
    let (_guard, dir) = workdir();
    log("append", &dir, &[], lines(1, 100).as_bytes()).ok();
    std::thread::sleep(std::time::Duration::from_millis(300));
    log("append", &dir, &["--retain-age", "200ms"], b"").ok();
    assert_eq!(log("cat", &dir, &[], b"").ok().text(), "");
    log("append", &dir, &["--retain-age", "1h"], b"young\n").ok();
    assert_eq!(log("cat", &dir, &[], b"").ok().text(), "young\n");
    log("append", &dir, &["--retain-age", "0"], b"").exits(2).says(&["--retain-age"]);
}

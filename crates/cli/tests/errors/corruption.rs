//! A flipped byte in a cleanly closed log: status 3 from everything that comes to it, with file,
//! offset and the command that helps; `repair` loses one commit unit at most, and `cat` continues
//! from there.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use crate::esker::{self, log, segments, workdir};

fn flip(file: &Path, offset: usize) {
    let mut bytes = std::fs::read(file).unwrap();
    bytes[offset] ^= 0x10;
    std::fs::write(file, bytes).unwrap();
}

/// Three commit units, of 100 lines each. Only the end of the input requests a commit: under
/// another policy the timer may split the lines while the machine is busy.
fn three_units(dir: &Path) {
    for unit in 0..3u64 {
        log(
            "append",
            dir,
            &["--policy", "batch:1000"],
            esker::lines(100 * unit + 1, 100 * unit + 100).as_bytes(),
        )
        .ok();
    }
}

/// The offset of a record's text.
fn offset_of(file: &Path, text: &str) -> usize {
    let bytes = std::fs::read(file).unwrap();
    bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap()
}

#[test]
fn flipped_byte_exits_with_status_3_after_valid_records() {
    let (_guard, dir) = workdir();
    three_units(&dir);
    let segment = segments(&dir).remove(0);
    flip(&segment, offset_of(&segment, "line 150"));

    let file = segment.to_str().unwrap();
    let repair = format!("`esker log repair {}`", dir.display());
    let words = [file, "at byte 8192", &repair];
    let cat = log("cat", &dir, &[], b"").exits(3).says(&words);
    assert_eq!(cat.text(), esker::lines(1, 100));
    log("verify", &dir, &[], b"").exits(3).says(&words);
    let reported = log("verify", &dir, &["--json"], b"").exits(3).json();
    assert_eq!(reported["damage"][0]["offset"], 8192);
    assert_eq!(reported["damage"][0]["after"], 100);
    assert_eq!(reported["damage"].as_array().unwrap().len(), 1);

    let before = std::fs::read(&segment).unwrap();
    log("append", &dir, &[], b"never\n").exits(3).says(&words);
    log("truncate", &dir, &["--before", "5"], b"").exits(3).says(&words);
    assert_eq!(std::fs::read(&segment).unwrap(), before, "nothing was changed");
}

#[test]
fn repair_loses_one_unit_and_cat_reports_it() {
    let (_guard, dir) = workdir();
    three_units(&dir);
    let segment = segments(&dir).remove(0);
    flip(&segment, offset_of(&segment, "line 150"));

    let reported = log("repair", &dir, &["--json"], b"").ok().json();
    assert_eq!(
        (&reported["aside"][0]["from"], &reported["aside"][0]["to"]),
        (&100.into(), &200.into())
    );
    let kept_in = reported["aside"][0]["kept_in"].as_str().unwrap();
    assert!(Path::new(kept_in).exists());

    let cat = log("cat", &dir, &[], b"").ok().says(&["above 100 up to 200", "quarantined"]);
    assert_eq!(cat.text(), esker::lines(1, 100) + &esker::lines(201, 300));
    log("verify", &dir, &[], b"").ok();
    let lists_the_gap = || {
        let stat = log("stat", &dir, &["--json"], b"").ok().json();
        assert_eq!((&stat["gaps"], &stat["skipped"]), (&1.into(), &0.into()));
        assert_eq!(stat["quarantined"], serde_json::json!([{ "from": 100, "to": 200 }]));
        let text = log("stat", &dir, &[], b"").ok();
        let rows = "gaps         1\nquarantined  the records above 100 up to 200\n";
        assert!(text.text().contains(rows), "{}", text.text());
    };
    lists_the_gap();
    log("append", &dir, &[], b"line 301\n").ok();
    lists_the_gap();
    let cat = log("cat", &dir, &["--from", "250"], b"").ok();
    assert_eq!((cat.text(), cat.err.as_str()), (esker::lines(250, 301).as_str(), ""));
}

#[test]
fn repair_of_a_valid_log_changes_nothing() {
    let (_guard, dir) = workdir();
    three_units(&dir);
    let before = std::fs::read(segments(&dir).remove(0)).unwrap();
    let reported = log("repair", &dir, &["--json"], b"").ok().json();
    assert_eq!(reported["repaired"], false);
    assert_eq!(std::fs::read(segments(&dir).remove(0)).unwrap(), before);
    assert_eq!(log("append", &dir, &[], b"").ok().err, "", "it is still closed cleanly");
}

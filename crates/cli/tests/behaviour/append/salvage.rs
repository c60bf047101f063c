//! `esker log cat --skip-corrupt` and `esker log salvage`.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::FileExt;

use crate::esker::{lines, log, workdir};

/// A commit of ten records, of which one is corrupt, and more commits.
#[test]
fn all_but_the_corrupt_record_are_printed() {
    let (_guard, dir) = workdir();
    for from in [1, 11, 21] {
        log("append", &dir, &[], lines(from, from + 9).as_bytes()).ok();
    }
    let whole = log("cat", &dir, &[], b"").ok().text().to_owned();
    assert_eq!(log("cat", &dir, &["--skip-corrupt"], b"").ok().text(), whole);
    let segment = dir.join("00000000000000000001.seg");
    let bytes = fs::read(&segment).unwrap();
    let payload = lines(14, 14).trim_end().to_owned();
    let at = bytes.windows(payload.len()).position(|found| found == payload.as_bytes()).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&segment).unwrap();
    file.write_all_at(b"\xff", at as u64).unwrap();

    let expected = lines(1, 13) + &lines(15, 30);
    let before = log("cat", &dir, &[], b"").exits(3);
    assert_eq!(before.text(), lines(1, 10));
    let all = log("cat", &dir, &["--skip-corrupt"], b"").exits(3);
    assert_eq!(all.text(), expected);
    assert!(
        all.err.contains("note: skipped ") && all.err.contains("29 valid records"),
        "{}",
        all.err
    );
    let some = log("cat", &dir, &["--skip-corrupt", "--from", "12", "--to", "16"], b"").exits(3);
    assert_eq!(some.text(), lines(12, 13) + &lines(15, 16));
    log("cat", &dir, &["--skip-corrupt", "-f"], b"").exits(2);

    // A file that is cut leaves nothing to skip, and records are missing all the same.
    let cut = dir.with_extension("cut");
    fs::create_dir(&cut).unwrap();
    for file in fs::read_dir(&dir).unwrap().map(|file| file.unwrap().path()) {
        fs::copy(&file, cut.join(file.file_name().unwrap())).unwrap();
    }
    let first_commit =
        fs::OpenOptions::new().write(true).open(cut.join(segment.file_name().unwrap()));
    first_commit.unwrap().set_len(8192).unwrap();
    let partial = log("cat", &cut, &["--skip-corrupt"], b"").exits(3);
    assert_eq!(partial.text(), lines(1, 10));
    assert!(partial.err.contains("records above 10 up to 30 are missing"), "{}", partial.err);

    log("repair", &dir, &[], b"").ok();
    // As `cat` does. It said that the log is corrupt, with exit status 3.
    let repaired = log("cat", &dir, &["--skip-corrupt"], b"").ok();
    assert_eq!(repaired.text(), lines(1, 10) + &lines(21, 30));
    let gap = "the records above 10 up to 20 were corrupt and are quarantined";
    repaired.says(&["note: ", gap]);
    log("cat", &dir, &[], b"").ok().says(&["note: ", gap]);
    for (outside, lines) in [(["--from", "25"], lines(25, 30)), (["--to", "9"], lines(1, 9))] {
        let some = log("cat", &dir, &[&["--skip-corrupt"], &outside[..]].concat(), b"").ok();
        assert_eq!((some.text(), some.err.as_str()), (&*lines, ""));
    }
    let quarantined = fs::read_dir(dir.join("quarantine")).unwrap().next().unwrap().unwrap().path();
    let salvaged = log("salvage", &quarantined, &[], b"").ok();
    // As another log, in the same order.
    let other = dir.with_extension("other");
    log("append", &other, &["--framing", "json"], salvaged.text().as_bytes()).ok();
    let rescued = log("cat", &other, &[], b"").ok();
    assert_eq!(rescued.text(), lines(11, 13) + &lines(15, 20));
    log("salvage", &dir.join("manifest"), &[], b"").exits(1);

    // Where it is not, and where it is under another name or in another place.
    let absent = log("salvage", &dir.join("nosuch"), &[], b"").exits(1);
    assert!(absent.says(&["there is no file"]).err.contains("nosuch"));
    log("salvage", &dir, &[], b"").exits(1).says(&["is a directory", "--skip-corrupt"]);
    let name = quarantined.file_name().unwrap();
    for moved in [quarantined.with_extension("saved"), dir.with_file_name(name)] {
        fs::copy(&quarantined, &moved).unwrap();
        log("salvage", &moved, &[], b"").exits(1).says(&["quarantine/SEGMENT-OFFSET.bytes"]);
    }
}

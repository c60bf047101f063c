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
    let repair = format!("`esker repair {}`", dir.display());
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

/// It said of one file that no record is lost, and then that ten are.
#[test]
fn repair_of_a_missing_file_reports_one_loss() {
    let (_guard, dir) = workdir();
    log("append", &dir, &[], esker::lines(1, 10).as_bytes()).ok();
    std::fs::remove_file(segments(&dir).remove(0)).unwrap();
    log("verify", &dir, &[], b"").exits(3).says(&["is corrupt in 1 place,"]);
    let repaired = log("repair", &dir, &[], b"").ok();
    assert_eq!(repaired.text().lines().count(), 1, "{}", repaired.text());
    assert!(repaired.text().contains("above 0 up to 10 are lost"), "{}", repaired.text());
}

#[test]
fn repair_of_a_missing_first_file_reports_one_loss() {
    let (_guard, dir) = workdir();
    let records: String = (0..2000).map(|n| format!("{n:0100}\n")).collect();
    log("append", &dir, &["--segment-size", "64K"], records.as_bytes()).ok();
    std::fs::remove_file(segments(&dir).remove(0)).unwrap();
    log("verify", &dir, &[], b"").exits(3).says(&["is corrupt in 1 place,"]);
    assert_eq!(log("repair", &dir, &[], b"").ok().text().lines().count(), 1);
}

/// Bug: `esker log salvage` was named for each file, and finds nothing in it under that name.
#[test]
fn repair_of_exchanged_segments_names_the_renaming() {
    let (_guard, dir) = workdir();
    let records: String = (0..2000).map(|n| format!("{n:0100}\n")).collect();
    log("append", &dir, &["--segment-size", "64K"], records.as_bytes()).ok();
    let [first, second, ..] = &segments(&dir)[..] else { panic!("{dir:?} has one segment") };
    let aside = dir.join("aside");
    for (from, to) in [(first, &aside), (second, first), (&aside, second)] {
        std::fs::rename(from, to).unwrap();
    }
    let repaired = log("repair", &dir, &[], b"").ok();
    let advice = "if segments were exchanged, rename it to the number of its own";
    assert_eq!(repaired.text().matches(advice).count(), 1, "{}", repaired.text());
    assert!(!repaired.text().contains("prints the valid ones"), "{}", repaired.text());
    let kept = |number| dir.join(format!("quarantine/{number:020}-4096.bytes"));
    let salvage = |number| {
        let mut salvage = esker::command(&["log", "salvage"]);
        salvage.arg(kept(number));
        esker::run(salvage, b"")
    };
    assert!(salvage(1).exits(1).err.contains("has no valid record"));
    std::fs::rename(kept(1), &aside).unwrap();
    std::fs::rename(kept(2), kept(1)).unwrap();
    std::fs::rename(&aside, kept(2)).unwrap();
    for number in [1, 2] {
        assert!(salvage(number).ok().text().lines().count() > 100);
    }
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

/// It was taken for a copy by hand, and a repair was advised, after which no backup goes there.
#[test]
fn a_missing_segment_of_a_backup_is_backed_up_again() {
    let (guard, dir) = workdir();
    let records: String = (0..5000).map(|n| format!("{n:0100}\n")).collect();
    log("append", &dir, &["--segment-size", "64K"], records.as_bytes()).ok();
    let copy = guard.path().join("copy");
    let back_up = || log("backup", &dir, &[copy.to_str().unwrap()], b"").ok();
    back_up();
    std::fs::remove_file(segments(&copy).remove(2)).unwrap();
    log("cat", &copy, &[], b"")
        .exits(3)
        .says(&["is missing", "if this is a backup, back up again"]);
    back_up();
    assert_eq!(log("cat", &copy, &[], b"").ok().text(), records);
}

/// A copy that was made file by file beside a writer. It was advised to repair it, which drops
/// records that the original has.
#[test]
fn a_copy_by_hand_is_advised_to_be_made_by_backup() {
    let (guard, dir) = workdir();
    let records: String = (0..5000).map(|n| format!("{n:0100}\n")).collect();
    log("append", &dir, &["--segment-size", "64K"], records.as_bytes()).ok();
    let all = segments(&dir);
    assert!(all.len() > 4);
    let copy = guard.path().join("copy");
    copy_files(&dir, &copy);
    std::fs::remove_file(copy.join(all[2].file_name().unwrap())).unwrap();
    let missing = [
        "is missing",
        "copied by other tools, copy the original with `esker backup`, to another directory",
        "if it is the original, restore a backup,",
        "or run `esker repair",
        "gives up the records of the missing segment",
    ];
    log("cat", &copy, &[], b"").exits(3).says(&missing);
    log("verify", &copy, &[], b"").exits(3).says(&["is corrupt in 1 place,"]);
    log("append", &copy, &[], b"").exits(3).says(&missing);

    // The files of another moment: the manifest is of one before.
    let later = guard.path().join("later");
    copy_files(&dir, &later);
    log("append", &dir, &["--segment-size", "64K"], records.as_bytes()).ok();
    for file in segments(&dir) {
        std::fs::copy(&file, later.join(file.file_name().unwrap())).unwrap();
    }
    for ended in [log("cat", &later, &[], b""), log("append", &later, &[], b"")] {
        let ended = ended.exits(3).says(&["is newer than", "`esker backup`"]);
        // Only of the original: in a copy it would drop what the original has.
        let repair = ended.err.find("esker repair").unwrap_or(0);
        assert!(ended.err[..repair].ends_with("if it is the original, run `"), "{}", ended.err);
    }
    // What was not copied is repaired.
    let segment = &segments(&dir)[1];
    flip(segment, 8200);
    let flipped = log("verify", &dir, &[], b"").exits(3).says(&["run `esker repair"]);
    assert!(!flipped.err.contains("backup"), "{}", flipped.err);
}

/// Bug: the manifest names the newest segment, so this looked like a copy by hand alone, and no
/// command named another remedy.
#[test]
fn a_missing_newest_segment_has_two_remedies() {
    let (_guard, dir) = workdir();
    let records: String = (0..5000).map(|n| format!("{n:0100}\n")).collect();
    log("append", &dir, &["--segment-size", "64K"], records.as_bytes()).ok();
    std::fs::remove_file(segments(&dir).last().unwrap()).unwrap();
    let remedies = [
        "if the files were copied beside a writer, copy the original with `esker backup`, to \
         another directory",
        "if it is the original, restore a backup, or run `esker repair",
        "gives up the records of the missing segment",
    ];
    for command in ["cat", "stat", "append"] {
        log(command, &dir, &[], b"").exits(3).says(&remedies);
    }
    let found = log("verify", &dir, &[], b"").exits(3);
    // The last line by itself, for those who see nothing else.
    found.says(&remedies);
    log("repair", &dir, &[], b"").ok();
    log("verify", &dir, &[], b"").ok();
}

/// The watermark page is rarely synced, so a power cut leaves it older than the segments. A place
/// that is corrupt for another reason was then explained as a copy by hand, and no repair advised.
#[test]
fn an_older_watermark_page_may_be_that_of_a_power_cut() {
    let (_guard, dir) = workdir();
    three_units(&dir);
    let page = std::fs::read(dir.join("mark")).unwrap();
    three_units(&dir);
    std::fs::write(dir.join("mark"), page).unwrap();
    let segment = segments(&dir).remove(0);
    flip(&segment, offset_of(&segment, "line 150"));
    for ended in [log("cat", &dir, &[], b""), log("append", &dir, &[], b"")] {
        let otherwise =
            format!("to another directory; otherwise run `esker repair {}`", dir.display());
        ended.exits(3).says(&["is newer than mark", &otherwise]);
    }
    // Its last line began with the second half of that.
    let copied = "if the files were copied beside a writer, copy the original with `esker \
                  backup`, to another directory; otherwise run";
    log("verify", &dir, &[], b"").exits(3).says(&[copied]);
}

/// A header that cannot be read is no sign of a copy: the file does not say how new it is.
#[test]
fn a_corrupt_header_is_advised_to_be_repaired() {
    for count in [3, 2000] {
        let (_guard, dir) = workdir();
        let records: String = (0..count).map(|n| format!("{n:0100}\n")).collect();
        log("append", &dir, &["--segment-size", "64K"], records.as_bytes()).ok();
        flip(segments(&dir).last().unwrap(), 20);
        for ended in [log("cat", &dir, &[], b""), log("append", &dir, &[], b"")] {
            let advice = format!("run `esker repair {}`", dir.display());
            let ended = ended.exits(3).says(&[&advice]);
            assert!(!ended.err.contains("newer"), "{}", ended.err);
        }
    }
}

fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for file in std::fs::read_dir(from).unwrap().map(|file| file.unwrap()) {
        if file.path().is_file() {
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
}

/// Bug: `verify` named the manifest alone, and printed no JSON; `cat --skip-corrupt` printed
/// nothing.
#[test]
fn a_corrupt_manifest_hides_nothing_else() {
    let (_guard, dir) = workdir();
    three_units(&dir);
    let first = &segments(&dir)[0];
    let whole = std::fs::read(first).unwrap();
    for lost in [false, true] {
        std::fs::write(first, &whole).unwrap();
        match lost {
            true => std::fs::remove_file(dir.join("manifest")).unwrap(),
            false => flip(&dir.join("manifest"), 30),
        }
        let report = log("verify", &dir, &["--json"], b"").exits(3).json();
        assert_eq!((&report["records"], &report["sound"]), (&300.into(), &false.into()));
        let printed = log("cat", &dir, &["--skip-corrupt"], b"").exits(3);
        assert_eq!(printed.text(), esker::lines(1, 300));
        flip(first, offset_of(first, "150"));
        let report = log("verify", &dir, &["--json"], b"").exits(3).json();
        assert_eq!(report["damage"].as_array().unwrap().len(), 2, "{report}");
        let printed = log("cat", &dir, &["--skip-corrupt"], b"").exits(3);
        assert_eq!(printed.text().lines().count(), 299);
    }
}

/// Bug: the bytes that were expected were reported, also where the file had fewer or none.
#[test]
fn a_repair_reports_the_bytes_that_it_keeps() {
    for left in [0, 10, 5000, 9000] {
        let (_guard, dir) = workdir();
        three_units(&dir);
        let file = std::fs::File::options().write(true).open(&segments(&dir)[0]).unwrap();
        file.set_len(left).unwrap();
        let repaired = log("repair", &dir, &["--json"], b"").ok().json();
        let ranges = repaired["aside"].as_array().unwrap();
        assert!(!ranges.is_empty());
        assert_eq!(repaired["manifest"], false, "{left}: the manifest was not wrong");
        for range in ranges {
            let kept = range["kept_in"].as_str();
            let there = kept.map_or(0, |file| std::fs::metadata(file).unwrap().len());
            assert_eq!(range["bytes"], there, "{left}: {range}");
            assert!(there > 0 || kept.is_none());
        }
    }
}

/// Bug: a snapshot that cannot be read hid what was found, and what a repair had done.
#[test]
fn an_unreadable_snapshot_hides_no_report() {
    let (_guard, dir) = workdir();
    three_units(&dir);
    std::fs::create_dir(dir.join("snapshot-00000000000000000009")).unwrap();
    let report = log("verify", &dir, &["--json"], b"").exits(1);
    assert_eq!(report.json()["records"], 300);
    // Bug: it may be corrupt, and the report said that all was sound.
    assert_eq!(report.json()["sound"], false);
    assert!(!log("verify", &dir, &[], b"").exits(1).text().contains("sound"));
    report.says(&["snapshot-00000000000000000009"]);
    let first = &segments(&dir)[0];
    flip(first, offset_of(first, "150"));
    let report = log("verify", &dir, &["--json"], b"").exits(3);
    assert_eq!(report.json()["damage"].as_array().unwrap().len(), 1);
    let repaired = log("repair", &dir, &["--json"], b"").exits(1);
    assert_eq!(repaired.json()["aside"].as_array().unwrap().len(), 1);
}

/// Bug: without the watermark page as well, `--skip-corrupt` printed what later commits say to be
/// durable, and did not mention the rest.
#[test]
fn all_valid_records_are_printed_without_manifest_and_watermark() {
    let (_guard, dir) = workdir();
    three_units(&dir);
    for name in ["manifest", "mark"] {
        std::fs::remove_file(dir.join(name)).unwrap();
    }
    let printed = log("cat", &dir, &["--skip-corrupt"], b"").exits(3);
    assert_eq!(printed.text(), esker::lines(1, 300));
}

/// Bug: no command named the remedy, and the repair said that it had changed nothing.
#[test]
fn an_older_manifest_is_corrected_by_a_repair() {
    let (_guard, dir) = workdir();
    three_units(&dir);
    let older = std::fs::read(dir.join("manifest")).unwrap();
    for line in [&b"more\n"[..], b"and more\n"] {
        log("append", &dir, &[], line).ok();
    }
    std::fs::write(dir.join("manifest"), older).unwrap();
    for command in ["verify", "cat", "append"] {
        log(command, &dir, &[], b"").exits(3).says(&["esker repair"]);
    }
    let repaired = log("repair", &dir, &["--json"], b"").ok().json();
    assert_eq!((&repaired["repaired"], &repaired["manifest"]), (&true.into(), &true.into()));
    log("verify", &dir, &[], b"").ok();
    assert_eq!(log("cat", &dir, &[], b"").ok().text().lines().count(), 302);
    let again = log("repair", &dir, &[], b"").ok();
    assert!(again.text().contains("nothing was changed"), "{}", again.text());
}

//! `esker backup` and `restore` beside writers that run, and that are killed.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use esker_testkit::number_from_env;

use crate::esker::{command, lines, log, run, signal, spawn, until, workdir};

fn cat(dir: &Path) -> String {
    log("cat", dir, &[], b"").ok().text().to_owned()
}

fn back_up(dir: &Path, dest: &Path) -> serde_json::Value {
    log("backup", dir, &[dest.to_str().unwrap(), "--json"], b"").ok().json()
}

/// A writer that gets 25,000 lines a second, until it is killed.
fn writer(dir: &Path, from: u64) -> Child {
    let mut append = command(&["log", "append", "--segment-size", "64K"]);
    let mut child = spawn(append.arg(dir), Stdio::piped());
    let mut input = child.stdin.take().unwrap();
    std::thread::spawn(move || {
        // Until it is gone.
        (0..).all(|chunk| {
            let from = from + chunk * 50;
            std::thread::sleep(Duration::from_millis(2));
            input.write_all(lines(from, from + 49).as_bytes()).is_ok()
        })
    });
    child
}

/// Backups to one place, while the writer is killed again and again. Each has the lines from the
/// first to one that was there.
#[test]
fn backups_under_load_through_kills() {
    let (guard, dir) = workdir();
    let dest = guard.path().join("copy");
    log("append", &dir, &[], lines(1, 1).as_bytes()).ok();
    let mut durable = 0;
    for _ in 0..4 {
        let next = log("stat", &dir, &["--json"], b"").ok().json();
        // What was not known to be durable is recovered by the next writer.
        log("append", &dir, &[], b"").ok();
        let stored = cat(&dir).lines().count() as u64;
        assert!(next["durable"].as_u64().unwrap() <= stored);
        let mut writer = writer(&dir, stored + 1);
        for _ in 0..8 {
            let backup = back_up(&dir, &dest);
            let found = backup["durable"].as_u64().unwrap();
            assert!(durable <= found, "{durable} then {backup}");
            durable = found;
            assert!(cat(&dest) == lines(1, found), "{backup}");
        }
        signal(&writer, "KILL");
        writer.wait().unwrap();
    }
    log("verify", &dest, &[], b"").ok();
    let restored = guard.path().join("restored");
    log("restore", &dest, &[restored.to_str().unwrap()], b"").ok();
    assert!(cat(&restored) == cat(&dest));
    log("append", &restored, &[], lines(durable + 1, durable + 10).as_bytes()).ok();
    assert!(cat(&restored) == lines(1, durable + 10));
    assert!(durable > 1_000, "the writers wrote next to nothing: {durable}");
}

/// The lines of a ring: one run of them, whose end is that of the backup.
fn check_run(dir: &Path, durable: u64) -> u64 {
    let found = cat(dir);
    let first = found.lines().next().and_then(|line| line.strip_prefix("line "));
    let first: u64 = first.unwrap().parse().unwrap();
    assert!(found == lines(first, durable), "not {first} to {durable}");
    first
}

/// A ring whose files are reused all the time, as fast as it takes records. Writers are killed, and
/// so are backups.
#[test]
fn backups_of_a_ring_under_full_load_through_kills() {
    let (guard, dir) = workdir();
    let (dest, limits) = (guard.path().join("copy"), ["--segment-size", "256K"]);
    log("append", &dir, &limits, lines(1, 1).as_bytes()).ok();
    let (mut durable, mut oldest) = (0, 0);
    for round in 0..number_from_env("ESKER_SOAK", 3) {
        let next =
            log("append", &dir, &["--json"], b"").ok().json()["durable"].as_u64().unwrap() + 1;
        let mut append = command(&["log", "append", "--retain-segments", "8"]);
        let mut writer = spawn(append.args(limits).arg(&dir), Stdio::piped());
        let mut input = writer.stdin.take().unwrap();
        let feed = std::thread::spawn(move || {
            (0..).all(|chunk| {
                let from = next + chunk * 1000;
                input.write_all(lines(from, from + 999).as_bytes()).is_ok()
            })
        });
        let mut killed = spawn(command(&["backup"]).arg(&dir).arg(&dest), Stdio::null());
        std::thread::sleep(Duration::from_millis(round * 7 % 40));
        signal(&killed, "KILL");
        killed.wait().unwrap();
        for _ in 0..3 {
            let found = back_up(&dir, &dest)["durable"].as_u64().unwrap();
            assert!(durable <= found, "{durable} then {found}");
            (durable, oldest) = (found, check_run(&dest, found));
        }
        signal(&writer, "KILL");
        writer.wait().unwrap();
        feed.join().unwrap();
    }
    log("verify", &dest, &[], b"").ok();
    let restored = guard.path().join("restored");
    log("restore", &dest, &[restored.to_str().unwrap()], b"").ok();
    check_run(&restored, durable);
    assert!(oldest > 1, "nothing was dropped below {durable}");
}

#[test]
fn a_backup_that_is_interrupted_is_completed() {
    let (guard, dir) = workdir();
    log("append", &dir, &["--segment-size", "64K"], lines(1, 200_000).as_bytes()).ok();
    for verb in ["backup", "restore"] {
        let dest = guard.path().join(verb);
        let mut copying = spawn(command(&[verb]).arg(&dir).arg(&dest), Stdio::null());
        while !dest.join("note").exists() && copying.try_wait().unwrap().is_none() {}
        signal(&copying, "KILL");
        copying.wait().unwrap();
        if dest.join("note").exists() {
            log("append", &dest, &[], b"x").exits(1).says(&["unfinished backup", "again"]);
            for verb in ["cat", "stat", "verify", "repair"] {
                log(verb, &dest, &[], b"").exits(1).says(&["unfinished backup", "again"]);
            }
            log(verb, &dir, &[dest.to_str().unwrap()], b"").ok();
        }
        assert!(cat(&dest) == lines(1, 200_000));
    }
}

/// It was refused where the first file was not complete, and where the process was killed after its
/// last step: the directory was not empty.
#[test]
fn a_restore_that_is_killed_at_any_moment_is_run_again() {
    let (guard, dir) = workdir();
    log("append", &dir, &["--segment-size", "64K"], lines(1, 40_000).as_bytes()).ok();
    let dest = guard.path().join("copy");
    back_up(&dir, &dest);
    let restored = guard.path().join("restored");
    let restore = || log("restore", &dest, &[restored.to_str().unwrap(), "--json"], b"");
    // What a kill leaves at the first file.
    std::fs::create_dir(&restored).unwrap();
    std::fs::write(restored.join("note.next"), [0; 4096]).unwrap();
    for is_complete in [false, true] {
        let reported = restore().ok().json();
        assert_eq!((reported["copied"] == 0, &reported["durable"]), (is_complete, &40_000.into()));
        assert!(cat(&restored) == lines(1, 40_000));
    }
    for round in 0..number_from_env("ESKER_SOAK", 5) {
        std::fs::remove_dir_all(&restored).unwrap();
        for moment in [round * 7, round * 11] {
            let mut copying = command(&["restore"]);
            let mut copying = spawn(copying.arg(&dest).arg(&restored), Stdio::null());
            std::thread::sleep(Duration::from_millis(moment % 130));
            signal(&copying, "KILL");
            copying.wait().unwrap();
        }
        restore().ok();
        assert!(cat(&restored) == lines(1, 40_000), "round {round}");
    }
}

/// A later backup that was interrupted leaves a log that was not closed, without a watermark page
/// and without the file of a writer. `cat` advised to wait for the next writer.
#[test]
fn an_interrupted_later_backup_is_advised_to_be_run_again() {
    let (_guard, dir) = workdir();
    log("append", &dir, &[], lines(1, 10).as_bytes()).ok();
    let mut writer = spawn(command(&["log", "append"]).arg(&dir), Stdio::piped());
    writer.stdin.as_mut().unwrap().write_all(lines(11, 20).as_bytes()).unwrap();
    let stat = || log("stat", &dir, &["--json"], b"").ok().json();
    until("the writer commits", || stat()["durable"] == 20);
    // Beside the writer, `stat` said "not closed" and "not yet recovered".
    let beside = log("stat", &dir, &[], b"").ok();
    assert!(beside.text().contains("shutdown     open\n"), "{}", beside.text());
    signal(&writer, "KILL");
    writer.wait().unwrap();
    let killed = log("stat", &dir, &[], b"").ok();
    assert!(killed.text().contains("shutdown     not closed"), "{}", killed.text());

    std::fs::remove_file(dir.join("mark")).unwrap();
    log("cat", &dir, &[], b"").ok().says(&["the next writer to open"]);
    std::fs::remove_file(dir.join("lock")).unwrap();
    log("cat", &dir, &[], b"").ok().says(&["run the backup to", "again"]);
}

/// It said that the destination is open for writing, and to read with `cat`.
#[test]
fn a_backup_beside_another_one_to_the_same_place_is_refused() {
    let (guard, dir) = workdir();
    log("append", &dir, &[], lines(1, 10).as_bytes()).ok();
    let dest = guard.path().join("copy");
    back_up(&dir, &dest);
    // As a backup locks it.
    let held = std::fs::File::open(&dest).unwrap();
    held.lock().unwrap();
    let refused = log("backup", &dir, &[dest.to_str().unwrap()], b"").exits(4);
    refused.says(&[dest.to_str().unwrap(), "another backup into it is running"]);
}

#[test]
fn a_backup_goes_to_its_own_place() {
    let (guard, dir) = workdir();
    log("append", &dir, &[], lines(1, 9).as_bytes()).ok();
    let inside = dir.join("copy");
    log("backup", &dir, &[inside.to_str().unwrap()], b"").exits(2);
    // Bug: the path of the parent counted as inside.
    for (number, from) in [".", dir.to_str().unwrap()].into_iter().enumerate() {
        let beside = format!("{from}/../beside-{number}");
        let mut backup = command(&["backup", from, &beside]);
        backup.current_dir(&dir);
        run(backup, b"").ok();
        let restored = format!("{from}/../restored-{number}");
        let mut restore = command(&["restore", from, &restored]);
        restore.current_dir(&dir);
        run(restore, b"").ok();
        assert_eq!(cat(&guard.path().join(format!("restored-{number}"))), lines(1, 9));
    }
    let other = guard.path().join("other");
    log("append", &other, &[], b"mine\n").ok();
    let refused = log("backup", &dir, &[other.to_str().unwrap()], b"").exits(1);
    refused.says(&["opened for writing"]);
    log("restore", &dir, &[other.to_str().unwrap()], b"")
        .exits(1)
        .says(&["not empty", "opened for"]);
    assert_eq!(cat(&other), "mine\n");
    std::fs::create_dir(guard.path().join("home")).unwrap();
    std::fs::write(guard.path().join("home/thesis.tex"), "mine").unwrap();
    let home = guard.path().join("home");
    log("restore", &dir, &[home.to_str().unwrap()], b"")
        .exits(1)
        .says(&["not empty", "other files"]);
    let copy = guard.path().join("copy");
    log("backup", &guard.path().join("nothing"), &[copy.to_str().unwrap()], b"").exits(1);
}

/// Bug: the lock of a repair made a log of its own of a backup, while nothing was repaired.
#[test]
fn a_backup_in_which_nothing_is_repaired_stays_one() {
    let (guard, dir) = workdir();
    log("append", &dir, &[], lines(1, 9).as_bytes()).ok();
    let copy = guard.path().join("copy");
    let dest = [copy.to_str().unwrap()];
    log("backup", &dir, &dest, b"").ok();
    assert!(log("repair", &copy, &[], b"").ok().text().contains("no corruption"));
    log("append", &dir, &[], lines(10, 12).as_bytes()).ok();
    log("backup", &dir, &dest, b"").ok();
    assert_eq!(cat(&copy), lines(1, 12));
}

/// Bug: the advice was to repair the original.
#[test]
fn a_corrupt_copy_is_the_one_that_is_named() {
    let (guard, dir) = workdir();
    log("append", &dir, &[], lines(1, 9).as_bytes()).ok();
    let copy = guard.path().join("copy");
    for file in ["manifest", "note"] {
        log("backup", &dir, &[copy.to_str().unwrap()], b"").ok();
        std::fs::write(copy.join(file), [7; 4096]).unwrap();
        let refused = log("backup", &dir, &[copy.to_str().unwrap()], b"").exits(3);
        let remedy = format!("nothing was copied: remove {}", copy.display());
        assert!(refused.err.contains(&remedy), "{}", refused.err);
        assert!(!refused.err.contains("repair"), "{}", refused.err);
        std::fs::remove_dir_all(&copy).unwrap();
    }
}

/// Bug: with a corrupt `note`, an unfinished backup was taken for a sound log, and nothing but
/// reading worked.
#[test]
fn a_backup_with_a_corrupt_note_may_be_unfinished() {
    let (guard, dir) = workdir();
    log("append", &dir, &[], lines(1, 9).as_bytes()).ok();
    let copy = guard.path().join("copy");
    log("backup", &dir, &[copy.to_str().unwrap()], b"").ok();
    std::fs::write(copy.join("note"), [7; 4096]).unwrap();
    for verb in ["cat", "stat", "verify", "repair"] {
        log(verb, &copy, &[], b"").exits(3).says(&["note", "remove", "back up again"]);
    }
    // Of a log that was opened for writing, the records are there.
    std::fs::write(dir.join("note"), [7; 4096]).unwrap();
    assert_eq!(cat(&dir), lines(1, 9));
}

/// Bug: a backup of a log with a corrupt snapshot named a repair, which found nothing to repair.
#[test]
fn a_corrupt_snapshot_is_found_and_its_remedy_works() {
    let (guard, dir) = workdir();
    log("append", &dir, &[], lines(1, 9).as_bytes()).ok();
    let opened = esker_log::Log::open(&dir).unwrap();
    opened.snapshots().put(5, &mut &[7; 100_000][..]).unwrap();
    opened.close().unwrap();
    drop(opened);
    log("verify", &dir, &[], b"").ok();
    let snapshot = dir.join("snapshot-00000000000000000005");
    let mut bytes = std::fs::read(&snapshot).unwrap();
    bytes[50_000] ^= 1;
    std::fs::write(&snapshot, bytes).unwrap();
    let remedy = ["snapshot-00000000000000000005", "remove the file"];
    let copy = guard.path().join("copy");
    log("backup", &dir, &[copy.to_str().unwrap()], b"").exits(3).says(&remedy);
    log("verify", &dir, &[], b"").exits(3).says(&remedy);
    log("repair", &dir, &[], b"").exits(3).says(&remedy);
    std::fs::remove_file(snapshot).unwrap();
    log("verify", &dir, &[], b"").ok();
    log("backup", &dir, &[copy.to_str().unwrap()], b"").ok();
    assert_eq!(cat(&copy), lines(1, 9));
}

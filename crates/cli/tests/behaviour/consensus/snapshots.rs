//! `esker snapshot`: written from a file or standard input, listed, checked and printed, beside a
//! writer and after damage.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use crate::esker::{command, run, workdir};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use esker_consensus::{Ballot, ConsensusLog, LogManager, Slot};
use serde_json::Value;

fn log(dir: &Path, slots: u64) -> ConsensusLog {
    let log = ConsensusLog::open(dir).unwrap();
    for slot in 0..slots {
        let ballot = Ballot { number: 1, node: 1 };
        log.learn(Slot(slot), ballot, b"value").unwrap().blocking_wait().unwrap();
    }
    log
}

fn file(dir: &Path, slot: u64) -> PathBuf {
    dir.join(format!("snapshot-{slot:020}"))
}

fn flip(path: &Path, byte: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[byte] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

fn json(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_snapshot_is_written_listed_checked_and_printed() {
    let (_guard, dir) = workdir();
    let state: Vec<u8> = (0..3_000_000u32).map(|at| (at / 255) as u8).collect();
    log(&dir, 10).close().unwrap();
    let mut create = command(&["snapshot", "create-from", "--slot", "4", "--note", "v1", "--json"]);
    create.arg(&dir);
    let made = &json(run(create, &state).ok().text())[0];
    assert_eq!((&made["slot"], &made["entries"]), (&4.into(), &5.into()));
    assert_eq!((&made["bytes"], &made["note"]), (&state.len().into(), &"v1".into()));
    let source = dir.with_extension("state");
    std::fs::write(&source, b"small").unwrap();
    for (slot, keep) in [("7", "9"), ("9", "2")] {
        let mut create = command(&["snapshot", "create-from", "--slot", slot, "--keep", keep]);
        create.arg(&dir).arg(&source);
        assert_eq!(run(create, b"").ok().text(), format!("{slot} 5 bytes\n"));
    }
    let mut list = command(&["snapshot", "list", "--json"]);
    list.arg(&dir);
    let slots: Vec<_> = json(run(list, b"").ok().text())
        .iter()
        .map(|line| line["slot"].as_u64().unwrap())
        .collect();
    assert_eq!(slots, [7, 9]);

    // Beside a writer.
    let writer = ConsensusLog::open(&dir).unwrap();
    let mut create = command(&["snapshot", "create-from", "--slot", "9"]);
    create.arg(&dir);
    assert_eq!(run(create, b"").status, 4);
    writer.snapshots().create(Slot(8), &*state).unwrap();
    let mut restore = command(&["snapshot", "restore", "--at-or-before", "8"]);
    restore.arg(&dir);
    let restored = run(restore, b"").ok();
    assert!(restored.out == state && restored.err.contains("the state after slot 8"));
    let mut verify = command(&["snapshot", "verify", "--json"]);
    verify.arg(&dir);
    assert!(json(run(verify, b"").ok().text()).iter().all(|line| line["sound"] == true));
}

/// A state is never replaced, or lost, by a slip of the hand.
#[test]
fn a_snapshot_is_neither_replaced_nor_empty_unless_forced() {
    let (_guard, dir) = workdir();
    log(&dir, 10).close().unwrap();
    let create = |words: &[&str], state: &[u8]| {
        let mut create = command(&["snapshot", "create-from"]);
        create.args(words).arg(&dir);
        run(create, state)
    };
    create(&["--slot", "4"], b"state").ok();
    create(&["--slot", "4"], b"other").exits(1).says(&["a whole snapshot at slot 4", "--force"]);
    create(&["--slot", "5"], b"").exits(1).says(&["standard input is empty", "--force"]);
    let mut list = command(&["snapshot", "list"]);
    list.arg(&dir);
    assert_eq!(run(list, b"").ok().text(), "4 5 bytes\n");
    create(&["--slot", "4", "--force"], b"").ok();
    // One that is not whole is no loss.
    create(&["--slot", "6"], b"state").ok();
    flip(&file(&dir, 6), 4096 + 33);
    create(&["--slot", "6"], b"state again").ok();
    create(&["--slot", "5", "--keep", "1"], b"state").exits(1).says(&["--keep 1", "at slot 5"]);
    create(&["--slot", "10"], b"state").exits(1).says(&["up to 10", "at slot 9"]);
    let long = "n".repeat(1025);
    create(&["--slot", "7", "--note", &long], b"state").exits(2).says(&["--note", "1025"]);
    let kept = create(&["--slot", "8", "--keep", "1"], b"state").ok();
    assert!(kept.err.contains("removed the snapshot at slot 6"), "{}", kept.err);
    let mut directory = command(&["snapshot", "create-from", "--slot", "9"]);
    directory.arg(&dir).arg(&dir);
    run(directory, b"").exits(1).says(&["copy ", &dir.display().to_string()]);
    let writer = ConsensusLog::open(&dir).unwrap();
    writer.snapshots().truncate_through(Slot(8)).unwrap();
    writer.close().unwrap();
    create(&["--slot", "7"], b"state").exits(1).says(&["slots up to 8 were dropped"]);
}

/// As it is, or in JSON; of a log alone, or of one of many.
#[test]
fn a_state_of_one_of_many_logs_is_restored_as_json() {
    let (_guard, root) = workdir();
    std::fs::create_dir(&root).unwrap();
    let dir = root.join("tables");
    let manager = LogManager::open(&dir).unwrap();
    for key in ["users", "orders"] {
        let ballot = Ballot { number: 1, node: 1 };
        manager.get(key).unwrap().learn(Slot(0), ballot, b"v").unwrap().blocking_wait().unwrap();
    }
    // More than is encoded at once, and no multiple of three.
    let state: Vec<u8> = (0..1_000_001u32).map(|at| (at / 255) as u8).collect();
    let with = |verb: &str, words: &[&str]| {
        let mut with = command(&["snapshot", verb]);
        with.args(words).arg(&dir);
        with
    };
    let create = with("create-from", &["--key", "users", "--slot", "0"]);
    run(create, &state).exits(4).says(&["is open for writing", "`esker stat`"]);
    manager.close_all().unwrap();
    run(with("create-from", &["--key", "users", "--slot", "0", "--note", "v1"]), &state).ok();
    run(with("create-from", &["--slot", "0"]), &state).exits(2).says(&["2 logs", "--key"]);
    run(with("create-from", &["--slot", "0", "--key", "no"]), &state).exits(1).says(&["no log of"]);
    for verb in ["list", "verify", "restore"] {
        run(with(verb, &[]), b"").exits(2).says(&["2 logs", "--key"]);
    }
    let none = run(with("restore", &["--key", "orders"]), b"").exits(1);
    assert!(none.err.trim_end().ends_with("has no snapshot"), "{}", none.err);
    let missing = run(with("verify", &["--key", "users", "--slot", "7"]), b"");
    missing.exits(1).says(&["no snapshot at slot 7", "at the slots 0"]);
    run(with("verify", &["--key", "users"]), b"").ok();
    assert_eq!(json(run(with("list", &["--key", "users", "--json"]), b"").ok().text()).len(), 1);

    let restored = run(with("restore", &["--key", "users", "--json"]), b"").ok().json();
    assert_eq!((&restored["slot"], &restored["note"]), (&0.into(), &"v1".into()));
    let encoded = restored["state_b64"].as_str().unwrap();
    assert!(BASE64_STANDARD.decode(encoded).unwrap() == state);
}

/// A plain log has no snapshots, and is not one without any.
#[test]
fn a_plain_log_is_refused() {
    let (_guard, dir) = workdir();
    crate::esker::log("append", &dir, &[], b"a line\n").ok();
    for words in [&["snapshot", "list"][..], &["snapshot", "verify"], &["snapshot", "restore"]] {
        let mut refused = command(words);
        refused.arg(&dir);
        run(refused, b"").exits(1).says(&["is no consensus log"]);
    }
}

#[test]
fn damage_is_status_3_and_an_older_snapshot_is_restored() {
    let (_guard, dir) = workdir();
    let writer = log(&dir, 10);
    writer.snapshots().create(Slot(3), &b"older"[..]).unwrap();
    writer.snapshots().create(Slot(6), &b"newer"[..]).unwrap();
    writer.close().unwrap();
    flip(&file(&dir, 6), 4096 + 33);
    for words in [&["snapshot", "verify"][..], &["snapshot", "verify", "--slot", "6"]] {
        let mut verify = command(words);
        verify.arg(&dir);
        let verified = run(verify, b"");
        assert_eq!(verified.status, 3);
        assert!(verified.text().contains("6 corrupt: "), "{}", verified.text());
    }
    let mut verify = command(&["snapshot", "verify", "--slot", "3"]);
    verify.arg(&dir);
    assert_eq!(run(verify, b"").ok().text(), "3 sound: 5 bytes\n");
    let mut list = command(&["snapshot", "list"]);
    list.arg(&dir);
    assert_eq!(run(list, b"").ok().text(), "3 5 bytes\n6 5 bytes\n", "headers only");
    let mut restore = command(&["snapshot", "restore"]);
    restore.arg(&dir);
    let restored = run(restore, b"").ok();
    assert!(restored.err.contains("passed over: ") && restored.err.contains("after slot 3"));
    assert_eq!(restored.out, b"older");
    flip(&file(&dir, 3), 20);
    for words in [&["snapshot", "restore"][..], &["snapshot", "list"], &["snapshot", "verify"]] {
        let mut refused = command(words);
        refused.arg(&dir);
        assert_eq!(run(refused, b"").status, 3, "{words:?}");
    }
}

#[test]
fn wrong_usage_changes_nothing() {
    let (_guard, dir) = workdir();
    log(&dir, 3).close().unwrap();
    let refused = |words: &[&str], at: &Path| {
        let mut refused = command(words);
        refused.arg(at);
        run(refused, b"state").status
    };
    assert_eq!(refused(&["snapshot", "create-from", "--slot", "3"], &dir), 1);
    assert_eq!(refused(&["snapshot", "create-from", "--slot", "2", "--keep", "0"], &dir), 2);
    assert_eq!(refused(&["snapshot", "create-from"], &dir), 2);
    assert_eq!(refused(&["snapshot", "restore"], &dir), 1);
    assert_eq!(refused(&["snapshot", "verify", "--slot", "1"], &dir), 1);
    assert_eq!(refused(&["snapshot", "list"], &dir), 0);
    let missing = dir.join("none");
    for words in [
        &["snapshot", "list"][..],
        &["snapshot", "verify"],
        &["snapshot", "restore"],
        &["snapshot", "create-from", "--slot", "0"],
    ] {
        assert_eq!(refused(words, &missing), 1, "{words:?}");
    }
    assert!(!missing.exists());
    assert!(
        std::fs::read_dir(&dir).unwrap().all(|entry| {
            !entry.unwrap().file_name().to_string_lossy().starts_with("snapshot-")
        })
    );
}

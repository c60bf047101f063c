//! `esker snapshot`: written from a file or standard input, listed, checked and printed, beside a
//! writer and after damage.

#![allow(clippy::unwrap_used)]

#[path = "kit/esker.rs"]
mod esker;

use std::path::{Path, PathBuf};

use esker::{command, run, workdir};
use esker_consensus::{Ballot, ConsensusLog, Slot};
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
    writer.create_snapshot(Slot(8), &*state).unwrap();
    let mut restore = command(&["snapshot", "restore", "--at-or-before", "8"]);
    restore.arg(&dir);
    let restored = run(restore, b"").ok();
    assert!(restored.out == state && restored.err.contains("the state after slot 8"));
    let mut verify = command(&["snapshot", "verify", "--json"]);
    verify.arg(&dir);
    assert!(json(run(verify, b"").ok().text()).iter().all(|line| line["sound"] == true));
}

#[test]
fn damage_is_status_3_and_an_older_snapshot_is_restored() {
    let (_guard, dir) = workdir();
    let writer = log(&dir, 10);
    writer.create_snapshot(Slot(3), &b"older"[..]).unwrap();
    writer.create_snapshot(Slot(6), &b"newer"[..]).unwrap();
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

//! `esker stat`, `verify` and `consensus dump` read a log beside its writer, and report corruption.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use crate::esker::{command, run, workdir};
use esker_consensus::{Ballot, ConsensusLog, LogManager, ReadOnlyReason, Slot};
use serde_json::Value;

const LOW: Ballot = Ballot { number: 1, node: 1 };
/// The commands that read a consensus log.
const READ_COMMANDS: [&[&str]; 3] = [&["stat"], &["verify"], &["consensus", "dump"]];
const HIGH: Ballot = Ballot { number: 2, node: 1 };

fn log(dir: &Path) -> ConsensusLog {
    let log = ConsensusLog::open(dir).unwrap();
    for slot in 0..5u64 {
        log.accept(Slot(slot), LOW, format!("value {slot}").as_bytes())
            .unwrap()
            .blocking_wait()
            .unwrap();
        log.commit(Slot(slot), LOW).unwrap().blocking_wait().unwrap();
    }
    log.accept(Slot(7), LOW, &[0xff, 0]).unwrap().blocking_wait().unwrap();
    log.promise(HIGH, Slot(0)).unwrap().blocking_wait().unwrap();
    log.truncate_before(Slot(2)).unwrap().blocking_wait().unwrap();
    log
}

fn lines(words: &[&str], dir: &Path) -> Vec<Value> {
    let mut look = command(words);
    look.arg(dir).arg("--json");
    let text = run(look, b"").ok().text().to_owned();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn beside_a_writer_and_after_it() {
    let (_guard, dir) = workdir();
    let writer = log(&dir);
    for closed in [false, true] {
        if closed {
            writer.close().unwrap();
        }
        let stat = &lines(&["stat"], &dir)[0];
        assert_eq!((&stat["floor"], &stat["frontier"]), (&1.into(), &4.into()));
        assert_eq!((&stat["committed"], &stat["uncommitted"]), (&3.into(), &1.into()));
        assert_eq!((&stat["lowest"], &stat["highest"]), (&2.into(), &4.into()));
        assert_eq!(stat["promised"]["number"], 2);
        let dump = lines(&["consensus", "dump"], &dir);
        let slots: Vec<_> = dump.iter().map(|line| line["slot"].as_u64().unwrap()).collect();
        assert_eq!(slots, [2, 3, 4, 7]);
        assert_eq!((&dump[1]["value"], &dump[1]["committed"]), (&"value 3".into(), &true.into()));
        assert_eq!((&dump[3]["value_b64"], &dump[3]["committed"]), (&"/wA=".into(), &false.into()));
        let verify = &lines(&["verify"], &dir)[0];
        assert_eq!((&verify["sound"], &verify["slots"]), (&true.into(), &4.into()));
    }
}

/// Every file in a directory, and what is in it.
fn everything(dir: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let content = if path.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        all.push((path, content));
    }
    all.sort();
    all
}

/// Guards against a dump that begins above the slot that was asked for, and says nothing.
#[test]
fn a_dump_from_a_truncated_slot_is_refused() {
    let (_guard, dir) = workdir();
    log(&dir).close().unwrap();
    for from in ["0", "1"] {
        let mut dump = command(&["consensus", "dump", "--from", from]);
        dump.arg(&dir);
        run(dump, b"").exits(1).says(&["slots up to 1 were truncated"]);
    }
    let slots = lines(&["consensus", "dump", "--from", "2"], &dir);
    assert_eq!(slots[0]["slot"], 2);
}

/// `log append` and `log truncate` refuse a consensus log before they change anything: a line of
/// text is no record of it, and a record that goes may be a promise. A log that was never closed
/// nor checkpointed could be appended to, and one that could not was opened first.
#[test]
fn nothing_is_appended_to_it_or_dropped_by_hand() {
    let (guard, dir) = workdir();
    let writer = log(&dir);
    // As a writer that was killed leaves it.
    let killed = guard.path().join("killed");
    std::fs::create_dir(&killed).unwrap();
    for (path, content) in everything(&dir) {
        std::fs::write(killed.join(path.file_name().unwrap()), content).unwrap();
    }
    writer.close().unwrap();
    drop(writer);
    for dir in [&dir, &killed] {
        let before = everything(dir);
        for words in [&["log", "append"][..], &["log", "truncate", "--before", "3"]] {
            let mut tried = command(words);
            tried.arg(dir);
            run(tried, b"a line\n").exits(1).says(&["belongs to a consensus log"]);
            assert!(everything(dir) == before, "{words:?} changed {}", dir.display());
        }
        // Repairing works on bytes, whosever they are: without corruption it changes none.
        let mut repair = command(&["repair"]);
        repair.arg(dir);
        run(repair, b"").ok();
        // `lock` names the last process that locked the log.
        let unlocked = |mut all: Vec<(std::path::PathBuf, Vec<u8>)>| {
            all.retain(|(path, _)| !path.ends_with("lock"));
            all
        };
        let after = unlocked(everything(dir));
        assert!(after == unlocked(before.clone()), "repair changed {}", dir.display());
        assert_eq!(lines(&["verify"], dir)[0]["slots"], 4);
        let log = ConsensusLog::open(dir).unwrap();
        assert_eq!(log.stats().read_only, None);
        log.close().unwrap();
    }
}

#[test]
fn verify_of_a_corrupt_log_exits_3() {
    let (_guard, dir) = workdir();
    log(&dir).close().unwrap();
    let segment = dir.join("00000000000000000001.seg");
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = bytes.windows(7).position(|window| window == b"value 3").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let mut verify = command(&["verify"]);
    verify.arg(&dir);
    let ended = run(verify, b"");
    assert_eq!(ended.status, 3, "{}", ended.err);
    let mut repair = command(&["repair"]);
    repair.arg(&dir);
    run(repair, b"").ok();
    let mut verify = command(&["verify"]);
    verify.arg(&dir);
    let ended = run(verify, b"");
    assert!(ended.status == 3 && ended.err.contains("read-only"), "{}", ended.err);
    // What was accepted and committed on both sides of the gap can be copied.
    let mut dump = command(&["consensus", "dump", "--json", "--committed"]);
    dump.arg(&dir);
    let ended = run(dump, b"").exits(3);
    let complaints: Vec<_> = ended.err.lines().collect();
    assert_eq!(complaints.len(), 3, "{}", ended.err);
    for (line, words) in
        complaints.iter().zip(["are quarantined", "slot 3 may be lost", "1 slot may be lost"])
    {
        assert!(line.contains(words), "{words:?} is not in: {line}");
    }
    let slots: Vec<Value> =
        ended.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let slots: Vec<_> = slots.iter().map(|slot| slot["slot"].as_u64().unwrap()).collect();
    assert_eq!(slots, [2, 4]);
    assert_eq!(lines(&["stat"], &dir)[0]["quarantined"].as_array().unwrap().len(), 1);
    let log = ConsensusLog::open(&dir).unwrap();
    assert_eq!(log.stats().read_only, Some(ReadOnlyReason::Repaired));
}

#[test]
fn reading_a_directory_without_a_log_exits_1() {
    let (_guard, dir) = workdir();
    for words in READ_COMMANDS {
        assert_eq!(look(words, &dir).status, 1);
    }
}

/// A plain log is no corrupted consensus log, and no empty one.
#[test]
fn the_log_of_something_else_is_status_1() {
    let (guard, dir) = workdir();
    crate::esker::log("append", &dir, &[], b"a line\nanother\n").ok();
    let empty = guard.path().join("empty");
    crate::esker::log("append", &empty, &[], b"").ok();
    for dir in [&dir, &empty] {
        let before = everything(dir);
        look(&["consensus", "dump"], dir).exits(1).says(&["is no consensus log"]);
        for verb in ["stat", "verify"] {
            assert_eq!(look(&[verb, "--json"], dir).ok().json()["component"], "log");
        }
        assert!(everything(dir) == before, "{} changed", dir.display());
    }
    let before = everything(&dir);
    assert!(ConsensusLog::open(&dir).is_err());
    assert!(everything(&dir) == before, "opening changed it");
}

/// The logs of a manager, each by its key or all of them, beside the manager and without it.
#[test]
fn a_directory_of_many_logs() {
    let (_guard, dir) = workdir();
    let manager = LogManager::open(&dir).unwrap();
    for (key, slots) in [(&b"users"[..], 3u64), (b"orders", 1), (&[0xff, 0], 2)] {
        let log = manager.get(key).unwrap();
        for slot in 0..slots {
            log.learn(Slot(slot), LOW, key).unwrap().blocking_wait().unwrap();
        }
    }
    for closed in [false, true] {
        if closed {
            manager.close_all().unwrap();
        }
        let stat = lines(&["stat"], &dir);
        let found: Vec<_> = stat.iter().map(|line| (&line["key"], &line["committed"])).collect();
        assert_eq!(found[..2], [(&"orders".into(), &1.into()), (&"users".into(), &3.into())]);
        assert_eq!((&stat[2]["key_b64"], &stat[2]["committed"]), (&"/wA=".into(), &2.into()));
        let one = lines(&["stat", "--key", "users"], &dir);
        assert_eq!((one.len(), &one[0]), (1, &stat[1]));
        let verify = lines(&["verify"], &dir);
        assert!(verify.len() == 3 && verify.iter().all(|line| line["sound"] == true));
        assert_eq!(verify[0]["key"], "orders");
        assert_eq!(lines(&["consensus", "dump", "--key", "users"], &dir).len(), 3);
    }
    let refused = |words: &[&str], dir: &Path| {
        let mut refused = command(words);
        refused.arg(dir);
        run(refused, b"")
    };
    refused(&["consensus", "dump"], &dir).exits(2).says(&["3 logs", "--key"]);
    refused(&["stat", "--key", "none"], &dir).exits(1).says(&["no log of key"]);
    let users = std::path::PathBuf::from(
        lines(&["stat", "--key", "users"], &dir)[0]["dir"].as_str().unwrap(),
    );
    refused(&["stat", "--key", "users"], &users).exits(2).says(&["--key", "of one consensus log"]);
    refused(&["consensus", "dump", "--key", "users"], &users).exits(1).says(&["leave out --key"]);
    // All are checked, also after one that is corrupt.
    let segment = crate::esker::segments(&users).remove(0);
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[4096 + 100] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let mut verify = command(&["verify", "--json"]);
    verify.arg(&dir);
    let verified = run(verify, b"").exits(3);
    assert_eq!(verified.text().lines().count(), 3);
}

/// A copy is read by every command, and takes nothing until it is renumbered.
#[test]
fn a_copy_is_read_only_until_it_is_renumbered() {
    let (_guard, root) = workdir();
    std::fs::create_dir(&root).unwrap();
    let (dir, copies, users) = (root.join("tables"), root.join("copies"), root.join("users"));
    many(&dir, &["users", "orders"]);
    let ran = |words: &[&str], dirs: &[&Path], input: &[u8]| {
        let mut command = command(words);
        command.args(dirs);
        run(command, input)
    };
    ran(&["backup"], &[&dir, &copies], b"").ok();
    ran(&["backup"], &[&dir_of(&dir, "users"), &users], b"").ok();
    for copy in [&copies, &users] {
        let whole = ran(&["consensus", "dump", "--json"], &[&dir_of(&dir, "users")], b"");
        let key: &[&str] = if *copy == copies { &["--key", "users"] } else { &[] };
        let dump = ran(&[&["consensus", "dump", "--json"], key].concat(), &[copy], b"");
        assert_eq!(dump.ok().text(), whole.ok().text());
        let stat = lines(&["stat"], copy);
        assert!(stat.iter().all(|line| line["read_only"] == "copied"), "{stat:?}");
        let stat = ran(&["stat"], &[copy], b"").ok();
        assert!(stat.text().contains("read-only    copied\n"), "{}", stat.text());
        ran(&["verify"], &[copy], b"").ok();
        let create = [&["snapshot", "create-from", "--slot", "1"], key].concat();
        let words = ["it is a copy", "another node ID", "`esker consensus renumber`"];
        ran(&create, &[copy], b"state").exits(1).says(&words);
        let log = if *copy == copies { dir_of(copy, "users") } else { copy.clone() };
        let restored = log.with_extension("restored");
        ran(&["restore"], &[&log, &restored], b"").ok();
        assert_eq!(lines(&["stat"], &restored)[0]["read_only"], "copied");
        // It is not one of the logs of the copy.
        std::fs::remove_dir_all(restored).unwrap();
        ran(&["log", "append"], &[&log], b"x").exits(1).says(&["a copy of a consensus log"]);
        // A copy of a copy is one.
        let again = copy.with_extension("again");
        ran(&["backup"], &[copy, &again], b"").ok();
        assert_eq!(lines(&["stat"], &again)[0]["read_only"], "copied");

        let logs = if *copy == copies { 2 } else { 1 };
        let done = ran(&["consensus", "renumber", "--json"], &[copy], b"").ok().json();
        assert_eq!(done["logs"], logs);
        let again = ran(&["consensus", "renumber"], &[copy], b"").ok();
        assert_eq!(again.text(), "renumbered 0 logs: none is a copy that needs a number\n");
        let stat = lines(&["stat"], copy);
        assert!(stat.iter().all(|line| line["read_only"].is_null()), "{stat:?}");
        ran(&create, &[copy], b"state").ok();
        ran(&["snapshot", "list"], &[&log], b"").ok();
    }
    // The number of a node of the service is in its log.
    let node = root.join("node");
    let label = [&b"ESKNODE1"[..], &[7; 41]].concat();
    let log = ConsensusLog::builder(&node).label(label).open().unwrap();
    log.close().unwrap();
    let copy = root.join("node-copy");
    ran(&["backup"], &[&node, &copy], b"").ok();
    ran(&["consensus", "renumber"], &[&copy], b"").exits(1).says(&["an empty folder"]);
    assert_eq!(lines(&["stat"], &copy)[0]["read_only"], "copied");
}

/// The copy of many logs is a manager, beside no other; that of one log may be made beside its
/// writer.
#[test]
fn a_backup() {
    let (_guard, root) = workdir();
    std::fs::create_dir(&root).unwrap();
    let (dir, dest) = (root.join("tables"), root.join("copy"));
    let backup = |dir: &Path, dest: &Path| {
        let mut backup = command(&["backup", "--json"]);
        backup.arg(dir).arg(dest);
        run(backup, b"")
    };
    let manager = LogManager::open(&dir).unwrap();
    for key in ["users", "orders"] {
        let log = manager.get(key).unwrap();
        log.learn(Slot(0), LOW, key.as_bytes()).unwrap().blocking_wait().unwrap();
        log.snapshots().create(Slot(0), key.as_bytes()).unwrap();
    }
    backup(&dir, &dest).exits(4).says(&["is open for writing", "`LogManager::backup`"]);
    let users = lines(&["stat", "--key", "users"], &dir)[0]["dir"].clone();
    let users = std::path::PathBuf::from(users.as_str().unwrap());
    let done = backup(&users, &root.join("users")).ok().json();
    assert_eq!((&done["logs"], &done["snapshots"]), (&1.into(), &1.into()));
    assert_eq!(lines(&["consensus", "dump"], &root.join("users"))[0]["value"], "users");
    manager.close_all().unwrap();
    backup(&dir, &dir.join("copy")).exits(2).says(&["a directory outside it"]);
    let done = backup(&dir, &dest).ok().json();
    assert!(done["records"].as_u64() >= Some(2), "{done}");
    assert_eq!(
        (&done["logs"], &done["snapshots"], &done["skipped"]),
        (&2.into(), &2.into(), &0.into())
    );
    backup(&dir, &dest).exits(1).says(&["is not empty"]);
    backup(&root.join("none"), &root.join("other")).exits(1);
    let verify = lines(&["verify"], &dest);
    assert!(verify.len() == 2 && verify.iter().all(|line| line["sound"] == true));
    let copy = LogManager::builder(&dest).must_exist(true).open().unwrap();
    let log = copy.get("orders").unwrap();
    assert_eq!(log.read_committed(Slot(0), &log.pin()).unwrap().value(), b"orders");
    drop(log);
    copy.close_all().unwrap();
    // The one snapshot of a log is not whole.
    let snapshot = users.join(format!("snapshot-{:020}", 0));
    let mut bytes = std::fs::read(&snapshot).unwrap();
    bytes[4096 + 40] ^= 1;
    std::fs::write(&snapshot, bytes).unwrap();
    let done = backup(&dir, &root.join("third")).exits(3);
    assert!(done.err.contains("users: the snapshot at slot 0 is not whole"), "{}", done.err);
    let done = done.json();
    assert_eq!((&done["snapshots"], &done["skipped"]), (&1.into(), &1.into()));
}

/// A manager with a value and a snapshot for each key, closed.
fn many(dir: &Path, keys: &[&str]) {
    let manager = LogManager::open(dir).unwrap();
    for key in keys {
        let log = manager.get(key).unwrap();
        for slot in 0..5 {
            log.learn(Slot(slot), LOW, key.as_bytes()).unwrap().blocking_wait().unwrap();
        }
        log.snapshots().create(Slot(2), &b"state"[..]).unwrap();
        log.snapshots().create(Slot(4), &b"later"[..]).unwrap();
    }
    manager.close_all().unwrap();
}

fn dir_of(dir: &Path, key: &str) -> std::path::PathBuf {
    let stat = lines(&["stat", "--key", key], dir);
    stat[0]["dir"].as_str().unwrap().into()
}

fn flip(path: &Path, byte: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[byte] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

fn look(words: &[&str], dir: &Path) -> crate::esker::CommandOutput {
    let mut look = command(words);
    look.arg(dir);
    run(look, b"")
}

/// It was advised to let another acceptor take its place, and to repair it.
#[test]
fn a_corrupt_backup_is_deleted_and_made_again() {
    let (_guard, root) = workdir();
    std::fs::create_dir(&root).unwrap();
    let (dir, copy) = (root.join("node"), root.join("copy"));
    let log = ConsensusLog::open(&dir).unwrap();
    log.learn(Slot(0), LOW, b"x").unwrap().blocking_wait().unwrap();
    log.close().unwrap();
    let mut backup = command(&["backup"]);
    backup.arg(&dir).arg(&copy);
    run(backup, b"").ok();
    flip(&crate::esker::segments(&copy).remove(0), 4096 + 100);
    let found = look(&["verify"], &copy).exits(3);
    let remedy = "it is a backup: delete the whole copy and back up again";
    assert!(found.err.contains(remedy) && !found.err.contains("acceptor"), "{}", found.err);
    assert!(look(&["consensus", "dump"], &copy).exits(3).err.contains(remedy));
}

/// Each of them is named, and the others are shown.
#[test]
fn logs_that_are_missing_or_corrupt_are_named_beside_the_others() {
    let (_guard, dir) = workdir();
    many(&dir, &["a", "b", "c", "d"]);
    let (b, c) = (dir_of(&dir, "b"), dir_of(&dir, "c"));
    std::fs::remove_dir_all(&b).unwrap();
    flip(&crate::esker::segments(&c).remove(0), 4096 + 100);
    let stat = look(&["stat", "--json"], &dir).exits(3);
    assert!(stat.err.contains("the log of \"b\" is missing"), "{}", stat.err);
    assert!(stat.err.contains(&format!("`esker repair {}`", c.display())), "{}", stat.err);
    assert!(stat.err.contains("2 of 4 logs"), "{}", stat.err);
    let stat: Vec<Value> =
        stat.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let keys: Vec<_> = stat.iter().map(|line| line["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["a", "b", "d"]);
    assert_eq!(stat[1]["missing"], true);
    assert_eq!(stat[2]["snapshots"], serde_json::json!([2, 4]));
    look(&["stat", "--key", "b"], &dir).exits(3).says(&["is missing", "put the"]);
    look(&["consensus", "dump", "--key", "b"], &dir).exits(3).says(&["is missing"]);
    look(&["verify", "--key", "b"], &dir).exits(3).says(&["is missing"]);
    look(&["snapshot", "list", "--key", "b"], &dir).exits(3).says(&["is missing"]);
    let verify = look(&["verify"], &dir).exits(3);
    assert_eq!(verify.text().matches("sound: 5 slots").count(), 2, "{}", verify.text());
    assert!(verify.text().contains("log b\nmissing\n"), "{}", verify.text());
    // It is no copy of all logs.
    let mut backup = command(&["backup"]);
    backup.arg(&dir).arg(dir.with_extension("copy"));
    run(backup, b"").exits(3).says(&["\"b\" is missing"]);
    assert!(!dir.with_extension("copy").join("registry").exists());
}

/// The message says what to do, and that works.
#[test]
fn a_corrupt_registry_is_moved_away() {
    let (_guard, dir) = workdir();
    many(&dir, &["a", "b"]);
    let registry = dir.join("registry");
    flip(&crate::esker::segments(&registry).remove(0), 4096 + 100);
    for words in [&["stat"][..], &["verify"], &["consensus", "dump", "--key", "a"]] {
        let refused = look(words, &dir).exits(3);
        let advice = format!("move {} to another directory", registry.display());
        assert!(refused.err.contains(&advice), "{}", refused.err);
    }
    let copy = dir.with_extension("copy");
    let backup = || {
        let mut backup = command(&["backup"]);
        backup.arg(&dir).arg(&copy);
        run(backup, b"")
    };
    backup().exits(3).says(&["move ", "registry to another directory"]);
    std::fs::rename(&registry, dir.with_extension("registry")).unwrap();
    for _ in 0..2 {
        let verify = lines(&["verify"], &dir);
        let found: Vec<_> = verify.iter().map(|line| (&line["key"], &line["sound"])).collect();
        assert_eq!(found, [(&"a".into(), &true.into()), (&"b".into(), &true.into())]);
        assert_eq!(lines(&["consensus", "dump", "--key", "b"], &dir).len(), 5);
        // The first makes the registry again.
        if !copy.exists() {
            backup().ok();
            assert!(registry.exists());
        }
    }
}

/// An interrupted backup is named as such.
#[test]
fn an_unfinished_backup_is_named() {
    let (_guard, root) = workdir();
    std::fs::create_dir(&root).unwrap();
    let (many, one) = (root.join("many"), root.join("one"));
    for dir in [&many.join("registry"), &one] {
        let log = esker_log::Log::builder(dir).component(esker_consensus::UNFINISHED_BACKUP);
        log.open().unwrap().close().unwrap();
    }
    for dir in [&many, &one] {
        let words = format!("{} is an unfinished backup; delete it", dir.display());
        for command in READ_COMMANDS {
            look(command, dir).exits(1).says(&[&words]);
        }
        look(&["snapshot", "list"], dir).exits(1).says(&[&words]);
        for (from, to) in [(dir, &root.join("copy")), (&root.join("none"), dir)] {
            let mut backup = command(&["backup"]);
            backup.arg(from).arg(to);
            let words = if from == dir { &words } else { &from.display().to_string() };
            run(backup, b"").exits(1).says(&[words]);
        }
    }
}

/// Slots that were dropped are in a snapshot, or the state is lost.
#[test]
fn verify_reads_snapshots_and_checks_that_one_covers_the_floor() {
    let (_guard, dir) = workdir();
    let log = ConsensusLog::open(&dir).unwrap();
    for slot in 0..10 {
        log.learn(Slot(slot), LOW, b"value").unwrap().blocking_wait().unwrap();
    }
    for slot in [3, 6, 9] {
        log.snapshots().create(Slot(slot), &b"state"[..]).unwrap();
    }
    log.snapshots().truncate_through(Slot(6)).unwrap();
    log.close().unwrap();
    let file = |slot: u64| dir.join(format!("snapshot-{slot:020}"));
    let sound = &lines(&["verify"], &dir)[0];
    assert_eq!((&sound["sound"], &sound["dir"]), (&true.into(), &dir.to_string_lossy().into()));
    assert_eq!(sound["snapshots"], serde_json::json!([3, 6, 9]));
    let refused = || look(&["verify", "--json"], &dir).exits(3);
    flip(&file(9), 4096 + 33);
    let first = refused();
    assert!(first.err.contains("slot 9 is not whole") && first.err.contains("at slot 6"));
    assert_eq!(first.json()["corrupt_snapshots"][0]["slot"], 9);
    flip(&file(6), 4096 + 33);
    let second = refused();
    assert!(second.err.contains("no whole one covers the slots up to 6"), "{}", second.err);
    for slot in [6, 9] {
        std::fs::remove_file(file(slot)).unwrap();
    }
    refused().says(&["the newest snapshot is at slot 3", "another replica"]);
    // Its application may keep its state elsewhere.
    std::fs::remove_file(file(3)).unwrap();
    look(&["verify"], &dir).ok();
    let beyond = look(&["consensus", "dump", "--from", "10"], &dir).ok();
    assert!(beyond.err.contains("the highest slot is 9"), "{}", beyond.err);
}

/// The logs of two keys in each other's directories: no command takes one for the other.
#[test]
fn exchanged_directories_are_named() {
    let (_guard, dir) = workdir();
    many(&dir, &["a", "b", "c"]);
    let (a, b, aside) = (dir_of(&dir, "a"), dir_of(&dir, "b"), dir.join("aside"));
    std::fs::rename(&a, &aside).unwrap();
    std::fs::rename(&b, &a).unwrap();
    std::fs::rename(&aside, &b).unwrap();
    let stat = look(&["stat", "--json"], &dir).exits(3);
    assert!(stat.err.contains(&b.display().to_string()), "{}", stat.err);
    assert!(stat.err.contains("put it back"), "{}", stat.err);
    assert!(stat.err.contains("2 of 3 logs"), "{}", stat.err);
    assert_eq!(stat.text().lines().count(), 1, "{}", stat.text());
    let verify = look(&["verify", "--json"], &dir).exits(3);
    let sound: Vec<_> = verify
        .text()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["sound"] == true)
        .collect();
    assert_eq!(sound, [false, false, true]);
    let verify = look(&["verify"], &dir).exits(3);
    assert!(verify.text().contains("log a\nthe log of another key\n"), "{}", verify.text());
    for words in [["consensus", "dump"], ["snapshot", "list"]] {
        look(&[words[0], words[1], "--key", "a"], &dir).exits(3).says(&["put it back"]);
    }
    let mut backup = command(&["backup"]);
    backup.arg(&dir).arg(dir.with_extension("copy"));
    run(backup, b"").exits(3);
    assert!(!dir.with_extension("copy").join("registry").exists());
}

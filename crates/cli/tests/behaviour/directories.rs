//! `esker stat`, `verify`, `repair`, `backup` and `restore` recognise the directory of each
//! component.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use esker_consensus::{Ballot, ConsensusLog, LogManager, Slot};
use serde_json::Value;

use crate::esker::{CommandOutput, command, kv, log, run, segments, workdir};

const BALLOT: Ballot = Ballot { number: 1, node: 1 };

/// A directory of each component below `root`, in the order of the names.
const COMPONENTS: [&str; 5] = ["log", "kv", "consensus", "manager", "node"];

fn fill(log: &ConsensusLog) {
    log.learn(Slot(0), BALLOT, b"value").unwrap().blocking_wait().unwrap();
}

fn create_all(root: &Path) {
    log("append", &root.join("log"), &[], b"line\n").ok();
    kv(&root.join("kv"), &["put", "a", "1"], b"").ok();
    let one = ConsensusLog::open(root.join("consensus")).unwrap();
    fill(&one);
    one.close().unwrap();
    let many = LogManager::open(root.join("manager")).unwrap();
    for key in ["users", "orders"] {
        fill(&many.get(key).unwrap());
    }
    many.close_all().unwrap();
    // As `esker serve` lays out its data.
    let label = [&b"ESKNODE1"[..], &[7; 41]].concat();
    let node = ConsensusLog::builder(root.join("node/raft")).label(label).open().unwrap();
    fill(&node);
    node.close().unwrap();
}

fn esker(words: &[&str], dirs: &[&Path]) -> CommandOutput {
    let mut command = command(words);
    command.args(dirs);
    run(command, b"")
}

fn json_lines(ended: &CommandOutput) -> Vec<Value> {
    ended.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn each_component_is_recognised() {
    let (_guard, root) = workdir();
    create_all(&root);
    for name in COMPONENTS {
        for verb in ["stat", "verify"] {
            let lines = json_lines(&esker(&[verb, "--json"], &[&root.join(name)]).ok());
            assert_eq!(lines.len(), if name == "manager" { 2 } else { 1 });
            assert!(lines.iter().all(|line| line["component"] == name), "{verb} {name}: {lines:?}");
        }
        if name != "manager" {
            let repaired = esker(&["repair", "--json"], &[&root.join(name)]).ok().json();
            assert_eq!(
                (&repaired["component"], &repaired["repaired"]),
                (&name.into(), &false.into())
            );
        }
    }
    // The log of a node by itself.
    let raft = root.join("node/raft");
    assert_eq!(esker(&["stat", "--json"], &[&raft]).ok().json()["component"], "node");
}

/// Only the summary of a plain log had it.
#[test]
fn stat_of_each_component_shows_how_its_log_was_closed() {
    let (_guard, root) = workdir();
    create_all(&root);
    for name in COMPONENTS {
        for line in json_lines(&esker(&["stat", "--json"], &[&root.join(name)]).ok()) {
            assert_eq!(line["closed_cleanly"], true, "{name}: {line}");
            assert_eq!(
                (&line["unrecovered_bytes"], &line["writer_pid"]),
                (&0.into(), &Value::Null)
            );
        }
        let text = esker(&["stat"], &[&root.join(name)]).ok();
        assert!(text.text().contains("shutdown     closed cleanly\n"), "{}", text.text());
    }
    let open = ConsensusLog::open(root.join("consensus")).unwrap();
    let line = esker(&["stat", "--json"], &[&root.join("consensus")]).ok().json();
    assert_eq!(line["closed_cleanly"], false, "{line}");
    assert_eq!(line["writer_pid"], std::process::id(), "{line}");
    drop(open);
}

/// Bug: it counted as a plain log, and its snapshots and records were not checked.
#[test]
fn consensus_log_without_its_app_metadata_is_known_by_its_records() {
    let (_guard, root) = workdir();
    create_all(&root);
    let dir = root.join("consensus");
    std::fs::remove_file(dir.join("note")).unwrap();
    for verb in ["stat", "verify"] {
        let said = esker(&[verb, "--json"], &[&dir]).ok();
        assert_eq!(said.json()["component"], "consensus", "{verb}");
        said.says(&["note: ", "app metadata", "missing"]);
    }
    let wrong = esker(&["stat", "--key", "a"], &[&dir]).exits(2);
    assert!(wrong.err.contains("the directory of one consensus log"), "{}", wrong.err);
    // The records of a plain log are of no component.
    esker(&["stat"], &[&root.join("log")]).ok().says_nothing();
}

#[test]
fn a_log_of_an_unknown_component_is_named_by_its_number() {
    let (_guard, root) = workdir();
    let other = esker_log::Component(*b"ANOTHER1");
    esker_log::Log::builder(&root).component(other).open().unwrap().close().unwrap();
    let is = format!("is a log of the component {other}");
    esker(&["stat", "--key", "a"], &[&root]).exits(2).says(&[&is]);
}

#[test]
fn flags_of_another_component_are_wrong_usage() {
    let (guard, root) = workdir();
    create_all(&root);
    let copy = guard.path().join("copy");
    for (name, is) in [
        ("log", "a plain log"),
        ("kv", "a key-value store"),
        ("consensus", "the directory of one consensus log, not of many"),
        ("manager", "a directory of many consensus logs"),
        ("node", "the data of a node"),
    ] {
        let dir = root.join(name);
        for (flag, owner) in [("--key", "manager"), ("--keyspace", "kv")] {
            if name == owner {
                continue;
            }
            for (verb, dirs) in [
                ("stat", &[&*dir][..]),
                ("verify", &[&*dir]),
                ("repair", &[&*dir]),
                ("backup", &[&*dir, &*copy]),
            ] {
                esker(&[verb, flag, "users"], dirs).exits(2).says(&[flag, is]);
            }
        }
    }
    assert!(!copy.exists());
}

/// Bug: for a directory that is not there, the advice was to leave out --key.
#[test]
fn a_directory_that_cannot_be_read_is_no_matter_of_flags() {
    let (guard, _) = workdir();
    let empty = guard.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    for verb in ["stat", "verify", "repair"] {
        for flag in ["--key", "--keyspace"] {
            let absent = guard.path().join("absent");
            esker(&[verb, flag, "a"], &[&absent]).exits(1).says(&["there is no such directory"]);
            esker(&[verb, flag, "a"], &[&empty]).exits(1).says(&["is that the right path?"]);
        }
    }
}

#[test]
fn each_backup_is_restored() {
    let (_guard, root) = workdir();
    create_all(&root);
    let [backups, restored] = ["backups", "restored"].map(|name| root.join(name));
    for dir in [&backups, &restored] {
        std::fs::create_dir(dir).unwrap();
    }
    for name in COMPONENTS {
        let (backup, dir) = (backups.join(name), restored.join(name));
        let done = esker(&["backup", "--json"], &[&root.join(name), &backup]).ok().json();
        assert_eq!(done["component"], name);
        if name == "node" {
            // It has its number in its log.
            esker(&["restore"], &[&backup, &dir]).exits(1).says(&["with an empty folder"]);
            assert!(!dir.exists());
            continue;
        }
        let done = esker(&["restore", "--json"], &[&backup, &dir]).ok().json();
        assert_eq!(done["component"], name);
        let verified = json_lines(&esker(&["verify", "--json"], &[&dir]).ok());
        assert_eq!(verified.len(), if name == "manager" { 2 } else { 1 });
        assert!(verified.iter().all(|line| line["component"] == name && line["sound"] == true));
        esker(&["restore"], &[&backup, &dir]).exits(if name == "log" { 0 } else { 1 });
    }
    assert_eq!(log("cat", &restored.join("log"), &[], b"").ok().text(), "line\n");
    assert_eq!(kv(&restored.join("kv"), &["get", "a"], b"").ok().text(), "1\n");
    for name in ["consensus", "manager"] {
        let stat = json_lines(&esker(&["stat", "--json"], &[&restored.join(name)]).ok());
        assert_eq!(stat.len(), if name == "manager" { 2 } else { 1 });
        assert!(stat.iter().all(|line| line["read_only"] == "copied"), "{stat:?}");
        esker(&["consensus", "renumber"], &[&restored.join(name)]).ok();
    }
}

/// Bug: the advice was to back up again.
#[test]
fn an_unfinished_restore_is_restored_again() {
    let (_guard, root) = workdir();
    create_all(&root);
    for (name, component) in
        [("kv", esker_kv::UNFINISHED_BACKUP), ("consensus", esker_consensus::UNFINISHED_BACKUP)]
    {
        let [backup, dir] = ["backup", "restored"].map(|to| root.join(format!("{name}-{to}")));
        esker(&["backup"], &[&root.join(name), &backup]).ok();
        esker_log::Log::builder(&dir).component(component).open().unwrap().close().unwrap();
        esker(&["restore"], &[&backup, &dir]).exits(1).says(&["delete it and restore again"]);
    }
}

#[test]
fn one_of_many_logs_is_selected_by_its_key() {
    let (_guard, root) = workdir();
    create_all(&root);
    let dir = root.join("manager");
    let verified = esker(&["verify", "--json", "--key", "users"], &[&dir]).ok().json();
    assert_eq!((&verified["key"], &verified["component"]), (&"users".into(), &"manager".into()));
    esker(&["repair"], &[&dir]).exits(2).says(&["has 2 logs", "--key"]);
    esker(&["repair", "--key", "none"], &[&dir]).exits(1).says(&["no log of key"]);

    let stat = esker(&["stat", "--json", "--key", "users"], &[&dir]).ok().json();
    let users = PathBuf::from(stat["dir"].as_str().unwrap());
    let copy = root.join("copy");
    let copied = esker(&["backup", "--json", "--key", "users"], &[&dir, &copy]).ok().json();
    assert_eq!(copied["component"], "consensus");
    assert_eq!(esker(&["stat", "--json"], &[&copy]).ok().json()["component"], "consensus");

    let segment = segments(&users).remove(0);
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[4096 + 100] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let repaired = esker(&["repair", "--json", "--key", "users"], &[&dir]).ok().json();
    assert_eq!((&repaired["component"], &repaired["repaired"]), (&"manager".into(), &true.into()));
    let stat = esker(&["stat", "--json", "--key", "users"], &[&dir]).ok().json();
    assert_eq!(stat["read_only"], "repaired");
}

/// No command has two names.
#[test]
fn components_have_no_such_commands_of_their_own() {
    for component in ["log", "kv", "consensus"] {
        for verb in ["stat", "verify", "backup", "repair", "restore"] {
            let refused = esker(&[component, verb], &[]).exits(2);
            assert!(refused.err.contains("unrecognized subcommand"), "{}", refused.err);
        }
    }
}

//! `esker crash`: its commands, their objects and messages.
#![allow(clippy::unwrap_used)]

#[path = "../kit/esker.rs"]
mod esker;

use esker::{Ended, command, run};
use serde_json::Value;

fn crash(words: &[&str]) -> Ended {
    let mut all = command(&["crash"]);
    all.args(words);
    run(all, &[])
}

fn rows(ended: &Ended) -> Vec<Value> {
    ended.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const KEYS: [&str; 14] = [
    "face",
    "policy",
    "runs",
    "cuts",
    "violations",
    "loss_promised",
    "loss_seen",
    "loss_unit",
    "avg_durable",
    "avg_recovered",
    "avg_lost",
    "min_recovered",
    "max_recovered",
    "max_lost",
];

#[test]
fn power_goes_through_every_component_and_policy() {
    let ended = crash(&["power", "--runs", "2", "--json"]).ok();
    let rows = rows(&ended);
    assert_eq!(rows.len(), 12);
    for row in &rows {
        for key in KEYS {
            assert!(row.get(key).is_some(), "{key} is not in {row}");
        }
        assert_eq!((&row["runs"], &row["cuts"]), (&2.into(), &6.into()));
        assert_eq!(row["violations"], 0, "{row}");
    }
    let faces = ["log", "consensus", "kv"];
    assert!(faces.iter().all(|face| rows.iter().filter(|row| row["face"] == *face).count() == 4));
}

#[test]
fn one_run_is_repeated_by_its_seed() {
    let words = ["power", "--component", "kv", "--policy", "always", "--seed", "77", "--json"];
    let (first, second) = (rows(&crash(&words).ok()), rows(&crash(&words).ok()));
    assert_eq!(first[0]["runs"], 1);
    assert_eq!(first[0]["avg_recovered"], second[0]["avg_recovered"]);
    let table = crash(&["power", "--component", "log", "--runs", "1"]).ok();
    assert_eq!(table.text().lines().count(), 2 + 4, "{table:?}");
}

#[test]
fn kill_kills_writers_on_a_real_disk() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("files");
    let place = dir.to_str().unwrap();
    let ended = crash(&["kill", "--runs", "1", "--policy", "batch_100", "--dir", place, "--json"]);
    let rows = rows(&ended.ok());
    assert_eq!(rows.len(), 2, "log and kv");
    for row in &rows {
        assert_eq!((&row["runs"], &row["cuts"]), (&1.into(), &3.into()), "{row}");
        assert_eq!((&row["violations"], &row["loss_promised"]), (&0.into(), &199.into()), "{row}");
        assert!(row["max_recovered"].as_u64() > Some(0), "{row}");
    }
    assert!(!dir.exists(), "its files are removed");
}

#[test]
fn wrong_words_are_refused() {
    let unknown = crash(&["power", "--policy", "never"]).exits(2);
    assert!(unknown.err.contains("no policy is named never"), "{}", unknown.err);
    let none = crash(&["kill", "--component", "log", "--policy", "durable"]).exits(2);
    assert!(none.err.contains("no selected component has a selected policy"), "{}", none.err);
    let there = tempfile::tempdir().unwrap();
    let full = crash(&["kill", "--dir", there.path().to_str().unwrap()]).exits(1);
    assert!(full.err.contains("exists; choose another --dir"), "{}", full.err);
    crash(&["power", "--runs", "0"]).exits(2);
    crash(&["power", "--seed", "1", "--runs", "2"]).exits(2);
    crash(&["writer", "log", "always", "/nowhere", "0", "0"]).exits(2);
}

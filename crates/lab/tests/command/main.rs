//! `esker-lab`: its commands, their objects and messages.
#![allow(clippy::unwrap_used)]

use std::process::Stdio;
use std::time::{Duration, Instant};

use esker_testkit::commands::{CommandOutput, program, run};
use serde_json::Value;

fn lab(words: &[&str]) -> CommandOutput {
    run(program("esker-lab", words), &[])
}

fn rows(ended: &CommandOutput) -> Vec<Value> {
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
    let ended = lab(&["power", "--runs", "2", "--json"]).ok();
    let rows = rows(&ended);
    assert_eq!(rows.len(), 14);
    for row in &rows {
        for key in KEYS {
            assert!(row.get(key).is_some(), "{key} is not in {row}");
        }
        assert_eq!((&row["runs"], &row["cuts"]), (&2.into(), &6.into()));
        assert_eq!(row["violations"], 0, "{row}");
        assert_eq!(row["instrument"], "power", "a power cut is not a kill");
    }
    for (face, policies) in [("log", 4), ("consensus", 4), ("manager", 2), ("kv", 4)] {
        assert_eq!(rows.iter().filter(|row| row["face"] == face).count(), policies, "{face}");
    }
}

#[test]
fn one_run_is_repeated_by_its_seed() {
    let words = ["power", "--component", "kv", "--policy", "always", "--seed", "77", "--json"];
    let (first, second) = (rows(&lab(&words).ok()), rows(&lab(&words).ok()));
    assert_eq!(first[0]["runs"], 1);
    assert_eq!(first[0]["avg_recovered"], second[0]["avg_recovered"]);
}

#[test]
fn the_table_has_a_title_the_columns_and_a_line_for_each_policy() {
    let table = lab(&["power", "--component", "log", "--runs", "1"]).ok();
    let lines: Vec<_> = table.text().lines().collect();
    assert_eq!(lines.len(), 2 + 4, "{table:?}");
    assert_eq!(lines[0], "Power cuts on a simulated disk");
    let columns = [
        "Mode",
        "Runs",
        "Avg Durable",
        "Avg Recovered",
        "Avg Lost",
        "Min Rec",
        "Max Rec",
        "Max Lost",
        "Violations",
    ];
    assert!(columns.iter().all(|column| lines[1].contains(column)), "{}", lines[1]);
    let policies = ["always", "batch_5", "periodic_10ms", "os"];
    assert!(policies.iter().zip(&lines[2..]).all(|(policy, line)| line.contains(policy)));
}

#[test]
fn disks_with_faults_are_rows_of_their_own() {
    let rows = rows(&lab(&["faults", "--runs", "1", "--policy", "always", "--json"]).ok());
    let instruments: Vec<_> = rows.iter().map(|row| row["instrument"].as_str().unwrap()).collect();
    assert_eq!(instruments, ["failing_disk", "stalled_sync", "bit_flips", "full_disk"]);
    for row in &rows {
        assert_eq!((&row["runs"], &row["violations"]), (&1.into(), &0.into()), "{row}");
    }
}

#[test]
fn a_report_is_one_page_with_what_was_measured_and_crashed() {
    let dir = tempfile::tempdir().unwrap();
    let lines = dir.path().join("lines");
    let power = lab(&["power", "--runs", "3", "--component", "kv", "--each", "--json"]).ok();
    let put = serde_json::json!({
        "bench": "kv/put",
        "params": { "policy": "batch:100", "size": 128, "writers": 1, "syncs": 7 },
        "ops_per_s": 500_000.0,
        "p50_us": 1.0, "p99_us": 20.0, "p999_us": 200.0, "max_us": 9000.0,
        "floor": { "sync_p50_us": 120.0 },
        "environment": { "file_system": "ext4 <4>", "cpu": "any", "cores": 2 },
        "latency_histogram": [[1.0, 900], [2.0, 90], [512.0, 10]],
    });
    let model = serde_json::json!({
        "bench": "kv/model",
        "params": { "policy": "batch:100" },
        "predicted_per_s": 480_000.0, "measured_per_s": 500_000.0, "error_percent": -4.0,
    });
    std::fs::write(&lines, format!("{put}\n{model}\n{}", power.text())).unwrap();
    let report = lab(&["report", lines.to_str().unwrap()]).ok();
    let page = report.text();
    for part in ["batch:100", "periodic_10ms", "ext4 &lt;4&gt;", "-4.0 %", "What each crash left"] {
        assert!(page.contains(part), "{part} is not in the report");
    }
    // Throughput, one histogram, and the crashes of four policies.
    assert_eq!(page.matches("<svg").count(), 1 + 1 + 4);
    assert!(!page.contains("http"), "the report loads something");
    let other = dir.path().join("other");
    std::fs::write(&other, "{\"other\": 1}\n").unwrap();
    lab(&["report", other.to_str().unwrap()]).exits(1);
    std::fs::write(&other, "no JSON\n").unwrap();
    let bad = lab(&["report", other.to_str().unwrap()]).exits(1);
    assert!(bad.err.contains("other:1:"), "{}", bad.err);
}

/// A build that can plant bugs must not be mistaken for a usual one, nor the reverse.
#[test]
fn a_usual_build_has_no_planted_bugs() {
    let refused = lab(&["selftest"]).exits(2);
    assert!(refused.err.contains("this build has no planted bugs"), "{}", refused.err);
}

#[test]
fn the_writer_shows_its_progress_in_the_file_that_crash_test_names() {
    let dir = tempfile::tempdir().unwrap();
    let progress = dir.path().join("progress");
    let mut writer = program("esker-lab", &["writer", "kv", "batch_100"]);
    writer.arg(dir.path().join("store")).args(["0", "1"]).env("CRASH_TEST", &progress);
    let mut writer = writer.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    // Writes begun, accepted and durable.
    let counts = || {
        let bytes = std::fs::read(&progress).unwrap_or_default();
        let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        Some([number(0)?, number(8)?, number(16)?])
    };
    let start = Instant::now();
    let seen = loop {
        match counts() {
            Some(seen) if seen[2] >= 200 => break seen,
            _ => assert!(start.elapsed() < Duration::from_secs(60), "{:?}", counts()),
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    writer.kill().unwrap();
    writer.wait().unwrap();
    let [begun, accepted, durable] = counts().unwrap();
    assert!(durable >= seen[2] && durable <= accepted && accepted <= begun);
    assert!(begun <= accepted + 1, "{begun} begun, {accepted} accepted");
}

#[test]
fn kill_kills_writers_on_a_real_disk() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("files");
    let place = dir.to_str().unwrap();
    let ended = lab(&["kill", "--runs", "1", "--policy", "batch_100", "--dir", place, "--json"]);
    let rows = rows(&ended.ok());
    assert_eq!(rows.len(), 2, "log and kv");
    for row in &rows {
        assert_eq!((&row["runs"], &row["cuts"]), (&1.into(), &3.into()), "{row}");
        assert_eq!((&row["violations"], &row["loss_promised"]), (&0.into(), &199.into()), "{row}");
        assert!(row["max_recovered"].as_u64() > Some(0), "{row}");
        assert_eq!(row["instrument"], "kill", "a kill is not a power cut");
    }
    assert!(!dir.exists(), "its files are removed");
}

#[test]
fn wrong_words_are_refused() {
    let unknown = lab(&["power", "--policy", "never"]).exits(2);
    assert!(unknown.err.contains("no policy is named never"), "{}", unknown.err);
    let none = lab(&["kill", "--component", "log", "--policy", "durable"]).exits(2);
    assert!(none.err.contains("nothing is selected; there are consensus durable"), "{}", none.err);
    let there = tempfile::tempdir().unwrap();
    let full = lab(&["kill", "--dir", there.path().to_str().unwrap()]).exits(1);
    assert!(full.err.contains("exists; choose another --dir"), "{}", full.err);
    lab(&["power", "--runs", "0"]).exits(2);
    lab(&["power", "--seed", "1", "--runs", "2"]).exits(2);
    lab(&["writer", "log", "always", "/nowhere", "0", "0"]).exits(2);
}

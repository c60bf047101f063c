//! `esker tour`: all steps are taken, what is not as promised ends it with 1, and nothing is left.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::esker::{self, CommandOutput, command, end, run, signal, spawn, until};

const STEPS: [&str; 7] = ["follow", "kill", "sync", "repair", "store", "paxos", "timestamps"];

/// A tour with its temporary folder in this one.
fn tour(folder: &Path, flags: &[&str]) -> Command {
    let mut tour = command(&["tour"]);
    tour.args(flags).env("TMPDIR", folder);
    tour
}

/// The objects of the steps, which are all there, in order.
fn steps(ended: &CommandOutput) -> Vec<Value> {
    let lines = ended.text().lines().map(|line| serde_json::from_str(line).unwrap());
    let steps: Vec<Value> = lines.collect();
    let names: Vec<_> = steps.iter().map(|step| step["step"].as_str().unwrap()).collect();
    assert_eq!(names, STEPS);
    steps
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn two_tours_side_by_side_keep_all_promises() {
    let (folder, _) = esker::workdir();
    let mut as_json = tour(folder.path(), &["--json"]);
    // Of a machine, or of one node: none is for the nodes of the tour.
    as_json.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9").env("OLTP_ENDPOINT", "bad");
    let as_json = spawn(as_json.env("ESKER_PROFILE_LISTEN", "127.0.0.1:9"), Stdio::null());
    let as_text = run(tour(folder.path(), &[]), b"").ok().says_nothing();
    let next = ["log append", "kv put", "example counter", "cluster local"];
    for words in next.iter().chain(&["kill -9 of a writer", "500 callers", "of a segment"]) {
        assert!(as_text.text().contains(words), "{words} is not in {}", as_text.text());
    }
    let as_json = end(as_json).ok().says_nothing();
    let steps = steps(&as_json);
    let numbers = |step: &Value, keys: &[&str]| {
        keys.iter().all(|key| step[key].as_f64().is_some_and(|number| number > 0.0))
    };
    let figures: [&[&str]; 7] = [
        &["records_per_s"],
        &["durable", "recovered", "open_ms"],
        &["disk_sync_us", "one_caller_us", "callers_records_per_s"],
        &["flipped", "reported", "kept"],
        &["puts_per_s", "scan_keys_per_s", "open_ms"],
        &["acknowledged", "adopted", "open_ms"],
        &["start_ms", "gap_ms", "timestamps"],
    ];
    for (step, figures) in steps.iter().zip(figures) {
        assert!(step["ok"] == true && numbers(step, figures), "{step}");
        assert!(numbers(step, &["seconds"]), "{step}");
    }
    assert!(is_empty(folder.path()));
}

/// With a limit on the size of files, no log can be written.
#[test]
fn tour_whose_writes_fail_says_so_in_each_step_and_exits_with_1() {
    let (folder, _) = esker::workdir();
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 8; exec \"$0\" tour --json", env!("CARGO_BIN_EXE_esker")]);
    limited.env("TMPDIR", folder.path());
    let ended = run(limited, b"").exits(1).says(&["not everything was as promised", "TMPDIR"]);
    for step in steps(&ended) {
        assert!(step["ok"] == false && !step["error"].as_str().unwrap().is_empty(), "{step}");
    }
    assert!(is_empty(folder.path()));
}

/// Bug: tokio panicked, and no step was reported after that.
#[test]
fn tour_with_few_files_reports_each_step_and_exits_with_1() {
    let (folder, _) = esker::workdir();
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 16; exec \"$0\" tour --json", env!("CARGO_BIN_EXE_esker")]);
    limited.env("TMPDIR", folder.path());
    let ended = run(limited, b"").exits(1).says(&["not everything was as promised: "]);
    let mut failed = Vec::new();
    for step in steps(&ended).iter().filter(|step| step["ok"] == false) {
        failed.push(step["step"].as_str().unwrap().to_owned());
        assert!(!step["error"].as_str().unwrap().contains("panicked"), "{step}");
    }
    assert!(!failed.is_empty() && ended.err.trim_end().ends_with(&failed.join(", ")), "{ended:?}");
    assert!(is_empty(folder.path()));
}

#[test]
fn tour_without_a_usable_folder_exits_with_1() {
    let (folder, missing) = esker::workdir();
    let ended = run(tour(&missing, &[]), b"").exits(1);
    ended.says(&["create a folder in", missing.to_str().unwrap(), "set TMPDIR"]);
    assert!(is_empty(folder.path()));
}

#[test]
fn signal_ends_the_tour_and_removes_its_folder() {
    let (folder, _) = esker::workdir();
    for (name, status) in [("INT", 130), ("TERM", 143)] {
        let child = spawn(&mut tour(folder.path(), &["--json"]), Stdio::null());
        until("the tour has begun", || !is_empty(folder.path()));
        signal(&child, name);
        end(child).exits(status).says_nothing();
        assert!(is_empty(folder.path()));
    }
}

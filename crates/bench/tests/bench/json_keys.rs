//! Every benchmark prints one JSON object a figure, with every key that scripts rely on, and says
//! that what it wrote was read back.

#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::Value;

use crate::esker::{self, command, run, workdir};

const KEYS: [&str; 18] = [
    "bench",
    "params",
    "ops",
    "bytes",
    "seconds",
    "ops_per_s",
    "mb_per_s",
    "p50_us",
    "p99_us",
    "p999_us",
    "max_us",
    "ns_per_op",
    "cpu_seconds",
    "rss_mb",
    "allocs_per_op",
    "floor",
    "checked",
    "verified",
];
const FLOOR: [&str; 5] =
    ["sync_p50_us", "append_sync_p50_us", "seq_mb_per_s", "read_mb_per_s", "memcpy_gb_per_s"];

/// Runs a benchmark in a directory that has to be gone at the end.
fn bench(words: &[&str]) -> Vec<Value> {
    let (guard, dir) = workdir();
    let mut bench = command(words);
    bench.arg("--json").arg("--dir").arg(&dir).current_dir(guard.path());
    let ended = run(bench, b"").ok();
    assert!(!dir.exists(), "{} stays", dir.display());
    ended.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[track_caller]
fn check(figure: &Value, name: &str, verified: bool) {
    assert_eq!(figure["bench"], name);
    // What is wrong prints no figure.
    assert_eq!((&figure["checked"], &figure["verified"]), (&verified.into(), &verified.into()));
    for key in KEYS {
        assert!(!figure[key].is_null(), "{name} lacks {key}");
    }
    for key in FLOOR {
        assert!(figure["floor"][key].as_f64().unwrap() > 0.0, "{name}: floor.{key}");
    }
    for key in ["ops", "bytes", "seconds", "ops_per_s", "p50_us", "max_us", "ns_per_op"] {
        assert!(figure[key].as_f64().unwrap() > 0.0, "{name}: {key} is {}", figure[key]);
    }
    let us = |key: &str| figure[key].as_f64().unwrap();
    assert!(us("p50_us") <= us("p99_us") && us("p99_us") <= us("p999_us"));
    assert!(us("p999_us") <= us("max_us"));
}

#[test]
fn floor() {
    let figures = bench(&["floor", "--seconds", "0.1"]);
    assert_eq!(figures.len(), 1);
    check(&figures[0], "floor", false);
}

/// Raw I/O of the disk: operations and bytes a second, of the writer and of the readers.
#[test]
fn raw() {
    for disk in [
        &["--disk", "std"][..],
        &["--disk", "uring"],
        &["--disk", "uring", "--register"],
        &["--disk", "uring", "--register-buf", "--direct-io"],
    ] {
        let flags = ["floor", "--raw", "--readers", "2", "--file-size", "16M"];
        let more = ["--buffer-size", "256K", "--seconds", "0.1", "--dsync"];
        let (guard, dir) = workdir();
        let mut bench = command(&[&flags[..], &more[..], disk].concat());
        bench.arg("--json").arg("--dir").arg(&dir).current_dir(guard.path());
        let ended = run(bench, b"");
        if ended.status != 0 && disk[1] == "uring" {
            // A machine without io_uring, or without memory to lock: said in one line.
            assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
            continue;
        }
        let ended = ended.ok();
        let text = ended.text();
        let figures: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(figures.len(), 2);
        check(&figures[0], "floor/raw-write", false);
        check(&figures[1], "floor/raw-read", false);
        assert_eq!(figures[0]["params"]["disk"], disk[1]);
    }
    let (guard, dir) = workdir();
    let mut alone = command(&["floor", "--raw", "--no-writer", "--file-size", "1M", "--json"]);
    alone
        .args(["--buffer-size", "64K", "--seconds", "0.1", "--dir"])
        .arg(&dir)
        .current_dir(guard.path());
    assert_eq!(run(alone, b"").ok().json()["bench"], "floor/raw-read");
    run(command(&["floor", "--raw", "--register"]), b"").exits(2);
}

#[test]
fn append_with_tasks_and_with_threads() {
    for callers in [
        &["--seconds", "0.3"][..],
        &["--blocking", "--seconds", "0.3"],
        &["--batch", "7", "--count", "1000"],
    ] {
        let flags = ["log", "--writers", "9", "--size", "100..5000"];
        let figures = bench(&[&flags[..], callers].concat());
        assert_eq!(figures.len(), 1);
        check(&figures[0], "log/append", true);
        assert_eq!(figures[0]["params"]["writers"], 9);
        assert_eq!(figures[0]["params"]["size"], "100..5000");
        assert_eq!(figures[0]["params"]["policy"], "always");
    }
}

#[test]
fn append_async() {
    let flags = ["log", "--async", "--policy", "batch:100", "--count", "20000"];
    let figures = bench(&flags);
    check(&figures[0], "log/append-async", true);
    assert_eq!(figures[0]["ops"], 20_000);
    assert_eq!(figures[0]["params"]["policy"], "batch:100");
}

#[test]
fn open_after_close_and_after_kill() {
    let figures = bench(&["log", "--open", "--bytes", "20M", "--segment-size", "1M"]);
    assert_eq!(figures.len(), 2);
    for (figure, after) in figures.iter().zip(["close", "kill"]) {
        check(figure, "log/open", true);
        assert_eq!(figure["params"]["after"], after);
        assert_eq!(figure["params"]["bytes"], 20 << 20);
        assert!(figure["open_ms"].as_f64().unwrap() > 0.0);
    }
    assert_eq!(bench(&["log", "--open", "--bytes", "1M", "--after", "close"]).len(), 1);
}

#[test]
fn a_log_that_is_there_is_left_alone() {
    let (_guard, dir) = workdir();
    let keep = |count: &str| {
        let mut bench = command(&["log", "--json", "--keep", "--count", count]);
        bench.arg("--dir").arg(&dir);
        run(bench, b"")
    };
    keep("10").ok();
    assert!(dir.join("log").exists());
    keep("10").exits(1).says(&["exists already"]);
    esker::log("verify", &dir.join("log"), &[], b"").ok();
}

/// Every work of the consensus log's benchmark has its figure.
#[test]
fn consensus() {
    let words = ["consensus", "--count", "2000", "--entries", "3000", "--logs", "40"];
    let figures = bench(&words);
    let names: Vec<_> = figures.iter().map(|figure| figure["bench"].as_str().unwrap()).collect();
    let works = ["accept", "accept-commit", "read-committed", "read-uncommitted"];
    let expected: Vec<_> = works
        .iter()
        .chain(&works)
        .chain(&["scan-1000", "durable-accept-commit", "durable-accept-commit"])
        .chain(&["batch-commit-100", "snapshot-create-1mib", "snapshot-read-1mib"])
        .chain(&["manager-get", "manager-get", "manager-get", "many-logs", "recover", "recover"])
        .map(|work| format!("consensus/{work}"))
        .collect();
    assert_eq!(names, expected);
    for figure in &figures {
        check(figure, figure["bench"].as_str().unwrap(), true);
        let mode = figure["params"]["mode"].as_str().unwrap();
        assert!(["volatile", "durable"].contains(&mode));
    }
    let threads: Vec<_> = figures.iter().map(|figure| &figure["params"]["threads"]).collect();
    assert_eq!((threads[0], threads[4], threads[10]), (&1.into(), &2.into(), &32.into()));
    let batch = &figures[11]["params"];
    assert_eq!(batch["syncs"], batch["batches"], "one sync a batch");
    let after: Vec<_> = figures[18..].iter().map(|figure| &figure["params"]["after"]).collect();
    assert_eq!(after, ["close", "kill"]);
    let keys: Vec<_> = figures[14..17].iter().map(|figure| &figure["params"]["keys"]).collect();
    assert_eq!(keys, ["different", "different", "same"]);
    let many = &figures[17]["params"];
    assert_eq!((&many["logs"], &many["placement"]), (&40.into(), &"separate".into()));
    for figure in &figures[18..] {
        assert_eq!((&figure["params"]["entries"], &figure["ops"]), (&3000.into(), &9000.into()));
    }
    for params in figures.iter().map(|figure| &figure["params"]) {
        assert_eq!(params["disk"], "std");
        assert!(params["direct"].is_boolean() && params["dsync"].is_boolean());
    }
}

/// Two works shared a directory, so that with `--keep` the second "read 0 of 10000 entries".
#[test]
fn every_kept_log_of_consensus_has_a_directory_of_its_own() {
    let (_guard, dir) = workdir();
    let mut bench = command(&["consensus", "--json", "--keep", "--count", "200"]);
    bench.args(["--entries", "2000", "--logs", "4", "--dir"]).arg(&dir);
    let figures = run(bench, b"").ok().text().lines().count();
    let logs = std::fs::read_dir(dir.join("log")).unwrap().count();
    assert_eq!((figures, logs), (20, 20));
}

/// `verified` was true, and nothing was there to be read back.
#[test]
fn each_log_that_is_looked_up_has_a_value_to_read_back() {
    let (_guard, dir) = workdir();
    let words = ["consensus", "--json", "--keep", "--only", "manager-get"];
    let mut bench = command(&words);
    bench.args(["--count", "100", "--logs", "3", "--dir"]).arg(&dir);
    let ended = run(bench, b"").ok();
    for figure in ended.text().lines() {
        check(&serde_json::from_str(figure).unwrap(), "consensus/manager-get", true);
    }
    for kept in std::fs::read_dir(dir.join("log")).unwrap() {
        let mut stat = esker::program("esker", &["stat", "--json"]);
        stat.arg(kept.unwrap().path());
        let ended = run(stat, b"").ok();
        let logs: Vec<Value> =
            ended.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(logs.len(), 3);
        assert!(logs.iter().all(|log| log["uncommitted"] == 1), "{logs:?}");
    }
}

#[test]
fn figures_of_a_store() {
    let words = ["kv", "--keys", "3000", "--count", "4000", "--writers", "4"];
    let what = ["--what", "put,get,scan,mixed,open"];
    for flags in [
        &["--policy", "always"][..],
        &["--policy", "periodic:10", "--blocking", "--order", "seq"],
        &["--policy", "batch:100", "--batch", "10", "--size", "4096", "--key-size", "40"],
    ] {
        let figures = bench(&[&words[..], &what, flags].concat());
        let names = ["kv/put", "kv/get", "kv/scan", "kv/mixed", "kv/open"];
        assert_eq!(figures.len(), names.len());
        for (figure, name) in figures.iter().zip(names) {
            check(figure, name, true);
            // Of the timed part.
            let syncs = figure["params"]["syncs"].as_u64().unwrap();
            assert!(syncs > 0 || !["kv/put", "kv/mixed"].contains(&name), "{name}");
        }
        assert_eq!(figures[0]["ops"], 4000);
        assert!(figures[2]["ops"].as_u64().unwrap().is_multiple_of(3000));
        for key in ["open_ms", "close_ms"] {
            assert!(figures[4][key].as_f64().unwrap() > 0.0, "{key}");
        }
    }
    let refused = run(command(&["kv", "--size", "7"]), b"").exits(2);
    refused.says(&["--size", "from 8"]);
}

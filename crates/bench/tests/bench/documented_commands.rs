//! Every command on the page about benchmarks is run, only shorter, and measures what it says.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)] // A test says what it skipped.

use std::sync::Mutex;
use std::thread;

use serde_json::Value;

use crate::esker::{command, run, workdir};

const PAGE: &str = include_str!("../../../../docs/src/benchmarks.md");

/// The commands in the fences for the shell.
fn commands() -> Vec<Vec<&'static str>> {
    let fences = PAGE.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let lines = fences.flat_map(str::lines).filter(|line| line.starts_with("esker-bench "));
    lines.map(|line| line.split(' ').skip(1).collect()).collect()
}

/// The same command, for a moment.
fn shorter(mut words: Vec<&'static str>) -> Vec<&'static str> {
    for (long, short) in
        [("--count", "2000"), ("--bytes", "2000000"), ("--file-size", "64M"), ("--keys", "20000")]
    {
        if let Some(at) = words.iter().position(|word| *word == long) {
            words[at + 1] = short;
        }
    }
    if !words.contains(&"--count") && !words.contains(&"--open") {
        words.extend(["--seconds", "0.1"]);
    }
    words
}

#[test]
fn every_documented_benchmark_runs() {
    let all = commands();
    assert!(all.len() >= 17, "{all:?}");
    let left = Mutex::new(all.into_iter());
    // Most of a command's time is spent waiting for the disk.
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let words = left.lock().unwrap().next();
                    let Some(words) = words else { break };
                    run_and_check(words);
                }
            });
        }
    });
}

fn run_and_check(words: Vec<&'static str>) {
    let (guard, dir) = workdir();
    let mut shorter = command(&shorter(words.clone()));
    shorter.arg("--json").arg("--dir").arg(&dir).current_dir(guard.path());
    let ended = run(shorter, b"");
    let lacks = ["sysctl -w vm.nr_hugepages", "RLIMIT_MEMLOCK", "io_uring"];
    if ended.status == 1 && lacks.iter().any(|lack| ended.err.contains(lack)) {
        eprintln!("SKIPPED: {}: {}", words.join(" "), ended.err.trim());
        return;
    }
    let ended = ended.ok();
    let figures = ended.text().lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    for figure in figures {
        let reads_back = words[0] != "floor" && !words.contains(&"--no-disk");
        assert_eq!(figure["verified"], reads_back, "{words:?}");
        assert!(figure["ops_per_s"].as_f64().unwrap() > 0.0, "{words:?}");
    }
}

/// The modes that figures elsewhere are of are all there.
#[test]
fn required_benchmarks_are_documented() {
    let all: Vec<_> = commands().into_iter().map(|words| words.join(" ")).collect();
    for wanted in [
        "log --no-disk --async --size 90 --buffer-size 1M",
        "log --no-disk --async --size 90 --buffer-size 10M --writers 10",
        "log --async --size 90 --buffer-size 2M",
        "log --async --size 900 --buffer-size 2M --writers 10",
        "log --size 900 --blocking",
        "log --size 900 --async --blocking",
        "log --size 900 --async --blocking --writers 10",
        "log --size 900 --blocking --writers 10",
        "log --size 900 --blocking --writers 500",
        "log --size 512..1000000 --writers 20 --count 1000",
    ] {
        assert!(all.iter().any(|command| command == wanted), "{wanted}");
    }
    for reported in [
        "only when they are measured on your machine",
        "perf record -g -F 999",
        "cargo flamegraph",
        "kernel.kptr_restrict=0",
        "kernel.perf_event_paranoid=-1",
        "set them back",
        "--profile bench",
        "/etc/security/limits.conf",
        "sysctl -w vm.nr_hugepages=",
    ] {
        assert!(PAGE.contains(reported), "{reported}");
    }
}

//! The program says so itself, by its exit status.

#![allow(clippy::unwrap_used)]

use std::process::Command;

fn run(seeds: &str) -> (String, bool) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_esker-paxos"));
    let out = program.args(["--seeds", seeds, "--json"]).output().unwrap();
    (String::from_utf8(out.stdout).unwrap(), out.status.success())
}

#[test]
fn durable_runs_have_no_violation_and_volatile_ones_have_some() {
    let (text, succeeded) = run("16");
    assert!(succeeded, "{text}");
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let runs: Vec<_> =
        lines.iter().map(|line| (line["mode"].as_str().unwrap(), &line["groups"])).collect();
    assert_eq!(runs, [("durable", &1.into()), ("volatile", &1.into()), ("durable", &3.into())]);
    let count = |line: usize, key: &str| lines[line][key].as_u64().unwrap();
    for durable in [0, 2] {
        assert_eq!((count(durable, "seeds"), count(durable, "violations")), (16, 0));
        // The floor passed some of the answers, and each of them was refused.
        assert!(count(durable, "refused") > 0);
        assert!(count(durable, "crashes") > 100 && count(durable, "chosen") > 100);
    }
    assert!(count(1, "violations") > 0);
    // Two of three logs are open: they were closed and opened again all the time.
    assert_eq!(count(0, "openings"), 0);
    assert!(count(2, "openings") > 1000, "{text}");
}

/// Also which logs are closed to make room.
#[test]
fn a_seed_repeats_its_run() {
    assert_eq!(run("4"), run("4"));
}

//! The benchmark of named offsets: each work, that it is read back, and the table for people.

#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::Value;

use crate::esker::{CommandOutput, command, run, workdir};

fn bench(flags: &[&str]) -> CommandOutput {
    let (guard, dir) = workdir();
    let mut bench = command(&["log", "--offsets"]);
    bench.args(flags).arg("--dir").arg(&dir).current_dir(guard.path());
    let ended = run(bench, b"");
    assert!(!dir.exists(), "{} stays", dir.display());
    ended
}

#[test]
fn each_work_of_offsets_is_a_figure() {
    let ended = bench(&["--json", "--seconds", "0.1"]).ok();
    let figures: Vec<Value> =
        ended.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let works: Vec<_> = figures
        .iter()
        .map(|figure| [&figure["params"]["callers"], &figure["params"]["names_per_call"]])
        .map(|work| work.map(|value| value.as_u64().unwrap()))
        .collect();
    assert_eq!(works, [[1, 1], [1, 1000], [100, 1], [1000, 1]]);
    for (figure, [callers, names]) in figures.iter().zip(works) {
        assert_eq!((&figure["bench"], &figure["verified"]), (&"log/offsets".into(), &true.into()));
        assert_eq!(figure["params"]["compared"], callers * names);
        // Names have 13 bytes, and offsets 8.
        let bytes = figure["ops"].as_u64().unwrap() * names * 21;
        assert_eq!(figure["bytes"], bytes);
        for value in [&figure["offsets_per_s"], &figure["ratio"]["p50_to_sync"], &figure["p50_us"]]
        {
            assert!(value.as_f64().unwrap() > 0.0, "{figure}");
        }
    }
}

/// A count is that of the calls of all callers, and each makes at least two.
#[test]
fn offsets_are_set_as_often_as_asked() {
    let ended = bench(&["--json", "--count", "40"]).ok();
    let ops: Vec<u64> = ended
        .text()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["ops"].as_u64().unwrap())
        .collect();
    assert_eq!(ops, [40, 40, 200, 2000]);
}

#[test]
fn the_table_of_offsets_has_the_ratio_to_a_sync() {
    let ended = bench(&["--count", "20"]).ok();
    let lines: Vec<_> = ended.text().lines().collect();
    assert_eq!(lines.len(), 6, "{lines:?}");
    let column = lines[0].split_whitespace().position(|cell| cell == "p50/sync").unwrap();
    assert!(column > 0 && lines[0].contains("names/call"), "{lines:?}");
    assert!(lines[1..5].iter().all(|line| line.ends_with("equal")), "{lines:?}");
}

/// Offsets of another seed are not those that were set.
#[test]
fn offsets_are_compared() {
    let ended = bench(&["--json", "--count", "4", "--expect-seed", "2"]).exits(1);
    assert!(ended.err.contains("read back consumer-0000 with offset"), "{}", ended.err);
}

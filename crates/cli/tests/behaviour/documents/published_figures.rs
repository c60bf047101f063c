//! The figures that are published are possible: none is above what its callers can have on their
//! way, and systems are compared at the same work.
//!
//! A caller that waits has one call on its way, so that callers = rate x mean latency. The median
//! of latencies is at most twice their mean, whatever they are, and so rate x median is at most
//! twice the callers (times the records of a call).

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use serde_json::Value;

const README: &str = include_str!("../../../../../README.md");
const RUNS: &str = include_str!("../../../../../bench/results/log-bench.jsonl");
const PEERS: &str = include_str!("../../../../../bench/results/peers.json");
const CONSENSUS: &str = include_str!("../../../../../bench/results/consensus.json");
const GUIDE: &str = include_str!("../../../../../docs/src/log.md");
const PAGE: &str = include_str!("../../../../../docs/src/benchmarks.md");

/// Whether so many callers, each with so many records on its way, can have this rate.
#[track_caller]
fn is_possible(what: &str, per_s: f64, p50_us: f64, on_their_way: f64) {
    assert!(per_s > 0.0 && p50_us > 0.0 && on_their_way > 0.0, "{what}");
    let seen = per_s * p50_us / 1e6;
    assert!(seen <= 2.0 * on_their_way, "{what}: {seen} records on their way, of {on_their_way}");
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

#[test]
fn figures_of_the_runs_are_possible() {
    let runs: Vec<Value> = RUNS.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // The best rate of a lonely caller, by what it does.
    let mut lonely: BTreeMap<String, f64> = BTreeMap::new();
    let waiting = || runs.iter().filter(|run| run["bench"] == "log/append");
    let kind = |run: &Value| format!("{} {}", run["params"]["size"], run["params"]["callers"]);
    let callers = |run: &Value| number(&run["params"]["writers"]) * number(&run["params"]["batch"]);
    for run in waiting() {
        is_possible(&kind(run), number(&run["ops_per_s"]), number(&run["p50_us"]), callers(run));
        if run["params"]["writers"] == 1 {
            let best = lonely.entry(kind(run)).or_default();
            *best = best.max(number(&run["ops_per_s"]));
        }
    }
    assert!(waiting().count() > 10);
    // And many callers do no more than so many times what one does.
    for run in waiting() {
        if let Some(one) = lonely.get(&kind(run)) {
            let times = number(&run["ops_per_s"]) / one;
            assert!(times <= callers(run), "{}: {times} times one caller", kind(run));
        }
    }
    assert!(runs.iter().all(|run| run["verified"] == true));
    // The published figures do not contain the directory.
    assert!(runs.iter().all(|run| run["params"]["dir"].is_null()));
}

/// Rows like `| 20 durable callers | 70,000 records/s, p50 252 µs |`.
#[test]
fn figures_of_the_book_are_possible() {
    let mut rows = 0;
    let mut one: f64 = 0.0;
    for line in PAGE.lines().filter(|line| line.contains(" durable caller")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let callers: f64 = cells[1].split(' ').next().unwrap().parse().unwrap();
        let Some((rate, rest)) = cells[2].split_once(" records/s, p50 ") else { continue };
        let rate: f64 = rate.replace(',', "").parse().unwrap();
        let p50: f64 = rest.split(' ').next().unwrap().parse().unwrap();
        is_possible(line, rate, p50, callers);
        if callers == 1.0 {
            one = one.max(rate);
        }
        assert!(rate <= callers * one, "{line}: one does {one}");
        rows += 1;
    }
    assert!(rows >= 4, "{rows}");
}

/// Figures of a comparison by work, those of systems that failed left out.
fn by_work(figures: &[Value]) -> BTreeMap<&str, Vec<&Value>> {
    let mut works: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for figure in figures.iter().filter(|figure| number(&figure["ops_per_s"]) > 0.0) {
        works.entry(figure["work"].as_str().unwrap()).or_default().push(figure);
    }
    works
}

/// All systems did the same, which was read back, and none is above what its callers can have.
#[track_caller]
fn is_fair(work: &str, of_systems: &[&Value], durable: bool) {
    for figure in of_systems {
        let what = format!("{work} of {}", figure["system"]);
        for same in ["writers", "size", "batch"] {
            assert_eq!(figure[same], of_systems[0][same], "{same} in {what}");
        }
        assert_eq!(
            (&figure["durable"], &figure["verified"]),
            (&durable.into(), &true.into()),
            "{what}"
        );
        if work != "pipelined" {
            let records = figure["batch"].as_f64().unwrap_or(1.0);
            let on_their_way = number(&figure["writers"]) * records;
            let (rate, p50) = (number(&figure["ops_per_s"]), number(&figure["p50_us"]));
            is_possible(&what, rate, p50, on_their_way);
        }
    }
}

#[test]
fn figures_of_the_comparison_are_possible() {
    let figures: Vec<Value> = serde_json::from_str(PEERS).unwrap();
    let works = by_work(&figures);
    assert!(works.len() >= 6, "{:?}", works.keys());
    for (work, of_systems) in works {
        is_fair(work, &of_systems, true);
    }
}

/// Rows like ``| `okaywal` | 42,000 | 426 µs |``, of the work `append-20`.
#[test]
fn figures_of_the_readme_are_those_of_the_comparison() {
    let figures: Vec<Value> = serde_json::from_str(PEERS).unwrap();
    let works = by_work(&figures);
    let mut rows = 0;
    for line in README.lines().filter(|line| line.ends_with(" µs |")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let system = cells[1].split('`').nth(1).unwrap();
        let figure = works["append-20"].iter().find(|figure| figure["system"] == system).unwrap();
        for (cell, key) in [(cells[2], "ops_per_s"), (cells[3], "p50_us")] {
            let shown: f64 = cell.trim_end_matches(" µs").replace(',', "").parse().unwrap();
            let ratio = shown / number(&figure[key]);
            assert!((0.99..1.01).contains(&ratio), "{line}: {key} is {}", figure[key]);
        }
        rows += 1;
    }
    assert!(rows >= 4, "{rows}");
}

/// Every work has its peers, and what is not durable is so for both sides.
#[test]
fn figures_of_the_consensus_comparison_are_possible() {
    const LSM: [&str; 7] = [
        "random-keys",
        "sequential",
        "read-heavy-90",
        "mixed-50",
        "concurrent-writes",
        "recovery-10k",
        "scan",
    ];
    let figures: Vec<Value> = serde_json::from_str(CONSENSUS).unwrap();
    let works = by_work(&figures);
    let has = |work: &str, system: &str| {
        let found = works.get(work).is_some_and(|all| all.iter().any(|f| f["system"] == system));
        assert!(found, "{system} at {work}");
    };
    for work in LSM {
        has(work, "esker");
        has(work, "badger");
    }
    for (work, raft, etcd) in [
        ("entry-1", "raft-wal", "etcd-wal"),
        ("entry-32", "raft-wal-batched", "etcd-wal-batched"),
        ("entry-500", "raft-wal-batched", "etcd-wal-batched"),
        ("entry-batches", "raft-wal", "etcd-wal"),
    ] {
        for system in ["esker", "esker-commit", "raft-engine", raft, etcd] {
            has(work, system);
        }
    }
    for (work, of_systems) in &works {
        let durable = work.starts_with("entry-") || work.starts_with("recovery-");
        is_fair(work, of_systems, durable);
    }
}

/// The text names the bound the right way up: the latency is below it.
#[test]
fn the_bound_is_the_right_way_up() {
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let guide =
        "throughput is at most (records waiting at a time × record size) / latency of a commit";
    assert!(flat(GUIDE).contains(guide));
    let page = "(callers × records in one call × record size) / latency of a commit";
    assert!(flat(PAGE).contains(page));
}

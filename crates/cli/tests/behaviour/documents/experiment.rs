//! The page of the experiment answers its question with recorded figures, and states its limits.

#![allow(clippy::unwrap_used)]

const PAGE: &str = include_str!("../../../../../docs/src/experiment.md");
const RESULTS: &str = include_str!("../../../../../bench/results/experiment.jsonl");
const GUARANTEES: &str = include_str!("../../../../../docs/src/guarantees.md");
const KV: &str = include_str!("../../../../../docs/src/kv.md");

/// The text after a heading, up to the next.
fn section(heading: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("\n## {heading}\n")).unwrap();
    rest.split("\n## ").next().unwrap()
}

/// The cells of the first table of a section, without its head.
fn rows(heading: &str) -> Vec<Vec<&'static str>> {
    let lines = section(heading).lines().filter(|line| line.starts_with("| ")).skip(1);
    lines.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

/// A rate is never without p99.9 and the maximum, and no run is too short for its stalls.
#[test]
fn question_is_answered_for_every_policy() {
    let rows = rows("The measurement");
    for policy in ["always", "batch:100", "batch:1000", "periodic:10", "periodic:100"] {
        let name = format!("`{policy}`");
        let row = rows.iter().find(|row| row[0] == name).unwrap();
        assert_eq!(row.len(), 9, "{row:?}");
        assert!(row[6..8].iter().all(|cell| cell.ends_with('s')), "{row:?}");
        let syncs: u64 = row[8].replace(',', "").parse().unwrap();
        assert!(syncs >= 100, "{row:?}");
    }
    assert!(section("The measurement").contains("| policy | a crash may lose | puts/s |"));
    assert!(section("The measurement").contains("| p99 | p99.9 | max | syncs |"));
    for run in RESULTS.lines() {
        let run: serde_json::Value = serde_json::from_str(run).unwrap();
        let policy = run["params"]["policy"].as_str().unwrap();
        if let Some(ms) = policy.strip_prefix("periodic:") {
            let periods = run["seconds"].as_f64().unwrap() * 1e3 / ms.parse::<f64>().unwrap();
            assert!(periods >= 20.0, "{periods} periods of {policy}");
        }
    }
}

#[test]
fn each_observation_has_a_figure_and_a_verdict() {
    let rows = rows("Observations");
    for observation in [
        "The sync dominates",
        "bimodal",
        "Small batches lose throughput",
        "Large batches hide the stall",
        "A period looks flat",
        "A release build",
        "128 bytes are bound by latency",
        "4 KiB may be bound by bandwidth",
        "110 x",
    ] {
        let row = rows.iter().find(|row| row[0].contains(observation)).unwrap();
        assert!(row[2].contains(|c: char| c.is_ascii_digit()), "{row:?}");
        assert!(["reproduced", "refuted here"].contains(&row[3]), "{row:?}");
    }
}

#[test]
fn limits_and_sources_are_stated() {
    let limits = section("What this does not show");
    for limit in
        ["Not finished", "one thread", "A checksum finds damage", "Nothing here crashes", "virtual"]
    {
        assert!(limits.contains(limit), "{limit}");
    }
    let sources = section("Sources");
    for source in ["ARIES", "Log-Structured Merge-Tree", "Bitcask", "fsync Failures", "Mini-KV"] {
        assert!(sources.contains(source), "{source}");
    }
    // The recovered writes may be more than the durable ones: the order is the other way round.
    for text in [PAGE, GUARANTEES, KV] {
        assert!(!text.contains("recovered ≤ durable") && !text.contains("recovered <= durable"));
    }
}

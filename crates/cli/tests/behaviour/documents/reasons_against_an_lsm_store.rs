//! The guide to the consensus log says why it is not an LSM store, and for each reason what shows
//! it.

#![allow(clippy::unwrap_used)]

const GUIDE: &str = include_str!("../../../../../docs/src/consensus.md");
const COMPARISON: &str = include_str!("../../../../../bench/results/consensus.json");

/// The rows of the table: reason, there, here, what shows it.
fn reasons() -> Vec<Vec<&'static str>> {
    let (_, rest) = GUIDE.split_once("## Why not an LSM store").unwrap();
    let section = rest.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|row| row.split('|').map(str::trim).skip(1).take(4).collect()).collect()
}

#[test]
fn each_reason_names_an_existing_test_or_benchmark() {
    let reasons = reasons();
    let named: Vec<&str> = reasons.iter().map(|row| row[0]).collect();
    for reason in [
        "versions are not accept and commit",
        "replacing an entry",
        "compaction against recovery scans",
        "locks where it is read",
    ] {
        assert!(named.contains(&reason), "{reason} is not among {named:?}");
    }
    let crates = format!("{}/..", env!("CARGO_MANIFEST_DIR"));
    for row in &reasons {
        let shown: Vec<&str> = row[3].split('`').skip(1).step_by(2).collect();
        assert!(!shown.is_empty(), "nothing shows that {}", row[0]);
        for name in shown {
            let found = match name.split_once("::") {
                Some((file, test)) => std::fs::read_to_string(format!("{crates}/{file}"))
                    .is_ok_and(|text| text.contains(&format!("fn {test}()"))),
                None => COMPARISON.contains(&format!("\"work\": \"{name}\"")),
            };
            assert!(found, "{name} is not there");
        }
    }
}

#[test]
fn guide_states_its_other_points() {
    for reported in [
        "## Why readers take no lock",
        "## What to expect on another machine",
        "SIGMOD 2018",
        "WPaxos",
        "Paxos Made Simple",
    ] {
        assert!(GUIDE.contains(reported), "{reported}");
    }
}

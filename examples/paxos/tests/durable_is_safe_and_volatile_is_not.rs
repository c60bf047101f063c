//! The program says so itself, by its exit status.

use std::process::Command;

/// Requirements: F-0, FB-11.
#[test]
fn one_line_a_mode() {
    let out = Command::new(env!("CARGO_BIN_EXE_esker-paxos"))
        .args(["--seeds", "24", "--json"])
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{text}");
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (lines.len(), &lines[0]["mode"], &lines[1]["mode"]),
        (2, &"durable".into(), &"volatile".into())
    );
    assert_eq!((&lines[0]["seeds"], &lines[0]["violations"]), (&24.into(), &0.into()));
    assert!(lines[1]["violations"].as_u64().unwrap() > 0);
    // The floor passed some of the answers, and each of them was refused.
    assert!(lines[0]["refused"].as_u64().unwrap() > 0);
    assert!(
        lines[0]["crashes"].as_u64().unwrap() > 100 && lines[0]["chosen"].as_u64().unwrap() > 100
    );
}

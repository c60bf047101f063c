//! Runs steps one after the other, also past a failed one, and ends with a table and the counts.

use std::time::Instant;

use anyhow::Result;

use crate::steps::{Step, Verdict};
use crate::workspace;

/// Runs `steps` in order; `false` if one of them failed.
pub fn run(steps: &[Step]) -> Result<bool> {
    let root = workspace::root()?;
    let mut table = Vec::new();
    let mut counts = None;
    let mut passed = true;

    for step in steps {
        println!("==> {}", step.name());
        let start = Instant::now();
        let outcome = step.run(&root)?;
        let minutes = start.elapsed().as_secs_f64() / 60.0;
        let result = match outcome.verdict {
            Verdict::Ok => "ok".to_owned(),
            Verdict::Failed => {
                passed = false;
                "FAILED".to_owned()
            }
            Verdict::Skipped(why) => {
                println!("skipped: {why}");
                format!("skipped: {why}")
            }
        };
        table.push(format!("{:<8} {minutes:>7.2}  {result}", step.name()));
        counts = counts.or(outcome.counts);
    }

    if steps.len() > 1 {
        println!("\n{:<8} {:>7}  result", "step", "minutes");
        table.iter().for_each(|row| println!("{row}"));
        println!("verify: {}", if passed { "ok" } else { "FAILED" });
    }
    if let Some(counts) = counts {
        println!("{counts}");
    }
    Ok(passed)
}

//! The report of a run.

use super::trial::{Doubt, Ending, Trial};
use crate::mutations::Mutation;

/// How much of the output of a trial that went wrong is shown.
const LINES_MAX: usize = 30;

/// One mutation in `--list`.
pub fn listed(mutation: &Mutation) -> String {
    let requirements = mutation.requirements.join(" ");
    format!("{:<28} {}  [{}]  {requirements}", mutation.id, mutation.file, mutation.test)
}

/// One mutation that was tried.
pub fn line(mutation: &Mutation, trial: &Trial) -> String {
    let (id, seconds) = (&mutation.id, trial.seconds);
    match &trial.ending {
        Ending::Caught { by } => {
            format!("caught   {id:<28} {seconds:>6.1} s  by {}", by.join(", "))
        }
        Ending::Escaped { why } => {
            format!("ESCAPED  {id:<28} {seconds:>6.1} s  {} {why}", mutation.test)
        }
        Ending::Untried(Doubt { why, output }) => {
            let lines: Vec<&str> = output.lines().collect();
            let shown = &lines[lines.len().saturating_sub(LINES_MAX)..];
            let mut text = format!("ERROR    {id:<28} {seconds:>6.1} s  {why}");
            for line in shown {
                text.push_str("\n    | ");
                text.push_str(line);
            }
            text
        }
    }
}

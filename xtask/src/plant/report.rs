//! What a run prints.

use super::trial::{Doubt, Ending, Trial};
use crate::faults::Fault;

/// How much of the output of a trial that went wrong is shown.
const LINES_MAX: usize = 30;

/// One fault in `--list`.
pub fn listed(fault: &Fault) -> String {
    let requirements = fault.requirements.join(" ");
    format!("{:<28} {}  [{}]  {requirements}", fault.id, fault.file, fault.test)
}

/// One fault that was tried.
pub fn line(fault: &Fault, trial: &Trial) -> String {
    let (id, seconds) = (&fault.id, trial.seconds);
    match &trial.ending {
        Ending::Caught { by } => {
            format!("caught   {id:<28} {seconds:>6.1} s  by {}", by.join(", "))
        }
        Ending::Escaped { why } => {
            format!("ESCAPED  {id:<28} {seconds:>6.1} s  {} {why}", fault.test)
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

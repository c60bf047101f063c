//! The report of a run.

use super::trial::{Doubt, Ending, Trial};
use crate::mutations::Mutation;

/// How much of the output of a trial that went wrong is shown.
const LINES_MAX: usize = 30;

/// A mutation that was tried.
pub fn line(name: &str, mutation: &Mutation, trial: &Trial) -> String {
    let seconds = trial.seconds;
    match &trial.ending {
        Ending::Caught { how } => format!("caught   {name:<44} {seconds:>6.1} s  {how}"),
        Ending::Escaped => {
            let test = &mutation.test;
            format!("ESCAPED  {name:<44} {seconds:>6.1} s  {}::{} passed", test.file, test.name)
        }
        Ending::Untried(Doubt { why, output }) => {
            let lines: Vec<&str> = output.lines().collect();
            let shown = &lines[lines.len().saturating_sub(LINES_MAX)..];
            let mut text = format!("ERROR    {name:<44} {seconds:>6.1} s  {why}");
            for line in shown {
                text.push_str("\n    | ");
                text.push_str(line);
            }
            text
        }
    }
}

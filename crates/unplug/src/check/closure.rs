//! A check that is a closure of a Rust test.

use std::any::Any;
use std::fmt::Display;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use anyhow::{Context, Result};

use super::command::{CheckFiles, CheckResult, StateCheck};

/// A closure that gets the directory and the output of the program before the cut. It fails with an
/// error or a panic.
pub struct ClosureCheck<F>(pub F);

impl<F, E> StateCheck for ClosureCheck<F>
where
    F: Fn(&Path, &[u8]) -> std::result::Result<(), E> + Sync,
    E: Display,
{
    fn run(&self, files: &CheckFiles) -> Result<CheckResult> {
        let output = fs::read(&files.output).context("the output before the cut")?;
        // The closure is shared and cannot be changed, but for what it does inside it by itself.
        let checked = catch_unwind(AssertUnwindSafe(|| (self.0)(&files.dir, &output)));
        let (result, log) = match checked {
            Ok(Ok(())) => (CheckResult::Passed, String::new()),
            Ok(Err(error)) => (CheckResult::Failed, format!("{error}\n")),
            Err(panic) => (CheckResult::Failed, format!("{}\n", message(panic.as_ref()))),
        };
        fs::write(&files.log, log).context("the log of the check")?;
        Ok(result)
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("the check panicked")
}

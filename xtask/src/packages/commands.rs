//! Runs the tools, and keeps what they print.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// Runs the commands in `folder`; returns the first that failed, with its output.
pub fn first_fault(folder: &Path, commands: &[&[&str]]) -> Result<Option<String>> {
    for words in commands {
        let (printed, succeeded) = output(folder, words)?;
        if !succeeded {
            return Ok(Some(format!("{}\n{printed}", words.join(" "))));
        }
    }
    Ok(None)
}

/// All that a command prints, and whether it succeeded.
pub fn output(folder: &Path, words: &[&str]) -> Result<(String, bool)> {
    let (program, arguments) = words.split_first().context("a command without words")?;
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Ok((text(&output.stdout) + &text(&output.stderr), output.status.success()))
}

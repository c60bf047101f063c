//! One run of the user's check on a directory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process_tree::ProcessTree;

/// The check, and how long one run may take.
#[derive(Clone, Debug)]
pub struct Check {
    pub command: String,
    pub timeout: Duration,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckResult {
    Passed,
    Failed,
    TimedOut,
}

/// The files of one run of the check.
#[derive(Clone, Debug)]
pub struct CheckFiles {
    /// The directory as the power cut left it.
    pub dir: PathBuf,
    /// The standard output of the program before the cut.
    pub output: PathBuf,
    /// The output of the check.
    pub log: PathBuf,
}

/// A check of a directory that a power cut could leave.
pub trait StateCheck: Sync {
    /// Checks the directory, and writes a log of it.
    fn run(&self, files: &CheckFiles) -> Result<CheckResult>;
}

impl CheckFiles {
    /// The files under a folder of their own.
    pub fn new(folder: &Path) -> Self {
        let file = |name: &str| folder.join(name);
        Self { dir: file("state"), output: file("output"), log: file("check.log") }
    }
}

impl StateCheck for Check {
    /// Runs the check; ends it and all that it started when its time is over.
    fn run(&self, files: &CheckFiles) -> Result<CheckResult> {
        let log = File::create(&files.log).context("the log of the check")?;
        let mut command = Command::new("sh");
        command
            .args(["-c", &self.command])
            .current_dir(&files.dir)
            .env("UNPLUG_DIR", &files.dir)
            .env("UNPLUG_OUTPUT", &files.output)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("the log of the check")?)
            .stderr(log);
        let check = ProcessTree::start(command).context("failed to start the check")?;
        let in_time = check.wait(Some(self.timeout))?;
        let status = check.end()?;
        Ok(match (in_time, status.success()) {
            (false, _) => CheckResult::TimedOut,
            (true, true) => CheckResult::Passed,
            (true, false) => CheckResult::Failed,
        })
    }
}

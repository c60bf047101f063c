//! One run of the user's check on a directory.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::mount::namespace::end_with_this_thread;
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

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
        end_with_this_thread(&mut command);
        let child = command
            .args(["-c", &self.command])
            .current_dir(&files.dir)
            .env("UNPLUG_DIR", &files.dir)
            .env("UNPLUG_OUTPUT", &files.output)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("the log of the check")?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .context("failed to start sh for the check")?;
        match wait(child, self.timeout)? {
            Some(status) if status.success() => Ok(CheckResult::Passed),
            Some(_) => Ok(CheckResult::Failed),
            None => Ok(CheckResult::TimedOut),
        }
    }
}

/// Waits for a process; kills its group after `timeout`.
fn wait(mut child: Child, timeout: Duration) -> Result<Option<ExitStatus>> {
    let group = Pid::from_child(&child);
    let descriptor = pidfd_open(group, PidfdFlags::empty()).context("failed to watch the check")?;
    let timeout = Timespec::try_from(timeout).context("the time of a check is too long")?;
    let mut ended = [PollFd::new(&descriptor, PollFlags::IN)];
    let in_time = poll(&mut ended, Some(&timeout)).context("failed to wait for the check")? > 0;
    // What the check left in its group ends with it. Fails when nothing is left.
    let _ = kill_process_group(group, Signal::KILL);
    let status = child.wait().context("failed to wait for the check")?;
    Ok(in_time.then_some(status))
}

//! Whether a process has a log open for writing.

use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// Returns the process named in the file `lock`, if it exists. Does not try the lock itself: that
/// could make a writer that opens the log at the same moment fail.
pub fn of(dir: &Path) -> Option<i32> {
    let named = std::fs::read_to_string(dir.join("lock")).ok()?;
    let pid = named.trim().parse().ok().filter(|pid| *pid > 0)?;
    let exists = test_kill_process(Pid::from_raw(pid)?) != Err(Errno::SRCH);
    exists.then_some(pid)
}

/// Whether a writer ever had the log in this directory open. No backup has the file `lock`.
pub fn had_one(dir: &Path) -> bool {
    dir.join("lock").exists()
}

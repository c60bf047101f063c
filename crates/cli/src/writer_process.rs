//! The process that has a log open for writing.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{major, minor};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// Finds the process that has the lock of the directory, as the system lists it. Does not try the
/// lock itself: that could make a writer that opens the log at the same moment fail.
///
/// The list has no process of another PID namespace, except those of namespaces below. Where there
/// is no list, the process named in the file `lock` counts if it exists.
pub fn find(dir: &Path) -> Option<i32> {
    let named = std::fs::read_to_string(dir.join("lock")).ok();
    let named = named.and_then(|line| line.trim().parse().ok()).filter(|pid| *pid > 0);
    let Ok(locks) = std::fs::read_to_string("/proc/locks") else {
        let pid = named?;
        let exists = test_kill_process(Pid::from_raw(pid)?) != Err(Errno::SRCH);
        return exists.then_some(pid);
    };
    let metadata = std::fs::metadata(dir).ok()?;
    let device = format!("{:02x}:{:02x}", major(metadata.dev()), minor(metadata.dev()));
    holder(&locks, &device, metadata.ino(), named)
}

/// The process that has an exclusive lock of this file. Some file systems show another device here
/// than elsewhere: there the process that the file `lock` names counts.
fn holder(locks: &str, device: &str, inode: u64, named: Option<i32>) -> Option<i32> {
    locks.lines().find_map(|line| {
        // As in `1: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF`; one that waits has `->` after the
        // number.
        let fields: Vec<_> = line.split_whitespace().collect();
        let [_, _, _, "WRITE", pid, file, ..] = fields[..] else { return None };
        let (on, number) = file.rsplit_once(':')?;
        let pid = pid.parse().ok()?;
        let is_this = number.parse() == Ok(inode) && (on == device || named == Some(pid));
        is_this.then_some(pid)
    })
}

/// Whether a writer ever had the log in this directory open. No backup has the file `lock`.
pub fn had_one(dir: &Path) -> bool {
    dir.join("lock").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: &str = "1: POSIX  ADVISORY  READ  10 08:01:131 0 EOF\n\
        2: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF\n\
        2: -> FLOCK  ADVISORY  WRITE 4712 08:01:132 0 EOF\n\
        3: FLOCK  ADVISORY  WRITE 4713 00:2b:133 0 EOF\n";

    #[test]
    fn the_process_with_the_exclusive_lock_is_the_writer() {
        assert_eq!(holder(LOCKS, "08:01", 131, None), Some(4711));
        assert_eq!(holder(LOCKS, "08:02", 131, Some(10)), None, "another file of that number");
        assert_eq!(holder(LOCKS, "08:01", 132, Some(4712)), None, "it waits for the lock");
        assert_eq!(holder(LOCKS, "00:1c", 133, Some(4713)), Some(4713));
        assert_eq!(holder("", "08:01", 131, Some(4711)), None);
    }
}

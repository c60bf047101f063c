//! The suite of disks.rs where next to no memory may be locked: through io_uring where the
//! kernel needs none for that, and through system calls otherwise.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

#[path = "kit/disk_suite.rs"]
mod disk_suite;
#[path = "kit/fixture.rs"]
mod fixture;

use esker_disk::uring::{UringDisk, UringOptions};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// For this process and the threads that this one starts, for good: so this is the only test here.
fn limit() {
    setrlimit(Resource::Memlock, Rlimit { current: Some(4096), maximum: Some(4096) }).unwrap();
    let mut mine = capabilities(None).unwrap();
    mine.effective.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, mine).unwrap();
}

/// Requirements: WB-14.
#[test]
fn the_disk_that_can_be_had_does_the_work() {
    limit();
    let (disk, refused) = UringDisk::or_std(UringOptions::default());
    let name = if refused.is_none() { "uring" } else { "std" };
    if let Some(why) = refused {
        assert!(why.to_string().contains("RLIMIT_MEMLOCK"), "{why}");
    }
    disk_suite::behaves(&disk, name);
}

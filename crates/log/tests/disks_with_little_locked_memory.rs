//! The suite of disks.rs where next to no memory may be locked: through io_uring where the
//! kernel needs none for that, and through system calls otherwise.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

#[path = "kit/disk_suite.rs"]
mod disk_suite;
#[path = "kit/fixture.rs"]
mod fixture;
#[path = "../../disk/tests/kit/limits.rs"]
mod limits;

use esker_disk::uring::{UringDisk, UringOptions};

#[test]
fn log_works_on_the_disk_that_is_available() {
    limits::limit_locked_memory(4096);
    let (disk, refused) = UringDisk::or_std(UringOptions::default());
    let name = if refused.is_none() { "uring" } else { "std" };
    if let Some(why) = refused {
        assert!(why.to_string().contains("RLIMIT_MEMLOCK"), "{why}");
    }
    disk_suite::behaves(&disk, name);
}

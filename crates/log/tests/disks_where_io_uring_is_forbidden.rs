//! The suite of disks.rs under a seccomp filter that forbids io_uring.
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
fn the_standard_disk_takes_its_place() {
    limits::forbid_io_uring();
    let (disk, refused) = UringDisk::or_std(UringOptions::default());
    assert_eq!(refused.unwrap().kind(), std::io::ErrorKind::PermissionDenied);
    disk_suite::behaves(&disk, "std");
}

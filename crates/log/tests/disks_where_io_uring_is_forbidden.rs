//! The suite of disks.rs under a seccomp filter that forbids io_uring.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

#[path = "kit/disk_suite.rs"]
mod disk_suite;
#[path = "kit/fixture.rs"]
mod fixture;

use esker_disk::uring::{UringDisk, UringOptions};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// For this thread and those that it starts, for good: so this is the only test here.
fn forbid() {
    let rules = [(libc::SYS_io_uring_setup, Vec::new())].into_iter().collect();
    let denied = SeccompAction::Errno(libc::EPERM as u32);
    let here = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, here).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

/// Requirements: WB-14.
#[test]
fn the_standard_disk_takes_its_place() {
    forbid();
    let (disk, refused) = UringDisk::or_std(UringOptions::default());
    assert_eq!(refused.unwrap().kind(), std::io::ErrorKind::PermissionDenied);
    disk_suite::behaves(&disk, "std");
}

//! The same suite on the disk through system calls, through io_uring, and on what takes its place
//! when io_uring is not allowed.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::print_stderr)] // A test says what it skipped.

#[path = "kit/disk_suite.rs"]
mod disk_suite;
#[path = "kit/fixture.rs"]
mod fixture;

use std::sync::Arc;

use esker_disk::uring::{UringDisk, UringOptions};
use esker_disk::{Disk, StdDisk};

#[test]
fn through_system_calls() {
    let disk: Arc<dyn Disk> = Arc::new(StdDisk::new());
    disk_suite::behaves(&disk, "std");
}

#[test]
fn through_io_uring() {
    for in_flight in [1, 16] {
        let mut options = UringOptions::default();
        options.in_flight = in_flight;
        match UringDisk::new(options) {
            Ok(disk) => {
                let disk: Arc<dyn Disk> = Arc::new(disk);
                disk_suite::behaves(&disk, "uring");
            }
            Err(why) => eprintln!("SKIPPED: there is no io_uring here: {why}"),
        }
    }
}

#[test]
fn where_the_options_do_not_allow_io_uring() {
    let mut options = UringOptions::default();
    options.allowed = false;
    let (disk, refused) = UringDisk::or_std(options);
    assert!(refused.is_some());
    disk_suite::behaves(&disk, "std");
}

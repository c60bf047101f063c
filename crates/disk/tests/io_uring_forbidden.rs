//! A seccomp filter that forbids io_uring: the disk says so, and the standard one takes its place.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

#[path = "kit/by_path.rs"]
mod by_path;
#[path = "kit/limits.rs"]
mod limits;

use by_path::ByPath;
use esker_disk::uring::{UringDisk, UringOptions};
use esker_disk::{AlignedBuf, OpenMode, read_full_at, write_all_at};

#[test]
fn seccomp_filter_is_reported_and_the_standard_disk_is_used() {
    limits::forbid_io_uring();
    let error = UringDisk::new(UringOptions::default()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    let (disk, why) = UringDisk::or_std(UringOptions::default());
    assert_eq!(why.unwrap().kind(), std::io::ErrorKind::PermissionDenied);
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(disk.facts(dir.path()).unwrap().name, "std");
    let file = disk.open(&dir.path().join("file"), OpenMode::create()).unwrap();
    write_all_at(&*file, b"written", 0).unwrap();
    file.sync_data().unwrap();
    let mut back = AlignedBuf::new(7);
    assert_eq!(read_full_at(&*file, &mut back, 0).unwrap(), 7);
    assert_eq!(&back[..7], b"written");
}

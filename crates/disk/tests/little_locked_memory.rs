//! A tiny limit on locked memory: registering buffers fails with the limit's name, and what needs
//! no locked memory continues.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::print_stderr)] // A test says what it skipped.

#[path = "kit/by_path.rs"]
mod by_path;
#[path = "kit/limits.rs"]
mod limits;

use by_path::ByPath;
use esker_disk::uring::{Registered, UringDisk, UringOptions};
use esker_disk::{AlignedBuf, OpenMode, read_full_at, write_all_at};

const LIMIT: u64 = 64 << 10;

#[test]
fn limit_is_named_and_unregistered_io_works() {
    limits::limit_locked_memory(LIMIT);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let (disk, refused) = UringDisk::or_std(UringOptions::default());
    if let Some(why) = &refused {
        eprintln!("SKIPPED: registering, there is no io_uring here: {why}");
    } else {
        let buffers = vec![AlignedBuf::new(1 << 20), AlignedBuf::new(1 << 20)];
        let error = Registered::open(dir.path(), "file", OpenMode::create(), buffers).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
        let cause = std::error::Error::source(&error).unwrap().to_string();
        for word in ["RLIMIT_MEMLOCK", "65536 bytes", "2097152 bytes", "/etc/security/limits.conf"]
        {
            assert!(cause.contains(word), "{word:?} is not in: {cause}");
        }
        let small = vec![AlignedBuf::new(4096)];
        Registered::open(dir.path(), "file", OpenMode::create(), small)
            .unwrap()
            .write_at(0, 0)
            .unwrap();
    }
    let file = disk.open(&path, OpenMode::create()).unwrap();
    write_all_at(&*file, b"written", 0).unwrap();
    file.sync_data().unwrap();
    let mut back = [0; 7];
    assert_eq!(read_full_at(&*file, &mut back, 0).unwrap(), 7);
    assert_eq!(&back, b"written");
}

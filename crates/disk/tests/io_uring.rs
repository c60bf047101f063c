//! The disk through io_uring answers as the standard one, or says why it cannot be had.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::print_stdout)] // A test says what it skipped.

#[path = "kit/by_path.rs"]
mod by_path;

use std::path::Path;
use std::sync::Arc;

use by_path::ByPath;
use esker_disk::uring::{RINGS_MAX, Registered, UringDisk, UringOptions};
use esker_disk::{AlignedBuf, BLOCK_BYTES, File, OpenMode, StdDisk, read_full_at, write_all_at};

/// Nothing to test where the machine has no io_uring, and that is said.
fn uring() -> Option<UringDisk> {
    let made = UringDisk::new(UringOptions::default());
    made.inspect_err(|why| println!("SKIPPED: there is no io_uring here: {why}")).ok()
}

fn pattern(len: usize, seed: usize) -> AlignedBuf {
    let mut bytes = AlignedBuf::new(len);
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = (at * 31 + at / 4096 * 7 + seed) as u8;
    }
    bytes
}

fn ways(dir: &Path) -> Vec<OpenMode> {
    let facts = StdDisk::new().facts(dir).unwrap();
    [(false, false), (false, true), (true, false), (true, true)]
        .into_iter()
        .filter(|(direct, _)| !direct || facts.direct)
        .map(|(direct, dsync)| OpenMode::create().direct(direct).dsync(dsync))
        .collect()
}

/// Transfers of one piece, of several, and of more than may be in flight.
const LENGTHS: [usize; 7] = [
    BLOCK_BYTES,
    3 * BLOCK_BYTES,
    256 << 10,
    (256 << 10) + BLOCK_BYTES,
    1 << 20,
    (1 << 20) + 5 * BLOCK_BYTES,
    5 << 20,
];

#[test]
fn what_one_disk_writes_the_other_reads() {
    let Some(disk) = uring() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    assert_eq!(disk.facts(dir.path()).unwrap().name, "uring");
    for how in ways(dir.path()) {
        let ours = disk.open(&path, how).unwrap();
        let theirs = StdDisk::new().open(&path, how).unwrap();
        for (seed, len) in LENGTHS.into_iter().enumerate() {
            for offset in [0, 7 * BLOCK_BYTES as u64] {
                let bytes = pattern(len, seed);
                write_all_at(&*ours, &bytes, offset).unwrap();
                ours.sync_data().unwrap();
                assert!(reads(&*theirs, &bytes, offset), "{how:?} {len} at {offset}");
                let bytes = pattern(len, seed + 100);
                write_all_at(&*theirs, &bytes, offset).unwrap();
                assert!(reads(&*ours, &bytes, offset), "{how:?} {len} at {offset}");
            }
        }
        // Past the end there is nothing, and the last read is short.
        let len = ours.len().unwrap();
        let mut buffer = AlignedBuf::new(2 << 20);
        assert_eq!(ours.read_at(&mut buffer, len).unwrap(), 0);
        let last = len - 3 * BLOCK_BYTES as u64;
        assert_eq!(read_full_at(&*ours, &mut buffer, last).unwrap(), 3 * BLOCK_BYTES);
    }
}

fn reads(file: &dyn File, bytes: &[u8], offset: u64) -> bool {
    let mut back = AlignedBuf::new(bytes.len());
    read_full_at(file, &mut back, offset).unwrap() == bytes.len() && back[..] == *bytes
}

#[test]
fn errors_keep_their_kind_and_nothing_hangs() {
    let Some(disk) = uring() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let missing = disk.open(&path, OpenMode::read()).unwrap_err();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
    disk.open(&path, OpenMode::create()).unwrap();
    let file = disk.open(&path, OpenMode::read()).unwrap();
    // EBADF: the file is open for reading only. Every piece fails.
    let error = file.write_at(&pattern(4 << 20, 1), 0).unwrap_err();
    assert_eq!((error.os_code(), error.offset()), (Some(9), Some(0)));
    if ways(dir.path()).iter().any(|how| how.direct) {
        let direct = disk.open(&path, OpenMode::write().direct(true)).unwrap();
        let error = direct.write_at(&pattern(BLOCK_BYTES, 1)[..100], 0).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    }
}

/// More callers than rings: those that find none are served all the same.
#[test]
fn more_callers_than_rings() {
    let Some(disk) = uring() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = disk.open(&dir.path().join("file"), OpenMode::create()).unwrap();
    let callers = 2 * RINGS_MAX;
    std::thread::scope(|scope| {
        for caller in 0..callers {
            let file = Arc::clone(&file);
            scope.spawn(move || {
                let offset = (caller * (512 << 10)) as u64;
                for round in 0..5 {
                    let bytes = pattern(512 << 10, caller + round);
                    write_all_at(&*file, &bytes, offset).unwrap();
                    assert!(reads(&*file, &bytes, offset));
                }
            });
        }
    });
    assert_eq!(file.len().unwrap(), (callers * (512 << 10)) as u64);
}

#[test]
fn registered_buffers_move_the_same_bytes() {
    if uring().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for how in ways(dir.path()) {
        let buffers = vec![pattern(1 << 20, 5), AlignedBuf::new(1 << 20)];
        let mut file = match Registered::open(dir.path(), "file", how, buffers) {
            Ok(file) => file,
            Err(why) => {
                assert_eq!(why.kind(), std::io::ErrorKind::OutOfMemory, "{why}");
                println!("SKIPPED: buffers cannot be locked here: {why}");
                return;
            }
        };
        assert_eq!(file.write_at(0, 4096).unwrap(), 1 << 20);
        assert_eq!(file.read_at(1, 4096).unwrap(), 1 << 20);
        assert_eq!(file.buffer(1).unwrap()[..], pattern(1 << 20, 5)[..]);
        assert_eq!(file.read_at(2, 0).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    }
}

/// An offset that no file has is refused as a positioned call refuses it.
#[test]
fn an_impossible_offset_is_refused() {
    let Some(disk) = uring() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = disk.open(&dir.path().join("file"), OpenMode::create()).unwrap();
    let theirs = StdDisk::new().open(&dir.path().join("file"), OpenMode::create()).unwrap();
    for offset in [u64::MAX, u64::MAX - 3, 1 << 63, (1 << 63) - 2] {
        let (ours, theirs) = (file.write_at(b"data", offset), theirs.write_at(b"data", offset));
        assert!(ours.is_err() && theirs.is_err(), "{offset}");
        assert!(file.read_at(&mut [0; 4], offset).is_err() || offset < 1 << 63);
    }
    assert_eq!(file.len().unwrap(), 0);
}

/// Where io_uring is not allowed, the standard disk is used, and the reason is reported.
#[test]
fn refusal_falls_back_to_standard_io_and_is_reported() {
    let mut options = UringOptions::default();
    options.allowed = false;
    assert_eq!(UringDisk::new(options).unwrap_err().kind(), std::io::ErrorKind::Unsupported);
    let (disk, why) = UringDisk::or_std(options);
    assert!(why.unwrap().to_string().contains("do not allow"));
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(disk.facts(dir.path()).unwrap().name, "std");
    let file = disk.open(&dir.path().join("file"), OpenMode::create()).unwrap();
    write_all_at(&*file, b"written", 0).unwrap();
    file.sync_data().unwrap();
}

//! The next process that writes a log keeps its readers.
//!
//! Guards: a segment, a manifest or the offsets of consumers that readers lose when the next
//! process opens the log without their option; files that others may read although no process
//! allowed it.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use esker_disk::{Readers, StdDisk};
use esker_log::{Log, Options, ReadOnlyLog, ReadOptions, Seq, repair};

/// The modes of everything in a directory, with its own.
fn modes(dir: &Path) -> Vec<(String, u32)> {
    let mut modes = Vec::new();
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        modes.push((dir.display().to_string(), fs::metadata(&dir).unwrap().permissions().mode()));
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => dirs.push(path),
                false => {
                    let mode = fs::metadata(&path).unwrap().permissions().mode();
                    modes.push((path.display().to_string(), mode));
                }
            }
        }
    }
    modes.iter_mut().for_each(|(_, mode)| *mode &= 0o777);
    modes
}

/// Appends over several segments, and sets an offset.
fn write(dir: &Path, disk: StdDisk) {
    let mut options = Options::on(Arc::new(disk));
    options.segment_size = 64 << 10;
    options.buffer_size = 16 << 10;
    let log = Log::builder(dir).options(options).open().unwrap();
    for _ in 0..30 {
        log.append(vec![7; 9000]).unwrap().blocking_wait().unwrap();
    }
    log.consumers().set("reader", Seq(1)).unwrap();
    log.close().unwrap();
}

fn all_are(dir: &Path, file: u32, directory: u32) {
    for (path, mode) in modes(dir) {
        let expected = if Path::new(&path).is_dir() { directory } else { file };
        assert_eq!(mode, expected, "{path} has the mode {mode:o}");
    }
}

#[test]
fn a_log_keeps_its_readers() {
    for (readers, file, directory) in [
        (Readers::Owner, 0o600, 0o700),
        (Readers::Group, 0o640, 0o750),
        (Readers::All, 0o644, 0o755),
    ] {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("log");
        write(&dir, StdDisk::new().readable_by(readers));
        all_are(&dir, file, directory);
        // The next one does not say who may read it.
        write(&dir, StdDisk::new());
        all_are(&dir, file, directory);

        let segment = dir.join("00000000000000000001.seg");
        let mut bytes = fs::read(&segment).unwrap();
        bytes[5000] ^= 1;
        fs::write(&segment, bytes).unwrap();
        repair(&dir, ReadOptions::default()).unwrap();
        all_are(&dir, file, directory);

        // A backup is its owner's, until that changes, and then as it was changed.
        let copy = temp.path().join("copy");
        let log = Log::open(&dir).unwrap();
        log.storage().backup(&copy).unwrap();
        all_are(&copy, 0o600, 0o700);
        for (path, mode) in modes(&copy) {
            let mode = mode | (mode & 0o500) >> 3;
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        log.append("more").unwrap().blocking_wait().unwrap();
        log.storage().backup(&copy).unwrap();
        all_are(&copy, 0o640, 0o750);
        assert_eq!(ReadOnlyLog::open(&copy).unwrap().durable(), Seq(61));
        log.close().unwrap();
    }
}

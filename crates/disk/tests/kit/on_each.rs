//! Runs one behaviour on the real disk and on the simulated one.
#![allow(dead_code, clippy::unwrap_used, clippy::print_stderr)]

use std::path::Path;

use esker_disk::sim::{SimDisk, SimOptions};
use esker_disk::{AlignedBuf, BLOCK_BYTES, Disk, StdDisk};

pub use crate::by_path::ByPath;

/// Runs `check` with an empty directory on each disk.
pub fn disk(check: impl Fn(&dyn Disk, &Path)) {
    let dir = tempfile::tempdir().unwrap();
    check(&StdDisk::new(), dir.path());
    let sim = SimDisk::with(SimOptions::new(1));
    sim.create_dir(Path::new("/dir")).unwrap();
    check(&sim, Path::new("/dir"));
}

/// Whole blocks of this byte, at an address that direct I/O accepts.
pub fn blocks(count: usize, byte: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::new(count * BLOCK_BYTES);
    buf.fill(byte);
    buf
}

/// Says on standard error what is not tested here, and why.
pub fn skip(disk: &dyn Disk, dir: &Path, what: &str) {
    eprintln!("SKIPPED: {what}: {:?} at {} cannot", disk.facts(dir).unwrap(), dir.display());
}

//! Dropping cached pages, so that the disk is measured and not the page cache, and reading segments
//! without a log.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use esker_disk::{AlignedBuf, Disk, OpenMode, StdDisk, read_full_at};
use rustix::fs::{Advice, fadvise};

use crate::machine::floor::{IN_FLIGHT, TRANSFER_BYTES};

/// Reads all segments of a directory in order, several chunks in flight, without decoding them.
/// Returns MB per second.
pub fn read_raw(dir: &Path, direct: bool) -> esker_disk::Result<f64> {
    let dir = StdDisk::new().open_dir(dir)?;
    let mut names = dir.list()?;
    names.retain(|name| Path::new(name).extension().is_some_and(|extension| extension == "seg"));
    names.sort();
    let mut chunks = Vec::new();
    for name in names {
        let file = dir.open(&name, OpenMode::read().direct(direct))?;
        let size = file.len()?;
        chunks.extend((0..size).step_by(TRANSFER_BYTES).map(|offset| (file.clone(), offset)));
    }
    let next = AtomicUsize::new(0);
    let begin = Instant::now();
    let worker = || {
        // On a huge page, into which the disk reads fastest.
        let mut memory = AlignedBuf::lazy_huge(2 << 20);
        let buffer = &mut memory[..TRANSFER_BYTES];
        let mut read = 0;
        while let Some((file, offset)) = chunks.get(next.fetch_add(1, Relaxed)) {
            read += read_full_at(&**file, buffer, *offset)?;
        }
        Ok(read)
    };
    let read: esker_disk::Result<usize> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..IN_FLIGHT).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or(Ok(0))).sum()
    });
    Ok(read? as f64 / begin.elapsed().as_secs_f64().max(1e-9) / 1e6)
}

/// Advises the system to drop the cached pages of every file in the directory. Returns whether it
/// accepted the advice for all of them.
pub fn drop_cached_pages(dir: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else { return false };
    entries.flatten().all(|entry| match File::open(entry.path()) {
        Ok(file) => fadvise(&file, 0, None, Advice::DontNeed).is_ok(),
        Err(_) => false,
    })
}

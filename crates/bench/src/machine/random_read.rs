//! Random reads of files without a log: the floor of reads that no cache serves.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use esker_disk::{AlignedBuf, BLOCK_BYTES, Disk, File, OpenMode, read_full_at};

use crate::records::payload::mix;

/// Reads `size` bytes, whole blocks, at random blocks of the segments of a directory. Each thread
/// has one read in flight. Returns the reads per second; 0 where there is nothing to read.
pub fn per_second(
    disk: &dyn Disk,
    dir: &Path,
    threads: u32,
    size: usize,
    time: Duration,
) -> esker_disk::Result<f64> {
    let size = size.next_multiple_of(BLOCK_BYTES);
    let files = segments(disk, dir)?;
    let places: u64 = files.iter().map(|(_, blocks)| blocks).sum();
    if places == 0 {
        return Ok(0.0);
    }
    let over = AtomicBool::new(false);
    let begin = Instant::now();
    let worker = |thread: u32| {
        let mut buffer = AlignedBuf::new(size);
        let mut reads = 0_u64;
        while !over.load(Relaxed) {
            let mut block = mix(u64::from(thread + 1) << 32 | reads) % places;
            let found = files.iter().find(|(_, blocks)| {
                let inside = block < *blocks;
                block -= if inside { 0 } else { *blocks };
                inside
            });
            if let Some((file, _)) = found {
                read_full_at(&**file, &mut buffer, block * BLOCK_BYTES as u64)?;
            }
            reads += 1;
        }
        Ok(reads)
    };
    let reads: esker_disk::Result<u64> = std::thread::scope(|scope| {
        let worker = &worker;
        let workers: Vec<_> = (0..threads).map(|n| scope.spawn(move || worker(n))).collect();
        std::thread::sleep(time);
        over.store(true, Relaxed);
        workers.into_iter().map(|worker| worker.join().unwrap_or(Ok(0))).sum()
    });
    Ok(reads? as f64 / begin.elapsed().as_secs_f64())
}

/// The segments, and their blocks. Without the newest one, part of which may never have been
/// written: a file system reads that without the device.
fn segments(disk: &dyn Disk, dir: &Path) -> esker_disk::Result<Vec<(Arc<dyn File>, u64)>> {
    let dir = disk.open_dir(dir)?;
    let direct = dir.facts()?.direct;
    let mut names = dir.list()?;
    names.retain(|name| Path::new(name).extension().is_some_and(|extension| extension == "seg"));
    names.sort();
    if names.len() > 1 {
        names.pop();
    }
    let open = |name: String| {
        let file = dir.open(&name, OpenMode::read().direct(direct))?;
        let blocks = file.len()? / BLOCK_BYTES as u64;
        Ok((file, blocks))
    };
    names.into_iter().map(open).collect()
}

//! The hardware floor: what the disk and memory of this machine reach without a log.
//!
//! A disk changes from minute to minute, so the floor is sampled before, during and after a timed
//! part, and medians are reported. One sample takes about 400 ms, in a debug build a third of that.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use esker_disk::{
    AlignedBuf, BLOCK_BYTES, Dir, Disk, File, OpenMode, StdDisk, read_full_at, write_all_at,
};

use crate::measure::floor_figures::FloorFigures;
use crate::measure::latency::Latencies;
use crate::records::payload::mix;
use esker_command::exit::{Failure, Outcome};
use esker_command::library_errors::with_causes;

/// A build whose figures say nothing of a machine, and whose tests look at flags and keys.
const IS_FOR_TESTS: bool = cfg!(debug_assertions);

/// The file for sequential transfers.
const SEQUENTIAL_FILE_BYTES: u64 = if IS_FOR_TESTS { 16 << 20 } else { 128 << 20 };
/// One sequential transfer.
pub const TRANSFER_BYTES: usize = 1 << 20;
/// Transfers in flight.
pub const IN_FLIGHT: usize = 3;
/// The file for small overwrites.
const OVERWRITE_FILE_BYTES: u64 = 4 << 20;
/// Bytes copied in memory: more than a cache holds.
const MEMCPY_BYTES: usize = if IS_FOR_TESTS { 4 << 20 } else { 32 << 20 };
/// The length of one part of a sample.
const SAMPLE_PART_TIME: Duration = Duration::from_millis(if IS_FOR_TESTS { 25 } else { 90 });
/// The warm-up before a sample.
const WARM_UP: Duration = Duration::from_millis(if IS_FOR_TESTS { 5 } else { 40 });
/// The fewest syncs of one part.
const SYNCS_MIN: u64 = if IS_FOR_TESTS { 3 } else { 8 };

/// The files to measure with, and the samples so far.
#[derive(Debug)]
pub struct Floor {
    dir: Arc<dyn Dir>,
    small: Arc<dyn File>,
    blocks: Arc<dyn File>,
    direct: bool,
    chunk: Arc<AlignedBuf>,
    samples: Vec<Sample>,
    syncs: Latencies,
    sync_time: Duration,
    next_block: u64,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    sync_us: f64,
    append_sync_us: f64,
    seq_mb: f64,
    read_mb: f64,
    memcpy_gb: f64,
}

impl Floor {
    /// Creates the files in `dir` and writes their blocks.
    pub fn prepare(dir: &Path) -> Outcome<Self> {
        Self::prepare_on(&StdDisk::new(), dir)
    }

    /// Creates the files on another disk.
    pub fn prepare_on(disk: &dyn Disk, dir: &Path) -> Outcome<Self> {
        Self::make(disk, dir).map_err(failure)
    }

    /// Returns the median latency of an overwrite with a sync in each sample, in order.
    pub fn sync_us(&self) -> Vec<f64> {
        self.samples.iter().map(|sample| sample.sync_us).collect()
    }

    /// Returns the latencies of all syncs so far, and their total time.
    pub fn syncs(&self) -> (&Latencies, Duration) {
        (&self.syncs, self.sync_time)
    }

    /// Returns whether it bypasses the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Forgets all samples.
    pub fn restart(&mut self) {
        self.samples.clear();
    }

    /// Measures everything once.
    pub fn sample(&mut self) -> Outcome {
        self.measure().map_err(failure)
    }

    fn make(disk: &dyn Disk, dir: &Path) -> esker_disk::Result<Self> {
        let dir = disk.create_dir(dir)?;
        let direct = dir.facts()?.direct;
        let mut chunk = AlignedBuf::new(TRANSFER_BYTES);
        for (index, word) in chunk.chunks_mut(8).enumerate() {
            word.copy_from_slice(&mix(index as u64).to_le_bytes());
        }
        let make = |name: &str, size: u64, how: OpenMode| {
            let file = dir.open(name, how)?;
            file.preallocate(0, size)?;
            for offset in (0..size).step_by(TRANSFER_BYTES) {
                write_all_at(&*file, &chunk, offset)?;
            }
            file.sync_data()?;
            Ok(file)
        };
        let small = make("small", OVERWRITE_FILE_BYTES, OpenMode::create())?;
        let blocks = make("blocks", SEQUENTIAL_FILE_BYTES, OpenMode::create().direct(direct))?;
        Ok(Self {
            dir: Arc::clone(&dir),
            small,
            blocks,
            direct,
            chunk: Arc::new(chunk),
            samples: Vec::new(),
            syncs: Latencies::new(),
            sync_time: Duration::ZERO,
            next_block: 0,
        })
    }

    fn measure(&mut self) -> esker_disk::Result<()> {
        // Earlier writes may still be in the device's queue; they are not part of the floor.
        self.overwrite_syncs(WARM_UP)?;
        let begin = Instant::now();
        let syncs = self.overwrite_syncs(SAMPLE_PART_TIME)?;
        self.sync_time += begin.elapsed();
        let append_syncs = self.append_syncs()?;
        let seq_mb = self.transfers(|file, offset, buffer| {
            write_all_at(file, buffer, offset).map(|()| buffer.len())
        })?;
        self.blocks.sync_data()?;
        let read_mb = self.transfers(|file, offset, buffer| read_full_at(file, buffer, offset))?;
        let sync_us = syncs.quantile_us(0.5);
        self.syncs.merge(&syncs);
        let append_sync_us = append_syncs.quantile_us(0.5);
        let memcpy_gb = memcpy();
        self.samples.push(Sample { sync_us, append_sync_us, seq_mb, read_mb, memcpy_gb });
        Ok(())
    }

    /// Overwrites written blocks in turn, each with a sync.
    fn overwrite_syncs(&mut self, time: Duration) -> esker_disk::Result<Latencies> {
        let (file, block) = (Arc::clone(&self.small), Arc::clone(&self.chunk));
        repeat_for(time, || {
            let offset =
                self.next_block % (OVERWRITE_FILE_BYTES / BLOCK_BYTES as u64) * BLOCK_BYTES as u64;
            self.next_block += 1;
            write_all_at(&*file, &block[..BLOCK_BYTES], offset)?;
            file.sync_data()
        })
    }

    /// Appends blocks to a new file, each with a sync.
    fn append_syncs(&self) -> esker_disk::Result<Latencies> {
        let file = self.dir.open("tail", OpenMode::create())?;
        let mut offset = 0;
        let latencies = repeat_for(SAMPLE_PART_TIME, || {
            write_all_at(&*file, &self.chunk[..BLOCK_BYTES], offset)?;
            offset += BLOCK_BYTES as u64;
            file.sync_data()
        })?;
        self.dir.unlink("tail")?;
        Ok(latencies)
    }

    /// Transfers the chunks of the large file in order, several in flight. Returns MB per second.
    fn transfers(
        &self,
        transfer: impl Fn(&dyn File, u64, &mut [u8]) -> esker_disk::Result<usize> + Sync,
    ) -> esker_disk::Result<f64> {
        let next = AtomicU64::new(0);
        let begin = Instant::now();
        let deadline = begin + SAMPLE_PART_TIME;
        let worker = || {
            // On a huge page, from which the device is fastest.
            let mut memory = AlignedBuf::lazy_huge(2 << 20);
            let buffer = &mut memory[..TRANSFER_BYTES];
            buffer.copy_from_slice(&self.chunk);
            let mut moved = 0;
            // A thread that a busy machine starts late transfers one, too: the floor is never 0.
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let offset =
                    index % (SEQUENTIAL_FILE_BYTES / TRANSFER_BYTES as u64) * TRANSFER_BYTES as u64;
                moved += transfer(&*self.blocks, offset, buffer)?;
                if Instant::now() >= deadline {
                    return Ok(moved as u64);
                }
            }
        };
        let moved: esker_disk::Result<u64> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..IN_FLIGHT).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap_or(Ok(0))).sum()
        });
        Ok(moved? as f64 / begin.elapsed().as_secs_f64() / 1e6)
    }

    /// Returns the medians of all samples so far.
    pub fn medians(&self) -> FloorFigures {
        let median = |of: fn(&Sample) -> f64| median(self.samples.iter().map(of).collect());
        FloorFigures {
            sync_p50_us: median(|s| s.sync_us),
            append_sync_p50_us: median(|s| s.append_sync_us),
            seq_mb_per_s: median(|s| s.seq_mb),
            read_mb_per_s: median(|s| s.read_mb),
            memcpy_gb_per_s: median(|s| s.memcpy_gb),
            samples: self.samples.len(),
            random_read_per_s: None,
            http_rps: None,
        }
    }
}

/// Repeats an operation for this time, and at least `SYNCS_MIN` times.
fn repeat_for(
    time: Duration,
    mut once: impl FnMut() -> esker_disk::Result<()>,
) -> esker_disk::Result<Latencies> {
    let mut latencies = Latencies::new();
    let deadline = Instant::now() + time;
    let mut last = Instant::now();
    while last < deadline || latencies.count() < SYNCS_MIN {
        once()?;
        let now = Instant::now();
        latencies.add(now - last);
        last = now;
    }
    Ok(latencies)
}

/// Copies memory that no cache holds. Returns GB per second, counting each byte once.
fn memcpy() -> f64 {
    let from = vec![1u8; MEMCPY_BYTES];
    let mut to = vec![2u8; MEMCPY_BYTES];
    let begin = Instant::now();
    let mut copies = 0;
    while copies < 2 || begin.elapsed() < SAMPLE_PART_TIME / 3 {
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&mut to);
        copies += 1;
    }
    round(f64::from(copies) * MEMCPY_BYTES as f64 / begin.elapsed().as_secs_f64() / 1e9)
}

/// Returns the median of figures, to two decimal places; 0 without any.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let value = match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    };
    round(value)
}

fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[allow(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn failure(error: esker_disk::Error) -> Failure {
    Failure::failed(format!("measure the floor: {}", with_causes(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), 0.0);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 2.5);
    }
}

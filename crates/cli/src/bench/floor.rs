//! What the bare disk and memory of this machine can do: the floor that every figure stands on.
//!
//! A machine's disk changes from minute to minute, so the floor is sampled before, during and after
//! what it is compared with, and the median counts. One sample takes some 400 ms.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use esker_disk::{AlignedBuf, BLOCK, Dir, Disk, File, Open, StdDisk, read_full_at, write_all_at};
use serde::Serialize;
use serde_json::json;

use super::figure::{Figure, Shape};
use super::latency::Latencies;
use super::payload::mix;
use super::place::Place;
use super::raw::{self, RawArguments};
use super::resources::{self, Mark, Used};
use crate::exit::{Failure, Outcome};
use crate::quantity;

/// The file for sequential transfers, and one transfer.
const BLOCKS: u64 = 128 << 20;
const CHUNK: usize = 1 << 20;
/// Transfers in flight.
const IN_FLIGHT: usize = 3;
/// The file for small overwrites.
const SMALL: u64 = 4 << 20;
/// What is copied in memory: more than a cache holds.
const COPIED: usize = 32 << 20;
/// How long one part of a sample may take, and how many syncs it has at least.
const PART: Duration = Duration::from_millis(90);
/// How long the disk settles before a sample.
const SETTLE: Duration = Duration::from_millis(40);
const SYNCS: u64 = 8;

const EXAMPLES: &str = "\
Examples:
  # The disk under the current directory
  esker bench floor

  # One writer and four readers of 2 MiB blocks, through io_uring with registered buffers
  esker bench floor --raw --readers 4 --buffer-size 2M --disk uring --register

  # The disk under /data, sampled for ten seconds, for a program
  esker bench floor --dir /data/floor --seconds 10 --json";

/// Arguments of `esker bench floor`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct FloorArguments {
    /// A directory on the disk to measure; made, and removed at the end
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// How long to sample
    #[arg(long, value_name = "N", default_value = "2", value_parser = quantity::seconds)]
    seconds: f64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    raw: RawArguments,
}

/// Measures the floor alone.
pub fn run(arguments: &FloorArguments) -> Outcome {
    if arguments.raw.raw {
        let dir = arguments.dir.as_deref();
        return raw::run(&arguments.raw, dir, arguments.seconds, arguments.json);
    }
    let place = Place::make(arguments.dir.as_deref(), false)?;
    let mut floor = Floor::prepare(&place.floor())?;
    let (begin, mark) = (Instant::now(), Mark::now());
    floor.sample()?;
    while begin.elapsed().as_secs_f64() < arguments.seconds {
        floor.sample()?;
    }
    let used = Used { resident: resources::peak(), ..mark.used() };
    let told = floor.medians();
    let ops = floor.syncs.count();
    Figure {
        params: json!({
            "seconds": arguments.seconds,
            "samples": told.samples,
            "direct": floor.direct,
            "in_flight": IN_FLIGHT,
            "operation": "overwrite 4 KiB of written blocks + fdatasync",
        }),
        latencies: floor.syncs.clone(),
        floor: told,
        used,
        verified: false,
        ..Figure::of("floor", ops, ops * BLOCK as u64, floor.sync_time)
    }
    .print(arguments.json, Shape::Floor)
}

/// The medians of the samples.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct FloorFigures {
    pub sync_p50_us: f64,
    pub append_sync_p50_us: f64,
    pub seq_mb_per_s: f64,
    pub read_mb_per_s: f64,
    pub memcpy_gb_per_s: f64,
    pub samples: usize,
}

/// The files to measure with, and what was measured so far.
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
    /// Makes the files in `dir` and writes their blocks.
    pub fn prepare(dir: &Path) -> Outcome<Self> {
        Self::make(dir).map_err(failure)
    }

    /// Measures everything once.
    pub fn sample(&mut self) -> Outcome {
        self.measure().map_err(failure)
    }

    fn make(dir: &Path) -> esker_disk::Result<Self> {
        let dir = StdDisk::new().create_dir(dir)?;
        let direct = dir.facts()?.direct;
        let mut chunk = AlignedBuf::new(CHUNK);
        for (index, word) in chunk.chunks_mut(8).enumerate() {
            word.copy_from_slice(&mix(index as u64).to_le_bytes());
        }
        let make = |name: &str, size: u64, how: Open| {
            let file = dir.open(name, how)?;
            file.preallocate(0, size)?;
            for offset in (0..size).step_by(CHUNK) {
                write_all_at(&*file, &chunk, offset)?;
            }
            file.sync_data()?;
            Ok(file)
        };
        let small = make("small", SMALL, Open::create())?;
        let blocks = make("blocks", BLOCKS, Open::create().direct(direct))?;
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
        // What was written before may still be on its way: that is no part of the floor.
        self.overwrite_syncs(SETTLE)?;
        let begin = Instant::now();
        let syncs = self.overwrite_syncs(PART)?;
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
        for_a_while(time, || {
            let offset = self.next_block % (SMALL / BLOCK as u64) * BLOCK as u64;
            self.next_block += 1;
            write_all_at(&*file, &block[..BLOCK], offset)?;
            file.sync_data()
        })
    }

    /// Appends blocks to a new file, each with a sync.
    fn append_syncs(&self) -> esker_disk::Result<Latencies> {
        let file = self.dir.open("tail", Open::create())?;
        let mut offset = 0;
        let latencies = for_a_while(PART, || {
            write_all_at(&*file, &self.chunk[..BLOCK], offset)?;
            offset += BLOCK as u64;
            file.sync_data()
        })?;
        self.dir.unlink("tail")?;
        Ok(latencies)
    }

    /// Moves the chunks of the large file in order, several in flight; MB per second.
    fn transfers(
        &self,
        move_one: impl Fn(&dyn File, u64, &mut [u8]) -> esker_disk::Result<usize> + Sync,
    ) -> esker_disk::Result<f64> {
        let next = AtomicU64::new(0);
        let begin = Instant::now();
        let deadline = begin + PART;
        let worker = || {
            let mut buffer = AlignedBuf::new(CHUNK);
            buffer.copy_from_slice(&self.chunk);
            let mut moved = 0;
            while Instant::now() < deadline {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let offset = index % (BLOCKS / CHUNK as u64) * CHUNK as u64;
                moved += move_one(&*self.blocks, offset, &mut buffer)?;
            }
            Ok(moved as u64)
        };
        let moved: esker_disk::Result<u64> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..IN_FLIGHT).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap_or(Ok(0))).sum()
        });
        Ok(moved? as f64 / begin.elapsed().as_secs_f64() / 1e6)
    }

    /// The medians of all samples so far.
    pub fn medians(&self) -> FloorFigures {
        let median = |of: fn(&Sample) -> f64| median(self.samples.iter().map(of).collect());
        FloorFigures {
            sync_p50_us: median(|s| s.sync_us),
            append_sync_p50_us: median(|s| s.append_sync_us),
            seq_mb_per_s: median(|s| s.seq_mb),
            read_mb_per_s: median(|s| s.read_mb),
            memcpy_gb_per_s: median(|s| s.memcpy_gb),
            samples: self.samples.len(),
        }
    }
}

/// Repeats an operation for one part of a sample.
fn for_a_while(
    time: Duration,
    mut once: impl FnMut() -> esker_disk::Result<()>,
) -> esker_disk::Result<Latencies> {
    let mut latencies = Latencies::new();
    let deadline = Instant::now() + time;
    let mut last = Instant::now();
    while last < deadline || latencies.count() < SYNCS {
        once()?;
        let now = Instant::now();
        latencies.add(now - last);
        last = now;
    }
    Ok(latencies)
}

/// Copies memory that no cache holds; GB per second, counting each byte once.
fn memcpy() -> f64 {
    let from = vec![1u8; COPIED];
    let mut to = vec![2u8; COPIED];
    let begin = Instant::now();
    let mut copies = 0;
    while copies < 2 || begin.elapsed() < PART / 3 {
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&mut to);
        copies += 1;
    }
    round(f64::from(copies) * COPIED as f64 / begin.elapsed().as_secs_f64() / 1e9)
}

fn median(mut values: Vec<f64>) -> f64 {
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
    Failure::failed(format!("measure the floor: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_few() {
        assert_eq!(median(vec![]), 0.0);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 2.5);
    }
}

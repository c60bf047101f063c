//! Raw I/O without a log: one sequential writer and readers at random offsets of one file, each
//! with one transfer in flight.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use esker_disk::{
    AlignedBuf, BLOCK_BYTES, Disk, File, HugePages, Op, OpenMode, StdDisk, read_full_at,
    write_all_at,
};
use serde_json::json;

use crate::machine::floor::Floor;
use crate::measure::figure::{Figure, Shape};
use crate::measure::latency::Latencies;
use crate::measure::resources::{self, ResourceUse, Snapshot};
use crate::records::payload::mix;
use crate::workdir::Workdir;
use esker_command::choices::{Choice, DiskChoice};
use esker_command::exit::{Failure, Outcome};
use esker_command::library_errors::with_causes;
use esker_command::quantity;

/// The name of the file.
const FILE: &str = "raw";

/// The flags of `esker bench floor --raw`, in addition to those of `floor`.
#[derive(Debug, Clone, Args)]
pub struct RawArguments {
    /// Measure raw reads and writes of one file instead of the floor
    #[arg(long)]
    pub raw: bool,
    /// With --raw: threads that read at random offsets
    #[arg(long, requires = "raw", value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(0..=256))]
    readers: u32,
    /// With --raw: no writer
    #[arg(long, requires = "raw")]
    no_writer: bool,
    /// With --raw: bytes of one transfer
    #[arg(long, requires = "raw", value_name = "BYTES", default_value = "2M", value_parser = quantity::small_bytes)]
    buffer_size: u32,
    /// With --raw: bytes of the file
    #[arg(long, requires = "raw", value_name = "BYTES", default_value = "1G", value_parser = quantity::bytes)]
    file_size: u64,
    /// With --raw: the disk
    #[arg(long, requires = "raw", value_enum, default_value_t, value_name = "std|uring|auto")]
    disk: DiskChoice,
    /// With --raw: bypass the page cache (O_DIRECT)
    #[arg(long, alias = "direct-io", requires = "raw", value_enum, num_args = 0..=1, default_value_t, default_missing_value = "on", value_name = "on|off|auto")]
    direct: Choice,
    /// With --raw: open the file with O_DSYNC, so that each write is durable when it returns
    #[arg(long, requires = "raw")]
    dsync: bool,
    /// With --raw and --disk uring: register buffers and file with the kernel
    #[arg(long, aliases = ["register-file", "register-buf"], requires = "raw")]
    register: bool,
    /// With --raw: buffers on huge pages; --buffer-size is then a multiple of their size, usually
    /// 2M
    #[arg(long, requires = "raw")]
    huge_pages: bool,
}

/// The transfers of one thread.
trait Transfers: Send {
    fn read(&mut self, offset: u64) -> esker_disk::Result<()>;
    fn write(&mut self, offset: u64) -> esker_disk::Result<()>;
}

/// Transfers through [`File`].
struct Plain {
    file: Arc<dyn File>,
    buffer: AlignedBuf,
}

impl Transfers for Plain {
    fn read(&mut self, offset: u64) -> esker_disk::Result<()> {
        read_full_at(&*self.file, &mut self.buffer, offset).map(drop)
    }

    fn write(&mut self, offset: u64) -> esker_disk::Result<()> {
        write_all_at(&*self.file, &self.buffer, offset)
    }
}

/// Transfers through a ring with a registered file and buffer.
#[cfg(target_os = "linux")]
impl Transfers for esker_disk::uring::Registered {
    fn read(&mut self, offset: u64) -> esker_disk::Result<()> {
        self.read_at(0, offset).map(drop)
    }

    fn write(&mut self, offset: u64) -> esker_disk::Result<()> {
        self.write_at(0, offset).map(drop)
    }
}

/// Measures, and prints a line for the writer and one for the readers together.
pub fn run(arguments: &RawArguments, dir: Option<&Path>, seconds: f64, json: bool) -> Outcome {
    if arguments.register && arguments.disk != DiskChoice::Uring {
        return Err(Failure::usage("--register needs --disk uring"));
    }
    if arguments.no_writer && arguments.readers == 0 {
        return Err(Failure::usage("--no-writer with --readers 0 leaves nothing to measure"));
    }
    let workdir = Workdir::make(dir, false)?;
    let dir = workdir.floor();
    let huge = arguments.huge_pages.then(|| {
        let threads = arguments.readers + u32::from(!arguments.no_writer);
        HugePages::reserve(arguments.buffer_size as usize, threads.max(1) as usize)
    });
    let huge = huge.transpose().map_err(|why| match why.kind() {
        std::io::ErrorKind::InvalidInput => Failure::usage(format!("{why} (--buffer-size)")),
        _ => Failure::failed(why.to_string()),
    })?;
    let mut floor = Floor::prepare(&dir)?;
    let raw = Raw::prepare(arguments, &dir, huge).map_err(failure)?;
    floor.sample()?;
    let time = Duration::from_secs_f64(seconds);
    let (begin, snapshot) = (Instant::now(), Snapshot::now());
    let (wrote, read) = raw.run(time).map_err(failure)?;
    let took = begin.elapsed();
    let used = ResourceUse { resident: resources::peak(), ..snapshot.used() };
    floor.sample()?;
    let params = json!({
        "readers": arguments.readers,
        "writers": u32::from(!arguments.no_writer),
        "buffer_size": raw.len,
        "file_size": raw.count * raw.len,
        "disk": if arguments.disk == DiskChoice::Uring { "uring" } else { "std" },
        "direct": raw.how.direct,
        "dsync": raw.how.dsync,
        "registered": arguments.register,
        "huge_pages": arguments.huge_pages,
        "seconds": seconds,
    });
    for (bench, latencies) in [("floor/raw-write", wrote), ("floor/raw-read", read)] {
        let Some(latencies) = latencies else { continue };
        let ops = latencies.count();
        Figure {
            params: params.clone(),
            latencies,
            used,
            floor: floor.medians(),
            ..Figure::new(bench, ops, ops * raw.len, took)
        }
        .print(json, Shape::Rate)?;
    }
    Ok(())
}

/// A file whose blocks are all written, and how it is opened.
struct Raw<'a> {
    arguments: &'a RawArguments,
    dir: PathBuf,
    how: OpenMode,
    huge: Option<HugePages>,
    /// The bytes of a transfer, and the number of transfers that cover the file.
    len: u64,
    count: u64,
}

impl<'a> Raw<'a> {
    fn prepare(
        arguments: &'a RawArguments,
        dir: &Path,
        huge: Option<HugePages>,
    ) -> esker_disk::Result<Self> {
        let supported = StdDisk::new().open_dir(dir)?.facts()?.direct;
        let direct = match arguments.direct {
            Choice::On => true,
            Choice::Off => false,
            Choice::Auto => supported,
        };
        let len = u64::from(arguments.buffer_size).next_multiple_of(BLOCK_BYTES as u64);
        let raw = Self {
            arguments,
            dir: dir.into(),
            how: OpenMode::create().direct(direct).dsync(arguments.dsync),
            huge,
            len,
            count: (arguments.file_size / len).max(1),
        };
        let mut first = raw.transfers()?;
        for index in 0..raw.count {
            first.write(index * len)?;
        }
        Ok(raw)
    }

    /// Opens the file for one thread.
    fn transfers(&self) -> esker_disk::Result<Box<dyn Transfers>> {
        let huge = self.huge.as_ref().and_then(HugePages::lend);
        let mut buffer = huge.unwrap_or_else(|| AlignedBuf::new(self.len as usize));
        for (index, word) in buffer.chunks_mut(8).enumerate() {
            word.copy_from_slice(&mix(index as u64).to_le_bytes());
        }
        #[cfg(target_os = "linux")]
        if self.arguments.disk == DiskChoice::Uring {
            use esker_disk::uring::{Registered, UringDisk, UringOptions};
            if self.arguments.register {
                return Ok(Box::new(Registered::open(&self.dir, FILE, self.how, vec![buffer])?));
            }
            let disk = UringDisk::new(UringOptions::default())
                .map_err(|why| esker_disk::Error::new(Op::Open, &self.dir, None, why))?;
            let file = disk.open_dir(&self.dir)?.open(FILE, self.how)?;
            return Ok(Box::new(Plain { file, buffer }));
        }
        let file = StdDisk::new().open_dir(&self.dir)?.open(FILE, self.how)?;
        Ok(Box::new(Plain { file, buffer }))
    }

    /// Returns the latencies of the writer and of all readers, where there are any.
    fn run(&self, time: Duration) -> esker_disk::Result<(Option<Latencies>, Option<Latencies>)> {
        let over = AtomicBool::new(false);
        let mut writer = (!self.arguments.no_writer).then(|| self.transfers()).transpose()?;
        let mut readers = Vec::new();
        for _ in 0..self.arguments.readers {
            readers.push(self.transfers()?);
        }
        std::thread::scope(|scope| {
            let over = &over;
            let write = writer.as_mut().map(|file| {
                scope.spawn(move || repeat(over, |n| file.write(n % self.count * self.len)))
            });
            let reads: Vec<_> = (1_u64..)
                .zip(&mut readers)
                .map(|(reader, file)| {
                    let offset = move |n| mix(reader << 32 | n) % self.count * self.len;
                    scope.spawn(move || repeat(over, |n| file.read(offset(n))))
                })
                .collect();
            std::thread::sleep(time);
            over.store(true, Ordering::Relaxed);
            let wrote = write.map(joined).transpose()?;
            let mut read = (!reads.is_empty()).then(Latencies::new);
            for thread in reads {
                let latencies = joined(thread)?;
                if let Some(read) = &mut read {
                    read.merge(&latencies);
                }
            }
            Ok((wrote, read))
        })
    }
}

/// Repeats a transfer until `over` is set, and times each.
fn repeat(
    over: &AtomicBool,
    mut once: impl FnMut(u64) -> esker_disk::Result<()>,
) -> esker_disk::Result<Latencies> {
    let mut latencies = Latencies::new();
    let mut last = Instant::now();
    for n in 0.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        once(n)?;
        let now = Instant::now();
        latencies.add(now - last);
        last = now;
    }
    Ok(latencies)
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[allow(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn failure(error: esker_disk::Error) -> Failure {
    Failure::failed(with_causes(&error))
}

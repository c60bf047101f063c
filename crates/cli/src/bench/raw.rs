//! Raw I/O without a log: one writer that goes through a file from front to back, and readers that read
//! at random places of it, each with one transfer in flight.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use esker_disk::{AlignedBuf, Disk, File, Open, StdDisk, read_full_at, write_all_at};
use serde_json::json;

use super::figure::{Figure, Shape};
use super::floor::Floor;
use super::latency::Latencies;
use super::payload::mix;
use super::place::Place;
use super::resources::{self, Mark, Used};
use crate::arguments::{Choice, DiskChoice};
use crate::exit::{Failure, Outcome};
use crate::quantity;

/// What `esker bench floor --raw` takes beside the flags of `floor`.
#[derive(Debug, Clone, Args)]
pub struct RawArguments {
    /// Measure raw reads and writes of one file instead of the floor
    #[arg(long)]
    pub raw: bool,
    /// With --raw: threads that read at random places
    #[arg(long, requires = "raw", value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(0..=256))]
    readers: u32,
    /// With --raw: nobody writes
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
    /// With --raw: past the page cache
    #[arg(long, requires = "raw", value_enum, default_value_t, value_name = "on|off|auto")]
    direct: Choice,
    /// With --raw: each write is durable when it returns
    #[arg(long, requires = "raw")]
    dsync: bool,
    /// With --raw and --disk uring: buffers and file are registered with the kernel
    #[arg(long, requires = "raw")]
    register: bool,
}

/// One thread's transfers.
trait Transfers: Send {
    fn read(&mut self, offset: u64) -> std::io::Result<()>;
    fn write(&mut self, offset: u64) -> std::io::Result<()>;
}

/// Through [`File`].
struct Plain {
    file: std::sync::Arc<dyn File>,
    buffer: AlignedBuf,
}

impl Transfers for Plain {
    fn read(&mut self, offset: u64) -> std::io::Result<()> {
        read_full_at(&*self.file, &mut self.buffer, offset).map_err(std::io::Error::other)?;
        Ok(())
    }

    fn write(&mut self, offset: u64) -> std::io::Result<()> {
        write_all_at(&*self.file, &self.buffer, offset).map_err(std::io::Error::other)
    }
}

/// Through a ring of its own, with what is registered there.
#[cfg(target_os = "linux")]
struct Registered {
    ring: esker_disk::uring::Ring,
    _file: std::fs::File,
    len: usize,
}

#[cfg(target_os = "linux")]
impl Registered {
    fn whole(&self, moved: usize) -> std::io::Result<()> {
        if moved == self.len { Ok(()) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
    }
}

#[cfg(target_os = "linux")]
impl Transfers for Registered {
    fn read(&mut self, offset: u64) -> std::io::Result<()> {
        let moved = self.ring.read_registered(0, offset)?;
        self.whole(moved)
    }

    fn write(&mut self, offset: u64) -> std::io::Result<()> {
        let moved = self.ring.write_registered(0, offset)?;
        self.whole(moved)
    }
}

impl RawArguments {
    fn how(&self, direct: bool) -> Open {
        Open::create().direct(direct).dsync(self.dsync)
    }

    /// The transfers of one thread.
    fn transfers(&self, path: &std::path::Path, direct: bool) -> Outcome<Box<dyn Transfers>> {
        let of_io = |what: &'static str| move |error| Failure::of_io(what, &error);
        let mut buffer = AlignedBuf::new(self.buffer_size as usize);
        for (index, word) in buffer.chunks_mut(8).enumerate() {
            word.copy_from_slice(&mix(index as u64).to_le_bytes());
        }
        #[cfg(target_os = "linux")]
        if self.disk == DiskChoice::Uring {
            use esker_disk::uring::{Ring, UringDisk, UringOptions};
            if self.register {
                use std::os::fd::AsFd;
                use std::os::unix::fs::OpenOptionsExt;
                let mut flags = rustix::fs::OFlags::empty();
                flags.set(rustix::fs::OFlags::DIRECT, direct);
                // rustix takes O_DSYNC for O_SYNC; the value is that of x86 and ARM.
                flags |= rustix::fs::OFlags::from_bits_retain(if self.dsync { 0o10000 } else { 0 });
                let file = std::fs::File::options()
                    .read(true)
                    .write(true)
                    .custom_flags(flags.bits().cast_signed())
                    .open(path)
                    .map_err(of_io("open the file"))?;
                let mut ring = Ring::new(1).map_err(of_io("make a ring"))?;
                let len = buffer.len();
                ring.register(file.as_fd(), vec![buffer]).map_err(of_io(
                    "register a buffer (the limit on locked memory, `ulimit -l`, may be too low)",
                ))?;
                return Ok(Box::new(Registered { ring, _file: file, len }));
            }
            let disk = UringDisk::new(UringOptions::default()).map_err(of_io("use io_uring"))?;
            let file = disk.open(path, self.how(direct));
            let file = file.map_err(|error| Failure::failed(error.to_string()))?;
            return Ok(Box::new(Plain { file, buffer }));
        }
        let file = StdDisk::new().open(path, self.how(direct));
        let file = file.map_err(|error| Failure::failed(error.to_string()))?;
        Ok(Box::new(Plain { file, buffer }))
    }
}

/// Measures, and prints a line for the writer and one for the readers together.
pub fn run(arguments: &RawArguments, dir: Option<PathBuf>, seconds: f64, json: bool) -> Outcome {
    if arguments.register && arguments.disk != DiskChoice::Uring {
        return Err(Failure::usage("--register is for --disk uring"));
    }
    let place = Place::make(dir.as_deref(), false)?;
    let dir = place.floor();
    let failed = |error: esker_disk::Error| Failure::failed(error.to_string());
    StdDisk::new().create_dir(&dir).map_err(failed)?;
    let able = StdDisk::new().facts(&dir).map_err(failed)?.direct;
    let direct = arguments.direct == Choice::On || (arguments.direct == Choice::Auto && able);
    let path = dir.join("raw");
    let len = u64::from(arguments.buffer_size).next_multiple_of(4096);
    let count = (arguments.file_size / len).max(1);

    // Every block is written before anything is measured.
    StdDisk::new().open(&path, Open::create()).map_err(failed)?;
    let mut first = arguments.transfers(&path, direct)?;
    for index in 0..count {
        first.write(index * len).map_err(|error| Failure::of_io("write the file", &error))?;
    }
    drop(first);
    let params = json!({
        "readers": arguments.readers,
        "writers": u32::from(!arguments.no_writer),
        "buffer_size": len,
        "file_size": count * len,
        "disk": if arguments.disk == DiskChoice::Uring { "uring" } else { "std" },
        "direct": direct,
        "dsync": arguments.dsync,
        "registered": arguments.register,
        "seconds": seconds,
    });
    let mut floor = Floor::prepare(&dir)?;
    floor.sample()?;
    let over = AtomicBool::new(false);
    let time = Duration::from_secs_f64(seconds.clamp(0.01, 86_400.0));
    let (begin, mark) = (Instant::now(), Mark::now());
    let (wrote, read) = std::thread::scope(|scope| -> Outcome<_> {
        let mut threads = Vec::new();
        for thread in 0..=arguments.readers {
            let writes = thread == 0;
            if writes && arguments.no_writer {
                continue;
            }
            let mut transfers = arguments.transfers(&path, direct)?;
            let over = &over;
            threads.push((
                writes,
                scope.spawn(move || -> std::io::Result<Latencies> {
                    let mut latencies = Latencies::new();
                    let mut last = Instant::now();
                    for index in 0_u64.. {
                        if over.load(Ordering::Relaxed) {
                            break;
                        }
                        if writes {
                            transfers.write(index % count * len)?;
                        } else {
                            let place = mix(u64::from(thread) << 32 | index) % count;
                            transfers.read(place * len)?;
                        }
                        let now = Instant::now();
                        latencies.add(now - last);
                        last = now;
                    }
                    Ok(latencies)
                }),
            ));
        }
        std::thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        let (mut wrote, mut read) = (Latencies::new(), Latencies::new());
        for (writes, thread) in threads {
            match thread.join() {
                Ok(Ok(latencies)) if writes => wrote.merge(&latencies),
                Ok(Ok(latencies)) => read.merge(&latencies),
                Ok(Err(error)) => return Err(Failure::of_io("move bytes", &error)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok((wrote, read))
    })?;
    let took = begin.elapsed();
    let used = Used { resident: resources::peak(), ..mark.used() };
    floor.sample()?;
    let told = [
        ("floor/raw-write", wrote, !arguments.no_writer),
        ("floor/raw-read", read, arguments.readers > 0),
    ];
    for (bench, latencies, _) in told.into_iter().filter(|(.., there)| *there) {
        let ops = latencies.count();
        Figure {
            params: params.clone(),
            latencies,
            used,
            floor: floor.medians(),
            verified: false,
            ..Figure::of(bench, ops, ops * len, took)
        }
        .print(json, Shape::Rate)?;
    }
    Ok(())
}

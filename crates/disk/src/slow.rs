//! A disk that takes the time of a slower one.
//!
//! Every call is forwarded to another disk, and returns when the emulated device would have
//! finished it, or later where the other disk was slower than that.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::dir::Dir;
use crate::disk::Disk;
use crate::error::Result;
use crate::file::{Facts, File, Lock, OpenMode};
use crate::io::{Read, read_each};

/// The times of an emulated device.
///
/// | call | takes |
/// |---|---|
/// | direct read | `access`, unless it continues the last transfer, and the transfer |
/// | direct write | the transfer: the device's write cache takes it |
/// | write with [`OpenMode::dsync`] | `sync`, and the transfer |
/// | [`File::sync_data`] | `sync`, and the transfer of what was written through the page cache |
/// | [`Dir::sync`], a new directory | `sync` |
///
/// Buffered reads and writes and all other calls are not delayed: the page cache serves them.
/// Delays end on a timer of the system, which is late by some 50 microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Latency {
    /// The time to reach a block: a seek and half a rotation, or an access to flash.
    pub access: Duration,
    /// The time to make what the device's write cache holds durable.
    pub sync: Duration,
    /// Bytes per second of a transfer.
    pub bytes_per_s: u64,
    /// Whether the device does one thing at a time, as one arm does. Otherwise only transfers wait
    /// for one another.
    pub one_at_a_time: bool,
}

impl Latency {
    /// No delay: for a device that can [stall](SlowDisk::stall).
    pub const NONE: Self = Self {
        access: Duration::ZERO,
        sync: Duration::ZERO,
        bytes_per_s: u64::MAX,
        one_at_a_time: false,
    };

    /// A hard disk of 7,200 rotations a minute: 8 ms to reach a block and for a sync, 150 MB/s, one
    /// thing at a time.
    pub const HDD: Self = Self {
        access: Duration::from_millis(8),
        sync: Duration::from_millis(8),
        bytes_per_s: 150_000_000,
        one_at_a_time: true,
    };

    /// An SSD behind SATA, without a battery: 100 microseconds to reach a block, 700 for a sync,
    /// 500 MB/s, with command queueing.
    pub const SATA_SSD: Self = Self {
        access: Duration::from_micros(100),
        sync: Duration::from_micros(700),
        bytes_per_s: 500_000_000,
        one_at_a_time: false,
    };

    fn transfer(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.bytes_per_s.max(1) as f64)
    }
}

/// A disk that takes at least the time of the emulated device.
///
/// All directories and files that are opened through it, or through a clone of it, share the
/// device.
#[derive(Debug, Clone)]
pub struct SlowDisk {
    disk: Arc<dyn Disk>,
    device: Arc<Device>,
}

#[derive(Debug)]
struct Device {
    latency: Latency,
    state: Mutex<State>,
    next_file: AtomicU64,
    stalled: Mutex<bool>,
    resumed: Condvar,
}

#[derive(Debug)]
struct State {
    free_at: Instant,
    /// The end of the last transfer: file and offset.
    head: (u64, u64),
}

#[derive(Debug)]
struct SlowDir {
    dir: Arc<dyn Dir>,
    device: Arc<Device>,
}

#[derive(Debug)]
struct SlowFile {
    file: Arc<dyn File>,
    how: OpenMode,
    device: Arc<Device>,
    id: u64,
    /// Bytes written through the page cache since the last sync.
    cached: AtomicU64,
}

impl SlowDisk {
    /// Emulates a device in front of `disk`.
    pub fn new(disk: Arc<dyn Disk>, latency: Latency) -> Self {
        let state = State { free_at: Instant::now(), head: (0, 0) };
        let device = Device {
            latency,
            state: Mutex::new(state),
            next_file: AtomicU64::new(1),
            stalled: Mutex::new(false),
            resumed: Condvar::new(),
        };
        Self { disk, device: Arc::new(device) }
    }

    /// Stalls the device, or ends its stall: until then no operation returns that the emulated
    /// device would take time for. What they did may be durable.
    pub fn stall(&self, stalled: bool) {
        *self.device.stalled.lock().unwrap_or_else(PoisonError::into_inner) = stalled;
        self.device.resumed.notify_all();
    }

    fn dir(&self, dir: Arc<dyn Dir>) -> Arc<dyn Dir> {
        Arc::new(SlowDir { dir, device: Arc::clone(&self.device) })
    }
}

impl Device {
    /// Reserves the device and returns when the operation ends.
    fn begin(&self, latency: Duration, bytes: u64) -> Instant {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let start = state.free_at.max(Instant::now());
        let transfer = self.latency.transfer(bytes);
        let end = start + latency + transfer;
        state.free_at = if self.latency.one_at_a_time { end } else { start + transfer };
        end
    }

    /// Moves to a place and returns the time that it takes.
    fn reach(&self, file: u64, offset: u64, len: u64) -> Duration {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let continues = state.head == (file, offset);
        state.head = (file, offset + len);
        if continues { Duration::ZERO } else { self.latency.access }
    }

    /// Runs an operation that takes at least this time on the device.
    fn run<T>(&self, latency: Duration, bytes: u64, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let end = self.begin(latency, bytes);
        let outcome = run();
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        let stalled = self.stalled.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.resumed.wait_while(stalled, |stalled| *stalled));
        outcome
    }

    fn sync<T>(&self, run: impl FnOnce() -> Result<T>) -> Result<T> {
        self.run(self.latency.sync, 0, run)
    }
}

impl Disk for SlowDisk {
    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Dir>> {
        Ok(self.dir(self.disk.open_dir(path)?))
    }

    fn create_dir(&self, path: &Path) -> Result<Arc<dyn Dir>> {
        Ok(self.dir(self.device.sync(|| self.disk.create_dir(path))?))
    }
}

impl SlowDir {
    fn below(&self, dir: Arc<dyn Dir>) -> Arc<dyn Dir> {
        Arc::new(Self { dir, device: Arc::clone(&self.device) })
    }
}

impl Dir for SlowDir {
    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn open(&self, name: &str, how: OpenMode) -> Result<Arc<dyn File>> {
        let file = self.dir.open(name, how)?;
        let device = Arc::clone(&self.device);
        let id = device.next_file.fetch_add(1, Relaxed);
        Ok(Arc::new(SlowFile { file, how, device, id, cached: AtomicU64::new(0) }))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.dir.rename(from, to)
    }

    fn exchange(&self, a: &str, b: &str) -> Result<()> {
        self.dir.exchange(a, b)
    }

    fn unlink(&self, name: &str) -> Result<()> {
        self.dir.unlink(name)
    }

    fn remove_dir(&self, name: &str) -> Result<()> {
        self.dir.remove_dir(name)
    }

    fn sync(&self) -> Result<()> {
        self.device.sync(|| self.dir.sync())
    }

    fn list(&self) -> Result<Vec<String>> {
        self.dir.list()
    }

    fn open_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(self.below(self.dir.open_dir(name)?))
    }

    fn create_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(self.below(self.device.sync(|| self.dir.create_dir(name))?))
    }

    fn readable_as(&self, name: &str) -> Result<()> {
        self.dir.readable_as(name)
    }

    fn lock(&self) -> Result<Box<dyn Lock>> {
        self.dir.lock()
    }

    fn read_each(&self, reads: &mut [Read<'_>]) -> Vec<Result<usize>> {
        read_each(reads)
    }

    fn facts(&self) -> Result<Facts> {
        self.dir.facts()
    }
}

impl File for SlowFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        if !self.how.direct {
            return self.file.read_at(buf, offset);
        }
        let len = buf.len() as u64;
        let reach = self.device.reach(self.id, offset, len);
        self.device.run(reach, len, || self.file.read_at(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        let len = buf.len() as u64;
        let write = || self.file.write_at(buf, offset);
        if !self.how.direct && !self.how.dsync {
            self.cached.fetch_add(len, Relaxed);
            return write();
        }
        self.device.reach(self.id, offset, len);
        let sync = if self.how.dsync { self.device.latency.sync } else { Duration::ZERO };
        self.device.run(sync, len, write)
    }

    fn sync_data(&self) -> Result<()> {
        let cached = self.cached.swap(0, Relaxed);
        self.device.run(self.device.latency.sync, cached, || self.file.sync_data())
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len)
    }

    fn preallocate(&self, offset: u64, len: u64) -> Result<()> {
        self.file.preallocate(offset, len)
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }
}

#[cfg(test)]
mod tests {
    use crate::StdDisk;

    use super::*;

    const SLOW: Latency = Latency {
        access: Duration::from_millis(5),
        sync: Duration::from_millis(20),
        bytes_per_s: 1_000_000,
        one_at_a_time: true,
    };

    #[track_caller]
    fn takes(least: u64, run: impl FnOnce()) {
        let begin = Instant::now();
        run();
        let took = begin.elapsed();
        assert!(took >= Duration::from_millis(least), "{took:?} is less than {least} ms");
    }

    #[test]
    fn a_sync_takes_the_time_of_the_emulated_device() {
        let dir = tempfile::tempdir().unwrap();
        let disk = SlowDisk::new(Arc::new(StdDisk::new()), SLOW);
        let dir = disk.open_dir(dir.path()).unwrap();
        let file = dir.open("buffered", OpenMode::create()).unwrap();
        assert_eq!(file.write_at(&[1; 30_000], 0).unwrap(), 30_000);
        // 20 ms, and 30,000 bytes at a megabyte a second.
        takes(50, || file.sync_data().unwrap());
        takes(20, || file.sync_data().unwrap());
        takes(20, || dir.sync().unwrap());
        let durable = dir.open("durable", OpenMode::create().dsync(true)).unwrap();
        takes(30, || assert_eq!(durable.write_at(&[1; 10_000], 0).unwrap(), 10_000));
        let mut bytes = [0; 30_000];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 30_000);
        assert!(bytes.iter().all(|byte| *byte == 1));
    }

    #[test]
    fn an_arm_serves_one_caller_at_a_time_and_a_queue_all_of_them() {
        for (one_at_a_time, last) in [(true, 4), (false, 1)] {
            let latency = Latency { one_at_a_time, ..SLOW };
            let device = SlowDisk::new(Arc::new(StdDisk::new()), latency).device;
            let begin = Instant::now();
            let ends: Vec<_> = (0..4).map(|_| device.begin(SLOW.sync, 0)).collect();
            let slack = begin.elapsed();
            let took = ends[3] - begin;
            assert!(took >= SLOW.sync * last && took <= SLOW.sync * last + slack, "{took:?}");
        }
    }

    #[test]
    fn a_device_that_stalls_ends_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let disk =
            SlowDisk::new(Arc::new(StdDisk::new()), Latency { access: Duration::ZERO, ..SLOW });
        let dir = disk.open_dir(dir.path()).unwrap();
        disk.stall(true);
        let (ended, end) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || ended.send(dir.sync().is_ok()).unwrap());
            assert!(end.recv_timeout(SLOW.sync * 4).is_err());
            disk.stall(false);
            assert!(end.recv().unwrap());
        });
    }

    #[test]
    fn a_read_that_continues_the_last_transfer_needs_no_seek() {
        let latency = Latency { bytes_per_s: u64::MAX, ..SLOW };
        let device = SlowDisk::new(Arc::new(StdDisk::new()), latency).device;
        assert_eq!(device.reach(1, 0, 4096), latency.access);
        assert_eq!(device.reach(1, 4096, 4096), Duration::ZERO);
        assert_eq!(device.reach(2, 8192, 4096), latency.access);
        assert_eq!(device.reach(2, 0, 4096), latency.access);
    }
}

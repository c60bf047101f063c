//! How far a writer is, in a file: what it wrote there outlives it, without a sync.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Numbers of 8 bytes, little-endian: writes begun, accepted and durable; then the times at which
/// the last [`TIMES_KEPT`] writes were accepted, in nanoseconds of the monotonic clock.
#[derive(Debug)]
pub(crate) struct Progress {
    file: File,
}

const BEGUN_OFFSET: u64 = 0;
const ACCEPTED_OFFSET: u64 = 8;
const DURABLE_OFFSET: u64 = 16;
const FIRST_TIME: u64 = 24;
/// The times kept.
pub(crate) const TIMES_KEPT: u64 = 1 << 22;

impl Progress {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        Ok(Self { file })
    }

    /// Sets all three counts.
    pub(crate) fn start(&self, count: u64) -> io::Result<()> {
        [BEGUN_OFFSET, ACCEPTED_OFFSET, DURABLE_OFFSET]
            .into_iter()
            .try_for_each(|at| self.put(at, count))
    }

    pub(crate) fn begin(&self, n: u64) -> io::Result<()> {
        self.put(BEGUN_OFFSET, n + 1)
    }

    pub(crate) fn accept(&self, n: u64) -> io::Result<()> {
        self.put(FIRST_TIME + n % TIMES_KEPT * 8, now().as_nanos() as u64)?;
        self.put(ACCEPTED_OFFSET, n + 1)
    }

    pub(crate) fn set_durable(&self, count: u64) -> io::Result<()> {
        self.put(DURABLE_OFFSET, count)
    }

    pub(crate) fn begun(&self) -> io::Result<u64> {
        self.get(BEGUN_OFFSET)
    }

    pub(crate) fn accepted(&self) -> io::Result<u64> {
        self.get(ACCEPTED_OFFSET)
    }

    pub(crate) fn durable(&self) -> io::Result<u64> {
        self.get(DURABLE_OFFSET)
    }

    /// The time at which write `n` was accepted.
    pub(crate) fn accepted_at(&self, n: u64) -> io::Result<Duration> {
        self.get(FIRST_TIME + n % TIMES_KEPT * 8).map(Duration::from_nanos)
    }

    fn put(&self, at: u64, number: u64) -> io::Result<()> {
        self.file.write_all_at(&number.to_le_bytes(), at)
    }

    fn get(&self, at: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// The monotonic clock, which is the same in all processes.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

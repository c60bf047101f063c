//! The disk of this machine through io_uring (Linux).
//!
//! Reads, writes and syncs use rings; all other operations use [`StdDisk`]. A large transfer is
//! split into pieces that are in flight together, which one system call cannot do. Each ring is
//! used by one thread at a time, and there are at most [`RINGS_MAX`] of them. A call that finds no
//! free ring uses an ordinary system call, with the same result.
//!
//! io_uring may be missing (an old kernel), disabled (a sysctl), or forbidden (a seccomp filter),
//! and memory for a ring may be exhausted. [`UringDisk::new`] then returns an error.
//! [`UringDisk::or_std`] falls back to [`StdDisk`] and logs the reason. [`Dir::facts`] names the
//! implementation in use.

mod faults;
mod locked;
mod pool;
mod registered;
mod ring;
mod uring_file;

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::dir::Dir;
use crate::disk::Disk;
use crate::error::Result;
use crate::file::{Facts, File, Lock, OpenMode};
use crate::io::{Read, read_each};
use crate::process;
use crate::std_disk::{Readers, StdDir, StdDisk};

use faults::Faults;
#[cfg(feature = "sim")]
pub use faults::{RingFaults, Strike};
use pool::Pool;
pub use registered::Registered;
use ring::Ring;
use uring_file::UringFile;

/// The maximum number of rings of one disk.
pub const RINGS_MAX: usize = 16;

/// The maximum number of pieces of one transfer in flight.
pub const PIECES_MAX: usize = Ring::PIECES_MAX;

/// Options of a [`UringDisk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct UringOptions {
    /// Whether io_uring may be used. Default `true`; with `false` [`UringDisk::new`] fails.
    pub allowed: bool,
    /// The maximum number of pieces of one transfer in flight, 1 to [`PIECES_MAX`]. Default 4.
    pub in_flight: usize,
    /// The users who may read what the disk creates. Default: the owner.
    pub readers: Readers,
}

impl Default for UringOptions {
    fn default() -> Self {
        Self { allowed: true, in_flight: 4, readers: Readers::Owner }
    }
}

/// The disk of this machine, through io_uring.
#[derive(Debug, Clone)]
pub struct UringDisk {
    pool: Arc<Pool>,
    names: StdDisk,
}

impl UringDisk {
    /// Creates the first ring and probes which operations the kernel supports.
    ///
    /// # Errors
    /// `Unsupported` when the kernel lacks an operation or the options forbid io_uring,
    /// `PermissionDenied` when a sysctl or a filter forbids it, `OutOfMemory` with the name of the
    /// limit when the limits leave no memory for a ring, and
    /// [`Refusal::Forked`](crate::Refusal::Forked) in a child that `fork` made.
    pub fn new(options: UringOptions) -> io::Result<Self> {
        if !options.allowed {
            let why = "the options do not allow io_uring";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        Self::make(options, Faults::default())
    }

    /// Like [`UringDisk::new`], with injected faults, for tests.
    ///
    /// # Errors
    /// As [`UringDisk::new`].
    #[cfg(feature = "sim")]
    pub fn with_faults(options: UringOptions, faults: &RingFaults) -> io::Result<Self> {
        Self::make(options, faults.clone().into())
    }

    fn make(options: UringOptions, faults: Faults) -> io::Result<Self> {
        let pool = Pool::new(options.in_flight.clamp(1, Ring::PIECES_MAX), faults);
        let pool = Arc::new(pool.map_err(|why| locked::named(why, 0))?);
        Ok(Self { pool, names: StdDisk::new().readable_by(options.readers) })
    }

    /// Returns this disk, or [`StdDisk`] and the reason when io_uring is unavailable. The reason is
    /// also logged.
    pub fn or_std(options: UringOptions) -> (Arc<dyn Disk>, Option<io::Error>) {
        match Self::new(options) {
            Ok(disk) => (Arc::new(disk), None),
            Err(why) => {
                // In a child a log event may wait for a thread that is not there.
                if !process::is_forked() {
                    tracing::warn!(%why, "io_uring unavailable; using standard I/O");
                }
                (Arc::new(StdDisk::new().readable_by(options.readers)), Some(why))
            }
        }
    }
}

impl UringDisk {
    fn dir(&self, dir: StdDir) -> Arc<dyn Dir> {
        Arc::new(UringDir { dir, disk: self.clone() })
    }
}

impl Disk for UringDisk {
    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Dir>> {
        Ok(self.dir(self.names.open_std_dir(path)?))
    }

    fn create_dir(&self, path: &Path) -> Result<Arc<dyn Dir>> {
        Ok(self.dir(self.names.create_std_dir(path)?))
    }
}

/// A directory whose files use the rings.
#[derive(Debug)]
struct UringDir {
    dir: StdDir,
    disk: UringDisk,
}

impl Dir for UringDir {
    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn open(&self, name: &str, how: OpenMode) -> Result<Arc<dyn File>> {
        let file = self.dir.open_file(name, how)?;
        Ok(Arc::new(UringFile::new(file, Arc::clone(&self.disk.pool))))
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

    fn available(&self) -> Option<u64> {
        self.dir.available()
    }

    fn remove_dir(&self, name: &str) -> Result<()> {
        self.dir.remove_dir(name)
    }

    fn sync(&self) -> Result<()> {
        self.dir.sync()
    }

    fn list(&self) -> Result<Vec<String>> {
        self.dir.list()
    }

    fn open_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(self.disk.dir(self.dir.open_below(name)?))
    }

    fn create_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(self.disk.dir(self.dir.create_below(name)?))
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
        let facts = self.dir.facts()?;
        Ok(Facts::new("uring", facts.direct, facts.dsync))
    }
}

//! Esker's disk layer.
//!
//! Everything that Esker makes durable goes through the three traits of this crate: [`Disk`],
//! [`Dir`] and [`File`]. Their guarantees are few and exact:
//!
//! * A write is in the file when [`File::write_at`] returns. It is durable only after a later
//!   [`File::sync_data`] on the same file returned `Ok`, or at once when the file was opened with
//!   [`OpenMode::dsync`].
//! * A name (create, rename, unlink) is durable only after [`Dir::sync`] on its directory.
//! * A path is resolved once, by [`Disk::open_dir`]. A [`Dir`] and its lock stay with the directory
//!   when it is moved.
//! * Reads and writes may be short. [`read_full_at`] and [`write_all_at`] complete them.
//! * After a failed write or sync, the state of the range is unknown, and a retry that succeeds
//!   proves nothing. Callers must treat the failure as terminal.
//! * No file is mapped into memory: an I/O error is an error, not a signal.
//! * In a child that `fork` makes of a process that used this crate, every call and every opening
//!   fails with [`Refusal::Forked`], and dropping a handle releases no lock: see [`process`].
//!
//! Implementations: [`StdDisk`] for real disks, [`uring::UringDisk`] for io_uring on Linux, and
//! `sim::SimDisk` (feature `sim`), a seeded in-memory disk that separates written from durable
//! data. [`SlowDisk`] puts the latency of a slower device in front of another disk.
//!
//! ```
//! use esker_disk::{Disk, OpenMode, StdDisk, write_all_at};
//! # fn main() -> Result<(), esker_disk::Error> {
//! # let place = tempfile::tempdir().unwrap();
//! # let path = place.path();
//! let dir = StdDisk::new().open_dir(path)?;
//! let file = dir.open("a", OpenMode::create())?;
//! write_all_at(&*file, b"durable", 0)?;
//! file.sync_data()?;
//! dir.sync()?; // now the name is durable too
//! # Ok(())
//! # }
//! ```

mod aligned;
mod dir;
mod dir_disk;
mod disk;
mod error;
mod file;
mod huge_pages;
mod io;
#[doc(hidden)]
pub mod planted;
pub mod process;
mod replace;
mod slow;
mod std_disk;
#[cfg(all(target_os = "linux", feature = "io-uring"))]
pub mod uring;

#[cfg(feature = "sim")]
pub mod sim;

pub use aligned::{AlignedBuf, HugePages};
pub use dir::Dir;
pub use dir_disk::DirDisk;
pub use disk::Disk;
pub use error::{Error, Op, Refusal, Result};
pub use file::{BLOCK_BYTES, Facts, File, Lock, OpenMode};
pub use huge_pages::NoHugePages;
pub use io::{Read, read_full_at, write_all_at};
pub use replace::replace_file;
pub use slow::{Latency, SlowDisk};
pub use std_disk::{Readers, StdDisk};

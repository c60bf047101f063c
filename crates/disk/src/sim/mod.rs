//! A simulated disk: deterministic, in memory, and as unreliable as a real disk may be.
//!
//! [`SimDisk`] separates *written* from *durable* data, and a power cut exposes the difference. It
//! serves tests of any code that uses [`Disk`](crate::Disk): Esker's own and those of its users.
//!
//! ```
//! use esker_disk::sim::{Persist, SimDisk};
//! use esker_disk::{Disk, OpenMode, write_all_at};
//! use std::path::Path;
//!
//! # fn main() -> Result<(), esker_disk::Error> {
//! let disk = SimDisk::new(42);
//! let dir = disk.open_dir(Path::new("/"))?;
//! let file = dir.open("log", OpenMode::create())?;
//! write_all_at(&*file, b"durable", 0)?;
//! file.sync_data()?;
//! dir.sync()?;
//! write_all_at(&*file, b"in the air", 4096)?;
//!
//! disk.power_cut(Persist::Nothing);
//! assert!(file.len().is_err()); // handles opened before fail forever
//! disk.power_on();
//! assert_eq!(disk.contents(Path::new("/log"))?, b"durable");
//! # Ok(())
//! # }
//! ```
//!
//! # What a power cut leaves
//!
//! * **Bytes.** For each sector (512 or 4096 bytes) written since the last sync of its file: any
//!   one of its versions, including the durable one, independently of the other sectors. One sector
//!   of the whole disk may be torn: part old and part new, or garbage, or unreadable. The sixteen
//!   latest versions of a page are kept; older unsynced ones are dropped.
//! * **Sizes.** The durable size or any later one. Everything past it is lost.
//! * **Names.** Any subset of the creates, unlinks, renames and exchanges since the last sync of
//!   their directory. Each remains completely or not at all, in order where they concern the same
//!   name or file. Syncing a file does not make its name durable.
//! * **No handles and no locks.** Every open handle is invalid forever, even after power returns.
//!
//! [`Persist`] forces the extremes. [`SimDisk::cut_power_at`] cuts the power at, or in the middle
//! of, a numbered operation, so that a test can iterate over all of them.
//!
//! # After a failed sync
//!
//! Some sectors, chosen at random, reached the medium. All of them count as clean, so a second sync
//! succeeds and writes nothing. [`CacheAfterFailedSync`] determines what ordinary reads return.
//! Direct reads return the content of the medium.
//!
//! # Names
//!
//! There is one tree. A relative path starts at its root, as an absolute one does; `..` is
//! rejected. A [`Dir`](crate::Dir) refers to its directory and not to the path: [`SimDisk::mv`]
//! moves the directory while handles are open, as another process's `mv` would.
//!
//! # Determinism
//!
//! The same seed and the same calls in the same order give the same run. Racing threads determine
//! their own order; hold them with a [`Gate`] where that matters.

mod blocking_gate;
mod crash;
mod edit;
mod extents;
mod fault;
mod inode;
mod inspect;
mod machine;
mod namespace;
mod options;
mod page;
mod power;
mod rng;
mod seed;
mod sim_dir;
mod sim_disk;
mod sim_file;
mod stats;

use std::sync::Arc;

pub use blocking_gate::Gate;
pub use fault::{Effect, Fault};
pub use options::{CacheAfterFailedSync, Sector, SimOptions};
pub use power::{CutPoint, Persist};
pub use seed::{Replay, seed_from_env};
pub use stats::SimStats;

use machine::SharedMachine;

/// A simulated disk; see the [module](self). Clones share the same disk.
#[derive(Debug, Clone)]
pub struct SimDisk {
    shared: Arc<SharedMachine>,
    /// The process life to which this handle is bound; see [`SimDisk::process`].
    life: Option<u64>,
}

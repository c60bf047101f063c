//! A simulated disk: deterministic, in memory, and as unreliable as a real one may be.
//!
//! [`SimDisk`] keeps what was *written* apart from what is *durable*, and a power cut shows the
//! difference. It is for tests of anything that stands on [`Disk`](crate::Disk): Esker's own, and those of its
//! users.
//!
//! ```
//! use esker_disk::sim::{Persist, SimDisk};
//! use esker_disk::{Disk, Open, write_all_at};
//! use std::path::Path;
//!
//! # fn main() -> Result<(), esker_disk::Error> {
//! let disk = SimDisk::new(42);
//! let dir = disk.open_dir(Path::new("/"))?;
//! let file = dir.open("log", Open::create())?;
//! write_all_at(&*file, b"settled", 0)?;
//! file.sync_data()?;
//! dir.sync()?;
//! write_all_at(&*file, b"in the air", 4096)?;
//!
//! disk.power_cut(Persist::Nothing);
//! assert!(file.len().is_err()); // this handle is dead for ever
//! disk.power_on();
//! assert_eq!(disk.contents(Path::new("/log"))?, b"settled");
//! # Ok(())
//! # }
//! ```
//!
//! # What a power cut leaves
//!
//! * **Bytes.** Of each sector (512 or 4096 bytes) that was written since its file was last synced:
//!   any one of the versions it had, the durable one included, each sector for itself. One sector of
//!   the whole disk may be torn: part old and part new, or garbage, or unreadable. The sixteen latest
//!   versions of a page are told apart; older unsynced ones are forgotten.
//! * **Sizes.** The durable one or any later one. What lies behind is gone.
//! * **Names.** Any subset of the creates, unlinks, renames and exchanges since their directory was last synced,
//!   each whole or not at all, in order where they concern the same name or file. Syncing a file
//!   does not make its name durable.
//! * **No handles and no locks.** Whatever was open is dead for ever, also when the power is back.
//!
//! [`Persist`] forces the extremes. [`SimDisk::cut_power_at`] has the power go at, or in the middle of,
//! the operation of a given number, so that a test can go through all of them.
//!
//! # After a failed sync
//!
//! Some sectors reached the medium, by chance, and all of them count as clean, so that a second sync
//! succeeds and writes nothing. What ordinary reads give, says [`CacheAfterFailedSync`]; direct reads
//! give what the medium holds.
//!
//! # Names
//!
//! There is one tree. A relative path starts at its root as an absolute one does; `..` is refused. A
//! [`Dir`](crate::Dir) holds its directory and not the path: [`SimDisk::mv`] moves the directory under
//! it, as somebody else's `mv` would.
//!
//! # The same again
//!
//! The same seed and the same calls in the same order give the same run. Threads that race for the
//! disk make an order of their own; hold them with a [`Gate`] where that matters.

mod crash;
mod dir;
mod disk;
mod edit;
mod extents;
mod fault;
mod file;
mod gate;
mod inode;
mod inspect;
mod machine;
mod namespace;
mod options;
mod page;
mod power;
mod rng;
mod seed;
mod stats;

use std::sync::Arc;

pub use fault::{Effect, Fault};
pub use gate::Gate;
pub use options::{CacheAfterFailedSync, Sector, SimOptions};
pub use power::{CutPoint, Persist};
pub use seed::{Replay, seed_from_env};
pub use stats::SimStats;

use machine::Shared;

/// A simulated disk; see the [module](self). Clones are the same disk.
#[derive(Debug, Clone)]
pub struct SimDisk {
    shared: Arc<Shared>,
    /// The life to which this handle is bound; see [`SimDisk::process`].
    life: Option<u64>,
}

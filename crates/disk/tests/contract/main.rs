//! The contract of a disk, on the real one and on the simulated one.

#[path = "../kit/by_path.rs"]
mod by_path;
#[path = "../kit/on_each.rs"]
mod on_each;

mod bytes;
mod direct_and_durable_writes;
mod directories;
mod disks_agree;
mod errors;
mod names;
mod short_calls;
mod sizes;

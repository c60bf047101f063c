//! The contract of a disk, on the real one and on the simulated one.

mod bytes;
mod direct_and_durable_writes;
mod directories;
mod disks_agree;
mod errors;
mod names;
mod short_calls;
mod sizes;

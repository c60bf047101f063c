//! Three nodes of openraft in one process, on simulated disks, with a network that can be cut.

mod network;
mod restarts;

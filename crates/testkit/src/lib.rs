//! Test support of several crates. It knows the disk and no component above it.
//!
//! # Generators and disks
//!
//! [`SplitMix64`] is the source of randomness of every suite. [`HookedDisk`] forwards to another
//! disk and lets the test see, refuse or delay each call. [`CountingAllocator`] counts allocations.
//! [`in_forked_child`] runs a part of a test in a child of the process. [`own_address`] and
//! [`free_port`] are for nodes that listen at an address known before.
//!
//! # Corrupted directories
//!
//! A component's test builds a directory with a seeded program, and keeps a history: what was
//! acknowledged, with which values. This crate then corrupts a copy ([`Mutation`], planned by
//! [`plan`]) and reports which blocks changed ([`Changes`]). It runs many such cases and detects
//! panics and hangs ([`run_new`], [`run_past`]). The test decides whether the component's answers
//! are right.
//!
//! This crate knows no file format: a directory is names and bytes, and the only unit is the block
//! of 4096 bytes.
//!
//! A case is one number. Cases of the same [`GROUP_CASES`] share a directory, because building one
//! costs more than corrupting it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a test prints its findings")]

mod changes;
pub mod commands;
mod counting_allocator;
mod env;
mod files;
mod forked_child;
mod freed_memory;
mod hooked_disk;
mod mutation;
mod panics;
mod payloads;
mod plan;
mod ports;
mod rng;
mod run;
mod traces;

pub use changes::{BLOCK_BYTES, Changes};
pub use counting_allocator::CountingAllocator;
pub use env::number_from_env;
pub use files::{Files, export, import, read_files, store};
pub use forked_child::{ForkedChild, in_forked_child, polled_once};
pub use freed_memory::keep_freed_memory;
pub use hooked_disk::{Call, Hook, HookedDisk};
pub use mutation::Mutation;
pub use panics::caught;
pub use payloads::{MARK_BYTES, Payloads, payloads_in};
pub use plan::{Source, plan};
pub use ports::{free_port, own_address};
pub use rng::{Rng, SplitMix64, mix};
pub use run::{Component, GROUP_CASES, Plans, run_new, run_past};
pub use traces::{Kind, Names, Traces};

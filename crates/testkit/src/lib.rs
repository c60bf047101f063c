//! The generator of damaged directories, and the runner, that Esker's own tests share.
//!
//! A component's test builds a directory by a program that a seed fixes, and keeps a history of its
//! own: what was acknowledged, with which values. This crate then damages a copy ([`Mutation`], planned
//! by [`plan`]), says which blocks are no longer what they were ([`Changes`]), and runs many such cases
//! with a watch on panics and on hangs ([`run`]). The test decides whether the answers of the component
//! are right.
//!
//! Nothing here knows a format: a directory is names and bytes, and the only unit is the block of
//! 4096 bytes.
//!
//! A case is one number. Cases of the same [`GROUP`] share a directory, because building one costs more
//! than damaging it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a test tells what it found")]

mod changes;
mod files;
mod mutation;
mod panics;
mod payloads;
mod plan;
mod rng;
mod run;
mod traces;

pub use changes::{BLOCK, Changes};
pub use files::{Files, export, read_files, store};
pub use mutation::Mutation;
pub use payloads::{MARKED, Payloads, payloads_in};
pub use plan::{Source, plan};
pub use rng::Rng;
pub use run::{Component, GROUP, Runs, run};
pub use traces::{Kind, Names, Traces};

//! Benchmarks. Each reports its figures with the hardware floor, sampled in the same run on the
//! same file system, and whether all written data was read back and compared.
//!
//! `machine` measures the bare disk, `load` has the concurrent callers and readers, `records`
//! derives every record from its writer and number and compares what is read, and `measure` counts
//! and prints. With the feature `commands`, `log`, `consensus`, `kv` and `timestamp` are the
//! benchmarks of the components. Without it, the library has what the comparison with other systems
//! shares with them.
//!
//! It is published for `esker bench floor` and the command `esker-bench`. It is no API to build
//! on: anything in it may change with each version.

#![allow(missing_docs, clippy::new_without_default, reason = "only this project uses the library")]

#[cfg(feature = "commands")]
pub mod consensus;
#[cfg(feature = "commands")]
pub mod kv;
pub mod load;
#[cfg(feature = "commands")]
pub mod log;
pub mod machine;
pub mod measure;
#[cfg(feature = "commands")]
mod page_cache;
pub mod records;
#[cfg(feature = "commands")]
pub mod timestamp;
mod workdir;

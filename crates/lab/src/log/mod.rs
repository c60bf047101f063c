//! The crash harness: a workload from a seed, a model of what must be recovered, and a simulated
//! environment in which a log runs, crashes and is opened again.
//!
//! One rule is checked, value by value: **durable ⊆ recovered ⊆ accepted**. The recovered records
//! are one run without gaps. It ends at or after the last durable record and equals what was
//! appended, bit for bit, less what truncation or retention durably dropped. See `model`.
//!
//! Everything runs on the test's thread, over the simulated disk, with a manual engine: a case is
//! fixed by its seed and by the operation at which power fails. `ESKER_TRACE=1` prints the steps.

pub mod config;
pub mod faults;
pub mod history;
mod log_subject;
pub mod model;
pub mod sim_env;
pub mod workload;

use std::time::Duration;

/// The `n` of `Batch(n)` in the suite.
pub const BATCH_RECORDS: u64 = 5;
/// The time of `Periodic(t)` in the suite.
pub const SYNC_PERIOD: Duration = Duration::from_millis(10);
/// The directory of the log on the simulated disk.
pub const DIR: &str = "/log";

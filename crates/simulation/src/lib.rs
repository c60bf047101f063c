//! A cluster of the timestamp service in a deterministic simulation: three to five nodes on one
//! thread, in virtual time, over simulated disks and a simulated network, with faults from a seed.
//!
//! The nodes are those of `esker-raft` and `esker-oracle`, as they are shipped: log, recovery,
//! openraft, network protocol, proofs of leadership, leases, epochs. The simulation replaces what
//! they take from the system: disk, network, time and random numbers.
//!
//! - **Safety**: no timestamp twice; a call that begins after another has returned gets a higher
//!   one; the numbers of a sequence have no gap and no repeat; replicas are equal.
//! - **Liveness**: timestamps flow again soon after the faults end.
//! - **Determinism**: the same seed gives the same events.
//!
//! ```
//! use esker_simulation::{Options, run};
//!
//! let options = Options { faults_ms: 2_000, ..Options::from_seed(1) };
//! let (outcome, _) = run(options);
//! assert!(outcome.expect("no violation").answered > 0);
//! ```

mod clients;
mod faults;
mod machine;
mod network;
mod options;
mod outcome;
mod run;
mod sequence_callers;
mod trace;

pub use options::{ClockFaults, LeaseMode, Options};
pub use outcome::{Failure, Outcome};
pub use run::run;

//! Cuts the power under a program, in a Rust test.
//!
//! The command `unplug` records a program: what it does to its directory, and what it prints. This
//! library builds each directory that a power cut could leave of a [`Recording`], and runs a
//! closure on it, in the process of the test, which needs no mount. The command makes the mount in
//! namespaces of its own. A process may enter those only before it starts a thread, and a test has
//! threads. So the recorded part is a program: an example of the crate, or the test's own
//! executable, started again.
//!
//! # Limits
//!
//! - A closure has no time limit, and must not change anything outside the directory that it gets.
//! - A closure runs on several directories at once, as many as [`Search::jobs`].
//! - The directories are in memory. Of a recording the bytes past 256 MiB are in a temporary file,
//!   and it has at most 4,000,000 requests.
//! - A recording is of the version of `unplug` that wrote it.
//!
//! # Examples
//!
//! ```no_run
//! use std::process::Command;
//!
//! use unplug::{Recording, Verdict};
//!
//! # fn main() -> Result<(), unplug::Error> {
//! // Writes the file `db`, and prints "saved" when it is durable.
//! let program = Command::new("target/debug/examples/save");
//! let recording = Recording::run("unplug", &program)?;
//! let answer = recording.check(|directory, output| {
//!     let text = std::fs::read_to_string(directory.join("db")).unwrap_or_default();
//!     match output == b"saved\n" && text != "AAAA" {
//!         true => Err(format!("saved, but the file has {text:?}")),
//!         false => Ok(()),
//!     }
//! })?;
//! assert_eq!(answer.verdict, Verdict::Kept, "{answer}");
//! # Ok(())
//! # }
//! ```

mod arguments;
mod check;
mod cut_socket;
mod examination;
mod fault;
mod folders;
mod library;
mod model;
mod mount;
mod outcome;
mod process_tree;
mod program;
mod progress;
mod record;
mod report;
mod rng;
mod run;
mod search;
mod states;

pub use library::{Error, Recording};
pub use report::answer::{Answer, FailingState};
pub use report::verdict::Verdict;
#[doc(hidden)]
pub use run::run_command;
pub use states::Search;

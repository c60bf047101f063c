//! Esker's durable, embedded, append-only log with streaming readers.
//!
//! ```
//! use esker_log::{Log, Options, Start};
//! # fn main() -> Result<(), esker_log::Error> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let dir = dir.path().join("log");
//! let log = Log::open(&dir, Options::default())?;
//! let ticket = log.append(b"layer on layer")?; // it has its place in the order
//! let appended = ticket.wait()?; // it is durable
//! assert_eq!(&*log.read(appended.seq)?, b"layer on layer");
//!
//! let mut stream = log.stream(Start::Oldest)?;
//! while let Some(batch) = stream.try_next()? {
//!     for record in &batch {
//!         println!("{}: {} bytes", record.seq, record.payload.len());
//!     }
//! }
//! log.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! The contract uses two terms. A record is **accepted** when the log has assigned its place in
//! the order, inside `append`. It is **durable** when its [`Ticket`] resolves, or the durable
//! watermark has passed it. After any crash, every durable record is recovered, and every
//! recovered record was accepted. The recovered records are one run without gaps.
//!
//! Entry points: [`Log`] appends and reads. [`Ticket`] waits for durability. [`Stream`] reads in
//! order, and a [`Reader`] does so from another process. [`Options`] configure, [`Error`] reports
//! failures. [`reclaim`] frees space for components that keep an index.
//!
//! Modules: `commit::core` makes the commit decisions without I/O, and `commit::committer` writes.
//! `recovery` opens a log, `read::cursor` reads, and `runtime::engine` owns the threads.

mod base;
mod commit;
mod follower;
mod format;
#[doc(hidden)]
pub mod fuzzing;
mod log;
mod read;
pub mod reclaim;
mod recovery;
mod runtime;
mod staging;
mod store;
mod write;

pub use base::component::Component;
pub use base::error::{Corruption, Error, Result};
pub use base::options::{Direct, OnCorruption, OpenCheck, Options, Policy, Retention};
pub use base::position::{Position, Seq};
pub use follower::{Reader, ReaderStream};
pub use format::{LogId, RECORD_LIMIT_MAX};
pub use log::Log;
pub use log::lookup::{Metadata, SegmentInfo};
pub use log::sink::Sink;
pub use read::batch::{Batch, BatchIter, Record, View};
pub use read::cursor::Start;
pub use read::stream::Stream;
pub use recovery::repair::{QuarantinedRange, Repaired, VerifyReport, repair, verify};
pub use recovery::{PriorShutdown, Recovery, TruncatedTail};
pub use runtime::counters::LogStats;
pub use runtime::engine::Engine;
pub use store::app_metadata::component;
pub use write::input::{Append, Numbered};
pub use write::ticket::{Appended, Ticket};

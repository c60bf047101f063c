//! The durable log: append, survive, follow.
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
//! Two words carry the contract. A record is **accepted** when the log has given it its place in
//! the order, inside `append`. It is **durable** when its [`Ticket`] resolves, or the durable
//! watermark has passed it. After any crash, what was durable is recovered, and what is recovered
//! was accepted: one run without gaps.
//!
//! The map: [`Log`] appends and reads, [`Ticket`] waits, [`Stream`] follows, a [`Reader`] does so from
//! another process, [`Options`] choose, [`Error`] explains. `core` decides, without any I/O; `committer` writes; `recovery` opens;
//! `cursor` reads; `engine` has the threads; [`reclaim`] gives space back for components with an index.

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

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

mod app_metadata;
mod append;
mod batch;
mod close;
mod cold;
mod committer;
mod core;
mod counters;
mod cursor;
mod directory;
mod drive;
mod engine;
mod error;
mod floor;
mod follow;
mod format;
#[doc(hidden)]
pub mod fuzzing;
mod gather;
mod image;
mod input;
mod layout;
mod log;
mod manifest;
mod mark;
mod open;
mod options;
mod pinning;
mod position;
mod progress;
mod published;
mod read;
pub mod reclaim;
mod recovery;
mod repair;
mod runway;
mod scan;
mod sealed;
mod segments;
mod sink;
mod space;
mod stream;
mod sync;
mod tail;
mod ticket;
mod upkeep;
mod waiters;
mod window;

pub use app_metadata::{Component, component};
pub use batch::{Batch, BatchIter, Record, View};
pub use counters::Activity;
pub use cursor::Start;
pub use engine::Engine;
pub use error::{Damage, Error, Result};
pub use follow::{Reader, ReaderStream};
pub use format::{LogId, RECORD_LIMIT_MAX};
pub use input::{Append, Numbered};
pub use log::Log;
pub use options::{Direct, OnDamage, Options, Policy, Retention, Validate};
pub use position::{Position, Seq};
pub use read::{Metadata, Span};
pub use recovery::{Cut, Found, Recovery};
pub use repair::{Aside, Repaired, Report, repair, verify};
pub use sink::Sink;
pub use stream::Stream;
pub use ticket::{Appended, Ticket};

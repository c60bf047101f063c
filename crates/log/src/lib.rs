//! Esker's durable, embedded, append-only log with streaming readers.
//!
//! ```
//! use esker_log::{Log, Start};
//! # fn main() -> Result<(), esker_log::Error> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let dir = dir.path().join("log");
//! let log = Log::open(&dir)?;
//! let ticket = log.append(b"layer on layer")?; // accepted: it has its place in the order
//! let appended = ticket.blocking_wait()?; // durable (in async code: `ticket.await?`)
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
//! Entry points: [`Log`] appends and reads. [`Ticket`] waits for durability. [`LogStream`] reads in
//! order. A [`ReadOnlyLog`] does so beside a writer, also from another process. [`Log::builder`]
//! sets [`Options`], [`Error`] reports failures. [`verify`] checks a log; [`repair`] quarantines
//! corrupt commit units. The module [`component`] is for authors of data structures that are stored
//! as a log, and [`reclaim`] frees their space.
//!
//! # Blocking and async
//!
//! The methods of [`Log`] are synchronous. One that may wait for room or for a commit says so, and
//! has an async form with the suffix `_async`, one without waiting with the prefix `try_`, and one
//! with a deadline with the suffix `_timeout`, where these make sense. What can be awaited or
//! polled ([`Ticket`], [`LogStream`], [`Sink`]) marks its blocking methods with the prefix
//! `blocking_`.
//!
//! These calls block on the disk, or may: [`Log::open`], [`Log::close`] and dropping the last
//! handle, [`Log::read`], [`Log::read_at`], [`LogStream::try_next`],
//! [`LogRetention::truncate_before`], the methods of [`Log::snapshots`] and [`Log::storage`],
//! [`verify`], [`repair`], [`ReadOnlyLog::open`], [`ReadOnlyLog::refresh`], [`ReadOnlyLog::read`]
//! and [`ReadOnlyLog::read_at`]. In async code, call their forms with `_async`, or call them where
//! blocking is allowed. [`Log::wait_durable`], a [`Ticket`], and a [`LogStream`] as a
//! `futures::Stream` wait without blocking:
//!
//! ```
//! use esker_log::{Log, Result, Start};
//! use futures_util::StreamExt;
//!
//! async fn run(dir: std::path::PathBuf) -> Result<()> {
//!     let log = Log::builder(dir).open_async().await?;
//!     let appended = log.append_async("a record").await?.await?; // accepted, then durable
//!     let mut stream = log.stream(Start::From(appended.seq))?;
//!     if let Some(batch) = stream.next().await {
//!         assert_eq!(batch?.iter().count(), 1);
//!     }
//!
//!     Ok(log.close_async().await?)
//! }
//! # let dir = tempfile::tempdir().unwrap();
//! # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
//! # runtime.block_on(run(dir.path().join("log")))?;
//! # Ok::<(), esker_log::Error>(())
//! ```
//!
//! # Metrics
//!
//! [`Log::metrics`] returns what a monitoring system needs. The feature `metrics`, off by default,
//! adds the method `LogMetrics::publish`, for the recorder of the crate `metrics`.
//!
//! # Source
//!
//! For readers of the source; these modules are private. `commit::core` makes the commit decisions
//! without I/O, and `commit::committer` holds what the next commit needs. `recovery` opens a log,
//! `read::cursor` reads, and `runtime::engine` owns the threads.

mod backup;
mod base;
mod commit;
pub mod component;
mod consumers;
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

pub use backup::{Backup, path_is_within};
pub use base::component::Component;
pub use base::error::{Corruption, Error, LiveCopySign, Result, Trimmed};
pub use base::invalid_option::InvalidOption;
pub use base::log_error::LogError;
pub use base::metric_value::{MetricKind, MetricUnit, MetricValue};
pub use base::operation_errors::{
    AppendError, BackupError, ConsumerError, OpenError, ReadError, RepairError, RetentionError,
    SnapshotError, WaitError,
};
pub use base::options::{
    Direct, OnCorruption, OpenCheck, Options, Policy, RESERVE_KEPT_MOST, RESERVE_MAX, Retention,
};
pub use base::position::{Position, Seq, SeqRange};
pub use base::read_options::ReadOptions;
pub use base::write_error::WriteError;
pub use consumers::Consumers;
pub use follower::ReadOnlyLog;
pub use follower::reader_builder::ReadOnlyLogBuilder;
pub use follower::reader_metrics::{ReadOnlyMetrics, ReaderLag};
pub use follower::reader_snapshots::ReadOnlySnapshots;
pub use follower::reader_storage::ReadOnlyStorage;
pub use format::{LogId, RECORD_LIMIT_MAX};
pub use log::Log;
pub use log::builder::LogBuilder;
pub use log::log_retention::LogRetention;
pub use log::metrics::LogMetrics;
pub use log::sink::Sink;
pub use log::snapshot_writer::{IncomingSnapshot, SnapshotWriter};
pub use log::snapshots::Snapshots;
pub use log::stats::LogStats;
pub use log::storage::Storage;
pub use read::batch::{Batch, BatchIter, Payload, Record, View};
pub use read::cursor::Start;
pub use read::metadata::{Metadata, SegmentInfo, Stored};
pub use read::snapshot_reader::SnapshotReader;
pub use read::stream::LogStream;
pub use read::stream_table::StreamLag;
pub use recovery::repair::{
    QuarantinedRange, Repaired, VerifyReport, repair, repair_with, verify, verify_with,
};
pub use recovery::salvage::{Salvage, Salvaged, SalvagedRecord, salvage, salvage_log};
pub use recovery::{PriorShutdown, ReadProgress, Recovery, TruncatedTail};
pub use runtime::engine::Engine;
pub use runtime::histogram::DurationHistogram;
#[doc(hidden)]
pub use runtime::prefetch::prefetch;
pub use write::input::Append;
pub use write::ticket::{Appended, Ticket};

//! The builder that opens a log with options of the caller's choice.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use esker_disk::Disk;

use crate::base::component::Component;
use crate::base::lender::SharedReserve;
use crate::base::operation_errors::OpenError;
use crate::base::options::{
    Direct, OnCorruption, OpenCheck, Options, Policy, Retention, option_setters,
};
use crate::log::Log;
use crate::runtime::engine::Engine;

/// Opens a log for writing with other options than the default ones. From [`Log::builder`].
#[derive(Debug, Clone)]
#[must_use = "a builder opens nothing until `open` is called"]
pub struct LogBuilder {
    dir: PathBuf,
    options: Options,
}

impl Log {
    /// Returns a builder that opens the log in `dir` for writing, or creates it.
    ///
    /// # Examples
    /// ```
    /// use esker_log::{Log, Policy};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path().join("log");
    /// let log = Log::builder(&dir)
    ///     .policy(Policy::Periodic(std::time::Duration::from_millis(50)))
    ///     .segment_size(16 << 20)
    ///     .retain_bytes(1 << 30)
    ///     .open()?;
    /// assert_eq!(log.options().segment_size, 16 << 20);
    /// # log.close()?;
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn builder(dir: impl AsRef<Path>) -> LogBuilder {
        LogBuilder { dir: dir.as_ref().into(), options: Options::default() }
    }
}

impl LogBuilder {
    option_setters! { Options {
        policy: Policy,
        retention: Retention,
        record_limit: u32,
        segment_size: u32,
        buffer_size: u32,
        buffers: u32,
        commits_in_flight: u32,
        huge_pages: bool,
        tail_cache: u64,
        reader_memory: u64,
        read_cache: u64,
        index_bytes: u32,
        index_records: u32,
        direct: Direct,
        dsync: bool,
        on_corruption: OnCorruption,
        check: OpenCheck,
        must_exist: bool,
        disk: Arc<dyn Disk>,
        ;
        reserve: u64,
        segment_records: u64,
        component: Component,
        engine: Engine,
        shared_reserve: SharedReserve,
        pin: usize,
    }}

    /// Keeps at most this many bytes in segments. See [`Retention::bytes`].
    pub fn retain_bytes(mut self, bytes: u64) -> Self {
        self.options.retention.bytes = Some(bytes);
        self
    }

    /// Keeps at most this many segments. See [`Retention::segments`].
    pub fn retain_segments(mut self, segments: u64) -> Self {
        self.options.retention.segments = Some(segments);
        self
    }

    /// Keeps at most this many records. See [`Retention::records`].
    pub fn retain_records(mut self, records: u64) -> Self {
        self.options.retention.records = Some(records);
        self
    }

    /// Keeps segments at most this long. See [`Retention::age`].
    pub fn retain_age(mut self, age: Duration) -> Self {
        self.options.retention.age = Some(age);
        self
    }

    /// Opens the log, and creates it if there is none and [`Options::must_exist`] is not set.
    ///
    /// # Errors
    /// As [`Log::open`], and [`OpenError::InvalidOption`](crate::OpenError::InvalidOption).
    pub fn open(self) -> Result<Log, OpenError> {
        Log::open_with(&self.dir, self.options)
    }

    /// As [`LogBuilder::open`], without blocking: a thread of its own opens the log.
    ///
    /// # Cancel safety
    /// A call that is dropped opens the log and closes it again, and holds its lock meanwhile.
    ///
    /// # Errors
    /// As [`LogBuilder::open`], and [`LogError::NoThread`](crate::LogError::NoThread).
    pub async fn open_async(self) -> Result<Log, OpenError> {
        Log::open_with_async(self.dir, self.options).await
    }
}

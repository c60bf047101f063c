//! The builder that opens a log for reading with options of the caller's choice.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_disk::Disk;

use super::ReadOnlyLog;
use crate::base::operation_errors::OpenError;
use crate::base::options::{Direct, OpenCheck, option_setters};
use crate::base::read_options::ReadOptions;
use crate::runtime::engine::Engine;

/// Opens a log for reading with other options than the default ones. From
/// [`ReadOnlyLog::builder`].
#[derive(Debug, Clone)]
#[must_use = "a builder opens nothing until `open` is called"]
pub struct ReadOnlyLogBuilder {
    dir: PathBuf,
    options: ReadOptions,
}

impl ReadOnlyLog {
    /// Returns a builder that opens the log in `dir` for reading.
    ///
    /// # Examples
    /// ```
    /// use esker_log::ReadOnlyLog;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path().join("log");
    /// # esker_log::Log::open(&dir)?.close()?;
    /// let reader = ReadOnlyLog::builder(&dir).read_cache(64 << 20).open()?;
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn builder(dir: impl AsRef<Path>) -> ReadOnlyLogBuilder {
        ReadOnlyLogBuilder { dir: dir.as_ref().into(), options: ReadOptions::default() }
    }
}

impl ReadOnlyLogBuilder {
    option_setters! { ReadOptions {
        read_cache: u64,
        check: OpenCheck,
        index_bytes: u32,
        index_records: u32,
        direct: Direct,
        disk: Arc<dyn Disk>,
        ;
        engine: Engine,
    }}

    /// Opens the log.
    ///
    /// # Errors
    /// As [`ReadOnlyLog::open`], and [`OpenError::InvalidOption`](crate::OpenError::InvalidOption).
    pub fn open(self) -> Result<ReadOnlyLog, OpenError> {
        ReadOnlyLog::open_with(&self.dir, self.options)
    }

    /// As [`ReadOnlyLogBuilder::open`], without blocking: a thread of its own opens the log.
    ///
    /// # Cancel safety
    /// A call that is dropped opens the log and closes it again.
    ///
    /// # Errors
    /// As [`ReadOnlyLogBuilder::open`], and [`LogError::NoThread`](crate::LogError::NoThread).
    pub async fn open_async(self) -> Result<ReadOnlyLog, OpenError> {
        ReadOnlyLog::open_with_async(self.dir, self.options).await
    }
}

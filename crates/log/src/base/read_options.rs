//! The options of what only reads a log, and of repair.

use std::sync::Arc;

use esker_disk::Disk;

use crate::base::error::Result;
use crate::base::options::{Direct, OpenCheck, Options};
use crate::runtime::engine::Engine;

/// Options of a log that is opened for reading, and of [`verify`](crate::verify) and
/// [`repair`](crate::repair).
///
/// [`ReadOnlyLog::builder`](crate::ReadOnlyLog::builder) has a method for each of them.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ReadOptions {
    /// The bytes of records read from files that are cached for other streams of the same reader.
    /// Default 16 MiB. Streams that lag share what one of them read. The memory is usually 4/3
    /// of this, and at most 8 times this.
    pub read_cache: u64,
    /// How much is checked at opening. Default: quick.
    pub check: OpenCheck,
    /// The most bytes between two entries of the sparse index. Default 64 KiB, from 4 KiB to
    /// 512 KiB.
    pub index_bytes: u32,
    /// The most records between two entries of the sparse index. Default 1024, at least 1.
    pub index_records: u32,
    /// Whether reads bypass the page cache (O_DIRECT). Default [`Direct::Auto`]: where the file
    /// system supports it.
    pub direct: Direct,
    /// The disk that holds the log. Default: the real disk.
    pub disk: Arc<dyn Disk>,
    /// The engine whose threads read ahead, and read for async tasks. Default: up to three threads
    /// of the reader.
    pub engine: Option<Engine>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self::from(Options::default())
    }
}

impl From<&Options> for ReadOptions {
    /// The options for reading a log that is written with these.
    fn from(options: &Options) -> Self {
        Self {
            read_cache: options.read_cache,
            check: options.check,
            index_bytes: options.index_bytes,
            index_records: options.index_records,
            direct: options.direct,
            disk: Arc::clone(&options.disk),
            engine: options.engine.clone(),
        }
    }
}

impl From<Options> for ReadOptions {
    fn from(options: Options) -> Self {
        Self::from(&options)
    }
}

impl ReadOptions {
    /// The default options on another disk.
    pub fn on(disk: Arc<dyn Disk>) -> Self {
        Self { disk, ..Self::default() }
    }

    pub(crate) fn validate(&self) -> Result<()> {
        super::options::index_rules(self.index_bytes, self.index_records)
    }
}

//! The options of a store that is open for reading.

use std::path::PathBuf;
use std::sync::Arc;

use esker_disk::Disk;
use esker_log::{Engine, InvalidOption, ReadOptions};

use crate::base::options::Options;
#[cfg(doc)]
use crate::base::store_error::StoreError;

/// Options of a [`ReadOnlyStore`](crate::ReadOnlyStore).
///
/// Set them with a [`ReadOnlyStoreBuilder`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ReadOnlyOptions {
    /// As [`Options::cache_bytes`].
    pub cache_bytes: u64,
    /// As [`Options::history_bytes`].
    pub history_bytes: u64,
    /// Whether a thread follows the writer. Default `false`: the store changes only when
    /// [`ReadOnlyStore::refresh`](crate::ReadOnlyStore::refresh) is called, or when the writer
    /// dropped what a call reads.
    pub follow: bool,
    /// Whether quarantined records are skipped, as if nothing were missing: a key then has
    /// the newest value that is left, which may be older than its last one. Use it to export what
    /// is left. Default `false`: such keys return [`StoreError::Quarantined`].
    pub skip_quarantined: bool,
    /// The options of the log: disk, engine, cache and checks.
    pub log: ReadOptions,
}

impl Default for ReadOnlyOptions {
    fn default() -> Self {
        let Options { cache_bytes, history_bytes, log, .. } = Options::default();
        Self { cache_bytes, history_bytes, follow: false, skip_quarantined: false, log: log.into() }
    }
}

impl ReadOnlyOptions {
    pub(crate) fn validate(&self) -> Result<(), InvalidOption> {
        let Self { cache_bytes, history_bytes, .. } = *self;
        Options { cache_bytes, history_bytes, ..Options::default() }.validate()
    }
}

/// Opens a store for reading with options; from
/// [`ReadOnlyStore::builder`](crate::ReadOnlyStore::builder).
///
/// The options of the store, and the disk and the engine, have a setter of the same name;
/// [`ReadOnlyStoreBuilder::log`] sets the others. [`ReadOnlyOptions`] describes them.
#[derive(Debug, Clone)]
#[must_use = "a builder opens nothing until `open` is called"]
pub struct ReadOnlyStoreBuilder {
    pub(crate) dir: PathBuf,
    pub(crate) options: ReadOnlyOptions,
}

impl ReadOnlyStoreBuilder {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir, options: ReadOnlyOptions::default() }
    }

    /// Replaces all options.
    pub fn options(mut self, options: ReadOnlyOptions) -> Self {
        self.options = options;
        self
    }

    /// Replaces all options of the log, the disk and the engine too; so call it before them.
    pub fn log(mut self, log: ReadOptions) -> Self {
        self.options.log = log;
        self
    }

    /// Sets [`ReadOnlyOptions::cache_bytes`].
    pub fn cache_bytes(mut self, cache_bytes: u64) -> Self {
        self.options.cache_bytes = cache_bytes;
        self
    }

    /// Sets [`ReadOnlyOptions::history_bytes`].
    pub fn history_bytes(mut self, history_bytes: u64) -> Self {
        self.options.history_bytes = history_bytes;
        self
    }

    /// Sets [`ReadOnlyOptions::follow`].
    pub fn follow(mut self, follow: bool) -> Self {
        self.options.follow = follow;
        self
    }

    /// Sets [`ReadOnlyOptions::skip_quarantined`].
    pub fn skip_quarantined(mut self, skip_quarantined: bool) -> Self {
        self.options.skip_quarantined = skip_quarantined;
        self
    }

    /// Sets [`ReadOptions::disk`].
    pub fn disk(mut self, disk: Arc<dyn Disk>) -> Self {
        self.options.log.disk = disk;
        self
    }

    /// Sets [`ReadOptions::engine`].
    pub fn engine(mut self, engine: Engine) -> Self {
        self.options.log.engine = Some(engine);
        self
    }
}

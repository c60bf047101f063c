//! The options of a store that is open for reading.

use std::path::PathBuf;
use std::sync::Arc;

use esker_disk::Disk;
use esker_log::{Direct, Engine, ReadOptions};

use crate::base::error::Result;
use crate::base::options::Options;

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
    /// The most bytes of the log that are cached while it is followed. Default 16 MiB.
    pub read_cache: u64,
    /// Whether a thread follows the writer. Default `false`: the store changes only when
    /// [`ReadOnlyStore::refresh`](crate::ReadOnlyStore::refresh) is called, or when the writer
    /// dropped what a call reads.
    pub follow: bool,
    /// Whether quarantined records are skipped, as if nothing were missing: a key then has
    /// the newest value that is left, which may be older than its last one. Use it to export what
    /// is left. Default `false`: such keys return [`Error::Quarantined`](crate::Error).
    pub skip_quarantined: bool,
    /// Whether reads bypass the page cache.
    pub direct: Direct,
    /// The disk that holds the store. Default: the real disk.
    pub disk: Arc<dyn Disk>,
    /// The engine whose threads read ahead. Default: threads of this store.
    pub engine: Option<Engine>,
}

impl Default for ReadOnlyOptions {
    fn default() -> Self {
        let Options { cache_bytes, history_bytes, read_cache, direct, disk, .. } =
            Options::default();
        Self {
            cache_bytes,
            history_bytes,
            read_cache,
            follow: false,
            skip_quarantined: false,
            direct,
            disk,
            engine: None,
        }
    }
}

impl ReadOnlyOptions {
    pub(crate) fn validate(&self) -> Result<()> {
        let Self { cache_bytes, history_bytes, .. } = *self;
        Options { cache_bytes, history_bytes, ..Options::default() }.validate()
    }

    pub(crate) fn for_log(&self) -> ReadOptions {
        let mut options = ReadOptions::default();
        options.read_cache = self.read_cache;
        options.direct = self.direct;
        options.disk = Arc::clone(&self.disk);
        options.engine.clone_from(&self.engine);
        options
    }
}

/// Opens a store for reading with options; from
/// [`ReadOnlyStore::builder`](crate::ReadOnlyStore::builder).
///
/// Each option has a setter of the same name. [`ReadOnlyOptions`] describes them.
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

    esker_log::option_setters! { ReadOnlyOptions {
        cache_bytes: u64,
        history_bytes: u64,
        read_cache: u64,
        follow: bool,
        skip_quarantined: bool,
        direct: Direct,
        disk: Arc<dyn Disk>,
        ;
        engine: Engine,
    }}
}

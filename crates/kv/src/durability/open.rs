//! Opening a store.

use std::path::PathBuf;
use std::sync::Arc;

use esker_log::Log;
use parking_lot::Mutex;

use crate::base::error::Result;
use crate::base::options::Options;
use crate::cache::ValueCache;
use crate::durability::checkpoint;
use crate::durability::replay::Replay;
use crate::index::table::Table;
use crate::state::inner::{Cleaning, Inner};
use crate::state::snapshots::Snapshots;

/// Opens the log of a store and builds its index.
pub(crate) fn open(dir: PathBuf, options: Options) -> Result<Arc<Inner>> {
    options.validate()?;
    let log = Log::builder(&dir).options(options.for_log()).open()?;
    let mut table = Table::new();
    let loaded = checkpoint::load(&log, &table).unwrap_or_else(|error| {
        tracing::warn!(%error, "the checkpoint is not used; opening reads the whole log");
        None
    });
    if loaded.is_none() {
        // The log might get other records under the numbers that it names.
        log.discard_checkpoint()?;
        table = Table::new();
    }
    let last = loaded.as_ref().map(|loaded| loaded.last).unwrap_or_default();
    let mut replay = Replay::new(&log, &table, loaded);
    let replayed = replay.run()?;
    let keyspaces = replay.finish()?;
    Ok(Arc::new(Inner {
        cache: ValueCache::new(options.cache_bytes),
        dir,
        options,
        log,
        table,
        keyspaces,
        snapshots: Snapshots::default(),
        catalog_lock: Mutex::new(()),
        cleaning: Cleaning::default(),
        checkpoint: Mutex::new(last),
        replayed,
        limiting: Mutex::new(()),
    }))
}

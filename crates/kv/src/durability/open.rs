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
use crate::state::records::Records;
use crate::state::view::View;

/// Opens the log of a store and builds its index.
pub(crate) fn open(dir: PathBuf, options: Options) -> Result<Arc<Inner>> {
    options.validate()?;
    let log = Log::builder(&dir).options(options.for_log()).open()?;
    let mut table = Table::new();
    let records = Records::Log(log.clone());
    let loaded = checkpoint::load(&records, &table).unwrap_or_else(|error| {
        tracing::warn!(%error, "the checkpoint is not used; opening reads the whole log");
        None
    });
    if loaded.is_none() {
        // The log might get other records under the numbers that it names.
        log.discard_checkpoint()?;
        table = Table::new();
    }
    let last = loaded.as_ref().map(|loaded| loaded.last).unwrap_or_default();
    let mut replay = Replay::new(&records, &table, loaded);
    let replayed = replay.run()?;
    let keyspaces = replay.finish()?;
    let cache = ValueCache::new(options.cache_bytes);
    let history_bytes = options.history_bytes;
    Ok(Arc::new(Inner {
        dir,
        options,
        log,
        view: Arc::new(View::new(records, table, cache, keyspaces, history_bytes)),
        catalog_lock: Mutex::new(()),
        cleaning: Cleaning::default(),
        checkpoint: Mutex::new(last),
        replayed,
    }))
}

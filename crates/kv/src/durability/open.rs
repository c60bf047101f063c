//! Opening a store.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use esker_log::{Log, ReadOnlyLog};

use crate::base::operation_errors::{ApplyError, OpenError};
use crate::base::options::{COMPONENT, Options};
use crate::base::read_only_options::ReadOnlyOptions;
use crate::base::trim_retries::TrimRetries;
use crate::cache::ValueCache;
use crate::durability::checkpoint;
use crate::durability::replay::{Replay, ReplayEnd};
use crate::health::Health;
use crate::index::arena::ENTRIES_BYTES_MAX;
use crate::index::table::Table;
use crate::state::gap::Gap;
use crate::state::keyspaces::Keyspaces;
use crate::state::log_follower::{FollowCursor, LogFollower};
use crate::state::records::Records;
use crate::state::store_state::StoreState;
use crate::state::store_writer::{LastCheckpoint, StoreWriter};

/// The index of a log when a store is opened.
struct BuiltIndex {
    table: Table,
    keyspaces: Keyspaces,
    checkpoint: LastCheckpoint,
    /// There is a checkpoint that cannot be used.
    checkpoint_corrupt: bool,
    replayed: ReplayEnd,
    gap: Gap,
}

/// Builds the index of a store from its log, also where it takes more than its limit. With
/// `skips_gaps`, as if nothing were missing.
fn build(records: &Records, limit: u64, skips_gaps: bool) -> Result<BuiltIndex, ApplyError> {
    let health = Arc::new(Health::default());
    let mut table = Table::new(limit, Arc::clone(&health));
    let loaded = checkpoint::load(records, &table);
    let checkpoint_corrupt = loaded.is_err();
    let loaded = loaded.unwrap_or_else(|error| {
        tracing::warn!(%error, "the checkpoint is not used; opening reads the whole log");
        None
    });
    if loaded.is_none() {
        // The log might get other records under the numbers that it names.
        records.discard_checkpoint()?;
        table = Table::new(limit, Arc::clone(&health));
    }
    let checkpoint = loaded.as_ref().map(|loaded| loaded.last).unwrap_or_default();
    let mut replay = Replay::new(records, &table, loaded, skips_gaps);
    let replayed = replay.run()?;
    let (keyspaces, gap) = replay.finish()?;
    health.check_invariants()?;
    Ok(BuiltIndex { table, keyspaces, checkpoint, checkpoint_corrupt, replayed, gap })
}

/// Opens the log of a store and builds its index.
pub(crate) fn open(dir: PathBuf, options: Options) -> Result<Arc<StoreWriter>, OpenError> {
    options.validate()?;
    let log = Log::builder(&dir).options(options.for_log()).open()?;
    let records = Records::Log(log.clone());
    let BuiltIndex { table, keyspaces, checkpoint, replayed, gap, .. } =
        build(&records, options.index_bytes, false)?;
    // The records are those of a store.
    if let Err(esker_log::OpenError::Corrupted(_)) = log.component().app_metadata(COMPONENT)
        && let Err(error) = log.component().put_app_metadata(COMPONENT, &[])
    {
        tracing::warn!(%error, "failed to restore the app metadata");
    }
    let cache = ValueCache::new(options.cache_bytes);
    let state = StoreState::new(records, table, cache, keyspaces, options.history_bytes, gap);
    Ok(Arc::new(StoreWriter::new(dir, options, log, state, checkpoint, replayed.records)))
}

/// The state of a store that is open for reading.
pub(crate) struct ReadOnlyState {
    pub(crate) log: ReadOnlyLog,
    pub(crate) state: Arc<StoreState>,
    pub(crate) opening: OpeningStats,
}

/// The statistics of an opening.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpeningStats {
    /// The bytes of the checkpoint that was loaded; 0 if none was.
    pub(crate) checkpoint_bytes: u64,
    /// There was a checkpoint that cannot be used.
    pub(crate) checkpoint_corrupt: bool,
    /// The number of records that were applied.
    pub(crate) replayed: u64,
}

/// Opens the log of a store for reading, without its lock, and builds an index.
pub(crate) fn open_read_only(
    dir: PathBuf,
    options: &ReadOnlyOptions,
) -> Result<ReadOnlyState, OpenError> {
    options.validate()?;
    let log = ReadOnlyLog::builder(&dir).options(options.log.clone()).open()?;
    log.component().expect(COMPONENT)?;
    let records = Records::ReadOnly(log.clone(), LogFollower::default());
    let mut trim_retries = TrimRetries::default();
    let built = loop {
        match build(&records, ENTRIES_BYTES_MAX, options.skip_quarantined) {
            // The writer's cleaning dropped records meanwhile.
            Err(ApplyError::Trimmed(trimmed)) => {
                trim_retries.count(trimmed)?;
                log.refresh()?;
            }
            built => break built?,
        }
    };
    let BuiltIndex { table, keyspaces, checkpoint, checkpoint_corrupt, replayed, gap } = built;
    let ReplayEnd { stream, last, records: applied } = replayed;
    let mut by_number: HashMap<_, _> =
        keyspaces.all().into_iter().map(|keys| (keys.id, keys)).collect();
    by_number.insert(keyspaces.catalog().id, Arc::clone(keyspaces.catalog()));
    let cursor = FollowCursor { stream: Some(stream), keyspaces: by_number, catch_up: None };
    let cache = ValueCache::new(options.cache_bytes);
    let records = Records::ReadOnly(log.clone(), LogFollower::new(last.0, cursor));
    let state = StoreState::new(records, table, cache, keyspaces, options.history_bytes, gap);
    let opening =
        OpeningStats { checkpoint_bytes: checkpoint.bytes, checkpoint_corrupt, replayed: applied };
    Ok(ReadOnlyState { log, state: Arc::new(state), opening })
}

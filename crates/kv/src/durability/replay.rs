//! Builds the index from the records of the log.
//!
//! # The argument
//!
//! The log is complete from its oldest record on: cleaning drops only a prefix, after every record
//! there that the index named was copied to the tail and is durable. So for each key, its newest
//! record in the log decides:
//!
//! - It is a put: the key has this value. No newer record existed, because a newer one would be in
//!   the log, too.
//! - It is a delete, or there is none: the key does not exist. A delete may have been dropped only
//!   together with everything before it.
//!
//! A copy that cleaning made is a put of the same value, at a place where the index named the
//! original. So it changes nothing, wherever a crash leaves it.
//!
//! With a checkpoint, only the records after its replay point are applied, and only where the
//! checkpoint has nothing newer: see [`super::checkpoint`].
//!
//! Records that were quarantined are missing. What is known then is in
//! `docs/decisions/050-a-store-over-a-gap.md`.
//!
//! The catalog of keyspaces is read in the same way. Records of a keyspace may come before its
//! entry in the catalog, because cleaning may have moved that. What no entry of the catalog names
//! at the end was dropped.

use std::collections::HashMap;
use std::sync::Arc;

use esker_log::component::RecordPlace;
use esker_log::{LogStream, Position, Seq, SeqRange, Start};

use crate::base::corrupted_record::CorruptedRecord;
use crate::base::operation_errors::ApplyError;
use crate::durability::checkpoint::{CheckpointNote, LoadedCheckpoint};
use crate::index::entry::Version;
use crate::index::keyspace_keys::KeyspaceKeys;
use crate::index::table::{CurrentVersion, Table};
use crate::record::{Record, put_len};
use crate::state::apply::apply_record;
use crate::state::gap::{Gap, range_before};
use crate::state::keyspaces::{CATALOG_ID, CatalogChange, DEFAULT_ID, DEFAULT_NAME, Keyspaces};
use crate::state::records::Records;

/// The horizon while the log is replayed: there are no readers of earlier versions.
const NO_READERS: u64 = u64::MAX;

/// The index while it is being built.
pub(super) struct Replay<'a> {
    log: &'a Records,
    table: &'a Table,
    keyspaces: HashMap<u32, KeyspaceKeys>,
    /// The checkpoint that was loaded before.
    checkpoint: Option<CheckpointNote>,
    gap: Gap,
    /// Whether gaps are skipped, as if nothing were missing.
    skips_gaps: bool,
}

/// The end of a replay.
pub(super) struct ReplayEnd {
    /// The stream, which continues after the last record.
    pub(super) stream: LogStream,
    pub(super) last: Seq,
    /// The number of records.
    pub(super) records: u64,
}

impl<'a> Replay<'a> {
    pub(super) fn new(
        log: &'a Records,
        table: &'a Table,
        loaded: Option<LoadedCheckpoint>,
        skips_gaps: bool,
    ) -> Self {
        let (keyspaces, checkpoint) = match loaded {
            Some(LoadedCheckpoint { note, keyspaces, .. }) => (keyspaces, Some(note)),
            None => (HashMap::new(), None),
        };
        Self { log, table, keyspaces, checkpoint, gap: Gap::default(), skips_gaps }
    }

    /// Applies the records of the log: all that the checkpoint may not have.
    pub(super) fn run(&mut self) -> Result<ReplayEnd, ApplyError> {
        let start = match self.checkpoint {
            Some(note) if note.replay.saturating_add(1) >= self.log.oldest().0 => {
                Start::After(Seq(note.replay))
            }
            _ => Start::Oldest,
        };
        let stream = self.log.stream(start)?;
        // Read after the stream has begun. So everything is durable at the end that replaces what
        // is missing before the stream; see `backup`.
        self.log.refresh()?;
        let (oldest, end) = (self.log.oldest(), self.log.end());
        let last = match start {
            Start::After(seq) => seq,
            _ => Seq(oldest.0.saturating_sub(1)),
        };
        let mut replayed = ReplayEnd { stream, last, records: 0 };
        loop {
            let batch = match replayed.stream.try_next() {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                Err(esker_log::ReadError::Quarantined(SeqRange { from, to })) => {
                    self.gap.add(from, to);
                    replayed.last = replayed.last.max(to);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            for record in &batch {
                self.apply(record.seq, record.position.0, record.payload)?;
                replayed.records += 1;
                replayed.last = record.seq;
            }
        }
        if replayed.last < end {
            return Err(esker_log::Error::NotFound { seq: end }.into());
        }
        if let Some(before) = range_before(oldest)
            && !self.gap.is_some()
            && self.log.was_repaired()?
        {
            self.gap.add(before.from, before.to);
        }
        Ok(replayed)
    }

    fn apply(&mut self, seq: Seq, offset: u64, payload: &[u8]) -> Result<(), ApplyError> {
        let invalid = |what| CorruptedRecord { seq, what };
        let record = Record::decode(payload).map_err(invalid)?;
        let id = record.keyspace;
        let keys = self.keyspaces.entry(id).or_insert_with(|| KeyspaceKeys::new(id, ""));
        self.gap.decide_by(&record, seq.0);
        let may_be_newer = LoadedCheckpoint::may_be_newer(self.checkpoint, seq.0);
        let place = (seq.0, offset);
        apply_record(self.table, keys, &record, place, NO_READERS, may_be_newer)?;
        if keys.wants_sorting(NO_READERS) {
            keys.sort_waiting(self.table, NO_READERS);
        }
        Ok(())
    }

    /// Returns the keyspaces that the catalog names, and the gaps. Removes the entries of all other
    /// keyspaces, and those of keys that have no record after the last gap.
    pub(super) fn finish(mut self) -> Result<(Keyspaces, Gap), ApplyError> {
        let gap = if self.skips_gaps { Gap::default() } else { self.gap };
        let end = self.log.end().next().0;
        let deleted = Version { seq: end, deleted: true, offset: 0, len: 0 };
        let mut take = |id, name: &str| {
            let keys = self.keyspaces.remove(&id).unwrap_or_else(|| KeyspaceKeys::new(id, ""));
            keys.set_name(name);
            keys.sort_waiting(self.table, NO_READERS);
            if let Some(SeqRange { to, .. }) = gap.last().filter(|_| id != CATALOG_ID) {
                keys.delete_before(self.table, to.next().0, deleted, NO_READERS);
                keys.remove_deleted(self.table, NO_READERS);
            }
            Arc::new(keys)
        };
        let catalog = take(CATALOG_ID, "");
        let default = take(DEFAULT_ID, DEFAULT_NAME);
        let mut named = Vec::new();
        for CatalogEntry { name, id, .. } in read_catalog(self.log, self.table, &catalog)? {
            named.push(take(id, &name));
        }
        let ids = self.keyspaces.keys().copied().chain(named.iter().map(|keys| keys.id)).max();
        let highest = ids.max(self.checkpoint.map(|note| note.highest));
        if gap.is_some() {
            tracing::warn!(
                gaps = gap.ranges().len(),
                unnamed_keyspaces = self.keyspaces.len(),
                "records were quarantined: keys without a record after the last gap are unknown"
            );
        }
        for (_, dropped) in self.keyspaces {
            dropped.delete_range(self.table, b"", None, deleted, NO_READERS, |_| {});
            dropped.remove_deleted(self.table, NO_READERS);
        }
        Ok((Keyspaces::new(catalog, default, named, highest.unwrap_or(0)), gap))
    }
}

/// An entry of the catalog.
struct CatalogEntry {
    name: String,
    id: u32,
    /// The record that has the entry.
    seq: Seq,
}

/// Reads the entries of the catalog.
fn read_catalog(
    log: &Records,
    table: &Table,
    catalog: &KeyspaceKeys,
) -> Result<Vec<CatalogEntry>, ApplyError> {
    let arena = table.arena();
    let sorted = catalog.sorted();
    let mut entries: Vec<CatalogEntry> = Vec::new();
    let mut cursor = sorted.seek(arena, b"");
    while let Some((id, next)) = sorted.next(cursor) {
        cursor = next;
        let mut name = Vec::new();
        arena.copy_key(id, &mut name);
        let Some(CurrentVersion { version, .. }) = table.at(id, NO_READERS) else { continue };
        if name.is_empty() {
            continue;
        }
        let seq = Seq(version.seq);
        let invalid = |what| CorruptedRecord { seq, what };
        let payload = log.read_placed(RecordPlace {
            seq,
            position: Position(version.offset),
            len: put_len(name.len(), version.len as usize),
        })?;
        let record = Record::decode(&payload).map_err(invalid)?;
        match CatalogChange::from_record(&record).map_err(invalid)? {
            Some(CatalogChange { name: found, id: Some(id) }) if found.as_bytes() == name => {
                entries.push(CatalogEntry { name: found.into(), id, seq });
            }
            _ => return Err(invalid("it does not name this keyspace").into()),
        }
    }
    entries.sort_by_key(|entry| entry.id);
    match entries.windows(2).find(|pair| pair[0].id == pair[1].id) {
        Some([_, second]) => {
            let what = "two keyspaces have its number";
            Err(CorruptedRecord { seq: second.seq, what }.into())
        }
        _ => Ok(entries),
    }
}

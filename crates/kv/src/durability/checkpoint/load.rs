//! Loading a checkpoint into an empty index.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use esker_disk::planted::{Bug, is_planted};
use esker_log::component::{CheckpointBuffer, CheckpointReader};

use super::format::{CheckpointEntry, CheckpointNote, NOTE_BYTES, SectionHeader};
use super::threads::{in_threads, threads};
use crate::base::store_error::StoreError;
use crate::index::arena::ENTRIES_BYTES_MAX;
use crate::index::build::{self, BuildError, IndexPart};
use crate::index::entry::SEQ_MAX;
use crate::index::keyspace_keys::KeyspaceKeys;
use crate::index::table::Table;
use crate::limits::{KEY_LIMIT, VALUE_LIMIT};
use crate::state::records::Records;
use crate::state::store_writer::LastCheckpoint;

/// An index that was loaded from a checkpoint.
#[derive(Debug)]
pub(crate) struct LoadedCheckpoint {
    pub(crate) note: CheckpointNote,
    pub(crate) keyspaces: HashMap<u32, KeyspaceKeys>,
    pub(crate) last: LastCheckpoint,
}

impl LoadedCheckpoint {
    /// Whether the checkpoint may have a newer version than the record of this number.
    pub(crate) fn may_be_newer(note: Option<CheckpointNote>, seq: u64) -> bool {
        note.is_some_and(|note| seq <= note.last)
    }
}

/// Loads the checkpoint of a log into an empty table. `None` if there is none, or none to be used.
pub(crate) fn load(log: &Records, table: &Table) -> Result<Option<LoadedCheckpoint>, StoreError> {
    if log.was_repaired()? {
        return Ok(None);
    }
    let Some(reader) = log.checkpoint_reader()? else { return Ok(None) };
    // It names what was durable when it was published, which may be a moment ago.
    log.refresh()?;
    let note = CheckpointNote::decode(reader.note());
    let note = note.filter(|note| note.replay <= note.last && note.last <= log.end().0);
    let note = note.ok_or_else(|| reader.invalid(0, "its note does not fit the log"))?;
    let oldest = log.oldest().0;
    let next = AtomicU32::new(0);
    let run = || load_chunks(&reader, table, note, oldest, &next);
    let threads = threads().min(reader.chunks() as usize).max(1);
    let parts = in_threads(threads, run).into_iter().collect::<Result<_, StoreError>>()?;
    let built = build::finish(table, parts, threads);
    let keyspaces = built.map_err(|_| reader.invalid(0, "its keys are not sorted"))?;
    let last = LastCheckpoint { offset: note.offset, bytes: reader.bytes() };
    Ok(Some(LoadedCheckpoint { note, keyspaces, last }))
}

fn load_chunks(
    reader: &CheckpointReader,
    table: &Table,
    note: CheckpointNote,
    oldest: u64,
    next: &AtomicU32,
) -> Result<IndexPart, StoreError> {
    let mut part = IndexPart::new();
    let mut buffer = CheckpointBuffer::default();
    loop {
        let number = next.fetch_add(1, SeqCst);
        if number >= reader.chunks() {
            return Ok(part);
        }
        let content = reader.chunk(number, &mut buffer)?;
        load_chunk(content, table, note, oldest, &mut part)
            .map_err(|what| reader.invalid(number, what))?;
    }
}

fn load_chunk(
    mut content: &[u8],
    table: &Table,
    note: CheckpointNote,
    oldest: u64,
    part: &mut IndexPart,
) -> Result<(), &'static str> {
    while !content.is_empty() {
        let (header, rest) = SectionHeader::decode(content).ok_or("a section is cut")?;
        part.begin(table, header.place, header.keyspace);
        content = rest;
        for _ in 0..header.entries {
            let (entry, rest) = CheckpointEntry::decode(content).ok_or("an entry is cut")?;
            content = rest;
            let CheckpointEntry { key, version } = entry;
            if key.len() > KEY_LIMIT || version.len as usize > VALUE_LIMIT {
                return Err("a key or a value is too long");
            }
            if version.seq == 0 || version.seq > note.last.min(SEQ_MAX) {
                return Err("the number of an entry is not one of the checkpoint");
            }
            // Cleaning dropped it since. Where its key still exists, the replay finds a record.
            if version.seq < oldest && !is_planted(Bug::StaleCheckpointUsed) {
                continue;
            }
            part.push(table, key, version).map_err(|error| match error {
                BuildError::Unsorted => "its keys are not sorted",
                BuildError::ArenaFull => "it has too many keys",
            })?;
        }
    }
    Ok(())
}

/// Decodes a note and the content of a chunk, and builds an index of them. Returns its number of
/// keys.
pub(crate) fn decode_any(bytes: &[u8]) -> Option<u64> {
    let (note, content) = bytes.split_at_checked(NOTE_BYTES)?;
    let (note, table, mut part) = (
        CheckpointNote::decode(note)?,
        Table::new(ENTRIES_BYTES_MAX, Arc::default()),
        IndexPart::new(),
    );
    load_chunk(content, &table, note, 0, &mut part).ok()?;
    let keyspaces = build::finish(&table, vec![part], 1).ok()?;
    let arena = table.arena();
    for keys in keyspaces.values() {
        let sorted = keys.sorted();
        let (mut cursor, mut count, mut last) = (sorted.seek(arena, b""), 0, None);
        while let Some((id, next)) = sorted.next(cursor) {
            let mut key = Vec::new();
            arena.copy_key(id, &mut key);
            let found = table.find(table.hash(keys.id, &key)).map(|found| found.id);
            assert_eq!(found, Some(id), "a sorted key is not in the table");
            assert!(last.as_ref() < Some(&key), "keys that are not sorted were accepted");
            (cursor, count, last) = (next, count + 1, Some(key));
        }
        assert_eq!(count, keys.count(), "the keys are not counted");
    }
    Some(keyspaces.values().map(KeyspaceKeys::count).sum())
}

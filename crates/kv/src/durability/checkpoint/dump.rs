//! Writing a checkpoint: a dump of the index, while callers continue.

use std::sync::Arc;

use esker_log::component::CheckpointChunk;
use parking_lot::Mutex;

use super::format::{
    CheckpointNote, ENTRY_HEADER_BYTES, SECTION_HEADER_BYTES, SectionHeader, encode_entry,
};
use super::threads::{in_threads, threads};
use crate::base::store_error::StoreError;
use crate::durability::bursts::Bursts;
use crate::index::entry::EntryId;
use crate::index::keyspace_keys::KeyspaceKeys;
use crate::index::table::Table;
use crate::state::store_writer::{LastCheckpoint, StoreWriter};

/// The number of keys that a thread takes at a time, and that are read while no key can be removed.
const DUMP_STEP_KEYS: usize = 2048;
/// The bits of a place that number the sections of one range.
const SECTION_PLACE_BITS: u32 = 20;
/// The bytes of encoded entries from which on they are written.
const ENCODED_BYTES_MAX: usize = 4 << 20;
/// The number of entries whose memory is requested ahead.
const PREFETCH_ENTRIES: usize = 16;
/// The growth of the log until the next checkpoint is written in the background: so many bytes, and
/// so many times the size of the last one.
const GROWTH_BYTES_MIN: u64 = 256 << 20;
const GROWTH_FACTOR: u64 = 4;
/// The bytes to be replayed from which on closing writes a checkpoint: so many, and this share of
/// the last one.
const CLOSE_BYTES_MIN: u64 = 1 << 20;
const CLOSE_SHARE: u64 = 8;
/// The length of a key for which the file of a checkpoint is created. It grows if keys are longer.
const EXPECTED_KEY_BYTES: usize = 16;

const _: () = assert!(DUMP_STEP_KEYS < 1 << SECTION_PLACE_BITS, "a range has a place per section");

/// The share of the processors that a dump takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DumpPace {
    /// All processors, because a caller waits.
    Whole,
    /// One processor, in bursts, because the dump is in the background.
    Bursts,
}

impl StoreWriter {
    /// Writes a checkpoint of the index. `false` if this store uses none, or if this is the
    /// background and another thread writes one.
    pub(crate) fn write_checkpoint(&self, pace: DumpPace) -> Result<bool, StoreError> {
        let state = self.state();
        state.health().check_invariants()?;
        if state.gap().is_some() || self.log.storage().was_repaired()? {
            return Ok(false);
        }
        let is_background = pace == DumpPace::Bursts;
        let Some(_one_at_a_time) = self.lock_checkpoint(!is_background)? else { return Ok(false) };
        // What a failed log has accepted never becomes durable.
        self.log.barrier()?.blocking_wait()?;
        let (replay, offset) = {
            // A caller that closes the store waits for the background, and writes one after that.
            let check = || if is_background { state.refuse_if_closing() } else { Ok(()) };
            let _no_copy_under_way = self.cleaning().lock_pass_for_writers(check)?;
            let now = (self.log.accepted().0, self.log.storage().metadata().position.0);
            // The index has every record that has its place.
            state.table().await_writers();
            now
        };
        let mut spaces = state.keyspaces().all();
        spaces.push(Arc::clone(state.keyspaces().catalog()));
        let keys = spaces.iter().map(|keys| keys.count()).sum::<u64>();
        for keys in &spaces {
            keys.sort_waiting(state.table(), state.horizon());
        }
        let entry_bytes = (ENTRY_HEADER_BYTES + EXPECTED_KEY_BYTES) as u64;
        let writer = self.log.component().checkpoint_writer(keys * entry_bytes)?;
        let cursor = Mutex::new(DumpCursor::default());
        let dump = || {
            let (chunk, ids, entries) = (writer.chunk(), Vec::new(), EncodedEntries::default());
            let bursts = Bursts::new(self, is_background);
            let table = state.table();
            DumpThread { table, chunk, ids, entries, keys: 0, bursts }.run(&spaces, &cursor)
        };
        let is_small = keys < DUMP_STEP_KEYS as u64;
        let threads = if is_small || is_background { 1 } else { threads() };
        let keys = in_threads(threads, dump).into_iter().sum::<Result<u64, StoreError>>()?;
        let last = self.log.barrier()?.blocking_wait()?.seq.0;
        let highest = state.keyspaces().highest();
        let note = CheckpointNote { replay, last, offset, keys, highest };
        state.health().ensure(replay <= last, "the replay point is durable after the dump")?;
        // An opening would not find a key that the index has lost.
        state.health().check_invariants()?;
        let bytes = writer.publish(&note.encode())?;
        self.set_last_checkpoint(LastCheckpoint { offset, bytes });
        Ok(true)
    }

    /// The bytes of the log since the last checkpoint.
    fn since_checkpoint(&self) -> (u64, LastCheckpoint) {
        let last = self.last_checkpoint();
        // The offset of the end of the log counts only what is durable.
        let offset = self.log.storage().metadata().position.0.max(self.cleaning().reached());
        (offset.saturating_sub(last.offset), last)
    }

    /// Whether the log has grown so much that a checkpoint pays.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        let (since, last) = self.since_checkpoint();
        since >= (last.bytes * GROWTH_FACTOR).max(GROWTH_BYTES_MIN)
    }

    /// Writes a checkpoint before the store is closed, if opening would take longer without.
    pub(crate) fn checkpoint_at_close(&self) {
        if self.state().health().check_invariants().is_err() {
            return;
        }
        if !self.log.barrier().is_ok_and(|all| all.blocking_wait().is_ok()) {
            return;
        }
        let (since, last) = self.since_checkpoint();
        if since >= (last.bytes / CLOSE_SHARE).max(CLOSE_BYTES_MIN) {
            self.checkpoint_or_warn(DumpPace::Whole);
        }
    }

    /// Writes a checkpoint. A failure costs a longer opening and nothing else.
    pub(crate) fn checkpoint_or_warn(&self, pace: DumpPace) {
        match self.write_checkpoint(pace) {
            Ok(_) => {}
            Err(error) if error.ends_store() => {}
            Err(error) => tracing::warn!(%error, "failed to write a checkpoint"),
        }
    }
}

/// The progress of the threads of a dump.
#[derive(Default)]
struct DumpCursor {
    /// The keyspace, and the lowest of its keys that no thread has taken.
    space: usize,
    from: Vec<u8>,
    /// The place of the next range.
    place: u64,
}

/// A range of keys that one thread writes.
struct DumpRange<'a> {
    keys: &'a KeyspaceKeys,
    from: Vec<u8>,
    /// The first key after it.
    to: Option<Vec<u8>>,
    place: u64,
}

impl DumpCursor {
    /// Takes the next range. `None` when there are no more.
    fn take<'a>(
        &mut self,
        table: &Table,
        spaces: &'a [Arc<KeyspaceKeys>],
    ) -> Option<DumpRange<'a>> {
        let keys = &**spaces.get(self.space)?;
        let sorted = keys.sorted();
        let arena = table.arena();
        let last = sorted.skip(sorted.seek(arena, &self.from), DUMP_STEP_KEYS);
        let to = sorted.next(last).map(|(id, _)| {
            let mut key = Vec::new();
            arena.copy_key(id, &mut key);
            key
        });
        let next = to.clone();
        self.space += usize::from(next.is_none());
        let from = std::mem::replace(&mut self.from, next.unwrap_or_default());
        self.place += 1 << SECTION_PLACE_BITS;
        Some(DumpRange { keys, from, to, place: self.place })
    }
}

/// One thread of a dump.
struct DumpThread<'a> {
    table: &'a Table,
    chunk: CheckpointChunk<'a>,
    ids: Vec<EntryId>,
    entries: EncodedEntries,
    keys: u64,
    bursts: Bursts<'a>,
}

impl DumpThread<'_> {
    /// Writes ranges until all are taken. Returns the number of keys.
    fn run(
        mut self,
        spaces: &[Arc<KeyspaceKeys>],
        cursor: &Mutex<DumpCursor>,
    ) -> Result<u64, StoreError> {
        loop {
            let Some(mut range) = cursor.lock().take(self.table, spaces) else { break };
            while self.encode(&mut range) {
                self.write(&mut range)?;
                self.bursts.pause()?;
            }
        }
        self.chunk.write()?;
        Ok(self.keys)
    }

    /// Encodes keys of the range, and takes them out of it. `false` when there are no more.
    fn encode(&mut self, range: &mut DumpRange<'_>) -> bool {
        let arena = self.table.arena();
        // While it is held, no entry is freed.
        let sorted = range.keys.sorted();
        let mut cursor = sorted.seek(arena, &range.from);
        let end = range.to.as_ref().map(|to| sorted.seek(arena, to));
        self.ids.clear();
        while self.ids.len() < DUMP_STEP_KEYS
            && let Some((id, next)) = sorted.next(cursor)
            && end.is_none_or(|end| next <= end)
        {
            self.ids.push(id);
            cursor = next;
        }
        let encoded = self.entries.encode(self.table, &self.ids);
        let Some(last) = encoded.checked_sub(1).and_then(|last| self.ids.get(last)) else {
            return false;
        };
        range.from.clear();
        arena.copy_key(*last, &mut range.from);
        range.from.push(0);
        true
    }

    /// Adds a section, or several if a chunk ends in it.
    fn write(&mut self, range: &mut DumpRange<'_>) -> Result<(), StoreError> {
        let mut left = self.entries.iter().peekable();
        while let Some(first) = left.peek() {
            if self.chunk.room() < SECTION_HEADER_BYTES + first.len() {
                self.chunk.write()?;
            }
            let start = self.chunk.content().len();
            self.chunk.push(&[0; SECTION_HEADER_BYTES])?;
            let mut entries = 0u32;
            while let Some(entry) = left.next_if(|entry| entry.len() <= self.chunk.room()) {
                self.chunk.push(entry)?;
                entries += 1;
            }
            // Otherwise the loop does not end.
            self.table.health().ensure(entries > 0, "an entry fits into an empty chunk")?;
            let header = SectionHeader { keyspace: range.keys.id, entries, place: range.place };
            header.encode(&mut self.chunk.content()[start..]);
            range.place += 1;
            let section = range.place & ((1 << SECTION_PLACE_BITS) - 1);
            debug_assert_ne!(section, 0, "a range has a place for each of its sections");
            self.keys += u64::from(entries);
        }
        Ok(())
    }
}

/// Encoded entries of a range.
#[derive(Default)]
struct EncodedEntries {
    bytes: Vec<u8>,
    /// The end of each of them.
    ends: Vec<usize>,
}

impl EncodedEntries {
    /// Encodes entries, up to a limit. Returns how many.
    fn encode(&mut self, table: &Table, ids: &[EntryId]) -> usize {
        let arena = table.arena();
        self.bytes.clear();
        self.ends.clear();
        for (n, id) in ids.iter().enumerate() {
            if self.bytes.len() >= ENCODED_BYTES_MAX {
                return n;
            }
            if let Some(ahead) = ids.get(n + PREFETCH_ENTRIES) {
                arena.prefetch(*ahead);
            }
            let version = table.newest(*id);
            if version.deleted {
                continue;
            }
            let (key_len, out) = (arena.key_len(*id), &mut self.bytes);
            encode_entry(version, key_len, out, |out| arena.copy_key(*id, out));
            self.ends.push(self.bytes.len());
        }
        ids.len()
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }
}

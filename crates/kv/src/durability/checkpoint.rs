//! Checkpoints of the index: opening loads the last one and replays what came after.
//!
//! # The argument
//!
//! A checkpoint has a *replay point*: a record whose effect, and that of every record before it,
//! was in the index when the dump began. For each key the dump names the newest put at the moment
//! when it came to that key, in the order of the keys, while callers go on. Then it waits until
//! everything accepted is durable, and only then the checkpoint is published. So every record that
//! it names is durable, and a crash takes none of them.
//!
//! Opening takes what it names and is still in the log, and replays every record after the replay
//! point. A record that is older than what the checkpoint has for its key changes nothing. For each
//! key, call what the dump saw *s*:
//!
//! - A put or delete after *s* has its place after the replay point, or the dump would have seen
//!   it. So it is replayed.
//! - If *s* is not in the log any more, cleaning dropped it, after it copied it or something
//!   replaced it. The copy has its place after the replay point, too, so it is replayed, or what
//!   replaced the copy. Here the dump could go wrong: the index names the original until the copy
//!   is durable. So no copy is under way when the replay point is taken.
//! - A key that the dump did not see did not exist then, and records after the replay point decide.
//!
//! A place may be wrong, because recovery moves records that it copies. Reading then finds the
//! record by its number.
//!
//! A repair may take away records that were durable. A store that was repaired uses no checkpoint.
//! An operator may restore an older copy of the log and leave a newer checkpoint beside it. Opening
//! then finds that the log ends before the records of the checkpoint. An opening that does not use
//! the checkpoint removes it, before the log gets other records under the same numbers.
//!
//! A checkpoint that is lost, corrupt or not used costs a longer opening and nothing else.
//!
//! # Format
//!
//! The chunks of the log's checkpoint file hold sections, one after the other:
//!
//! ```text
//! 0            4           8           16
//! | keyspace   | entries   | place     | entry ...        numbers are little-endian
//!
//! 0        8            16              20            24
//! | seq    | position   | value length  | key length  | key ...
//! ```
//!
//! `place` is a u64: the sections of a keyspace, in the order of their places, have the keys in
//! their order. `seq` and `position` are u64, the others u32.
//!
//! The note has the replay point, the highest sequence number in the chunks, the position of the
//! log at the replay point and the number of keys, as u64, and the highest number of a keyspace, as
//! u32.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst};

use esker_log::{CheckpointBuffer, CheckpointChunk, CheckpointReader};
use parking_lot::Mutex;

use crate::base::error::{Error, Result};
use crate::base::limits::{KEY_LIMIT, VALUE_LIMIT};
use crate::index::arena::{ENTRIES_MAX as INDEX_MAX, EntryId, Version};
use crate::index::build::{self, BuildError, Part};
use crate::index::keyspace::Keys;
use crate::index::table::Table;
use crate::state::inner::{Inner, LastCheckpoint};
use crate::state::records::Records;

const SECTION: usize = 16;
const ENTRY: usize = 24;
const NOTE: usize = 36;
/// Keys that a thread takes at a time, and that are read while no key can be removed.
const STEP: usize = 2048;
/// Bits of a place for the sections of one range.
const PLACES: u32 = 20;
/// Encoded entries are written when they take this many bytes.
const ENTRIES_MAX: usize = 4 << 20;
/// The number of entries whose memory is requested ahead.
const AHEAD: usize = 16;
/// The most threads that write or load a checkpoint.
const THREADS_MAX: usize = 4;
/// The log grows by this many bytes, and this many times the size of the last checkpoint, until the
/// next one is written in the background.
const GROWTH_MIN: u64 = 256 << 20;
const GROWTH: u64 = 4;
/// Closing writes one if so many bytes are to be replayed, and this share of the last checkpoint.
const CLOSE_MIN: u64 = 1 << 20;
const CLOSE_SHARE: u64 = 8;

/// What the note of a checkpoint says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Note {
    /// The replay point.
    pub(crate) replay: u64,
    /// The highest number that an entry may have.
    last: u64,
    /// The position of the log at the replay point.
    position: u64,
    keys: u64,
    /// The highest number of a keyspace.
    pub(crate) highest: u32,
}

impl Note {
    fn encode(self) -> Vec<u8> {
        let numbers = [self.replay, self.last, self.position, self.keys];
        let mut bytes: Vec<_> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        bytes.extend_from_slice(&self.highest.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; NOTE] = bytes.try_into().ok()?;
        let (numbers, _) = bytes.as_chunks::<8>();
        let [replay, last, position, keys] =
            *numbers.first_chunk::<4>().map(|all| all.map(u64::from_le_bytes)).as_ref()?;
        let highest = u32::from_le_bytes(*bytes.last_chunk()?);
        Some(Self { replay, last, position, keys, highest })
    }
}

/// An index that was loaded from a checkpoint.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) note: Note,
    pub(super) keyspaces: HashMap<u32, Keys>,
    pub(super) last: LastCheckpoint,
}

impl Loaded {
    /// Whether the checkpoint may have a newer version than the record of this number.
    pub(super) fn may_be_newer(note: Option<Note>, seq: u64) -> bool {
        note.is_some_and(|note| seq <= note.last)
    }
}

impl Inner {
    /// Writes a checkpoint of the index. `false` if this store uses none.
    pub(crate) fn write_checkpoint(&self) -> Result<bool> {
        if self.gap.is_some() || self.log.was_repaired()? {
            return Ok(false);
        }
        // What a failed log has accepted never becomes durable.
        self.log.barrier()?.blocking_wait()?;
        let (replay, position) = {
            let _no_copy_under_way = self.cleaning.pass.lock();
            let now = (self.log.accepted().0, self.log.metadata().position.0);
            // The index has every record that has its place.
            self.table.await_writers();
            now
        };
        let mut spaces = self.keyspaces.all();
        spaces.push(Arc::clone(&self.keyspaces.catalog));
        let keys = spaces.iter().map(|keys| keys.count()).sum::<u64>();
        for keys in &spaces {
            keys.put_in_order(&self.table, self.horizon());
        }
        // Of keys of 16 bytes. The file grows if they are longer.
        let writer = self.log.checkpoint_writer(keys * (ENTRY as u64 + 16))?;
        let cursor = Mutex::new(Cursor::default());
        let dump = || {
            let (chunk, ids, entries) = (writer.chunk(), Vec::new(), Entries::default());
            Dump { table: &self.table, chunk, ids, entries, keys: 0 }.run(&spaces, &cursor)
        };
        let threads = if keys < STEP as u64 { 1 } else { threads() };
        let keys = in_threads(threads, dump).into_iter().sum::<Result<u64>>()?;
        let last = self.log.barrier()?.blocking_wait()?.seq.0;
        let highest = self.keyspaces.highest();
        let note = Note { replay, last, position, keys, highest };
        let bytes = writer.publish(&note.encode())?;
        *self.checkpoint.lock() = LastCheckpoint { position, bytes };
        Ok(true)
    }

    /// Bytes of the log since the last checkpoint.
    fn since_checkpoint(&self) -> (u64, LastCheckpoint) {
        let last = *self.checkpoint.lock();
        // The position of the log counts only what is durable.
        let position = self.log.metadata().position.0.max(self.cleaning.reached.load(Relaxed));
        (position.saturating_sub(last.position), last)
    }

    /// Whether the log has grown so much that a checkpoint pays.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        let (since, last) = self.since_checkpoint();
        since >= (last.bytes * GROWTH).max(GROWTH_MIN)
    }

    /// Writes a checkpoint before the store is closed, if opening would take longer without.
    pub(crate) fn checkpoint_at_close(&self) {
        if !self.log.barrier().is_ok_and(|all| all.blocking_wait().is_ok()) {
            return;
        }
        let (since, last) = self.since_checkpoint();
        if since >= (last.bytes / CLOSE_SHARE).max(CLOSE_MIN) {
            self.checkpoint_or_warn();
        }
    }

    /// Writes a checkpoint. A failure costs a longer opening and nothing else.
    pub(crate) fn checkpoint_or_warn(&self) {
        match self.write_checkpoint() {
            Ok(_) | Err(Error::Closed) => {}
            Err(error) => tracing::warn!(%error, "failed to write a checkpoint"),
        }
    }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX)
}

/// Runs the same work in several threads, this one included.
fn in_threads<T: Send>(threads: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(&work)).collect();
        let mut all = vec![work()];
        for other in others {
            all.push(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        all
    })
}

/// Where the threads of a dump are.
#[derive(Default)]
struct Cursor {
    /// The keyspace, and the lowest of its keys that no thread has taken.
    space: usize,
    from: Vec<u8>,
    /// The place of the next range.
    place: u64,
}

/// A range of keys that one thread writes.
struct Range<'a> {
    keys: &'a Keys,
    from: Vec<u8>,
    /// The first key after it.
    to: Option<Vec<u8>>,
    place: u64,
}

impl Cursor {
    /// Takes the next range. `None` when there are no more.
    fn take<'a>(&mut self, table: &Table, spaces: &'a [Arc<Keys>]) -> Option<Range<'a>> {
        let keys = &**spaces.get(self.space)?;
        let order = keys.order();
        let arena = table.arena();
        let last = order.skip(order.seek(arena, &self.from), STEP);
        let to = order.next(last).map(|(id, _)| {
            let mut key = Vec::new();
            arena.copy_key(id, &mut key);
            key
        });
        let next = to.clone();
        self.space += usize::from(next.is_none());
        let from = std::mem::replace(&mut self.from, next.unwrap_or_default());
        self.place += 1 << PLACES;
        Some(Range { keys, from, to, place: self.place })
    }
}

/// One thread of a dump.
struct Dump<'a> {
    table: &'a Table,
    chunk: CheckpointChunk<'a>,
    ids: Vec<EntryId>,
    entries: Entries,
    keys: u64,
}

impl Dump<'_> {
    /// Writes ranges until all are taken. Returns the number of keys.
    fn run(mut self, spaces: &[Arc<Keys>], cursor: &Mutex<Cursor>) -> Result<u64> {
        loop {
            let Some(mut range) = cursor.lock().take(self.table, spaces) else { break };
            while self.encode(&mut range) {
                self.write(&mut range)?;
            }
        }
        self.chunk.write()?;
        Ok(self.keys)
    }

    /// Encodes keys of the range, and takes them out of it. `false` when there are no more.
    fn encode(&mut self, range: &mut Range<'_>) -> bool {
        let arena = self.table.arena();
        // While it is held, no entry is freed.
        let order = range.keys.order();
        let mut spot = order.seek(arena, &range.from);
        let end = range.to.as_ref().map(|to| order.seek(arena, to));
        self.ids.clear();
        while self.ids.len() < STEP
            && let Some((id, next)) = order.next(spot)
            && end.is_none_or(|end| next <= end)
        {
            self.ids.push(id);
            spot = next;
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
    fn write(&mut self, range: &mut Range<'_>) -> Result<()> {
        let mut left = self.entries.iter().peekable();
        while let Some(first) = left.peek() {
            if self.chunk.room() < SECTION + first.len() {
                self.chunk.write()?;
            }
            let start = self.chunk.content().len();
            self.chunk.push(&[0; SECTION])?;
            let mut count = 0u32;
            while let Some(entry) = left.next_if(|entry| entry.len() <= self.chunk.room()) {
                self.chunk.push(entry)?;
                count += 1;
            }
            let header = &mut self.chunk.content()[start..];
            header[..4].copy_from_slice(&range.keys.id.to_le_bytes());
            header[4..8].copy_from_slice(&count.to_le_bytes());
            header[8..SECTION].copy_from_slice(&range.place.to_le_bytes());
            range.place += 1;
            self.keys += u64::from(count);
        }
        Ok(())
    }
}

/// Some encoded entries.
#[derive(Default)]
struct Entries {
    bytes: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<usize>,
}

impl Entries {
    /// Encodes entries, up to a limit. Returns how many.
    fn encode(&mut self, table: &Table, ids: &[EntryId]) -> usize {
        let arena = table.arena();
        self.bytes.clear();
        self.ends.clear();
        for (n, id) in ids.iter().enumerate() {
            if self.bytes.len() >= ENTRIES_MAX {
                return n;
            }
            if let Some(ahead) = ids.get(n + AHEAD) {
                arena.prefetch(*ahead);
            }
            let version = table.newest(*id);
            if version.deleted {
                continue;
            }
            self.bytes.extend_from_slice(&version.seq.to_le_bytes());
            self.bytes.extend_from_slice(&version.position.to_le_bytes());
            self.bytes.extend_from_slice(&version.len.to_le_bytes());
            self.bytes.extend_from_slice(&(arena.key_len(*id) as u32).to_le_bytes());
            arena.copy_key(*id, &mut self.bytes);
            self.ends.push(self.bytes.len());
        }
        ids.len()
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }
}

/// Loads the checkpoint of a log into an empty table. `None` if there is none, or none to be used.
pub(super) fn load(log: &Records, table: &Table) -> Result<Option<Loaded>> {
    if log.was_repaired()? {
        return Ok(None);
    }
    let Some(reader) = log.checkpoint_reader()? else { return Ok(None) };
    // It names what was durable when it was published, which may be a moment ago.
    log.refresh()?;
    let note = Note::decode(reader.note());
    let note = note.filter(|note| note.replay <= note.last && note.last <= log.end().0);
    let note = note.ok_or_else(|| reader.invalid(0, "its note does not fit the log"))?;
    let oldest = log.oldest().0;
    let next = AtomicU32::new(0);
    let run = || load_chunks(&reader, table, note, oldest, &next);
    let threads = threads().min(reader.chunks() as usize).max(1);
    let parts = in_threads(threads, run).into_iter().collect::<Result<_>>()?;
    let built = build::finish(table, parts, threads);
    let keyspaces = built.map_err(|_| reader.invalid(0, "its keys are not sorted"))?;
    let last = LastCheckpoint { position: note.position, bytes: reader.bytes() };
    Ok(Some(Loaded { note, keyspaces, last }))
}

fn load_chunks(
    reader: &CheckpointReader,
    table: &Table,
    note: Note,
    oldest: u64,
    next: &AtomicU32,
) -> Result<Part> {
    let mut part = Part::new();
    let mut buffer = CheckpointBuffer::default();
    loop {
        let number = next.fetch_add(1, SeqCst);
        if number >= reader.chunks() {
            return Ok(part);
        }
        let content = reader.chunk(number, &mut buffer)?;
        load_chunk(content, table, note, oldest, &mut part)
            .map_err(|what| Error::from(reader.invalid(number, what)))?;
    }
}

fn load_chunk(
    mut content: &[u8],
    table: &Table,
    note: Note,
    oldest: u64,
    part: &mut Part,
) -> std::result::Result<(), &'static str> {
    while !content.is_empty() {
        let (header, rest) = content.split_first_chunk::<SECTION>().ok_or("a section is cut")?;
        let (keyspace, entries, place) = section(header);
        part.begin(table, place, keyspace);
        content = rest;
        for _ in 0..entries {
            let (entry, rest) = Entry::decode(content).ok_or("an entry is cut")?;
            content = rest;
            let Entry { key, version } = entry;
            if key.len() > KEY_LIMIT || version.len as usize > VALUE_LIMIT {
                return Err("a key or a value is too long");
            }
            if version.seq > note.last {
                return Err("an entry is newer than the checkpoint");
            }
            // Cleaning dropped it since. Where its key still exists, the replay finds a record.
            if version.seq < oldest {
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
    let (note, content) = bytes.split_at_checked(NOTE)?;
    let (note, table, mut part) = (Note::decode(note)?, Table::new(INDEX_MAX), Part::new());
    load_chunk(content, &table, note, 0, &mut part).ok()?;
    let keyspaces = build::finish(&table, vec![part], 1).ok()?;
    let arena = table.arena();
    for keys in keyspaces.values() {
        let order = keys.order();
        let (mut spot, mut count, mut last) = (order.seek(arena, b""), 0, None);
        while let Some((id, next)) = order.next(spot) {
            let mut key = Vec::new();
            arena.copy_key(id, &mut key);
            let found = table.find(table.hash(keys.id, &key)).map(|found| found.id);
            assert_eq!(found, Some(id), "a key of the order is not in the table");
            assert!(last.as_ref() < Some(&key), "keys that are not sorted were accepted");
            (spot, count, last) = (next, count + 1, Some(key));
        }
        assert_eq!(count, keys.count(), "the keys are not counted");
    }
    Some(keyspaces.values().map(Keys::count).sum())
}

/// The keyspace, the number of entries and the place of a section.
fn section(header: &[u8; SECTION]) -> (u32, u32, u64) {
    let [k0, k1, k2, k3, n0, n1, n2, n3, place @ ..] = *header;
    let (keyspace, entries) = ([k0, k1, k2, k3], [n0, n1, n2, n3]);
    (u32::from_le_bytes(keyspace), u32::from_le_bytes(entries), u64::from_le_bytes(place))
}

/// An entry of a chunk.
struct Entry<'a> {
    key: &'a [u8],
    version: Version,
}

impl<'a> Entry<'a> {
    #[inline]
    fn decode(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (header, rest) = bytes.split_first_chunk::<ENTRY>()?;
        let (words, lens) = header.split_first_chunk::<16>()?;
        let (seq, position) = words.split_first_chunk::<8>()?;
        let (len, key_len) = lens.split_first_chunk::<4>()?;
        let key_len = u32::from_le_bytes(*key_len.first_chunk()?) as usize;
        let (key, rest) = rest.split_at_checked(key_len)?;
        let version = Version {
            seq: u64::from_le_bytes(*seq),
            deleted: false,
            position: u64::from_le_bytes(*position.first_chunk()?),
            len: u32::from_le_bytes(*len),
        };
        Some((Self { key, version }, rest))
    }
}

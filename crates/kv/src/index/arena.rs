//! The memory of index entries: a key and the place of its newest record, in words.
//!
//! Every word is an atomic, read and written with relaxed ordering. So a reader with a reference
//! to an entry that was freed meanwhile reads another key's words, and never invalid memory. What
//! makes entries consistent is the lock of their shard (see [`super::table`]): it is held to change
//! an entry, to read its version, and to free it. The key of an entry never changes.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::health::Health;
use crate::index::entry::{
    EntryId, HEADER_WORDS, HashedKey, KEY_LEN_MASK, LISTED_FLAG, SEQ_MAX, SHARD_COUNT, SHARD_SHIFT,
    USED_FLAG, VALUE_LEN_BITS, VALUE_LEN_MASK, VALUE_LEN_SHIFT, Version, WORD_CACHED,
    WORD_KEYSPACE, WORD_LENGTHS, WORD_OFFSET, WORD_VERSION, key_word, lengths_word, words_for,
};
use crate::limits::{KEY_LIMIT, VALUE_LIMIT};
use crate::memory::Words;

/// The number of words of a slab, 4 MiB.
const SLAB_WORDS: usize = 1 << SLAB_OFFSET_BITS;
const SLAB_BYTES: u64 = (SLAB_WORDS * size_of::<u64>()) as u64;
const SLAB_OFFSET_BITS: u32 = 19;
const SLABS_MAX: usize = 1 << (u32::BITS - SLAB_OFFSET_BITS);
/// The number of slabs that are left when the arena counts as full: 1 GiB.
const FREE_SLABS_MIN: usize = 256;
/// The most bytes of entries after which the arena counts as full.
pub(crate) const ENTRIES_BYTES_MAX: u64 = (SLABS_MAX - FREE_SLABS_MIN) as u64 * SLAB_BYTES;
/// The fewest bytes of an arena: one slab for keys, and the one that is kept free.
pub(crate) const ENTRIES_BYTES_MIN: u64 = 2 * SLAB_BYTES;
/// The number of freed entries that are left for concurrent writers where the arena counts as full:
/// one for each write lock.
const FREE_ENTRIES_MIN: usize = SHARD_COUNT;
const _: () = assert!(words_for(KEY_LIMIT) <= SLAB_WORDS, "every entry fits into a slab");
// A writer takes an entry under a write lock, so as many may be taken after the check for room.
const _: () = assert!(
    SHARD_COUNT * words_for(KEY_LIMIT) <= FREE_SLABS_MIN * SLAB_WORDS,
    "what is left of the arena is an entry of the largest size for each write lock"
);

pub(crate) struct Arena {
    memory: Box<[OnceLock<Words>]>,
    free: Mutex<FreeEntries>,
    /// The number of slabs in use.
    slabs: AtomicUsize,
    /// The number of slabs in use from which on the arena counts as full.
    full: usize,
    health: Arc<Health>,
    /// Whether every allocation fails.
    #[cfg(test)]
    exhausted: std::sync::atomic::AtomicBool,
}

/// The slab that entries are taken from, and the next free word there.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct OpenSlab(Option<(usize, usize)>);

impl OpenSlab {
    #[inline]
    fn take(&mut self, words: usize) -> Option<EntryId> {
        let (slab, next) = self.0.filter(|(_, next)| next + words <= SLAB_WORDS)?;
        self.0 = Some((slab, next + words));
        Some(EntryId::from_number((slab << SLAB_OFFSET_BITS | next) as u32))
    }
}

#[derive(Default)]
struct FreeEntries {
    open: OpenSlab,
    /// Freed entries by their number of words.
    entries: HashMap<usize, Vec<EntryId>>,
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arena").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl Arena {
    /// An arena that counts as full when its entries take this many bytes.
    pub(crate) fn new(limit: u64, health: Arc<Health>) -> Self {
        Self {
            memory: std::iter::repeat_with(OnceLock::new).take(SLABS_MAX).collect(),
            free: Mutex::default(),
            slabs: AtomicUsize::new(0),
            full: (limit.min(ENTRIES_BYTES_MAX) / SLAB_BYTES) as usize,
            health,
            #[cfg(test)]
            exhausted: std::sync::atomic::AtomicBool::new(false),
        }
    }

    pub(crate) fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Makes every later allocation fail, although [`Arena::is_nearly_full`] reports room.
    #[cfg(test)]
    pub(crate) fn exhaust(&self) {
        self.exhausted.store(true, Relaxed);
    }

    /// Allocates an entry for a key. `None` when the arena is full, at about 32 GiB.
    pub(crate) fn allocate(
        &self,
        hashed: HashedKey<'_>,
        version: Version,
        cached: u64,
    ) -> Option<EntryId> {
        let id = self.take(hashed)?;
        self.fill(id, hashed, version, cached);
        Some(id)
    }

    /// As [`Arena::allocate`], from memory that only this caller takes entries from. The value is
    /// not cached.
    pub(super) fn allocate_in(
        &self,
        open: &mut OpenSlab,
        hashed: HashedKey<'_>,
        version: Version,
    ) -> Option<EntryId> {
        let words = words_for(hashed.key.len());
        let id = match open.take(words) {
            Some(id) => id,
            None => self.take_slab(open, words)?,
        };
        self.fill(id, hashed, version, 0);
        Some(id)
    }

    #[inline]
    fn fill(&self, id: EntryId, hashed: HashedKey<'_>, version: Version, cached: u64) {
        let HashedKey { keyspace, key, hash, .. } = hashed;
        let words = self.words(id);
        words[WORD_LENGTHS].store(lengths_word(hashed), Relaxed);
        words[WORD_KEYSPACE].store(u64::from(keyspace) | u64::from(hash) << 32, Relaxed);
        for (n, word) in words[HEADER_WORDS..words_for(key.len())].iter().enumerate() {
            word.store(key_word(key, n * 8), Relaxed);
        }
        self.set(id, version, cached);
    }

    fn take(&self, hashed: HashedKey<'_>) -> Option<EntryId> {
        #[cfg(test)]
        if self.exhausted.load(Relaxed) {
            return None;
        }
        let words = words_for(hashed.key.len());
        let mut free = self.free.lock();
        if let Some(id) = free.entries.get_mut(&words).and_then(Vec::pop) {
            debug_assert_eq!(words_for(self.key_len(id)), words, "a freed entry keeps its size");
            return Some(id);
        }
        let id = match free.open.take(words) {
            Some(id) => id,
            None => self.take_slab(&mut free.open, words)?,
        };
        // Under the lock: `for_each` steps over entries that are not filled yet.
        self.words(id)[WORD_LENGTHS].store(lengths_word(hashed), Relaxed);
        Some(id)
    }

    /// Takes an entry from a new slab, which is open from then on.
    fn take_slab(&self, open: &mut OpenSlab, words: usize) -> Option<EntryId> {
        let slab = self
            .slabs
            .fetch_update(Relaxed, Relaxed, |slabs| (slabs < SLABS_MAX).then_some(slabs + 1));
        let slab = slab.ok()?;
        if self.memory[slab].set(Words::zeroed(SLAB_WORDS)).is_err() {
            // Two threads would take the same entries.
            self.health.fail("a slab of the arena is mapped once");
            return None;
        }
        *open = OpenSlab(Some((slab, 0)));
        open.take(words)
    }

    /// Frees the entry of a deleted key that neither a table nor a sorted list names any more.
    pub(crate) fn free(&self, id: EntryId) {
        if !self.version(id).deleted {
            self.health.fail("an entry that is freed is of a deleted key");
            return;
        }
        let words = words_for(self.key_len(id));
        self.free.lock().entries.entry(words).or_default().push(id);
    }

    /// Visits the version of every entry that is in use throughout the call, and of others, in the
    /// order of the memory. Takes no lock for long: a version that changes meanwhile may be seen
    /// before or after that, or with the length of the other one.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(EntryId, Version)) {
        let (open, slabs) = {
            let free = self.free.lock();
            (free.open.0, self.slabs.load(Relaxed))
        };
        for slab in 0..slabs {
            let end =
                open.filter(|(number, _)| *number == slab).map_or(SLAB_WORDS, |(_, next)| next);
            let mut at = 0;
            while at + HEADER_WORDS <= end {
                let id = EntryId::from_number((slab << SLAB_OFFSET_BITS | at) as u32);
                if self.word(id, WORD_LENGTHS) & USED_FLAG == 0 {
                    break;
                }
                let version = self.version(id);
                if version.seq > 0 {
                    visit(id, version);
                }
                // An entry that is used again has the same number of words.
                at += words_for(self.key_len(id));
            }
        }
    }

    /// Whether so little room is left that no writer may begin a write of a new key. What is left
    /// is more than one entry of the largest size for each write lock.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.slabs.load(Relaxed) >= self.full
    }

    /// Whether freed entries suffice for so many new keys, each of this length.
    pub(crate) fn has_free(&self, key_len: usize, keys: usize) -> bool {
        let free = self.free.lock();
        let entries = free.entries.get(&words_for(key_len)).map_or(0, Vec::len);
        entries >= keys + FREE_ENTRIES_MIN
    }

    /// The bytes of memory reserved.
    pub(crate) fn bytes(&self) -> u64 {
        self.slabs.load(Relaxed) as u64 * SLAB_BYTES
    }

    /// Requests the memory of an entry, to be used soon.
    #[inline]
    pub(crate) fn prefetch(&self, id: EntryId) {
        let words = self.words(id);
        if let (Some(first), Some(key)) = (words.first(), words.get(HEADER_WORDS + 1)) {
            esker_log::prefetch(first);
            esker_log::prefetch(key);
        }
    }

    #[inline]
    fn words(&self, id: EntryId) -> &[AtomicU64] {
        let id = id.number();
        let (slab, offset) = ((id >> SLAB_OFFSET_BITS) as usize, id as usize & (SLAB_WORDS - 1));
        self.memory[slab].get().map_or(&[], |slab| &slab[offset..])
    }

    #[inline]
    fn word(&self, id: EntryId, n: usize) -> u64 {
        match self.words(id).get(n) {
            Some(word) => word.load(Relaxed),
            None => self.no_word(),
        }
    }

    /// Fails the store, because it has a number that is of no entry. The reader of the entry
    /// continues with an empty key, which is no answer any more.
    #[cold]
    #[inline(never)]
    fn no_word(&self) -> u64 {
        self.health.fail("the number of an entry is of one in the arena");
        0
    }

    /// Stores a version, and the place of its value in the cache; 0 if it is not there.
    #[inline]
    pub(crate) fn set(&self, id: EntryId, version: Version, cached: u64) {
        let words = self.words(id);
        let Version { seq, deleted, offset, len } = version;
        debug_assert!(seq <= SEQ_MAX, "a sequence number leaves a bit for the delete");
        debug_assert!(len as usize <= VALUE_LIMIT, "a value is within its limit");
        words[WORD_VERSION].store(seq << 1 | u64::from(deleted), Relaxed);
        words[WORD_OFFSET].store(offset, Relaxed);
        words[WORD_CACHED].store(cached, Relaxed);
        let lengths = words[WORD_LENGTHS].load(Relaxed);
        words[WORD_LENGTHS]
            .store(lengths & !VALUE_LEN_BITS | u64::from(len) << VALUE_LEN_SHIFT, Relaxed);
    }

    /// Whether the entry is in the list of deleted ones.
    pub(crate) fn is_listed(&self, id: EntryId) -> bool {
        self.word(id, WORD_LENGTHS) & LISTED_FLAG != 0
    }

    pub(crate) fn set_listed(&self, id: EntryId, listed: bool) {
        let lengths = self.word(id, WORD_LENGTHS) & !LISTED_FLAG;
        self.words(id)[WORD_LENGTHS].store(lengths | if listed { LISTED_FLAG } else { 0 }, Relaxed);
    }

    pub(crate) fn set_cached(&self, id: EntryId, cached: u64) {
        self.words(id)[WORD_CACHED].store(cached, Relaxed);
    }

    #[inline]
    pub(crate) fn version(&self, id: EntryId) -> Version {
        let version = self.word(id, WORD_VERSION);
        Version {
            seq: version >> 1,
            deleted: version & 1 == 1,
            offset: self.word(id, WORD_OFFSET),
            len: (self.word(id, WORD_LENGTHS) >> VALUE_LEN_SHIFT & VALUE_LEN_MASK) as u32,
        }
    }

    #[inline]
    pub(crate) fn cached(&self, id: EntryId) -> u64 {
        self.word(id, WORD_CACHED)
    }

    /// The key's shard, and its hash in the table of the shard.
    #[inline]
    pub(crate) fn hash(&self, id: EntryId) -> (u8, u32) {
        (
            (self.word(id, WORD_LENGTHS) >> SHARD_SHIFT) as u8,
            (self.word(id, WORD_KEYSPACE) >> 32) as u32,
        )
    }

    #[inline]
    pub(crate) fn keyspace(&self, id: EntryId) -> u32 {
        self.word(id, WORD_KEYSPACE) as u32
    }

    #[inline]
    pub(crate) fn key_len(&self, id: EntryId) -> usize {
        (self.word(id, WORD_LENGTHS) & KEY_LEN_MASK) as usize
    }

    /// The eight bytes of the key from this offset on, as [`key_word`] returns them.
    #[inline]
    pub(super) fn key_word(&self, id: EntryId, from: usize) -> u64 {
        let len = self.key_len(id);
        if from >= len {
            return 0;
        }
        let (n, shift) = (HEADER_WORDS + from / 8, from % 8 * 8);
        let high = self.word(id, n) << shift;
        if shift == 0 || n + 1 >= words_for(len) {
            return high;
        }
        high | self.word(id, n + 1) >> (64 - shift)
    }

    /// Whether this is the entry of the key.
    #[inline]
    pub(crate) fn has_key(&self, id: EntryId, keyspace: u32, key: &[u8]) -> bool {
        self.keyspace(id) == keyspace
            && self.key_len(id) == key.len()
            && (0..key.len())
                .step_by(8)
                .all(|from| self.word(id, HEADER_WORDS + from / 8) == key_word(key, from))
    }

    /// Whether the key of an entry is below a key.
    pub(crate) fn is_below(&self, id: EntryId, key: &[u8]) -> bool {
        self.compare(id, key, 0) == Ordering::Less
    }

    /// Compares the key of an entry with a key, both from this offset on.
    pub(super) fn compare(&self, id: EntryId, key: &[u8], mut from: usize) -> Ordering {
        let len = self.key_len(id);
        while from < len.min(key.len()) {
            match self.key_word(id, from).cmp(&key_word(key, from)) {
                Ordering::Equal => from += 8,
                unequal => return unequal,
            }
        }
        len.cmp(&key.len())
    }

    /// Compares the keys of two entries, both from this offset on.
    pub(super) fn compare_entries(&self, a: EntryId, b: EntryId, mut from: usize) -> Ordering {
        let (len_a, len_b) = (self.key_len(a), self.key_len(b));
        while from < len_a.min(len_b) {
            match self.key_word(a, from).cmp(&self.key_word(b, from)) {
                Ordering::Equal => from += 8,
                unequal => return unequal,
            }
        }
        len_a.cmp(&len_b)
    }

    /// The length of the longest common prefix of the keys of two entries.
    pub(super) fn common_prefix(&self, a: EntryId, b: EntryId) -> usize {
        let len = self.key_len(a).min(self.key_len(b));
        let mut from = 0;
        while from < len {
            let unequal = self.key_word(a, from) ^ self.key_word(b, from);
            if unequal != 0 {
                return len.min(from + (unequal.leading_zeros() / 8) as usize);
            }
            from += 8;
        }
        len
    }

    /// Appends the key to a buffer.
    pub(crate) fn copy_key(&self, id: EntryId, out: &mut Vec<u8>) {
        let (start, len) = (out.len(), self.key_len(id));
        for from in (0..len).step_by(8) {
            out.extend_from_slice(&self.word(id, HEADER_WORDS + from / 8).to_be_bytes());
        }
        out.truncate(start + len);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIRST: Version = Version { seq: 7, deleted: false, offset: 4096, len: 3 };

    fn allocate(arena: &Arena, key: &[u8]) -> EntryId {
        arena.allocate(HashedKey { keyspace: 1, key, shard: 7, hash: 9 }, FIRST, 0).unwrap()
    }

    fn delete(arena: &Arena, id: EntryId) {
        arena.set(id, Version { deleted: true, ..FIRST }, 0);
    }

    /// Bug: the number of no entry read as the entry of an empty key.
    #[test]
    fn a_number_of_no_entry_fails_the_store() {
        let arena = Arena::new(ENTRIES_BYTES_MAX, Arc::default());
        arena.health().never_panic();
        allocate(&arena, b"a");
        assert!(arena.health().check().is_ok());
        arena.version(EntryId::from_number(7 << SLAB_OFFSET_BITS));
        assert!(arena.health().check().is_err());
    }

    #[test]
    fn an_entry_of_a_key_that_exists_is_never_freed() {
        let arena = Arena::new(ENTRIES_BYTES_MAX, Arc::default());
        arena.health().never_panic();
        let id = allocate(&arena, b"a");
        arena.free(id);
        assert!(arena.health().check().is_err());
        assert_ne!(allocate(&arena, b"b"), id);
    }

    #[test]
    fn entries_keep_key_and_version() {
        let arena = Arena::new(ENTRIES_BYTES_MAX, Arc::default());
        let long = vec![b'x'; 1 << 20];
        let ids: Vec<_> = [&b""[..], b"a", b"12345678", &long, b"b"]
            .iter()
            .map(|key| (*key, allocate(&arena, key)))
            .collect();
        for (key, id) in ids {
            assert!(arena.has_key(id, 1, key) && !arena.has_key(id, 2, key));
            let mut copy = b"-".to_vec();
            arena.copy_key(id, &mut copy);
            assert_eq!(&copy[1..], key);
            assert_eq!((arena.version(id), arena.hash(id)), (FIRST, (7, 9)));
            assert!(!arena.is_listed(id));
            arena.set_listed(id, true);
            let deleted = Version { seq: 8, deleted: true, offset: 9, len: 0 };
            arena.set(id, deleted, 5);
            assert_eq!((arena.version(id), arena.cached(id)), (deleted, 5));
            assert!(arena.is_listed(id) && arena.hash(id) == (7, 9));
            assert!(arena.has_key(id, 1, key));
        }
    }

    #[test]
    fn freed_entries_are_reused_for_keys_of_their_size() {
        let arena = Arena::new(ENTRIES_BYTES_MAX, Arc::default());
        let first = allocate(&arena, b"12345678");
        delete(&arena, first);
        arena.free(first);
        assert_ne!(allocate(&arena, b"123456789"), first);
        let again = allocate(&arena, b"1");
        assert_eq!(again, first);
        assert!(arena.has_key(again, 1, b"1"));
    }

    #[test]
    fn every_entry_is_visited_and_nothing_else() {
        let arena = Arena::new(ENTRIES_BYTES_MAX, Arc::default());
        let keys = (0..2000usize).map(|n| vec![7; if n % 500 == 1 { 1 << 20 } else { n % 100 }]);
        let mut ids: Vec<_> = keys.map(|key| allocate(&arena, &key)).collect();
        for _ in 0..2 {
            let mut seen = Vec::new();
            arena.for_each(|id, version| {
                assert_eq!(version, FIRST);
                seen.push(id);
            });
            seen.sort_unstable();
            ids.sort_unstable();
            assert_eq!(seen, ids);
            // Entries that are used again.
            delete(&arena, ids[20]);
            arena.free(ids[20]);
            ids[20] = allocate(&arena, &vec![8; arena.key_len(ids[20])]);
        }
    }

    proptest! {
        #[test]
        fn keys_compare_as_bytes(
            a in prop::collection::vec(0u8..3, 0..20),
            b in prop::collection::vec(0u8..3, 0..20),
        ) {
            let arena = Arena::new(ENTRIES_BYTES_MAX, Arc::default());
            let (x, y) = (allocate(&arena, &a), allocate(&arena, &b));
            prop_assert_eq!(arena.compare_entries(x, y, 0), a.cmp(&b));
            prop_assert_eq!(arena.compare(x, &b, 0), a.cmp(&b));
            let common = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
            prop_assert_eq!(arena.common_prefix(x, y), common);
            prop_assert_eq!(arena.compare_entries(x, y, common), a.cmp(&b));
            for from in 0..22 {
                prop_assert_eq!(arena.key_word(x, from), key_word(&a, from));
            }
        }
    }
}

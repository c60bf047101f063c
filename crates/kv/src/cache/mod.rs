//! The value cache: a ring of chunks of memory.
//!
//! A value is copied to the newest chunk when it is written, or read from a file. When the cache is
//! full, the oldest chunk is dropped, with all of its values. A value that is read while its chunk
//! is in the older half of the ring is copied to the newest chunk, so what is used stays.
//!
//! A place in the cache is a number that is never used again. The index stores it, and does not
//! have to know when a chunk is dropped: looking up an old place finds nothing.

pub(crate) mod chunk;
pub(crate) mod value;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, RwLock};

use chunk::{Chunk, Filler};
use value::Value;

/// The size of a chunk in bytes. A larger value gets a chunk of its own.
const CHUNK_BYTES: usize = 2 << 20;
/// The most chunks of a cache; a larger one has larger chunks. Each takes two mappings, of which
/// Linux gives a process 65,530. Where there is none left, the next allocation ends the process.
const CHUNKS_MAX: u64 = 1 << 13;
/// The size of the chunks of a small cache in bytes.
const SMALL_CHUNK_BYTES: usize = 64 << 10;
/// The number of chunks from which on a cache has large ones.
const LARGE_CHUNKS_MIN: u64 = 16;
/// The least share of the limit that a value may take.
const VALUE_SHARE: u64 = 4;

const _: () = assert!(SMALL_CHUNK_BYTES <= CHUNK_BYTES, "every offset in a chunk fits a place");

/// The value cache of a store.
#[derive(Debug)]
pub(crate) struct ValueCache {
    /// The chunk with number `n` is at `n` modulo the length, with its number.
    chunks: Box<[RwLock<ChunkSlot>]>,
    newest: Mutex<NewestChunk>,
    /// The most bytes.
    limit: u64,
    /// The size of a chunk.
    chunk_size: usize,
    /// The bits of a place that are the offset in its chunk. The others are the number of the
    /// chunk.
    offset_bits: u32,
    /// The number of the oldest chunk that is kept, and of the newest.
    oldest: AtomicU64,
    current: AtomicU64,
}

/// A chunk with its number.
type ChunkSlot = (u64, Option<Arc<Chunk>>);

#[derive(Debug, Default)]
struct NewestChunk {
    /// 0 before the first.
    number: u64,
    filler: Option<Filler>,
    /// The sizes of the chunks that are kept, oldest first, the newest included.
    sizes: VecDeque<u64>,
    total: u64,
}

/// A value found in the cache.
#[derive(Debug)]
pub(crate) struct CacheHit {
    pub(crate) value: Value,
    /// Its chunk will be dropped soon; it should be inserted again.
    pub(crate) ages: bool,
}

impl ValueCache {
    /// Creates a cache of at most this many bytes. A cache of 0 bytes holds nothing.
    pub(crate) fn new(limit: u64) -> Self {
        let large = (limit.div_ceil(CHUNKS_MAX) as usize).next_power_of_two().max(CHUNK_BYTES);
        let is_large = limit >= LARGE_CHUNKS_MIN * CHUNK_BYTES as u64;
        let chunk_size = if is_large { large } else { SMALL_CHUNK_BYTES };
        // At least as many places as chunks: each takes at least its size.
        let places = (limit / chunk_size as u64) as usize + 2;
        Self {
            chunks: std::iter::repeat_with(RwLock::default).take(places).collect(),
            newest: Mutex::default(),
            limit,
            chunk_size,
            offset_bits: large.ilog2(),
            oldest: AtomicU64::new(1),
            current: AtomicU64::new(0),
        }
    }

    fn chunk(&self, number: u64) -> &RwLock<ChunkSlot> {
        &self.chunks[(number % self.chunks.len() as u64) as usize]
    }

    /// Copies a value into the cache. Returns its place; 0 if it is too large for the cache.
    pub(crate) fn insert(&self, value: &[u8]) -> u64 {
        if value.len() as u64 > self.limit / VALUE_SHARE || self.limit < self.chunk_size as u64 {
            return 0;
        }
        let mut newest = self.newest.lock();
        let pushed = newest.filler.as_mut().and_then(|filler| filler.push(value));
        let start = pushed.or_else(|| {
            self.begin_chunk(&mut newest, value.len());
            newest.filler.as_mut()?.push(value)
        });
        debug_assert!(start.is_some(), "a value fits into a chunk that was begun for it");
        // Empty values at the end of a full chunk have no place.
        match start {
            Some(start) if start >> self.offset_bits == 0 => {
                newest.number << self.offset_bits | start as u64
            }
            _ => 0,
        }
    }

    /// The number of the chunk of a place, and the offset there.
    #[inline]
    fn split(&self, place: u64) -> (u64, usize) {
        let offset = place & ((1 << self.offset_bits) - 1);
        (place >> self.offset_bits, offset as usize)
    }

    fn begin_chunk(&self, newest: &mut NewestChunk, len: usize) {
        let size = len.max(self.chunk_size);
        newest.number += 1;
        newest.sizes.push_back(size as u64);
        newest.total += size as u64;
        let mut old = None;
        while newest.total > self.limit
            && newest.sizes.len() > 1
            && let Some(dropped) = newest.sizes.pop_front()
        {
            newest.total -= dropped;
            let oldest = self.oldest.fetch_add(1, Relaxed);
            old = self.chunk(oldest).write().1.take();
        }
        debug_assert_eq!(newest.total, newest.sizes.iter().sum::<u64>(), "the sizes are added up");
        debug_assert!(newest.sizes.len() <= self.chunks.len(), "every chunk has its slot");
        let filler = Filler::new(size, old);
        *self.chunk(newest.number).write() = (newest.number, Some(Arc::clone(filler.chunk())));
        newest.filler = Some(filler);
        self.current.store(newest.number, Relaxed);
    }

    /// Whether a value may still be in the cache. Takes no lock.
    #[inline]
    pub(crate) fn may_have(&self, place: u64) -> bool {
        self.split(place).0 >= self.oldest.load(Relaxed)
    }

    /// Requests the memory of a value, to be used soon.
    #[inline]
    pub(crate) fn prefetch(&self, place: u64) {
        let (number, start) = self.split(place);
        if let (other, Some(chunk)) = &*self.chunk(number).read()
            && *other == number
        {
            chunk.prefetch(start);
        }
    }

    /// The value of this length at a place, if it is still in the cache.
    #[inline]
    pub(crate) fn get(&self, place: u64, len: usize) -> Option<CacheHit> {
        let (number, start) = self.split(place);
        let value = match &*self.chunk(number).read() {
            (other, Some(chunk)) if *other == number => Value::cached(chunk, start, len)?,
            _ => return None,
        };
        let (oldest, newest) = (self.oldest.load(Relaxed), self.current.load(Relaxed));
        let kept = newest - oldest.min(newest);
        // Only in a full ring is a chunk dropped soon.
        let is_full = kept + 3 >= self.chunks.len() as u64;
        Some(CacheHit { value, ages: is_full && number < oldest + kept / 2 })
    }

    /// The bytes of memory in use.
    pub(crate) fn memory(&self) -> u64 {
        self.newest.lock().total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_cache_drops_the_oldest_values() {
        let cache = ValueCache::new(1 << 20);
        let mut places = Vec::new();
        for n in 0..20_000u32 {
            places.push((n, cache.insert(&[n as u8; 100])));
            assert!(cache.memory() <= 1 << 20);
        }
        let found: Vec<_> = places
            .iter()
            .filter(|(_, place)| cache.get(*place, 100).is_some())
            .map(|(n, _)| *n)
            .collect();
        assert_eq!(found.last(), Some(&19_999));
        let (len, first) = (found.len() as u32, found[0]);
        assert_eq!(len, 20_000 - first, "the newest ones are kept");
        assert!((9_000..=(1 << 20) / 100).contains(&len), "{len}");
        for (n, place) in places {
            if let Some(hit) = cache.get(place, 100) {
                assert_eq!(&*hit.value, &[n as u8; 100]);
            }
        }
    }

    #[test]
    fn large_values_take_chunks_of_their_own() {
        let cache = ValueCache::new(1 << 20);
        let large = vec![7; 200 << 10];
        let places: Vec<_> = (0..20).map(|_| cache.insert(&large)).collect();
        assert!(cache.memory() <= 1 << 20);
        let kept = places.iter().filter(|place| cache.get(**place, large.len()).is_some());
        assert_eq!(kept.count(), 5);
        assert_eq!(cache.insert(&vec![0; 300 << 10]), 0, "too large for this cache");
        assert!(cache.get(cache.insert(b""), 0).is_some_and(|hit| hit.value.is_empty()));
    }

    /// Bug: a cache of 64 GiB took all mappings that a process may have, which aborted it.
    #[test]
    fn a_large_cache_takes_few_mappings() {
        for gib in [1, 16, 17, 64, 1000, 1024] {
            let cache = ValueCache::new(gib << 30);
            assert!(cache.chunks.len() as u64 <= CHUNKS_MAX + 2, "{gib} GiB");
            assert!(cache.chunk_size <= (CHUNK_BYTES as u64).max(gib << 18) as usize, "{gib} GiB");
        }
        let cache = ValueCache::new(64 << 30);
        let places: Vec<_> = (0..60).map(|n| cache.insert(&[n; 200 << 10])).collect();
        assert_eq!(cache.memory(), 2 * (8 << 20), "in two chunks");
        for (n, place) in (0..60).zip(places) {
            let hit = cache.get(place, 200 << 10).unwrap();
            assert!(cache.may_have(place) && *hit.value == [n; 200 << 10]);
        }
    }

    #[test]
    fn a_cache_of_nothing_holds_nothing() {
        let cache = ValueCache::new(0);
        assert_eq!(cache.insert(b"value"), 0);
        assert!(cache.get(0, 0).is_none() && cache.get(u64::MAX, 1).is_none());
    }
}

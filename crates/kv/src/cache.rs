//! The value cache: a ring of chunks of memory.
//!
//! A value is copied to the newest chunk when it is written, or read from a file. When the cache is
//! full, the oldest chunk is dropped, with all of its values. A value that is read while its chunk
//! is in the older half of the ring is copied to the newest chunk, so what is used stays.
//!
//! A place in the cache is a number that is never used again. The index stores it, and does not
//! have to know when a chunk is dropped: looking up an old place finds nothing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::{Bytes, BytesMut};
use parking_lot::{Mutex, RwLock};

/// The size of a chunk in bytes. A larger value gets a chunk of its own.
const CHUNK: usize = 1 << 20;
/// The size of the chunks of a small cache.
const SMALL_CHUNK: usize = 64 << 10;
/// Bits of a place for the value's number in its chunk. The others are the number of the chunk.
const INDEX_BITS: u32 = 20;
/// Bytes of memory that a value takes beside its own.
const OVERHEAD: usize = size_of::<Bytes>();

#[derive(Debug)]
pub(crate) struct ValueCache {
    /// The chunk with number `n` is at `n` modulo the length.
    chunks: Box<[RwLock<Chunk>]>,
    newest: Mutex<Newest>,
    /// The most bytes.
    limit: u64,
    chunk_size: usize,
    /// The number of the oldest chunk that is kept, and of the newest.
    oldest: AtomicU64,
    current: AtomicU64,
}

#[derive(Debug, Default)]
struct Chunk {
    /// 0 before the first.
    number: u64,
    values: Vec<Bytes>,
}

#[derive(Debug)]
struct Newest {
    number: u64,
    /// The memory for more values.
    memory: BytesMut,
    values: usize,
    /// The bytes that are left for values and their handles.
    left: usize,
    /// The bytes that the chunk was made with.
    bytes: u64,
    /// The bytes of the older chunks that are kept, oldest first.
    kept: std::collections::VecDeque<u64>,
    total: u64,
}

/// A value found in the cache.
#[derive(Debug)]
pub(crate) struct Hit {
    pub(crate) value: Bytes,
    /// Its chunk will be dropped soon; it should be inserted again.
    pub(crate) ages: bool,
}

impl ValueCache {
    /// A cache of at most about this many bytes. Of 0: it holds nothing.
    pub(crate) fn new(limit: u64) -> Self {
        let chunk_size = if limit >= 16 * CHUNK as u64 { CHUNK } else { SMALL_CHUNK };
        // At least as many places as chunks: each takes at least its size.
        let places = (limit / chunk_size as u64) as usize + 2;
        let chunks = std::iter::repeat_with(RwLock::default).take(places).collect();
        let newest = Newest {
            number: 0,
            memory: BytesMut::new(),
            values: 0,
            left: 0,
            bytes: 0,
            kept: std::collections::VecDeque::new(),
            total: 0,
        };
        Self {
            chunks,
            newest: Mutex::new(newest),
            limit,
            chunk_size,
            oldest: AtomicU64::new(1),
            current: AtomicU64::new(0),
        }
    }

    fn chunk(&self, number: u64) -> &RwLock<Chunk> {
        &self.chunks[(number % self.chunks.len() as u64) as usize]
    }

    /// Copies a value into the cache. Returns its place; 0 if it is too large for the cache.
    pub(crate) fn insert(&self, value: &[u8]) -> u64 {
        let size = value.len() + OVERHEAD;
        if size as u64 > self.limit / 4 {
            return 0;
        }
        let mut newest = self.newest.lock();
        if newest.number == 0 || newest.left < size || newest.values >= (1 << INDEX_BITS) - 1 {
            self.begin_chunk(&mut newest, size);
        }
        newest.memory.extend_from_slice(value);
        let copy = newest.memory.split().freeze();
        // Each value takes the memory of its handle, too.
        newest.left = newest.left.saturating_sub(size);
        newest.values += 1;
        let (number, index) = (newest.number, newest.values);
        // Under the lock of the newest chunk, so that the places are in order.
        self.chunk(number).write().values.push(copy);
        number << INDEX_BITS | index as u64
    }

    fn begin_chunk(&self, newest: &mut Newest, size: usize) {
        if newest.number > 0 {
            newest.kept.push_back(newest.bytes);
        }
        newest.number += 1;
        newest.bytes = size.max(self.chunk_size) as u64;
        newest.total += newest.bytes;
        newest.values = 0;
        newest.left = newest.bytes as usize;
        newest.memory = BytesMut::with_capacity(newest.bytes as usize - OVERHEAD);
        while newest.total > self.limit.max(newest.bytes) {
            let Some(bytes) = newest.kept.pop_front() else { break };
            newest.total -= bytes;
            let oldest = self.oldest.fetch_add(1, Relaxed);
            drop(std::mem::take(&mut *self.chunk(oldest).write()));
        }
        self.current.store(newest.number, Relaxed);
        *self.chunk(newest.number).write() = Chunk { number: newest.number, values: Vec::new() };
    }

    /// The value at a place, if it is still in the cache.
    #[inline]
    pub(crate) fn get(&self, place: u64) -> Option<Hit> {
        let number = place >> INDEX_BITS;
        let index = (place & ((1 << INDEX_BITS) - 1)) as usize;
        let value = {
            let chunk = self.chunk(number).read();
            if chunk.number != number {
                return None;
            }
            chunk.values.get(index.checked_sub(1)?)?.clone()
        };
        let (oldest, newest) = (self.oldest.load(Relaxed), self.current.load(Relaxed));
        // Only in a full ring is a chunk dropped soon.
        let is_full = (newest - oldest.min(newest)) + 3 >= self.chunks.len() as u64;
        Some(Hit { value, ages: is_full && number < oldest + (newest - oldest.min(newest)) / 2 })
    }

    /// Bytes of memory in use.
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
            .filter(|(_, place)| cache.get(*place).is_some())
            .map(|(n, _)| *n)
            .collect();
        assert_eq!(found.last(), Some(&19_999));
        let (len, first) = (found.len() as u32, found[0]);
        assert_eq!(len, 20_000 - first, "the newest ones are kept");
        assert!((6_500..=(1 << 20) / 132).contains(&len), "{len}");
        for (n, place) in places {
            if let Some(hit) = cache.get(place) {
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
        assert_eq!(places.iter().filter(|place| cache.get(**place).is_some()).count(), 5);
        assert_eq!(cache.insert(&vec![0; 300 << 10]), 0, "too large for this cache");
        assert!(cache.get(cache.insert(b"")).is_some_and(|hit| hit.value.is_empty()));
    }

    #[test]
    fn a_cache_of_nothing_holds_nothing() {
        let cache = ValueCache::new(0);
        assert_eq!(cache.insert(b"value"), 0);
        assert!(cache.get(0).is_none() && cache.get(u64::MAX).is_none());
    }
}

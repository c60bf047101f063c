//! A chunk in memory, to be filled or read.

use std::io::Read;
use std::ops::{Deref, DerefMut};

use esker_disk::AlignedBuf;
use parking_lot::Mutex;

use crate::format::BLOCK_BYTES;
use crate::store::chunked_file::layout::{
    CHUNK_BYTES, CHUNK_HEADER, CONTENT_MAX, Salt, seal_chunk,
};

/// The memory of one chunk, kept for the next: mapping it and touching its pages takes as long as
/// writing it. Its lock is only tried: in a child, a thread that is not there may hold it.
static SPARE: Mutex<Option<AlignedBuf>> = Mutex::new(None);

/// The memory of a chunk. It has what its last user left.
#[derive(Debug)]
pub(super) struct Memory(Option<AlignedBuf>);

impl Memory {
    fn new() -> Self {
        let spare = SPARE.try_lock().and_then(|mut spare| spare.take());
        Self(Some(spare.unwrap_or_else(|| AlignedBuf::lazy(CHUNK_BYTES))))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(mut spare) = SPARE.try_lock() {
            let older = std::mem::replace(&mut *spare, self.0.take());
            drop(spare);
            drop(older);
        }
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().unwrap_or_default()
    }
}

/// A chunk that is being filled.
#[derive(Debug)]
pub(crate) struct Chunk {
    bytes: Memory,
    /// Bytes of content.
    len: usize,
}

impl Chunk {
    pub(crate) fn new() -> Self {
        Self { bytes: Memory::new(), len: 0 }
    }

    /// The bytes that it takes in the file, in whole blocks.
    pub(crate) fn padded(&self) -> u64 {
        (CHUNK_HEADER + self.len).next_multiple_of(BLOCK_BYTES as usize) as u64
    }

    /// Bytes that still fit.
    pub(crate) fn room(&self) -> usize {
        CONTENT_MAX - self.len
    }

    /// Adds bytes. There is room for them.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len() <= self.room(), "the caller writes the chunk in time");
        let start = CHUNK_HEADER + self.len;
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Adds what a source has, and returns how many bytes that were. There is room for some.
    pub(crate) fn fill(&mut self, source: &mut impl Read) -> std::io::Result<usize> {
        let spare = &mut self.bytes[CHUNK_HEADER + self.len..];
        let most = spare.len();
        let read = source.read(spare)?;
        debug_assert!(read <= most, "a source has to keep to its buffer");
        self.len += read.min(most);
        Ok(read.min(most))
    }

    /// Seals the content, empties the chunk, and returns its whole blocks of the file.
    pub(super) fn seal(&mut self, salt: Salt, number: u32) -> &[u8] {
        let used = CHUNK_HEADER + self.len;
        seal_chunk(&mut self.bytes, salt, number, self.len);
        let padded = used.next_multiple_of(BLOCK_BYTES as usize);
        self.bytes[used..padded].fill(0);
        self.len = 0;
        &self.bytes[..padded]
    }

    pub(crate) fn content(&mut self) -> &mut [u8] {
        &mut self.bytes[CHUNK_HEADER..CHUNK_HEADER + self.len]
    }
}

/// Memory for one chunk, to be used again.
#[derive(Debug)]
pub(crate) struct Buffer(pub(super) Memory);

impl Buffer {
    pub(crate) fn new() -> Self {
        Self(Memory::new())
    }

    pub(crate) fn bytes(&self, range: std::ops::Range<usize>) -> &[u8] {
        &self.0[range]
    }
}

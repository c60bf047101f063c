//! The bytes of a file, in chunks: a hole takes no memory.

use std::collections::BTreeMap;

const CHUNK_BYTES: u64 = 64 * 1024;

#[derive(Debug, Default)]
pub struct Content {
    /// The size in bytes.
    size: u64,
    /// Chunks by number. A byte of a chunk that is absent is zero, and so is each past the size.
    chunks: BTreeMap<u64, Box<[u8]>>,
}

impl Content {
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The memory in use, in bytes.
    pub fn allocated(&self) -> u64 {
        self.chunks.len() as u64 * CHUNK_BYTES
    }

    pub fn read(&self, offset: u64, length: u64) -> Vec<u8> {
        let end = self.size.min(offset.saturating_add(length));
        let mut bytes = vec![0; end.saturating_sub(offset) as usize];
        for part in parts(offset, bytes.len() as u64) {
            if let Some(chunk) = self.chunks.get(&part.chunk) {
                let to = &mut bytes[part.at as usize..][..part.length];
                to.copy_from_slice(&chunk[part.start..][..part.length]);
            }
        }
        bytes
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        for part in parts(offset, bytes.len() as u64) {
            let chunk = self.chunks.entry(part.chunk);
            let chunk = chunk.or_insert_with(|| vec![0; CHUNK_BYTES as usize].into());
            chunk[part.start..][..part.length]
                .copy_from_slice(&bytes[part.at as usize..][..part.length]);
        }
        self.size = self.size.max(offset + bytes.len() as u64);
    }

    /// Writes zeros over a range. The size stays.
    pub fn zero(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length).min(self.chunk_end());
        let whole = offset.div_ceil(CHUNK_BYTES)..end / CHUNK_BYTES;
        if !whole.is_empty() {
            let absent: Vec<u64> = self.chunks.range(whole).map(|(number, _)| *number).collect();
            absent.iter().for_each(|number| drop(self.chunks.remove(number)));
        }
        // Only chunks that are there: a hole may be as large as a file can be.
        let touched = offset / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES).max(offset / CHUNK_BYTES);
        for (number, chunk) in self.chunks.range_mut(touched) {
            let start = number * CHUNK_BYTES;
            let from = offset.saturating_sub(start) as usize;
            let to = (end - start).min(CHUNK_BYTES) as usize;
            chunk[from..to].fill(0);
        }
    }

    pub fn resize(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, u64::MAX - size);
        }
        self.size = size;
    }

    /// The end of the last chunk.
    fn chunk_end(&self) -> u64 {
        self.chunks.last_key_value().map_or(0, |(number, _)| (number + 1) * CHUNK_BYTES)
    }
}

/// A part of a range that is in one chunk.
struct ChunkPart {
    chunk: u64,
    /// The first byte in the chunk.
    start: usize,
    length: usize,
    /// The first byte in the range.
    at: u64,
}

fn parts(offset: u64, length: u64) -> impl Iterator<Item = ChunkPart> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= length {
            return None;
        }
        let position = offset + at;
        let start = position % CHUNK_BYTES;
        let bytes = (CHUNK_BYTES - start).min(length - at);
        let part = ChunkPart {
            chunk: position / CHUNK_BYTES,
            start: start as usize,
            length: bytes as usize,
            at,
        };
        at += bytes;
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_a_huge_hole_is_cut_at_once() {
        let mut content = Content::default();
        content.write((1 << 62) + 5, b"end");
        content.resize(7);
        assert_eq!((content.size(), content.allocated()), (7, 0));
    }

    /// Against a plain vector, with a fixed sequence of calls that cross chunks.
    #[test]
    fn content_is_that_of_a_vector() {
        let mut content = Content::default();
        let mut expected: Vec<u8> = Vec::new();
        let mut number = 7_u64;
        for step in 0..2_000_u64 {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let offset = (number >> 33) % 300_000;
            let length = (number >> 20) % 100_000;
            match step % 4 {
                0 | 1 => {
                    let end = (offset + length) as usize;
                    if length > 0 && expected.len() < end {
                        expected.resize(end, 0);
                    }
                    let bytes: Vec<u8> = (0..length).map(|byte| (byte * step) as u8).collect();
                    expected[offset as usize..][..length as usize * usize::from(length > 0)]
                        .copy_from_slice(&bytes);
                    if length > 0 {
                        content.write(offset, &bytes);
                    }
                }
                2 => {
                    let start = (offset as usize).min(expected.len());
                    let end = (offset as usize + length as usize).min(expected.len());
                    expected[start..end].fill(0);
                    content.zero(start as u64, (end - start) as u64);
                }
                _ => {
                    expected.resize(offset as usize, 0);
                    content.resize(offset);
                }
            }
            assert_eq!(content.size(), expected.len() as u64, "step {step}");
            assert!(content.read(0, u64::MAX) == expected, "step {step}");
        }
    }
}

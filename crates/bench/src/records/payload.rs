//! Reproducible records: every byte is a function of a seed, the writer and the writer's count, so
//! that records can be compared byte for byte and not only counted.
//!
//! A record begins with its writer and count. The rest is noise of that writer, with a stamp in
//! each sector of 512 bytes that is unique to the record, so that a sector of another record or a
//! missing one is detected. Making a record takes a few stamps and no copy, which keeps the
//! benchmark measuring the log.

use std::ops::RangeInclusive;

/// Bytes at the start of a record: the writer (4 bytes) and its count (8 bytes).
pub const HEADER_BYTES: usize = 12;
/// Each sector has one stamp.
const SECTOR_BYTES: usize = 512;
const STAMP_BYTES: usize = 8;

/// The recipe of all records of a run.
#[derive(Debug, Clone)]
pub struct Recipe {
    pub seed: u64,
    pub sizes: RangeInclusive<u32>,
    /// Whether all bytes of a record are noise of its own, and not only its stamps: then a store
    /// of many records does not compress. Making a record takes longer.
    pub fresh_noise: bool,
}

/// The records of one writer, one at a time.
#[derive(Debug, Clone)]
pub struct Payload {
    recipe: Recipe,
    writer: u32,
    bytes: Vec<u8>,
}

impl Recipe {
    /// Creates a recipe whose records share the noise of their writer.
    pub fn new(seed: u64, sizes: RangeInclusive<u32>) -> Self {
        Self { seed, sizes, fresh_noise: false }
    }

    /// Returns the generator of a writer's records.
    pub fn payload(&self, writer: u32) -> Payload {
        let mut bytes = vec![0; *self.sizes.end() as usize];
        let key = mix(self.seed ^ u64::from(writer).rotate_left(32));
        for (index, word) in bytes.chunks_mut(8).enumerate() {
            let noise = mix(key.wrapping_add(index as u64)).to_le_bytes();
            word.copy_from_slice(&noise[..word.len()]);
        }
        Payload { recipe: self.clone(), writer, bytes }
    }

    /// Returns the length of a writer's record.
    pub fn len(&self, writer: u32, count: u64) -> usize {
        let (least, most) = (*self.sizes.start(), *self.sizes.end());
        if least == most { least as usize } else { self.size(self.key(writer, count)) }
    }

    fn size(&self, key: u64) -> usize {
        let (least, most) = (*self.sizes.start(), *self.sizes.end());
        let span = u64::from(most - least) + 1;
        // The high half of the product is uniform over the span.
        let step = (u128::from(mix(key)) * u128::from(span)) >> 64;
        least as usize + step as usize
    }

    fn key(&self, writer: u32, count: u64) -> u64 {
        mix(self.seed.wrapping_add(mix(count ^ u64::from(writer).rotate_left(40))))
    }
}

impl Payload {
    /// Returns the writer's record of this count.
    pub fn record(&mut self, count: u64) -> &[u8] {
        let key = self.recipe.key(self.writer, count);
        let size = self.recipe.size(key);
        let record = &mut self.bytes[..size];
        if let (true, Some(body)) = (self.recipe.fresh_noise, record.get_mut(HEADER_BYTES..)) {
            for (word, turn) in body.chunks_mut(8).zip((0..).step_by(7)) {
                let noise = key.rotate_left(turn).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                word.copy_from_slice(&noise.to_le_bytes()[..word.len()]);
            }
        }
        let mut stamp = key;
        for (index, sector) in record.chunks_mut(SECTOR_BYTES).enumerate() {
            stamp = next_stamp(stamp);
            let range = stamp_range(index, sector.len());
            sector[range.clone()].copy_from_slice(&stamp.to_le_bytes()[..range.len()]);
        }
        let header = header(self.writer, count);
        let len = size.min(HEADER_BYTES);
        record[..len].copy_from_slice(&header[..len]);
        record
    }
}

impl Payload {
    /// Returns whether this is the writer's record of this count, comparing every byte. Takes
    /// `&self`, so that many readers can share one. Copies the payload where all noise is fresh.
    pub fn is(&self, count: u64, record: &[u8]) -> bool {
        if self.recipe.fresh_noise {
            return self.clone().record(count) == record;
        }
        let key = self.recipe.key(self.writer, count);
        if record.len() != self.recipe.size(key) {
            return false;
        }
        let header = header(self.writer, count);
        let len = record.len().min(HEADER_BYTES);
        if record[..len] != header[..len] {
            return false;
        }
        let mut stamp = key;
        record.chunks(SECTOR_BYTES).zip(self.bytes.chunks(SECTOR_BYTES)).enumerate().all(
            |(index, (sector, noise))| {
                stamp = next_stamp(stamp);
                let (range, stamp) = (stamp_range(index, sector.len()), stamp.to_le_bytes());
                sector[range.clone()] == stamp[..range.len()]
                    && sector[range.end..] == noise[range.end..sector.len()]
            },
        )
    }
}

fn header(writer: u32, count: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&writer.to_le_bytes());
    header[4..].copy_from_slice(&count.to_le_bytes());
    header
}

fn next_stamp(stamp: u64) -> u64 {
    stamp.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1)
}

/// Returns the range of the stamp in a sector of this length. Its start does not depend on the
/// length, so that it overwrites the stamp of the previous record.
fn stamp_range(index: usize, len: usize) -> std::ops::Range<usize> {
    let start = if index == 0 { HEADER_BYTES.min(len) } else { 0 };
    start..len.min(start + STAMP_BYTES)
}

/// Returns the writer and count in a record, unless it is too short.
pub fn header_of(record: &[u8]) -> Option<(u32, u64)> {
    let (writer, rest) = record.split_first_chunk::<4>()?;
    let (count, _) = rest.split_first_chunk::<8>()?;
    Some((u32::from_le_bytes(*writer), u64::from_le_bytes(*count)))
}

/// A bijective hash of a number (the finalizer of splitmix64).
pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sector_is_unique() {
        let recipe = Recipe::new(1, 2000..=2000);
        let first = recipe.payload(0).record(5).to_vec();
        assert_eq!(first, recipe.payload(0).record(5));
        for other in [recipe.payload(0).record(6).to_vec(), recipe.payload(1).record(5).to_vec()] {
            for (a, b) in first.chunks(SECTOR_BYTES).zip(other.chunks(SECTOR_BYTES)) {
                assert_ne!(a, b);
            }
        }
        assert_eq!(header_of(&first), Some((0, 5)));
    }

    #[test]
    fn a_record_does_not_depend_on_the_previous_one() {
        let recipe = Recipe::new(3, 0..=3000);
        let mut used = recipe.payload(2);
        for count in 0..200 {
            used.record(count);
        }
        for count in [7, 3, 199, 0] {
            assert_eq!(used.record(count), recipe.payload(2).record(count));
        }
    }

    #[test]
    fn fresh_noise_differs_in_every_word() {
        let recipe = Recipe { fresh_noise: true, ..Recipe::new(4, 1500..=1500) };
        let (mut made, known) = (recipe.payload(0), recipe.payload(0));
        let (first, second) = (made.record(0).to_vec(), made.record(1).to_vec());
        assert!(known.is(0, &first) && !known.is(0, &second));
        for (a, b) in first[HEADER_BYTES..].chunks(8).zip(second[HEADER_BYTES..].chunks(8)) {
            assert_ne!(a, b);
        }
        let small = Recipe { sizes: 0..=20, ..recipe }.payload(0);
        assert!((0..60).all(|count| small.is(count, small.clone().record(count))));
    }

    #[test]
    fn every_byte_is_compared() {
        let recipe = Recipe::new(5, 0..=1300);
        let (mut made, known) = (recipe.payload(1), recipe.payload(1));
        for count in 0..60 {
            let record = made.record(count).to_vec();
            assert_eq!(record.len(), recipe.len(1, count));
            assert!(known.is(count, &record), "{count}");
            assert!(record.is_empty() || !known.is(count + 1, &record));
            for offset in 0..record.len() {
                let mut changed = record.clone();
                changed[offset] ^= 1;
                assert!(!known.is(count, &changed), "{count}: byte {offset}");
            }
        }
    }

    #[test]
    fn sizes_fill_their_range() {
        let recipe = Recipe::new(7, 0..=3);
        let mut payload = recipe.payload(0);
        let mut seen = [0; 4];
        for count in 0..400 {
            seen[payload.record(count).len()] += 1;
        }
        assert!(seen.iter().all(|times| *times > 50), "{seen:?}");
    }
}

//! Records that can be computed again: every byte follows from a seed, the writer, and the writer's
//! count, so that what is read back can be compared and not only counted.
//!
//! A record begins with its writer and count. The rest is noise of that writer with a stamp in each
//! 512 bytes that no other record has, so that a sector of another record, or of nothing, is seen.
//! Making one costs a few stamps and no copy, so that the benchmark measures the log.

use std::ops::RangeInclusive;

/// The writer (4 bytes) and its count (8 bytes) stand at the start.
pub const HEAD: usize = 12;
/// One stamp in so many bytes.
const SECTOR: usize = 512;
const STAMP: usize = 8;

/// What all records of a run follow from.
#[derive(Debug, Clone)]
pub struct Recipe {
    pub seed: u64,
    pub sizes: RangeInclusive<u32>,
}

/// The records of one writer, one at a time.
#[derive(Debug)]
pub struct Payload {
    recipe: Recipe,
    writer: u32,
    bytes: Vec<u8>,
}

impl Recipe {
    /// The records of a writer.
    pub fn of(&self, writer: u32) -> Payload {
        let mut bytes = vec![0; *self.sizes.end() as usize];
        let key = mix(self.seed ^ u64::from(writer).rotate_left(32));
        for (index, word) in bytes.chunks_mut(8).enumerate() {
            let noise = mix(key.wrapping_add(index as u64)).to_le_bytes();
            word.copy_from_slice(&noise[..word.len()]);
        }
        Payload { recipe: self.clone(), writer, bytes }
    }

    /// The length of a writer's record.
    pub fn len(&self, writer: u32, count: u64) -> usize {
        let (least, most) = (*self.sizes.start(), *self.sizes.end());
        if least == most { least as usize } else { self.size(self.key(writer, count)) }
    }

    fn size(&self, key: u64) -> usize {
        let (least, most) = (*self.sizes.start(), *self.sizes.end());
        let span = u64::from(most - least) + 1;
        // The high half of a product spreads evenly over the span.
        let step = (u128::from(mix(key)) * u128::from(span)) >> 64;
        least as usize + step as usize
    }

    fn key(&self, writer: u32, count: u64) -> u64 {
        mix(self.seed.wrapping_add(mix(count ^ u64::from(writer).rotate_left(40))))
    }
}

impl Payload {
    /// The writer's record of this count.
    pub fn record(&mut self, count: u64) -> &[u8] {
        let key = self.recipe.key(self.writer, count);
        let size = self.recipe.size(key);
        let record = &mut self.bytes[..size];
        let mut stamp = key;
        for (index, sector) in record.chunks_mut(SECTOR).enumerate() {
            stamp = next_stamp(stamp);
            let place = stamp_place(index, sector.len());
            sector[place.clone()].copy_from_slice(&stamp.to_le_bytes()[..place.len()]);
        }
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(&self.writer.to_le_bytes());
        head[4..].copy_from_slice(&count.to_le_bytes());
        let len = size.min(HEAD);
        record[..len].copy_from_slice(&head[..len]);
        record
    }
}

impl Payload {
    /// Whether this is the writer's record of this count, every byte of it. Makes no record and
    /// changes nothing, so that many readers can share it.
    pub fn is(&self, count: u64, record: &[u8]) -> bool {
        let key = self.recipe.key(self.writer, count);
        if record.len() != self.recipe.size(key) {
            return false;
        }
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(&self.writer.to_le_bytes());
        head[4..].copy_from_slice(&count.to_le_bytes());
        let reported = record.len().min(HEAD);
        if record[..reported] != head[..reported] {
            return false;
        }
        let mut stamp = key;
        record.chunks(SECTOR).zip(self.bytes.chunks(SECTOR)).enumerate().all(
            |(index, (is, noise))| {
                stamp = next_stamp(stamp);
                let (place, stamp) = (stamp_place(index, is.len()), stamp.to_le_bytes());
                let behind = place.end;
                is[place.clone()] == stamp[..place.len()] && is[behind..] == noise[behind..is.len()]
            },
        )
    }
}

fn next_stamp(stamp: u64) -> u64 {
    stamp.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1)
}

/// Where the stamp of a sector of this length stands: at a place that does not hang on the size, so
/// that nothing of the record before shows.
fn stamp_place(index: usize, len: usize) -> std::ops::Range<usize> {
    let start = if index == 0 { HEAD.min(len) } else { 0 };
    start..len.min(start + STAMP)
}

/// The writer and count that a record carries.
pub fn head_of(record: &[u8]) -> Option<(u32, u64)> {
    let (writer, rest) = record.split_first_chunk::<4>()?;
    let (count, _) = rest.split_first_chunk::<8>()?;
    Some((u32::from_le_bytes(*writer), u64::from_le_bytes(*count)))
}

/// A number that looks like noise, another one for every number (the finalizer of splitmix64).
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
    fn every_sector_is_its_own() {
        let recipe = Recipe { seed: 1, sizes: 2000..=2000 };
        let first = recipe.of(0).record(5).to_vec();
        assert_eq!(first, recipe.of(0).record(5));
        for other in [recipe.of(0).record(6).to_vec(), recipe.of(1).record(5).to_vec()] {
            for (a, b) in first.chunks(SECTOR).zip(other.chunks(SECTOR)) {
                assert_ne!(a, b);
            }
        }
        assert_eq!(head_of(&first), Some((0, 5)));
    }

    #[test]
    fn a_record_does_not_hang_on_the_one_before() {
        let recipe = Recipe { seed: 3, sizes: 0..=3000 };
        let mut used = recipe.of(2);
        for count in 0..200 {
            used.record(count);
        }
        for count in [7, 3, 199, 0] {
            assert_eq!(used.record(count), recipe.of(2).record(count));
        }
    }

    #[test]
    fn every_byte_is_compared() {
        let recipe = Recipe { seed: 5, sizes: 0..=1300 };
        let (mut made, known) = (recipe.of(1), recipe.of(1));
        for count in 0..60 {
            let record = made.record(count).to_vec();
            assert_eq!(record.len(), recipe.len(1, count));
            assert!(known.is(count, &record), "{count}");
            assert!(record.is_empty() || !known.is(count + 1, &record));
            for at in 0..record.len() {
                let mut changed = record.clone();
                changed[at] ^= 1;
                assert!(!known.is(count, &changed), "{count}: byte {at}");
            }
        }
    }

    #[test]
    fn sizes_fill_their_range() {
        let recipe = Recipe { seed: 7, sizes: 0..=3 };
        let mut payload = recipe.of(0);
        let mut seen = [0; 4];
        for count in 0..400 {
            seen[payload.record(count).len()] += 1;
        }
        assert!(seen.iter().all(|times| *times > 50), "{seen:?}");
    }
}

//! Records that can be computed again: every byte follows from a seed, the writer, and the writer's
//! count. A stamp in each 512 bytes makes a sector of another record show. The Go side makes the
//! same.

use crate::job::{Job, Set};

/// The writer (4 bytes) and its count (8 bytes) are at the start.
pub const HEAD: usize = 12;
const SECTOR: usize = 512;
const STAMP: usize = 8;

/// The records of one writer, one at a time.
#[derive(Debug)]
pub struct Payload {
    seed: u64,
    writer: u32,
    least: u32,
    most: u32,
    /// Every byte differs from record to record, so that nothing compresses.
    all_differ: bool,
    bytes: Vec<u8>,
}

impl Payload {
    /// The records of a writer. A record is no shorter than its head.
    pub fn new(job: &Job, writer: u32) -> Self {
        let mut bytes = vec![0; job.most as usize];
        let key = mix(job.seed ^ u64::from(writer).rotate_left(32));
        for (index, word) in bytes.chunks_mut(STAMP).enumerate() {
            let noise = mix(key.wrapping_add(index as u64)).to_le_bytes();
            word.copy_from_slice(&noise[..word.len()]);
        }
        let all_differ = job.set == Set::Kv;
        Self { seed: job.seed, writer, least: job.least, most: job.most, all_differ, bytes }
    }

    /// The writer's record of this count.
    pub fn record(&mut self, count: u64) -> &[u8] {
        let place = count ^ u64::from(self.writer).rotate_left(40);
        let key = mix(self.seed.wrapping_add(mix(place)));
        let span = u128::from(self.most - self.least) + 1;
        let size = self.least as usize + ((u128::from(mix(key)) * span) >> 64) as usize;
        let record = &mut self.bytes[..size];
        if self.all_differ {
            for (word, turn) in record[HEAD..].chunks_mut(STAMP).zip((0..).step_by(7)) {
                let noise = key.rotate_left(turn).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                word.copy_from_slice(&noise.to_le_bytes()[..word.len()]);
            }
        }
        let mut stamp = key;
        for (index, sector) in record.chunks_mut(SECTOR).enumerate() {
            stamp = stamp.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1);
            let start = if index == 0 { HEAD } else { 0 };
            let room = sector.len().saturating_sub(start).min(STAMP);
            sector[start..start + room].copy_from_slice(&stamp.to_le_bytes()[..room]);
        }
        record[..4].copy_from_slice(&self.writer.to_le_bytes());
        record[4..HEAD].copy_from_slice(&count.to_le_bytes());
        record
    }
}

/// The writer and count in the head of a record.
pub fn head_of(record: &[u8]) -> Option<(u32, u64)> {
    let (writer, rest) = record.split_first_chunk::<4>()?;
    let (count, _) = rest.split_first_chunk::<8>()?;
    Some((u32::from_le_bytes(*writer), u64::from_le_bytes(*count)))
}

/// Noise that follows from a number.
pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Shape;

    /// The Go side has the same test: both must make the same records.
    #[test]
    fn both_sides_make_the_same_records() {
        let job = Job {
            system: String::new(),
            set: Set::Log,
            shape: Shape::Callers,
            writers: 3,
            least: 128,
            most: 5000,
            batch: 1,
            reads: 0,
            random: false,
            seconds: 0.0,
            count: 100,
            seed: 7,
            dir: "".into(),
        };
        let mut all = Vec::new();
        for writer in 0..3 {
            let mut payload = Payload::new(&job, writer);
            for count in 0..100 {
                all.extend_from_slice(payload.record(count));
                assert_eq!(head_of(payload.record(count)), Some((writer, count)));
            }
        }
        let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &all);
        assert_eq!((sum, all.len()), (0x2057_9985, 757_762));
    }
}

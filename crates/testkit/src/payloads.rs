//! Payloads that can be found in files of unknown format.

use crate::changes::BLOCK_BYTES;

/// The first bytes of every non-empty payload.
const BEGIN: [u8; 4] = [0xA7, 0x46, 0xD1, 0x5A];
/// The length of the prefix that identifies a payload, in bytes.
pub const MARK_BYTES: usize = 12;

/// Generates payloads that are unique across all seeds.
#[derive(Debug, Clone, Default)]
pub struct Payloads {
    seed: u64,
    made: u64,
}

impl Payloads {
    /// Creates a generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, made: 0 }
    }

    /// Returns a payload of this length, but at least [`MARK_BYTES`] bytes; a length of 0 stays 0.
    pub fn next(&mut self, len: usize) -> Vec<u8> {
        self.made += 1;
        if len == 0 {
            return Vec::new();
        }
        let mut state = self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ self.made;
        let number = (self.seed << 24 | self.made).to_le_bytes();
        let mut payload = [&BEGIN[..], &number].concat();
        let filler = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8 | 1
        });
        payload.extend(filler.take(len.saturating_sub(MARK_BYTES)));
        payload
    }
}

/// Returns the offset and the identifying prefix of each payload.
pub fn payloads_in(bytes: &[u8]) -> Vec<(usize, &[u8])> {
    let mut found = Vec::new();
    for (n, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
        if block.iter().all(|byte| *byte == 0) {
            continue;
        }
        // A payload that begins in this block may end in the next.
        let start = n * BLOCK_BYTES;
        let end = (start + BLOCK_BYTES).min(bytes.len().saturating_sub(MARK_BYTES - 1));
        for at in start..end {
            if bytes[at] == BEGIN[0] && bytes[at..at + 4] == BEGIN {
                found.push((at, &bytes[at..at + MARK_BYTES]));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_found_across_blocks() {
        let mut payloads = Payloads::new(7);
        let (one, other) = (payloads.next(30), payloads.next(1));
        assert_eq!((one.len(), other.len()), (30, MARK_BYTES));
        let mut bytes = vec![0; 2 * BLOCK_BYTES];
        bytes[BLOCK_BYTES - 5..BLOCK_BYTES + 25].copy_from_slice(&one);
        bytes[2 * BLOCK_BYTES - MARK_BYTES..].copy_from_slice(&other);
        let expected =
            [(BLOCK_BYTES - 5, &one[..MARK_BYTES]), (2 * BLOCK_BYTES - MARK_BYTES, &other[..])];
        assert_eq!(payloads_in(&bytes), expected);
    }
}

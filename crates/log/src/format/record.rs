//! One record: sixteen bytes of header, the payload, zeros up to a multiple of eight.
//!
//! ```text
//! 0    4     8        16            16+len     size
//! | size | crc | seq   | payload ... | 0..7 zeros |
//! ```
//!
//! `size` counts header and payload, without the zeros. The checksum covers salt, offset, size,
//! sequence number and payload. A record that was moved, or whose number or length was changed,
//! does not match.

use crate::format::block::{DecodeError, RECORD_LIMIT_MAX, Salt, crc};

pub(crate) const RECORD_HEADER: u32 = 16;

/// The largest `size` of a record.
const SIZE_MAX: u32 = RECORD_LIMIT_MAX + RECORD_HEADER;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) size: u32,
    pub(crate) crc: u32,
    pub(crate) seq: u64,
}

/// The bytes that a payload takes in a unit, header and zeros included. The payload must be within
/// the limit: the caller has refused larger ones, and this would truncate their length.
pub(crate) const fn stored_size(payload: usize) -> u32 {
    debug_assert!(payload <= RECORD_LIMIT_MAX as usize);
    (RECORD_HEADER + payload as u32).next_multiple_of(8)
}

impl RecordHeader {
    /// The header of a record to be stored at `offset`.
    pub(crate) fn new(salt: Salt, offset: u32, seq: u64, payload: &[u8]) -> Self {
        let size = RECORD_HEADER + payload.len() as u32;
        Self { size, crc: checksum(salt, offset, size, seq, payload), seq }
    }

    pub(crate) fn to_bytes(self) -> [u8; RECORD_HEADER as usize] {
        let mut bytes = [0; RECORD_HEADER as usize];
        bytes[..4].copy_from_slice(&self.size.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.crc.to_le_bytes());
        bytes[8..].copy_from_slice(&self.seq.to_le_bytes());
        bytes
    }

    /// Parses a header without its payload. Only the range of the size is checked.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        let Some(bytes) = bytes.first_chunk::<{ RECORD_HEADER as usize }>() else {
            return Err(DecodeError::Cut);
        };
        let [s0, s1, s2, s3, c0, c1, c2, c3, seq @ ..] = *bytes;
        let size = u32::from_le_bytes([s0, s1, s2, s3]);
        if !(RECORD_HEADER..=SIZE_MAX).contains(&size) {
            return Err(DecodeError::Nonsense);
        }
        Ok(Self { size, crc: u32::from_le_bytes([c0, c1, c2, c3]), seq: u64::from_le_bytes(seq) })
    }

    /// The bytes that the record occupies, zeros included.
    pub(crate) fn stored(self) -> u32 {
        self.size.next_multiple_of(8)
    }

    /// The checksum that the payload of a record at `offset` must have.
    pub(crate) fn payload_crc(self, salt: Salt, offset: u32) -> u32 {
        // The checksum of no bytes is zero.
        self.crc ^ checksum(salt, offset, self.size, self.seq, &[])
    }

    /// Checks a whole stored record at `offset`, zeros included.
    pub(crate) fn check(self, salt: Salt, offset: u32, stored: &[u8]) -> Result<(), DecodeError> {
        let Some(payload) = stored.get(RECORD_HEADER as usize..self.size as usize) else {
            return Err(DecodeError::Cut);
        };
        if checksum(salt, offset, self.size, self.seq, payload) != self.crc {
            return Err(DecodeError::Checksum);
        }
        if stored[self.size as usize..].iter().any(|&byte| byte != 0) {
            return Err(DecodeError::Padding);
        }
        Ok(())
    }
}

/// The checksum of a record. Header and payload are summed separately and then combined, so that
/// the payload goes through the widest instructions in one run.
fn checksum(salt: Salt, offset: u32, size: u32, seq: u64, payload: &[u8]) -> u32 {
    let mut head = [0; 12];
    head[..4].copy_from_slice(&size.to_le_bytes());
    head[4..].copy_from_slice(&seq.to_le_bytes());
    salt.bind(offset, &head).rotate_left(1) ^ crc(payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::LogId;

    fn stored(salt: Salt, offset: u32, seq: u64, payload: &[u8]) -> Vec<u8> {
        let mut bytes = RecordHeader::new(salt, offset, seq, payload).to_bytes().to_vec();
        bytes.extend_from_slice(payload);
        bytes.resize(stored_size(payload.len()) as usize, 0);
        bytes
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let salt = Salt::new(LogId([7; 16]), 3);
        let good = stored(salt, 4176, 42, b"hello, ridge");
        assert!(RecordHeader::parse(&good).unwrap().check(salt, 4176, &good).is_ok());
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let seen = RecordHeader::parse(&bad).and_then(|header| {
                let stored = bad.get(..header.stored() as usize).ok_or(DecodeError::Cut)?;
                header.check(salt, 4176, stored)
            });
            assert!(seen.is_err(), "bit {bit} went unseen");
        }
    }

    #[test]
    fn a_moved_record_does_not_match() {
        let salt = Salt::new(LogId([7; 16]), 3);
        let bytes = stored(salt, 4176, 42, b"x");
        let header = RecordHeader::parse(&bytes).unwrap();
        assert_eq!(header.check(salt, 8272, &bytes), Err(DecodeError::Checksum));
        let other = Salt::new(LogId([7; 16]), 4);
        assert_eq!(header.check(other, 4176, &bytes), Err(DecodeError::Checksum));
    }
}

//! Sizes, checksums and what binds them to one segment of one log.

use crc_fast::CrcAlgorithm::Crc32Iscsi;

/// The version that this code writes, and the only one that it reads.
pub(crate) const VERSION: u32 = 2;

/// Commit units and the parts of a segment start on multiples of this.
pub(crate) const BLOCK: u32 = esker_disk::BLOCK as u32;

/// The largest payload that any log may be configured for: 64 MiB, and 4 KiB for what a face writes
/// before a value of 64 MiB.
pub const RECORD_LIMIT_MAX: u32 = (64 << 20) + (4 << 10);

/// The largest size of a commit unit: the largest record, an atomic batch of the same bytes, and
/// room for the headers of a million records.
pub(crate) const UNIT_MAX: u32 = RECORD_LIMIT_MAX + (24 << 20) + BLOCK;

/// The largest segment file; offsets inside one are 32 bits wide.
pub(crate) const SEGMENT_MAX: u32 = 1 << 31;

/// No log reaches a position, a session or a segment's number of this size.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;

/// The next multiple of a block.
pub(crate) const fn block_up(n: u32) -> u32 {
    n.div_ceil(BLOCK) * BLOCK
}

/// CRC-32C of some bytes.
pub(crate) fn crc(bytes: &[u8]) -> u32 {
    crc_fast::checksum(Crc32Iscsi, bytes) as u32
}

/// Sixteen random bytes that tell one log from every other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogId(pub [u8; 16]);

impl std::fmt::Display for LogId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What binds a checksum to one life of one segment file of one log, so that bytes of another log
/// or of an earlier life of the file are never taken for current ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Salt(u32);

impl Salt {
    pub(crate) fn new(log: LogId, segment: u64) -> Self {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&log.0);
        bytes[16..].copy_from_slice(&segment.to_le_bytes());
        Self(crc(&bytes))
    }

    /// Checksum of a header at an offset of the segment: the salt and the place come first.
    pub(crate) fn bind(self, offset: u32, header: &[u8]) -> u32 {
        debug_assert!(header.len() <= 112);
        let mut bytes = [0; 120];
        bytes[..4].copy_from_slice(&self.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&offset.to_le_bytes());
        let end = 8 + header.len();
        bytes[8..end].copy_from_slice(header);
        crc(&bytes[..end])
    }
}

/// Why bytes are not what they should be. Every variant is one sentence for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// Nothing but zeros: never written, or the end.
    Blank,
    /// Neither a unit nor anything else that may stand here.
    NotAUnit,
    /// The file ends inside.
    Cut,
    /// A checksum does not match.
    Checksum,
    /// A length or number that cannot be.
    Nonsense,
    /// The unit does not continue the one before it.
    Chain,
    /// Bytes that must be zero are not.
    Padding,
    /// The device does not give the bytes.
    Unreadable,
}

impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DecodeError::Blank => "nothing was written here",
            DecodeError::NotAUnit => "this is not the start of a commit unit",
            DecodeError::Cut => "the file ends inside a commit unit",
            DecodeError::Checksum => "the checksum does not match",
            DecodeError::Nonsense => "a length or a number is impossible",
            DecodeError::Chain => "this does not continue what stands before it",
            DecodeError::Padding => "bytes that must be zero are not",
            DecodeError::Unreadable => "the device does not give the bytes, they could not be read",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn salt_differs_by_log_and_segment() {
        let a = Salt::new(LogId([1; 16]), 1);
        assert_ne!(a, Salt::new(LogId([2; 16]), 1));
        assert_ne!(a, Salt::new(LogId([1; 16]), 2));
        assert_ne!(a.bind(0, b"x"), a.bind(4096, b"x"));
    }
}

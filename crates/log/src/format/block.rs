//! Sizes, and the checksums that are bound to one segment of one log.

use crc_fast::CrcAlgorithm::Crc32Iscsi;

/// The format version that this code writes, and the only one that it reads.
pub(crate) const FORMAT_VERSION: u32 = 2;

/// The alignment of commit units and of the parts of a segment. Each segment header records it, and
/// another value is refused: a device with other whole blocks needs a change of the format.
pub(crate) const BLOCK_BYTES: u32 = esker_disk::BLOCK_BYTES as u32;

/// The highest record limit that a log may be configured with: 64 MiB, plus 4 KiB for what a
/// component writes before a value of 64 MiB.
pub const RECORD_LIMIT_MAX: u32 = (64 << 20) + (4 << 10);

/// The largest size of a commit unit: the largest record, or an atomic batch of the same number of
/// bytes, and room for the headers of a million records.
pub(crate) const UNIT_MAX: u32 = RECORD_LIMIT_MAX + (24 << 20) + BLOCK_BYTES;

/// The largest segment file. Offsets in a segment are 32 bits wide.
pub(crate) const SEGMENT_MAX: u32 = 1 << 31;

/// The exclusive upper bound of positions, sessions and segment numbers.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;

/// Rounds up to a multiple of a block.
pub(crate) const fn block_up(n: u32) -> u32 {
    n.div_ceil(BLOCK_BYTES) * BLOCK_BYTES
}

/// Whether all bytes are zero. A comparison of memory is several times as fast as a loop that may
/// end at each byte.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    static ZEROS: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];
    bytes.chunks(ZEROS.len()).all(|part| *part == ZEROS[..part.len()])
}

/// The CRC-32C of some bytes.
pub(crate) fn crc(bytes: &[u8]) -> u32 {
    crc_fast::checksum(Crc32Iscsi, bytes) as u32
}

/// The CRC-32C of two runs of bytes as one, from that of each, and the length of the second. The
/// function of crc-fast squares matrices in each call, and a search asks for thousands.
pub(crate) fn crc_of_joined(first: u32, second: u32, len: u32) -> u32 {
    let powers = POWERS.iter().enumerate().filter(|(bit, _)| (len >> bit) & 1 == 1);
    powers.fold(first, |sum, (_, power)| multiply(sum, *power)) ^ second
}

/// The factor of 2^n bytes for a checksum: x^(8 * 2^n). Bit 31 is the coefficient of x^0.
static POWERS: [u32; 32] = powers();

const fn powers() -> [u32; 32] {
    let mut powers = [1 << 23; 32];
    let mut n = 1;
    while n < powers.len() {
        powers[n] = multiply(powers[n - 1], powers[n - 1]);
        n += 1;
    }
    powers
}

/// The product of two polynomials modulo that of CRC-32C. Without branches, which random bits
/// would mispredict.
const fn multiply(a: u32, mut b: u32) -> u32 {
    const CRC_POLYNOMIAL: u32 = 0x82F6_3B78;
    let (mut product, mut bit) = (0, 32);
    while bit > 0 {
        bit -= 1;
        product ^= b & 0u32.wrapping_sub((a >> bit) & 1);
        b = (b >> 1) ^ (CRC_POLYNOMIAL & 0u32.wrapping_sub(b & 1));
    }
    product
}

/// Sixteen random bytes that identify a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogId(pub [u8; 16]);

impl LogId {
    pub(crate) fn random() -> Self {
        let [low, high] = random_numbers();
        let mut id = [0; 16];
        id[..8].copy_from_slice(&low.to_le_bytes());
        id[8..].copy_from_slice(&high.to_le_bytes());
        Self(id)
    }
}

/// Two random numbers, drawn from the standard library's random hash keys.
pub(crate) fn random_numbers() -> [u64; 2] {
    use std::hash::{BuildHasher, RandomState};
    let low = RandomState::new().hash_one(std::process::id());
    [low, RandomState::new().hash_one(std::time::SystemTime::now())]
}

impl std::fmt::Display for LogId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Binds a checksum to one incarnation of one segment file of one log. Bytes of another log, or of
/// an earlier incarnation of the file, therefore never pass for current ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Salt(u32);

impl Salt {
    pub(crate) fn new(log: LogId, segment: u64) -> Self {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&log.0);
        bytes[16..].copy_from_slice(&segment.to_le_bytes());
        Self(crc(&bytes))
    }

    /// The checksum of a header at an offset of the segment. It covers the salt and the offset
    /// first.
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

/// Why bytes cannot be decoded. `Display` gives one sentence per variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// Nothing but zeros: never written, or the end.
    Blank,
    /// Neither a unit nor anything else that is valid here.
    NotAUnit,
    /// The file ends inside the unit.
    Cut,
    /// A checksum does not match.
    Checksum,
    /// A length or number is impossible.
    Nonsense,
    /// The unit does not continue the one before it.
    Chain,
    /// Bytes that must be zero are not.
    Padding,
    /// The device fails to read the bytes.
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
            DecodeError::Chain => "the unit does not continue the one before it",
            DecodeError::Padding => "bytes that must be zero are not",
            DecodeError::Unreadable => "the device could not read the bytes",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_checksums_are_those_of_the_joined_bytes() {
        let bytes: Vec<u8> = (0..9000u32).map(|n| ((n * n) >> 3) as u8).collect();
        for (from, to) in [(0, 0), (0, 9000), (1, 2), (4096, 8192), (17, 8999), (9000, 9000)] {
            let (first, second) = (crc(&bytes[..from]), crc(&bytes[from..to]));
            let joined = crc_of_joined(first, second, (to - from) as u32);
            assert_eq!(joined, crc(&bytes[..to]), "{from}, {to}");
        }
    }

    #[test]
    fn salt_differs_by_log_and_segment() {
        let a = Salt::new(LogId([1; 16]), 1);
        assert_ne!(a, Salt::new(LogId([2; 16]), 1));
        assert_ne!(a, Salt::new(LogId([1; 16]), 2));
        assert_ne!(a.bind(0, b"x"), a.bind(4096, b"x"));
    }
}

//! Fields at fixed offsets of a message, and checksums.

use crc_fast::CrcAlgorithm::Crc32Iscsi;

/// Bytes of a checksum.
pub(super) const CRC_BYTES: usize = 4;

/// Reads the field of `N` bytes at this offset.
pub(super) fn field<const LEN: usize, const N: usize>(bytes: &[u8; LEN], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

/// Writes a field at this offset.
pub(super) fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}

/// The checksum of these bytes, CRC-32C.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    // The upper half of a 32-bit checksum is zero.
    crc_fast::checksum(Crc32Iscsi, bytes) as u32
}

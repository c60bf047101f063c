//! The format of a checkpoint.
//!
//! The chunks of the log's checkpoint file hold sections, one after the other:
//!
//! ```text
//! 0            4           8           16
//! | keyspace   | entries   | place     | entry ...        numbers are little-endian
//!
//! 0        8            16              20            24
//! | seq    | log offset | value length  | key length  | key ...
//! ```
//!
//! `place` is a u64: the sections of a keyspace, in the order of their places, have the keys in
//! their order. `seq` and the offset in the log are u64, the others u32.
//!
//! The note has the replay point, the highest sequence number in the chunks, the offset of the end
//! of the log at the replay point and the number of keys, as u64, and the highest number of a
//! keyspace, as u32.

use esker_log::component::CheckpointChunk;

use crate::index::entry::Version;
use crate::limits::{KEY_LIMIT, VALUE_LIMIT};

pub(super) const SECTION_HEADER_BYTES: usize = 2 * size_of::<u32>() + size_of::<u64>();
pub(super) const ENTRY_HEADER_BYTES: usize = 2 * size_of::<u64>() + 2 * size_of::<u32>();
pub(super) const NOTE_BYTES: usize = 4 * size_of::<u64>() + size_of::<u32>();

const _: () = assert!(SECTION_HEADER_BYTES == 16 && ENTRY_HEADER_BYTES == 24 && NOTE_BYTES == 36);
const _: () =
    assert!(NOTE_BYTES <= esker_log::component::CheckpointWriter::NOTE, "the log stores the note");
const _: () = assert!(
    SECTION_HEADER_BYTES + ENTRY_HEADER_BYTES + KEY_LIMIT <= CheckpointChunk::LIMIT,
    "a section with the largest entry fits into a chunk"
);

/// The note of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CheckpointNote {
    /// The replay point.
    pub(crate) replay: u64,
    /// The highest number that an entry may have.
    pub(super) last: u64,
    /// The offset of the end of the log at the replay point.
    pub(super) offset: u64,
    pub(super) keys: u64,
    /// The highest number of a keyspace.
    pub(crate) highest: u32,
}

impl CheckpointNote {
    pub(super) fn encode(self) -> Vec<u8> {
        debug_assert!(self.replay <= self.last, "the replay point is before the end of the dump");
        let numbers = [self.replay, self.last, self.offset, self.keys];
        let mut bytes: Vec<_> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        bytes.extend_from_slice(&self.highest.to_le_bytes());
        debug_assert_eq!(Self::decode(&bytes), Some(self), "a note is read back as written");
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; NOTE_BYTES] = bytes.try_into().ok()?;
        let (numbers, _) = bytes.as_chunks::<8>();
        let [replay, last, offset, keys] =
            *numbers.first_chunk::<4>().map(|all| all.map(u64::from_le_bytes)).as_ref()?;
        let highest = u32::from_le_bytes(*bytes.last_chunk()?);
        Some(Self { replay, last, offset, keys, highest })
    }
}

/// The header of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SectionHeader {
    pub(super) keyspace: u32,
    /// The number of entries.
    pub(super) entries: u32,
    pub(super) place: u64,
}

impl SectionHeader {
    /// Writes the header to bytes of its length.
    pub(super) fn encode(self, out: &mut [u8]) {
        out[..4].copy_from_slice(&self.keyspace.to_le_bytes());
        out[4..8].copy_from_slice(&self.entries.to_le_bytes());
        out[8..SECTION_HEADER_BYTES].copy_from_slice(&self.place.to_le_bytes());
        debug_assert_eq!(Self::decode(out).map(|(header, _)| header), Some(self));
    }

    /// Decodes the header at the beginning of these bytes. Returns what follows it, too.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (header, rest) = bytes.split_first_chunk::<SECTION_HEADER_BYTES>()?;
        let [k0, k1, k2, k3, n0, n1, n2, n3, place @ ..] = *header;
        let header = Self {
            keyspace: u32::from_le_bytes([k0, k1, k2, k3]),
            entries: u32::from_le_bytes([n0, n1, n2, n3]),
            place: u64::from_le_bytes(place),
        };
        Some((header, rest))
    }
}

/// Appends an entry whose key has this length. `copy_key` appends the key.
#[inline]
pub(super) fn encode_entry(
    version: Version,
    key_len: usize,
    out: &mut Vec<u8>,
    copy_key: impl FnOnce(&mut Vec<u8>),
) {
    debug_assert!(!version.deleted, "a checkpoint has no deletes");
    debug_assert!(key_len <= KEY_LIMIT && version.len as usize <= VALUE_LIMIT);
    let end = out.len() + ENTRY_HEADER_BYTES + key_len;
    out.extend_from_slice(&version.seq.to_le_bytes());
    out.extend_from_slice(&version.offset.to_le_bytes());
    out.extend_from_slice(&version.len.to_le_bytes());
    out.extend_from_slice(&(key_len as u32).to_le_bytes());
    copy_key(out);
    debug_assert_eq!(out.len(), end, "the key of an entry has the length in its header");
}

/// An entry of a chunk.
pub(super) struct CheckpointEntry<'a> {
    pub(super) key: &'a [u8],
    pub(super) version: Version,
}

impl<'a> CheckpointEntry<'a> {
    /// Decodes the entry at the beginning of these bytes. Returns what follows it, too.
    #[inline]
    pub(super) fn decode(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (header, rest) = bytes.split_first_chunk::<ENTRY_HEADER_BYTES>()?;
        let (words, lens) = header.split_first_chunk::<16>()?;
        let (seq, offset) = words.split_first_chunk::<8>()?;
        let (len, key_len) = lens.split_first_chunk::<4>()?;
        let key_len = u32::from_le_bytes(*key_len.first_chunk()?) as usize;
        let (key, rest) = rest.split_at_checked(key_len)?;
        let version = Version {
            seq: u64::from_le_bytes(*seq),
            deleted: false,
            offset: u64::from_le_bytes(*offset.first_chunk()?),
            len: u32::from_le_bytes(*len),
        };
        Some((Self { key, version }, rest))
    }
}

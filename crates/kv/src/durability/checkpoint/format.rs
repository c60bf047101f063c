//! The format of a checkpoint.
//!
//! The chunks of the log's checkpoint file hold sections, one after the other:
//!
//! ```text
//! 0            4           8           16
//! | keyspace   | entries   | place     | entry ...        numbers are little-endian
//!
//! 0        8            16              20            24
//! | seq    | position   | value length  | key length  | key ...
//! ```
//!
//! `place` is a u64: the sections of a keyspace, in the order of their places, have the keys in
//! their order. `seq` and `position` are u64, the others u32.
//!
//! The note has the replay point, the highest sequence number in the chunks, the position of the
//! log at the replay point and the number of keys, as u64, and the highest number of a keyspace, as
//! u32.

use crate::index::arena::Version;

pub(super) const SECTION_HEADER_BYTES: usize = 16;
pub(super) const ENTRY_HEADER_BYTES: usize = 24;
pub(super) const NOTE_BYTES: usize = 36;

/// What the note of a checkpoint says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CheckpointNote {
    /// The replay point.
    pub(crate) replay: u64,
    /// The highest number that an entry may have.
    pub(super) last: u64,
    /// The position of the log at the replay point.
    pub(super) position: u64,
    pub(super) keys: u64,
    /// The highest number of a keyspace.
    pub(crate) highest: u32,
}

impl CheckpointNote {
    pub(super) fn encode(self) -> Vec<u8> {
        let numbers = [self.replay, self.last, self.position, self.keys];
        let mut bytes: Vec<_> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        bytes.extend_from_slice(&self.highest.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; NOTE_BYTES] = bytes.try_into().ok()?;
        let (numbers, _) = bytes.as_chunks::<8>();
        let [replay, last, position, keys] =
            *numbers.first_chunk::<4>().map(|all| all.map(u64::from_le_bytes)).as_ref()?;
        let highest = u32::from_le_bytes(*bytes.last_chunk()?);
        Some(Self { replay, last, position, keys, highest })
    }
}

/// The keyspace, the number of entries and the place of a section.
pub(super) fn section(header: &[u8; SECTION_HEADER_BYTES]) -> (u32, u32, u64) {
    let [k0, k1, k2, k3, n0, n1, n2, n3, place @ ..] = *header;
    let (keyspace, entries) = ([k0, k1, k2, k3], [n0, n1, n2, n3]);
    (u32::from_le_bytes(keyspace), u32::from_le_bytes(entries), u64::from_le_bytes(place))
}

/// An entry of a chunk.
pub(super) struct CheckpointEntry<'a> {
    pub(super) key: &'a [u8],
    pub(super) version: Version,
}

impl<'a> CheckpointEntry<'a> {
    #[inline]
    pub(super) fn decode(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (header, rest) = bytes.split_first_chunk::<ENTRY_HEADER_BYTES>()?;
        let (words, lens) = header.split_first_chunk::<16>()?;
        let (seq, position) = words.split_first_chunk::<8>()?;
        let (len, key_len) = lens.split_first_chunk::<4>()?;
        let key_len = u32::from_le_bytes(*key_len.first_chunk()?) as usize;
        let (key, rest) = rest.split_at_checked(key_len)?;
        let version = Version {
            seq: u64::from_le_bytes(*seq),
            deleted: false,
            position: u64::from_le_bytes(*position.first_chunk()?),
            len: u32::from_le_bytes(*len),
        };
        Some((Self { key, version }, rest))
    }
}

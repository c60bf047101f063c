//! The footer of a sealed segment: its sparse index, written once all its units are durable.
//!
//! A footer is an optimization and a durable lower bound. Where it is missing, the whole segment is
//! scanned and the footer written again. It contains nothing that the units do not.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::format::block::{BLOCK_BYTES, DecodeError, SEGMENT_MAX, Salt, block_up, crc, is_zero};

const FOOTER_MAGIC: u32 = 0xE5CE_F007;
pub(crate) const FOOTER_HEADER_BYTES: usize = 64;
pub(crate) const INDEX_ENTRY_BYTES: usize = 24;
/// The bit that says of a segment that it has a gap. The bytes of its payloads take the others.
const HAS_GAP: u32 = SEGMENT_MAX;

/// An entry of the sparse index: where one record is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) seq: u64,
    /// The sequence number of the previous record.
    pub(crate) prev_seq: u64,
    /// The offset of the unit in the segment.
    pub(crate) unit: u32,
    /// The offset of the record in the segment.
    pub(crate) record: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Footer {
    /// The offset of the end of the last unit. The footer starts there.
    pub(crate) end: u32,
    pub(crate) records: u64,
    pub(crate) prev_seq: u64,
    pub(crate) last_seq: u64,
    pub(crate) session: u64,
    /// Wall clock of the last unit, in milliseconds since 1970.
    pub(crate) time_ms: u64,
    /// The checksum of the last unit.
    pub(crate) chain: u32,
    /// Bytes of the payloads; `None` in a footer that was written before they were recorded.
    pub(crate) payload: Option<u32>,
    /// There may be a gap among the units. Not `false` where there is one.
    pub(crate) has_gap: bool,
    pub(crate) index: Vec<IndexEntry>,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    magic: U32,
    crc: U32,
    entries: U32,
    end: U32,
    records: U64,
    prev_seq: U64,
    last_seq: U64,
    session: U64,
    time_ms: U64,
    chain: U32,
    /// The bytes of the payloads plus one, and [`HAS_GAP`]; 0 where nothing is recorded.
    content: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawEntry {
    seq: U64,
    prev_seq: U64,
    unit: U32,
    record: U32,
}

const _: () =
    assert!(size_of::<Raw>() == FOOTER_HEADER_BYTES && size_of::<RawEntry>() == INDEX_ENTRY_BYTES);

impl Footer {
    fn content(&self) -> u32 {
        let gap = if self.has_gap { HAS_GAP } else { 0 };
        self.payload.map_or(0, |bytes| (bytes + 1) | gap)
    }

    /// Encodes the footer as whole blocks.
    pub(crate) fn to_bytes(&self, salt: Salt) -> Vec<u8> {
        let mut bytes = self.encode(salt);
        bytes.resize(block_up(bytes.len() as u32) as usize, 0);
        bytes
    }

    /// Encodes the footer without the zeros at its end.
    pub(crate) fn encode(&self, salt: Salt) -> Vec<u8> {
        let mut raw = Raw {
            magic: U32::new(FOOTER_MAGIC),
            crc: U32::ZERO,
            entries: U32::new(self.index.len() as u32),
            end: U32::new(self.end),
            records: U64::new(self.records),
            prev_seq: U64::new(self.prev_seq),
            last_seq: U64::new(self.last_seq),
            session: U64::new(self.session),
            time_ms: U64::new(self.time_ms),
            chain: U32::new(self.chain),
            content: U32::new(self.content()),
        };
        let mut bytes = vec![0; FOOTER_HEADER_BYTES];
        for entry in &self.index {
            let entry = RawEntry {
                seq: U64::new(entry.seq),
                prev_seq: U64::new(entry.prev_seq),
                unit: U32::new(entry.unit),
                record: U32::new(entry.record),
            };
            bytes.extend_from_slice(entry.as_bytes());
        }
        let sum =
            salt.bind(self.end, raw.as_bytes()).rotate_left(1) ^ crc(&bytes[FOOTER_HEADER_BYTES..]);
        raw.crc = U32::new(sum);
        bytes[..FOOTER_HEADER_BYTES].copy_from_slice(raw.as_bytes());
        bytes
    }

    /// Parses what [`Footer::encode`] returned.
    pub(crate) fn decode(bytes: &[u8], salt: Salt, end: u32) -> Result<Self, DecodeError> {
        let mut blocks = bytes.to_vec();
        blocks.resize(block_up(bytes.len() as u32) as usize, 0);
        Self::parse(&blocks, salt, end)
    }

    /// The length of the footer that starts with these bytes, before its checksum is verified.
    pub(crate) fn length(bytes: &[u8], end: u32) -> Result<u32, DecodeError> {
        let Ok((raw, _)) = Raw::read_from_prefix(bytes) else {
            return Err(DecodeError::Cut);
        };
        if raw.magic.get() != FOOTER_MAGIC {
            return Err(DecodeError::NotAUnit);
        }
        // Every entry refers to a record, and a record takes at least sixteen bytes.
        if raw.end.get() != end || raw.entries.get() > end / 16 {
            return Err(DecodeError::Nonsense);
        }
        Ok(block_up(FOOTER_HEADER_BYTES as u32 + raw.entries.get() * INDEX_ENTRY_BYTES as u32))
    }

    /// The length of the entries of the footer that starts with these bytes, and the checksum that
    /// the entries must have.
    pub(crate) fn entries(bytes: &[u8], salt: Salt, end: u32) -> Result<(u32, u32), DecodeError> {
        Self::length(bytes, end)?;
        let (mut raw, _) = Raw::read_from_prefix(bytes).map_err(|_| DecodeError::Cut)?;
        let sum = raw.crc.get();
        raw.crc = U32::ZERO;
        let entries = sum ^ salt.bind(end, raw.as_bytes()).rotate_left(1);
        Ok((raw.entries.get() * INDEX_ENTRY_BYTES as u32, entries))
    }

    /// Parses a footer at `end`. `bytes` has the length that [`Footer::length`] returned.
    pub(crate) fn parse(bytes: &[u8], salt: Salt, end: u32) -> Result<Self, DecodeError> {
        let length = Self::length(bytes, end)? as usize;
        let bytes = bytes.get(..length).ok_or(DecodeError::Cut)?;
        let (entries_len, sum) = Self::entries(bytes, salt, end)?;
        let (raw, rest) = Raw::read_from_prefix(bytes).map_err(|_| DecodeError::Cut)?;
        let (entries, zeros) = rest.split_at(entries_len as usize);
        if crc(entries) != sum {
            return Err(DecodeError::Checksum);
        }
        if !is_zero(zeros) {
            return Err(DecodeError::Padding);
        }
        let entries = <[RawEntry]>::ref_from_bytes(entries).map_err(|_| DecodeError::Cut)?;
        let mut before = BLOCK_BYTES;
        for entry in entries {
            let (unit, record) = (entry.unit.get(), entry.record.get());
            let ordered = before <= unit && unit < record && record < end;
            if !ordered || entry.prev_seq.get() >= entry.seq.get() {
                return Err(DecodeError::Nonsense);
            }
            before = unit;
        }
        let records = raw.records.get();
        if records > u64::from(end / 16) || raw.prev_seq.get() > raw.last_seq.get() {
            return Err(DecodeError::Nonsense);
        }
        let content = raw.content.get();
        let payload = (content & !HAS_GAP).checked_sub(1);
        if payload.is_some_and(|bytes| bytes >= end) {
            return Err(DecodeError::Nonsense);
        }
        let numbers = raw.last_seq.get() - raw.prev_seq.get();
        let has_gap = match payload {
            Some(_) => content & HAS_GAP != 0,
            // A gap has numbers and no records.
            None => records < numbers,
        };
        let index = entries.iter().map(|entry| IndexEntry {
            seq: entry.seq.get(),
            prev_seq: entry.prev_seq.get(),
            unit: entry.unit.get(),
            record: entry.record.get(),
        });
        Ok(Self {
            end,
            records,
            prev_seq: raw.prev_seq.get(),
            last_seq: raw.last_seq.get(),
            session: raw.session.get(),
            time_ms: raw.time_ms.get(),
            chain: raw.chain.get(),
            payload,
            has_gap,
            index: index.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::LogId;

    fn footer() -> Footer {
        let entry = |n: u32| IndexEntry {
            seq: u64::from(n) + 1,
            prev_seq: u64::from(n),
            unit: n * 4096,
            record: n * 4096 + 80,
        };
        Footer {
            end: 65536,
            records: 12,
            prev_seq: 1,
            last_seq: 13,
            session: 3,
            time_ms: 4,
            chain: 5,
            payload: Some(0),
            has_gap: true,
            index: (1..4).map(entry).collect(),
        }
    }

    #[test]
    fn round_trip() {
        let salt = Salt::new(LogId([1; 16]), 9);
        let bytes = footer().to_bytes(salt);
        assert_eq!(bytes.len(), 4096);
        assert_eq!(Footer::parse(&bytes, salt, 65536), Ok(footer()));
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let salt = Salt::new(LogId([1; 16]), 9);
        let good = footer().to_bytes(salt);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Footer::parse(&bad, salt, 65536).is_err(), "bit {bit} went unseen");
        }
        for len in 0..good.len() {
            assert!(Footer::parse(&good[..len], salt, 65536).is_err());
        }
    }
}

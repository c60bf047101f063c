//! The header of a commit unit: what one commit wrote, which unit it follows, and how far the log
//! was durable when it was submitted.
//!
//! The session is a field under the checksum, not a part of the salt, which binds log and segment
//! number. A segment number belongs to one life of a file: a file continues in a later session only
//! after a clean close, with nothing past its end. So a record can be checked alone, by its
//! position.

use esker_disk::planted::{Bug, is_planted};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::format::block::{
    BLOCK_BYTES, DecodeError, NUMBER_MAX, SEGMENT_MAX, Salt, UNIT_MAX, block_up,
};

pub(crate) const UNIT_HEADER: u32 = 72;

const DATA_MAGIC: u32 = 0xE5CE_1D01;
const GAP_MAGIC: u32 = 0xE5CE_1D02;

/// The contents of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnitKind {
    /// Records.
    Data,
    /// Nothing: `repair` wrote it in place of a corrupt unit. `used` is the length that it covers.
    /// The records above `prev_seq` up to `last_seq` are lost. `digest` is the checksum that the
    /// next unit names as its predecessor's.
    Gap,
}

/// The fields of a unit header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnitHeader {
    pub(crate) kind: UnitKind,
    /// Bytes from the start of the unit to the end of its last record.
    pub(crate) used: u32,
    pub(crate) records: u32,
    /// The wrapping sum of the checksums of the records.
    pub(crate) digest: u64,
    /// The sequence number of the record before the first.
    pub(crate) prev_seq: u64,
    pub(crate) last_seq: u64,
    /// A durable lower bound: the log was durable up to this sequence number when the unit was
    /// submitted.
    pub(crate) durable_bound: u64,
    /// The open session that wrote the unit.
    pub(crate) session: u64,
    /// Wall clock at submission, in milliseconds since 1970, or the time of the unit before, if
    /// that is later and not dropped.
    pub(crate) time_ms: u64,
    /// The checksum of the previous unit, or of the segment header for the first unit.
    pub(crate) chain: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    magic: U32,
    crc: U32,
    used: U32,
    records: U32,
    digest: U64,
    prev_seq: U64,
    last_seq: U64,
    durable_bound: U64,
    session: U64,
    time_ms: U64,
    chain: U32,
    zero: U32,
}

impl Raw {
    /// The checksum of a header whose own field is zero.
    fn checksum(&self, salt: Salt, offset: u32) -> u32 {
        let covered = match () {
            () if is_planted(Bug::ChecksumOverPayloadOnly) => 0,
            () if is_planted(Bug::SessionNotInChecksum) => std::mem::offset_of!(Self, session),
            () => size_of::<Self>(),
        };
        salt.bind(offset, &self.as_bytes()[..covered])
    }
}

impl UnitHeader {
    /// The bytes of the header for a unit at `offset`, and its checksum. The next unit chains to
    /// that.
    pub(crate) fn to_bytes(self, salt: Salt, offset: u32) -> ([u8; UNIT_HEADER as usize], u32) {
        let mut raw = Raw {
            magic: U32::new(match self.kind {
                UnitKind::Data => DATA_MAGIC,
                UnitKind::Gap => GAP_MAGIC,
            }),
            crc: U32::ZERO,
            used: U32::new(self.used),
            records: U32::new(self.records),
            digest: U64::new(self.digest),
            prev_seq: U64::new(self.prev_seq),
            last_seq: U64::new(self.last_seq),
            durable_bound: U64::new(self.durable_bound),
            session: U64::new(self.session),
            time_ms: U64::new(self.time_ms),
            chain: U32::new(self.chain),
            zero: U32::ZERO,
        };
        let crc = raw.checksum(salt, offset);
        raw.crc = U32::new(crc);
        (zerocopy::transmute!(raw), crc)
    }

    /// Parses the header of a unit at `offset`. Returns its checksum, too.
    pub(crate) fn parse(bytes: &[u8], salt: Salt, offset: u32) -> Result<(Self, u32), DecodeError> {
        let Ok((raw, _)) = Raw::read_from_prefix(bytes) else {
            return Err(DecodeError::Cut);
        };
        let kind = match raw.magic.get() {
            DATA_MAGIC => UnitKind::Data,
            GAP_MAGIC => UnitKind::Gap,
            0 => return Err(DecodeError::Blank),
            _ => return Err(DecodeError::NotAUnit),
        };
        let crc = raw.crc.get();
        let mut unsummed = raw;
        unsummed.crc = U32::ZERO;
        if unsummed.checksum(salt, offset) != crc {
            return Err(DecodeError::Checksum);
        }
        let raw = unsummed;
        let header = Self {
            kind,
            used: raw.used.get(),
            records: raw.records.get(),
            digest: raw.digest.get(),
            prev_seq: raw.prev_seq.get(),
            last_seq: raw.last_seq.get(),
            durable_bound: raw.durable_bound.get(),
            session: raw.session.get(),
            time_ms: raw.time_ms.get(),
            chain: raw.chain.get(),
        };
        let sane = match kind {
            UnitKind::Data => {
                (UNIT_HEADER..=UNIT_MAX).contains(&header.used)
                    && header.prev_seq <= header.last_seq
            }
            UnitKind::Gap => {
                header.used.is_multiple_of(BLOCK_BYTES)
                    && (BLOCK_BYTES..SEGMENT_MAX).contains(&header.used)
            }
        };
        if sane && header.session < NUMBER_MAX {
            Ok((header, crc))
        } else {
            Err(DecodeError::Nonsense)
        }
    }

    /// Whether the first four bytes are the magic number of a unit.
    pub(crate) fn starts(magic: u32) -> bool {
        magic == DATA_MAGIC || magic == GAP_MAGIC
    }

    /// The bytes that the unit occupies in the segment.
    pub(crate) fn span(&self) -> u32 {
        block_up(self.used)
    }

    /// The checksum that the next unit must name, given this unit's own.
    pub(crate) fn next_chain(&self, crc: u32) -> u32 {
        match self.kind {
            UnitKind::Data => crc,
            UnitKind::Gap => self.digest as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::LogId;

    fn header() -> UnitHeader {
        UnitHeader {
            kind: UnitKind::Data,
            used: 5000,
            records: 2,
            digest: 99,
            prev_seq: 3,
            last_seq: 5,
            durable_bound: 3,
            session: 8,
            time_ms: 1,
            chain: 77,
        }
    }

    /// A header is decoded as it was encoded.
    #[test]
    fn round_trip() {
        let salt = Salt::new(LogId([1; 16]), 9);
        let (bytes, crc) = header().to_bytes(salt, 8192);
        assert_eq!(UnitHeader::parse(&bytes, salt, 8192), Ok((header(), crc)));
        assert_eq!(header().span(), 8192);
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let salt = Salt::new(LogId([1; 16]), 9);
        let (good, _) = header().to_bytes(salt, 8192);
        for bit in 0..good.len() * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(UnitHeader::parse(&bad, salt, 8192).is_err(), "bit {bit} went unseen");
        }
        assert!(UnitHeader::parse(&good, salt, 4096).is_err());
    }
}

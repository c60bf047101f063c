//! The first block of a segment: which log and which incarnation of the file it belongs to, and
//! where the previous segment ends. That end is the recorded cut: units of the previous segment
//! after it are dead.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::format::block::{
    BLOCK_BYTES, DecodeError, FORMAT_VERSION, LogId, NUMBER_MAX, Salt, is_zero,
};

const MAGIC: [u8; 8] = *b"ESKERSEG";
const SEGMENT_HEADER: usize = 104;
const RECOVERED_FLAG: u32 = 1;

/// The fields of a segment header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) log: LogId,
    /// The number of the segment, which is also its incarnation: no number is used twice.
    pub(crate) segment: u64,
    pub(crate) session: u64,
    /// The position in the log of the first byte of this segment. The previous segment ends there.
    pub(crate) base: u64,
    /// The previous segment; 0 when there is none.
    pub(crate) prev_segment: u64,
    /// The sequence number of the record before the first of this segment.
    pub(crate) prev_seq: u64,
    /// A durable lower bound: the log was durable up to this sequence number when the header was
    /// submitted, or, where `recovered` is set, when the segment got its name.
    pub(crate) durable_bound: u64,
    pub(crate) time_ms: u64,
    /// The checksum of the last unit before this segment.
    pub(crate) chain: u32,
    /// Recovery or repair wrote the whole segment before it got its name.
    pub(crate) recovered: bool,
    /// The checksum that the first unit chains to, where `repair` wrote a new header whose checksum
    /// differs from the one that the unit names; otherwise 0.
    pub(crate) first_chain: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    crc: U32,
    log: [u8; 16],
    segment: U64,
    session: U64,
    base: U64,
    prev_segment: U64,
    prev_seq: U64,
    durable_bound: U64,
    time_ms: U64,
    chain: U32,
    block: U32,
    flags: U32,
    first_chain: U32,
}

const _: () = assert!(size_of::<Raw>() == SEGMENT_HEADER);

/// Why the first block of a segment was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// Corrupt, or never written.
    Invalid(DecodeError),
    /// Written by a version of Esker that this one does not support.
    Version(u32),
    /// A valid header of another log.
    Foreign(LogId),
}

impl From<DecodeError> for HeaderError {
    fn from(decode_error: DecodeError) -> Self {
        Self::Invalid(decode_error)
    }
}

impl SegmentHeader {
    pub(crate) fn salt(&self) -> Salt {
        Salt::new(self.log, self.segment)
    }

    /// The whole first block, and the checksum that the first unit chains to.
    pub(crate) fn to_block(self) -> (Box<[u8]>, u32) {
        let mut raw = Raw {
            magic: MAGIC,
            version: U32::new(FORMAT_VERSION),
            crc: U32::ZERO,
            log: self.log.0,
            segment: U64::new(self.segment),
            session: U64::new(self.session),
            base: U64::new(self.base),
            prev_segment: U64::new(self.prev_segment),
            prev_seq: U64::new(self.prev_seq),
            durable_bound: U64::new(self.durable_bound),
            time_ms: U64::new(self.time_ms),
            chain: U32::new(self.chain),
            block: U32::new(BLOCK_BYTES),
            flags: U32::new(if self.recovered { RECOVERED_FLAG } else { 0 }),
            first_chain: U32::new(self.first_chain),
        };
        let crc = summed(&raw, self.salt());
        raw.crc = U32::new(crc);
        let mut block = vec![0; BLOCK_BYTES as usize].into_boxed_slice();
        block[..SEGMENT_HEADER].copy_from_slice(raw.as_bytes());
        (block, self.chain_start(crc))
    }

    fn chain_start(&self, crc: u32) -> u32 {
        if self.first_chain == 0 { crc } else { self.first_chain }
    }

    /// The log id in a valid first block of any log.
    pub(crate) fn log_of(block: &[u8], segment: u64) -> Option<LogId> {
        let (raw, _) = Raw::read_from_prefix(block).ok()?;
        let log = LogId(raw.log);
        Self::parse(block, log, segment).ok().map(|_| log)
    }

    /// Parses the first block of the segment with this number of this log.
    pub(crate) fn parse(
        block: &[u8],
        log: LogId,
        segment: u64,
    ) -> Result<(Self, u32), HeaderError> {
        let Ok((mut raw, rest)) = Raw::read_from_prefix(block) else {
            return Err(DecodeError::Cut.into());
        };
        if rest.len() < BLOCK_BYTES as usize - SEGMENT_HEADER {
            return Err(DecodeError::Cut.into());
        }
        if raw.magic != MAGIC {
            let blank = is_zero(block);
            return Err(if blank { DecodeError::Blank } else { DecodeError::NotAUnit }.into());
        }
        let crc = raw.crc.get();
        raw.crc = U32::ZERO;
        let own = Salt::new(LogId(raw.log), raw.segment.get());
        if summed(&raw, own) != crc {
            return Err(DecodeError::Checksum.into());
        }
        // Every version keeps the size of the first block, its checksum and the offset of the
        // version.
        if raw.version.get() != FORMAT_VERSION {
            return Err(HeaderError::Version(raw.version.get()));
        }
        if raw.log != log.0 {
            return Err(HeaderError::Foreign(LogId(raw.log)));
        }
        // A valid header with another number is from an earlier incarnation of a recycled file.
        if raw.segment.get() != segment {
            return Err(DecodeError::Checksum.into());
        }
        let huge = [raw.session, raw.base, raw.segment].iter().any(|n| n.get() >= NUMBER_MAX)
            || !raw.base.get().is_multiple_of(u64::from(BLOCK_BYTES));
        if raw.block.get() != BLOCK_BYTES || raw.prev_segment.get() >= segment || huge {
            return Err(DecodeError::Nonsense.into());
        }
        if !is_zero(&rest[..BLOCK_BYTES as usize - SEGMENT_HEADER]) {
            return Err(DecodeError::Padding.into());
        }
        let header = Self {
            log,
            segment,
            session: raw.session.get(),
            base: raw.base.get(),
            prev_segment: raw.prev_segment.get(),
            prev_seq: raw.prev_seq.get(),
            durable_bound: raw.durable_bound.get(),
            time_ms: raw.time_ms.get(),
            chain: raw.chain.get(),
            recovered: raw.flags.get() & RECOVERED_FLAG != 0,
            first_chain: raw.first_chain.get(),
        };
        Ok((header, header.chain_start(crc)))
    }
}

/// The checksum of a segment header, bound to the salt at offset 0 of the segment.
fn summed(raw: &Raw, salt: Salt) -> u32 {
    let bytes = raw.as_bytes();
    salt.bind(0, &bytes[8..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: LogId = LogId([5; 16]);

    fn header() -> SegmentHeader {
        SegmentHeader {
            log: LOG,
            segment: 4,
            session: 2,
            base: 1 << 20,
            prev_segment: 3,
            prev_seq: 17,
            durable_bound: 17,
            time_ms: 5,
            chain: 6,
            recovered: true,
            first_chain: 0,
        }
    }

    /// A header is decoded as it was encoded.
    #[test]
    fn round_trip() {
        let (block, crc) = header().to_block();
        assert_eq!(SegmentHeader::parse(&block, LOG, 4), Ok((header(), crc)));
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let (good, _) = header().to_block();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::parse(&bad, LOG, 4).is_err(), "bit {bit} went unseen");
        }
    }

    #[test]
    fn other_logs_versions_and_incarnations_are_distinguished() {
        let (block, _) = header().to_block();
        let other = LogId([6; 16]);
        assert_eq!(SegmentHeader::parse(&block, other, 4), Err(HeaderError::Foreign(LOG)));
        assert_eq!(SegmentHeader::parse(&block, LOG, 5), Err(DecodeError::Checksum.into()));
        let mut newer = block.clone();
        newer[8] = FORMAT_VERSION as u8 + 1;
        assert_eq!(SegmentHeader::parse(&newer, LOG, 4), Err(DecodeError::Checksum.into()));
        let (mut raw, _) = Raw::read_from_prefix(&newer).unwrap();
        raw.crc = U32::ZERO;
        raw.crc = U32::new(summed(&raw, header().salt()));
        newer[..SEGMENT_HEADER].copy_from_slice(raw.as_bytes());
        assert_eq!(
            SegmentHeader::parse(&newer, LOG, 4),
            Err(HeaderError::Version(FORMAT_VERSION + 1))
        );
        assert_eq!(SegmentHeader::parse(&[0; 4096], LOG, 4), Err(DecodeError::Blank.into()));
        assert_eq!(SegmentHeader::parse(&block[..4095], LOG, 4), Err(DecodeError::Cut.into()));
    }
}

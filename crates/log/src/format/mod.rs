//! The on-disk format, version 2: see `docs/src/format.md` for the diagrams.
//!
//! All integers are little-endian. Everything here is a pure function of bytes.
//!
//! A segment is a header block, then commit units, then, once it is full, a footer. A unit starts
//! on a block and holds a header and records; zeros fill its last block.
//!
//! The first four bytes at any boundary identify the content. A record's size is at least 16 and
//! below 2^27, the magic numbers are far above that, and zero is the padding after the last record.

pub(crate) mod block;
pub(crate) mod decode;
pub(crate) mod footer;
pub(crate) mod record;
pub(crate) mod segment;
pub(crate) mod unit;

pub(crate) use block::{
    BLOCK_BYTES, DecodeError, FORMAT_VERSION, NUMBER_MAX, SEGMENT_MAX, Salt, UNIT_MAX, block_up,
    crc, crc_of_joined, is_zero, random_numbers,
};
pub use block::{LogId, RECORD_LIMIT_MAX};
pub(crate) use footer::{Footer, IndexEntry};
pub(crate) use record::RecordHeader;
pub(crate) use segment::SegmentHeader;
pub(crate) use unit::{UnitHeader, UnitKind};

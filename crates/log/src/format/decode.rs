//! Decoding units and records in memory.
//!
//! [`check_unit`] trusts nothing; recovery, `verify` and cold reads use it. [`Records`] iterates
//! over bytes that were checked, or that this process staged itself, and costs a few loads per
//! record.

use crate::format::block::{BLOCK_BYTES, DecodeError, Salt, block_up, is_zero};
use crate::format::record::{RECORD_HEADER, RecordHeader};
use crate::format::unit::{UNIT_HEADER, UnitHeader, UnitKind};

/// A record and its location in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LocatedRecord<'a> {
    pub(crate) seq: u64,
    pub(crate) prev_seq: u64,
    /// The offset of the record in the segment.
    pub(crate) offset: u32,
    /// The time of its unit; 0 where that is not known.
    pub(crate) time_ms: u64,
    pub(crate) payload: &'a [u8],
}

/// Checks the whole unit that starts at `bytes[0]`, at `offset` in its segment: header, every
/// record, their order, their digest, and the padding. Calls `each` for every record.
///
/// `bytes` may continue past the unit. The caller checks with [`continues`] whether the unit
/// continues its predecessor.
pub(crate) fn check_unit<'a>(
    bytes: &'a [u8],
    salt: Salt,
    offset: u32,
    mut each: impl FnMut(LocatedRecord<'a>),
) -> Result<(UnitHeader, u32), DecodeError> {
    let (header, crc) = UnitHeader::parse(bytes, salt, offset)?;
    if header.kind == UnitKind::Gap {
        return Ok((header, crc));
    }
    let unit = bytes.get(..header.span() as usize).ok_or(DecodeError::Cut)?;
    let (records, zeros) = unit.split_at(header.used as usize);
    let mut at = UNIT_HEADER;
    let mut prev_seq = header.prev_seq;
    let mut digest = 0u64;
    for _ in 0..header.records {
        let rest = records.get(at as usize..).ok_or(DecodeError::Nonsense)?;
        let record = RecordHeader::parse(rest)?;
        let stored = rest.get(..record.stored() as usize).ok_or(DecodeError::Nonsense)?;
        record.check(salt, offset + at, stored)?;
        if record.seq <= prev_seq {
            return Err(DecodeError::Nonsense);
        }
        each(LocatedRecord {
            seq: record.seq,
            prev_seq,
            offset: offset + at,
            time_ms: header.time_ms,
            payload: &stored[RECORD_HEADER as usize..record.size as usize],
        });
        digest = digest.wrapping_add(u64::from(record.crc));
        prev_seq = record.seq;
        at += record.stored();
    }
    if at != header.used || prev_seq != header.last_seq {
        return Err(DecodeError::Nonsense);
    }
    if digest != header.digest {
        return Err(DecodeError::Checksum);
    }
    if !is_zero(zeros) {
        return Err(DecodeError::Padding);
    }
    Ok((header, crc))
}

/// Whether a unit continues one that ended with this checksum and this record, in a session that is
/// not older. The first record of an empty log may follow any sequence number.
pub(crate) fn continues(header: &UnitHeader, chain: u32, seq: u64, session: u64) -> bool {
    let follows = header.prev_seq == seq || seq == 0;
    header.chain == chain && follows && header.session >= session
}

/// The structure at an offset.
enum Structure<'a> {
    /// The number before its first record, and its time.
    Unit(u64, u64),
    Record(RecordHeader, &'a [u8]),
    /// The padding after the last record of a unit.
    Padding,
    End,
}

fn decode(bytes: &[u8], offset: u32) -> Structure<'_> {
    let Some(first) = bytes.first_chunk::<4>() else {
        return Structure::End;
    };
    let first = u32::from_le_bytes(*first);
    if first == 0 {
        return Structure::Padding;
    }
    if offset.is_multiple_of(BLOCK_BYTES) && UnitHeader::starts(first) {
        // `prev_seq` is at byte 24 of the header, and the time at byte 56.
        let field = |at: usize| bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes);
        return match (field(24), field(56)) {
            (Some(prev_seq), Some(time_ms)) => Structure::Unit(prev_seq, time_ms),
            _ => Structure::End,
        };
    }
    match RecordHeader::parse(bytes) {
        Ok(record) if record.size as usize <= bytes.len() => {
            Structure::Record(record, &bytes[RECORD_HEADER as usize..record.size as usize])
        }
        _ => Structure::End,
    }
}

/// The number of the last record of checked bytes that are whole units: reads their headers only.
/// `None` if they do not begin with a unit.
pub(crate) fn last_of_units(mut bytes: &[u8]) -> Option<u64> {
    let mut last = None;
    while let Some(header) = bytes.first_chunk::<{ UNIT_HEADER as usize }>() {
        // `used` is at byte 8 of the header, and `last_seq` at byte 32.
        let magic = u32::from_le_bytes(*header.first_chunk()?);
        if !UnitHeader::starts(magic) {
            break;
        }
        let used = u32::from_le_bytes(*header[8..].first_chunk()?);
        last = Some(u64::from_le_bytes(*header[32..].first_chunk()?));
        bytes = bytes.get(block_up(used.max(1)) as usize..).unwrap_or(&[]);
    }
    last
}

/// An iterator over the records in checked bytes of a segment, in order.
#[derive(Debug, Clone)]
pub(crate) struct Records<'a> {
    bytes: &'a [u8],
    offset: u32,
    prev_seq: u64,
    time_ms: u64,
}

impl<'a> Records<'a> {
    /// Iterates over `bytes`, which are at `offset` and begin with a unit, or with a record that
    /// follows the sequence number `prev_seq`.
    pub(crate) fn new(bytes: &'a [u8], offset: u32, prev_seq: u64) -> Self {
        Self { bytes, offset, prev_seq, time_ms: 0 }
    }

    fn skip(&mut self, len: u32) {
        let len = (len as usize).min(self.bytes.len());
        self.bytes = &self.bytes[len..];
        self.offset += len as u32;
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = LocatedRecord<'a>;

    fn next(&mut self) -> Option<LocatedRecord<'a>> {
        loop {
            match decode(self.bytes, self.offset) {
                Structure::Record(record, payload) => {
                    let placed = LocatedRecord {
                        seq: record.seq,
                        prev_seq: self.prev_seq,
                        offset: self.offset,
                        time_ms: self.time_ms,
                        payload,
                    };
                    self.prev_seq = record.seq;
                    self.skip(record.stored());
                    return Some(placed);
                }
                Structure::Unit(prev_seq, time_ms) => {
                    (self.prev_seq, self.time_ms) = (prev_seq, time_ms);
                    self.skip(UNIT_HEADER);
                }
                Structure::Padding => {
                    let next = block_up(self.offset + 1);
                    self.skip(next - self.offset);
                }
                Structure::End => return None,
            }
        }
    }
}

/// A record that [`find`] located and checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FoundRecord {
    pub(crate) seq: u64,
    pub(crate) prev_seq: u64,
    /// The offset of the record in the segment.
    pub(crate) offset: u32,
    /// The length of the payload in bytes.
    pub(crate) len: u32,
}

/// The result of [`find`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SearchResult {
    Record(FoundRecord),
    /// A larger number, or the end of everything up to `last`, was reached without an error.
    Passed,
    /// The number is in a gap that `repair` left.
    Gap {
        from: u64,
        to: u64,
    },
    Invalid {
        offset: u32,
        decode_error: DecodeError,
    },
}

/// Searches for a sequence number. `bytes` are at `offset`, begin with a unit or with a record that
/// follows `prev_seq`, and hold every record up to `last`. Every header and record on the way is
/// checked, and that no record is missing.
pub(crate) fn find(
    bytes: &[u8],
    offset: u32,
    salt: Salt,
    (prev_seq, last): (u64, u64),
    want: u64,
) -> SearchResult {
    let (mut at, mut prev_seq) = (0u32, prev_seq);
    // After padding comes a unit, or the end.
    let mut padded = false;
    loop {
        let here = offset + at;
        let rest = bytes.get(at as usize..).unwrap_or(&[]);
        let Some(first) = rest.first_chunk::<4>() else {
            return match prev_seq >= last {
                true => SearchResult::Passed,
                false => SearchResult::Invalid { offset: here, decode_error: DecodeError::Cut },
            };
        };
        let first = u32::from_le_bytes(*first);
        let is_unit = here.is_multiple_of(BLOCK_BYTES) && UnitHeader::starts(first);
        if padded && !is_unit {
            return SearchResult::Invalid { offset: here, decode_error: DecodeError::Padding };
        }
        if first == 0 {
            at = block_up(here + 1) - offset;
            padded = true;
            continue;
        }
        padded = false;
        if is_unit {
            match UnitHeader::parse(rest, salt, here) {
                Err(decode_error) => return SearchResult::Invalid { offset: here, decode_error },
                // Corruption may have turned the size of an earlier record into zero.
                Ok((header, _)) if at > 0 && header.prev_seq != prev_seq => {
                    return SearchResult::Invalid {
                        offset: here,
                        decode_error: DecodeError::Chain,
                    };
                }
                Ok((header, _)) if header.kind == UnitKind::Gap => {
                    let (from, to) = (header.prev_seq, header.last_seq);
                    if from < want && want <= to {
                        return SearchResult::Gap { from, to };
                    }
                    at += header.span();
                    prev_seq = to;
                }
                Ok((header, _)) => {
                    prev_seq = header.prev_seq;
                    at += UNIT_HEADER;
                }
            }
            continue;
        }
        let record = match checked_record(rest, salt, here) {
            Ok(record) => record,
            Err(decode_error) => return SearchResult::Invalid { offset: here, decode_error },
        };
        if record.seq == want {
            let len = record.size - RECORD_HEADER;
            return SearchResult::Record(FoundRecord { seq: want, prev_seq, offset: here, len });
        }
        if record.seq > want {
            return SearchResult::Passed;
        }
        prev_seq = record.seq;
        at += record.stored();
    }
}

/// The header of the record that `bytes` begin with, after its checksum was checked.
#[inline]
fn checked_record(bytes: &[u8], salt: Salt, offset: u32) -> Result<RecordHeader, DecodeError> {
    let record = RecordHeader::parse(bytes)?;
    let stored = bytes.get(..record.stored() as usize).ok_or(DecodeError::Cut)?;
    record.check(salt, offset, stored)?;
    Ok(record)
}

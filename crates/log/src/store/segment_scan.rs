//! Reading one segment unit by unit, without trusting it: its units, where they stop being valid,
//! and what follows.
//!
//! A block that cannot be read is an invalid block: a torn sector may stay unreadable for ever, and
//! a log that could not be opened for that reason would lose everything. With a durable lower bound
//! at or past it, it is corruption like any other.

use std::sync::Arc;

use esker_disk::File;

use crate::base::error::Result;
use crate::base::read_options::ReadOptions;
use crate::format::decode::{LocatedRecord, check_unit, continues};
use crate::format::record::stored_size;
use crate::format::unit::UnitKind;
use crate::format::{BLOCK_BYTES, DecodeError, IndexEntry, Salt, SegmentHeader, UnitHeader};
use crate::store::segment_reader::{ReadErrors, SegmentReader};

/// The start of a scan, and what the first unit must continue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScanStart {
    pub(crate) salt: Salt,
    pub(crate) offset: u32,
    pub(crate) chain: u32,
    pub(crate) seq: u64,
    pub(crate) session: u64,
}

/// A valid unit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ValidUnit {
    pub(crate) offset: u32,
    pub(crate) header: UnitHeader,
    /// The checksum that the next unit must chain to.
    pub(crate) chain: u32,
    /// Bytes of the payloads of its records.
    pub(crate) payload: u32,
}

impl ValidUnit {
    pub(crate) fn end(&self) -> u32 {
        self.offset + self.header.span()
    }
}

/// The result of a scan.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// The valid units, each continuing the one before.
    pub(crate) units: Vec<ValidUnit>,
    pub(crate) index: Vec<IndexEntry>,
    /// The offset where the valid units end. `seq`, `chain`, `session` and `time_ms` are of the
    /// last one.
    pub(crate) end: u32,
    pub(crate) seq: u64,
    pub(crate) chain: u32,
    pub(crate) session: u64,
    pub(crate) records: u64,
    /// Bytes of the payloads of these.
    pub(crate) payload: u32,
    /// A gap is among the units.
    pub(crate) has_gap: bool,
    pub(crate) time_ms: u64,
    /// Why the scan stopped before `until`.
    pub(crate) decode_error: Option<DecodeError>,
}

/// The density of the sparse index: the most bytes, and the most records, between two entries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Density {
    pub(crate) bytes: u32,
    pub(crate) records: u32,
}

impl Density {
    pub(crate) fn from_options(options: &ReadOptions) -> Self {
        Self { bytes: options.index_bytes, records: options.index_records }
    }
}

/// The sparse index of records that are read in order.
#[derive(Debug)]
pub(crate) struct SparseIndex {
    density: Density,
    /// The bytes and the records since the last entry.
    since: (u32, u32),
    entries: Vec<IndexEntry>,
}

impl SparseIndex {
    pub(crate) fn new(density: Density) -> Self {
        Self { density, since: (u32::MAX / 2, 0), entries: Vec::new() }
    }

    /// Takes the next record, which is in the unit at this offset.
    pub(crate) fn push(&mut self, unit: u32, record: &LocatedRecord<'_>) {
        if self.since.0 >= self.density.bytes || self.since.1 >= self.density.records {
            self.entries.push(IndexEntry {
                seq: record.seq,
                prev_seq: record.prev_seq,
                unit,
                record: record.offset,
            });
            self.since = (0, 0);
        }
        self.since.0 = self.since.0.saturating_add(stored_size(record.payload.len()));
        self.since.1 += 1;
    }

    /// Drops the entries of a unit that is not valid, and of those after it.
    pub(crate) fn drop_from(&mut self, unit: u32) {
        self.entries.truncate(self.entries.partition_point(|entry| entry.unit < unit));
    }

    pub(crate) fn finish(self) -> Vec<IndexEntry> {
        self.entries
    }
}

/// Scans from `from` up to the offset `until`, or up to the first error.
pub(crate) fn scan(
    file: &Arc<dyn File>,
    from: ScanStart,
    until: Option<u32>,
    density: Density,
    read_errors: &ReadErrors,
) -> Result<Scan> {
    let mut image = SegmentReader::watched(Arc::clone(file), Some(read_errors))?;
    image.end_at(until.map_or(u64::MAX, u64::from));
    let mut scan = Scan {
        end: from.offset,
        seq: from.seq,
        chain: from.chain,
        session: from.session,
        ..Scan::default()
    };
    let mut index = SparseIndex::new(density);
    while until.is_none_or(|until| scan.end < until) {
        let offset = scan.end;
        let expected = Expected { chain: Some(scan.chain), seq: scan.seq, session: scan.session };
        let unit = next_unit(&mut image, from.salt, offset, expected, until, |record| {
            index.push(offset, &record);
        })?;
        let decode_error = match unit {
            Err(decode_error) => decode_error,
            Ok(unit) => {
                let ValidUnit { header, chain, .. } = unit;
                scan.units.push(unit);
                scan.end = unit.end();
                scan.chain = chain;
                scan.seq = header.last_seq;
                scan.session = header.session;
                scan.records += u64::from(header.records);
                scan.payload += unit.payload;
                scan.has_gap |= header.kind == UnitKind::Gap;
                scan.time_ms = header.time_ms;
                continue;
            }
        };
        index.drop_from(offset);
        scan.decode_error = Some(decode_error);
        break;
    }
    scan.index = index.finish();
    Ok(scan)
}

/// The end that the next unit must continue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    /// `None` after a corrupt unit, whose checksum is not known.
    pub(crate) chain: Option<u32>,
    pub(crate) seq: u64,
    pub(crate) session: u64,
}

impl Expected {
    fn is_continued_by(&self, header: &UnitHeader) -> bool {
        match self.chain {
            Some(chain) => continues(header, chain, self.seq, self.session),
            None => header.prev_seq >= self.seq && header.session >= self.session,
        }
    }
}

/// Returns the end of the valid units from one offset to another; `None` if they are not valid.
pub(crate) fn end_of_units(
    file: &Arc<dyn File>,
    header: &SegmentHeader,
    from: u32,
    until: u32,
) -> Option<Expected> {
    let mut image = SegmentReader::new(Arc::clone(file)).ok()?;
    image.end_at(u64::from(until));
    let mut expected = Expected { chain: None, seq: header.prev_seq, session: header.session };
    let mut offset = from;
    while offset < until {
        let unit = next_unit(&mut image, header.salt(), offset, expected, Some(until), |_| {});
        let unit = unit.ok()?.ok()?;
        offset = unit.end();
        expected = Expected {
            chain: Some(unit.chain),
            seq: unit.header.last_seq,
            session: unit.header.session,
        };
    }
    Some(expected)
}

/// Reads the unit at an offset, and checks that it is valid, continues its predecessor, and ends at
/// or before `until`. Opening, `verify` and `repair` take the same units by this rule.
///
/// Only the header of a gap counts. The rest of what it covers holds nothing: it is not read, and
/// may be past the end of the file.
pub(crate) fn next_unit(
    image: &mut SegmentReader<'_>,
    salt: Salt,
    offset: u32,
    expected: Expected,
    until: Option<u32>,
    mut each: impl FnMut(LocatedRecord<'_>),
) -> Result<std::result::Result<ValidUnit, DecodeError>> {
    let mut payload = 0;
    let checked = valid_unit(image, salt, offset, |record| {
        payload += record.payload.len() as u32;
        each(record);
    })?;
    Ok(checked.and_then(|(header, crc)| {
        let unit = ValidUnit { offset, header, chain: header.next_chain(crc), payload };
        if !expected.is_continued_by(&header) {
            return Err(DecodeError::Chain);
        }
        if until.is_some_and(|until| unit.end() > until) {
            return Err(DecodeError::Nonsense);
        }
        Ok(unit)
    }))
}

/// Reads and checks the unit at an offset.
pub(crate) fn valid_unit(
    image: &mut SegmentReader<'_>,
    salt: Salt,
    offset: u32,
    each: impl FnMut(LocatedRecord<'_>),
) -> Result<std::result::Result<(UnitHeader, u32), DecodeError>> {
    let block = image.at(u64::from(offset), BLOCK_BYTES as usize)?;
    let mut span = BLOCK_BYTES;
    let checked = match UnitHeader::parse(block, salt, offset) {
        Err(DecodeError::Cut) if block.is_empty() => Err(DecodeError::Blank),
        Ok((header, _)) if header.kind == UnitKind::Data => {
            span = header.span();
            let unit = image.at(u64::from(offset), span as usize)?;
            check_unit(unit, salt, offset, each)
        }
        other => other,
    };
    Ok(match checked {
        Err(_) if image.is_unreadable(u64::from(offset), span as usize) => {
            Err(DecodeError::Unreadable)
        }
        other => other,
    })
}

/// A valid unit header anywhere after the end of the valid units.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OrphanUnit {
    pub(crate) offset: u32,
    pub(crate) header: UnitHeader,
}

/// The contents of the blocks that were scanned for orphan units.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TailScan {
    /// The first block that is not zero.
    pub(crate) first: Option<u32>,
    /// The offset after the last such block, or after the valid unit that starts there.
    pub(crate) end: u32,
    /// A unit header does not match its checksum: the file was used before.
    pub(crate) earlier_life: bool,
}

/// Scans every block from `offset` to the end of the file, or to `until`, for unit headers that
/// belong to this incarnation of the segment. Calls `each` with the unit and whether the whole unit
/// is valid. Skips the inside of a valid unit.
pub(crate) fn orphan_units(
    file: &Arc<dyn File>,
    salt: Salt,
    offset: u32,
    until: Option<u32>,
    read_errors: &ReadErrors,
    mut each: impl FnMut(OrphanUnit, bool),
) -> Result<TailScan> {
    let mut image = SegmentReader::watched(Arc::clone(file), Some(read_errors))?;
    let end = until.map_or(image.len(), u64::from).min(image.len());
    let (mut at, mut tail) = (u64::from(offset), TailScan::default());
    while at < end {
        let here = at as u32;
        let mut next = at + u64::from(BLOCK_BYTES);
        let block = image.at(at, BLOCK_BYTES as usize)?;
        let has_data = block != &[0; BLOCK_BYTES as usize][..block.len()];
        match UnitHeader::parse(block, salt, here) {
            Ok((header, _)) => {
                let valid = valid_unit(&mut image, salt, here, |_| {})?.is_ok();
                if valid {
                    next = at + u64::from(header.span());
                }
                each(OrphanUnit { offset: here, header }, valid);
            }
            Err(DecodeError::Checksum) => tail.earlier_life = true,
            Err(_) => {}
        }
        if has_data {
            tail.first.get_or_insert(here);
            tail.end = next as u32;
        }
        at = next;
    }
    Ok(tail)
}

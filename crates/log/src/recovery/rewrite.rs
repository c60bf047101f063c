//! Writes a new segment to a temporary file, from the records that recovery copies.

use std::path::Path;
use std::sync::Arc;

use esker_disk::planted::{Bug, is_planted};
use esker_disk::{AlignedBuf, Dir, File, write_all_at};

use crate::base::error::Result;
use crate::base::error::corruption_at;
use crate::format::decode::{LocatedRecord, check_unit};
use crate::format::record::stored_size;
use crate::format::unit::UNIT_HEADER;
use crate::format::{
    BLOCK_BYTES, IndexEntry, RecordHeader, Salt, SegmentHeader, UnitHeader, UnitKind, block_up,
};
use crate::store::paths;
use crate::store::sealed_file;
use crate::store::segment_reader::{ReadErrors, SegmentReader};
use crate::store::segment_scan::{Density, ValidUnit};
use crate::store::segment_table::State;
use crate::store::space_reserve;

/// A unit is closed when it reaches this size, in bytes.
pub(super) const UNIT_BYTES: u32 = 1 << 20;

/// The units whose records a new unit takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    /// Units of one time.
    OneTime,
    /// Units of times that do not decrease, of which it gets the latest. This takes the least
    /// space.
    Tight,
}

pub(crate) struct Rewriter<'a> {
    dir: &'a dyn Dir,
    name: String,
    temporary: String,
    file: Arc<dyn File>,
    header: SegmentHeader,
    salt: Salt,
    density: Density,
    packing: Packing,
    since: (u32, u32),
    state: State,
    unit: Vec<u8>,
    records: u32,
    digest: u64,
    unit_prev: u64,
}

/// A segment that was renamed to its final name.
pub(crate) struct RewrittenSegment {
    pub(crate) header: SegmentHeader,
    pub(crate) state: State,
}

impl<'a> Rewriter<'a> {
    /// Starts a segment of at most `room` bytes. `header.durable_bound` is the last record that
    /// will be in it. Takes space from the reserve if the disk has no other.
    pub(crate) fn new(
        dir: &'a dyn Dir,
        header: SegmentHeader,
        density: Density,
        packing: Packing,
        room: u64,
    ) -> Result<Self> {
        let name = paths::segment(header.segment);
        let temporary = paths::temporary(&name);
        let file = space_reserve::file_with_room(dir, &temporary, room)?;
        let (_, header_crc) = header.to_block();
        Ok(Self {
            dir,
            name,
            temporary,
            file,
            header,
            salt: header.salt(),
            density,
            packing,
            since: (u32::MAX / 2, 0),
            state: State {
                end: BLOCK_BYTES,
                last_seq: header.prev_seq,
                chain: header_crc,
                payload: Some(0),
                time_ms: header.time_ms,
                ..State::default()
            },
            unit: Vec::new(),
            records: 0,
            digest: 0,
            unit_prev: 0,
        })
    }

    fn record(&mut self, record: LocatedRecord<'_>) -> Result<()> {
        let LocatedRecord { seq, prev_seq, time_ms, payload, .. } = record;
        let fits = match self.packing {
            Packing::OneTime => time_ms == self.state.time_ms,
            Packing::Tight => time_ms >= self.state.time_ms,
        };
        if self.unit.len() as u32 >= UNIT_BYTES || !fits {
            self.close_unit()?;
        }
        self.state.time_ms = time_ms;
        if self.unit.is_empty() {
            self.unit.resize(UNIT_HEADER as usize, 0);
            self.unit_prev = prev_seq;
        }
        let offset = self.state.end + self.unit.len() as u32;
        if self.since.0 >= self.density.bytes || self.since.1 >= self.density.records {
            let unit = self.state.end;
            self.state.index.push(IndexEntry { seq, prev_seq, unit, record: offset });
            self.since = (0, 0);
        }
        let stored = stored_size(payload.len());
        self.since = (self.since.0.saturating_add(stored), self.since.1 + 1);
        let header = RecordHeader::new(self.salt, offset, seq, payload);
        let end = self.unit.len() + stored as usize;
        self.unit.extend_from_slice(&header.to_bytes());
        self.unit.extend_from_slice(payload);
        self.unit.resize(end, 0);
        self.digest = self.digest.wrapping_add(u64::from(header.crc));
        self.records += 1;
        self.state.add_payload(payload.len() as u32);
        self.state.last_seq = seq;
        Ok(())
    }

    /// Copies the records of these units of a segment, and calls `each` with each sequence number.
    pub(crate) fn copy(
        &mut self,
        file: &Arc<dyn File>,
        salt: Salt,
        path: &Path,
        units: &[ValidUnit],
        mut each: impl FnMut(u64),
    ) -> Result<()> {
        let read_errors = ReadErrors::default();
        let mut image = SegmentReader::watched(Arc::clone(file), Some(&read_errors))?;
        for unit in units {
            if unit.header.kind == UnitKind::Gap {
                self.gap(&unit.header)?;
                continue;
            }
            let bytes = image.at(u64::from(unit.offset), unit.header.span() as usize)?;
            let mut outcome = Ok(());
            let checked = check_unit(bytes, salt, unit.offset, |record| {
                each(record.seq);
                if outcome.is_ok() {
                    outcome = self.record(record);
                }
            });
            outcome?;
            // The unit was valid when it was scanned. If it is not now, no result can be trusted.
            if let Err(decode_error) = checked {
                if let (_, Some(cause)) = read_errors.seen() {
                    return Err(cause.into());
                }
                return Err(corruption_at(
                    path,
                    unit.offset.into(),
                    unit.header.prev_seq,
                    decode_error,
                ));
            }
        }
        Ok(())
    }

    /// Copies a gap that an earlier repair left between two sequence numbers.
    fn gap(&mut self, gap: &UnitHeader) -> Result<()> {
        self.close_unit()?;
        self.state.time_ms = self.state.time_ms.max(gap.time_ms);
        let (from, to) = (gap.prev_seq, gap.last_seq);
        let header = UnitHeader {
            kind: UnitKind::Gap,
            used: BLOCK_BYTES,
            records: 0,
            // The next unit chains to this value; any value is valid.
            digest: 0,
            prev_seq: from,
            last_seq: to,
            ..self.unit_header()
        };
        self.state.has_gap = true;
        self.state.last_seq = to;
        self.put(header, vec![0; BLOCK_BYTES as usize])
    }

    fn unit_header(&self) -> UnitHeader {
        UnitHeader {
            kind: UnitKind::Data,
            used: self.unit.len() as u32,
            records: self.records,
            digest: self.digest,
            prev_seq: self.unit_prev,
            last_seq: self.state.last_seq,
            durable_bound: self.header.durable_bound,
            session: self.header.session,
            time_ms: self.state.time_ms,
            chain: self.state.chain,
        }
    }

    fn close_unit(&mut self) -> Result<()> {
        if self.unit.is_empty() {
            return Ok(());
        }
        let header = self.unit_header();
        let bytes = std::mem::take(&mut self.unit);
        (self.records, self.digest) = (0, 0);
        self.state.records += u64::from(header.records);
        self.put(header, bytes)
    }

    fn put(&mut self, header: UnitHeader, mut bytes: Vec<u8>) -> Result<()> {
        let (header_bytes, crc) = header.to_bytes(self.salt, self.state.end);
        bytes[..header_bytes.len()].copy_from_slice(&header_bytes);
        bytes.resize(block_up(bytes.len() as u32) as usize, 0);
        write_all_at(&*self.file, &bytes, u64::from(self.state.end))?;
        self.state.chain = header.next_chain(crc);
        self.state.end += bytes.len() as u32;
        Ok(())
    }

    /// Writes the header, syncs the file and renames it to its final name.
    pub(crate) fn finish(mut self) -> Result<RewrittenSegment> {
        self.close_unit()?;
        let (block, _) = self.header.to_block();
        let mut aligned = AlignedBuf::new(block.len());
        aligned.copy_from_slice(&block);
        write_all_at(&*self.file, &aligned, 0)?;
        self.file.set_len(u64::from(self.state.end))?;
        if !is_planted(Bug::TailNotCutDurably) {
            self.file.sync_data()?;
        }
        sealed_file::publish(self.dir, &self.temporary, &self.name)?;
        Ok(RewrittenSegment { header: self.header, state: self.state })
    }
}

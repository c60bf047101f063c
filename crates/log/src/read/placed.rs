//! Reading one record whose place is known, with one read of exactly its blocks.

use std::ops::Range;
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::position::RecordPlace;
use crate::format::block::block_up;
use crate::format::record::{RECORD_HEADER, RecordHeader, stored_size};
use crate::format::{BLOCK_BYTES, RECORD_LIMIT_MAX};
use crate::read::batch::{Memory, Payload};
use crate::read::cursor;
use crate::read::source::Source;
use crate::staging::staged::StagedUnit;
use crate::store::segment_table::Segment;

pub(crate) fn payload_at(memory: Memory, offset: u32, len: u32) -> Payload {
    let start = offset + RECORD_HEADER;
    Payload::new(memory, start..start + len)
}

/// Returns a record: at its place if that is before `written`, otherwise by its number.
pub(crate) fn find(source: &dyn Source, place: RecordPlace, written: u64) -> Result<Payload> {
    // Its segment may still be there, in a reader that has it open.
    if place.seq.0 <= source.low().seq {
        return Err(cursor::trimmed(source));
    }
    if place.position.0 < written
        && let Some(payload) = read(source, place, written)?
    {
        return Ok(payload);
    }
    let view = cursor::read(source, place.seq)?;
    match u32::try_from(view.payload().len()) {
        Ok(len) if len == place.len => Ok(view.into_payload()),
        _ => Err(Error::NotFound { seq: place.seq }),
    }
}

/// Returns a record at its place, which is before `written`: all bytes before that are in the
/// files. `None` if the place holds another record.
fn read(source: &dyn Source, place: RecordPlace, written: u64) -> Result<Option<Payload>> {
    let RecordPlace { seq, len, .. } = place;
    let Some((segment, Range { start: offset, end })) = in_segment(source, place) else {
        return Ok(None);
    };
    if let Some((buffer, stop)) = source.buffer(segment.number(), offset)
        && end <= stop
        && written >= segment.header.base + u64::from(end)
    {
        let header = RecordHeader::parse(buffer.bytes(offset..end));
        let ours = header.is_ok_and(|header| header.seq == seq.0 && is_len(header, len));
        let payload = || payload_at(Memory::StagingBuffer(buffer), offset, len);
        return Ok(ours.then(payload));
    }
    read_file(&segment, place, offset..end)
}

/// The segment of a place, and the offsets of the record there. `None` if the record was dropped,
/// or recovery moved it to a higher position.
pub(crate) fn in_segment(
    source: &dyn Source,
    place: RecordPlace,
) -> Option<(Arc<Segment>, Range<u32>)> {
    let segment = source.segments().of_position(place.position.0)?;
    let offset = u32::try_from(place.position.0.checked_sub(segment.header.base)?).ok()?;
    if place.len > RECORD_LIMIT_MAX {
        return None;
    }
    let end = offset.checked_add(stored_size(place.len as usize))?;
    Some((segment, offset..end))
}

fn is_len(header: RecordHeader, len: u32) -> bool {
    header.size == RECORD_HEADER + len
}

/// Reads the blocks of a record and checks it.
fn read_file(segment: &Segment, place: RecordPlace, record: Range<u32>) -> Result<Option<Payload>> {
    let start = record.start / BLOCK_BYTES * BLOCK_BYTES;
    let (buffer, got) = cursor::load(segment, start, block_up(record.end) - start)?;
    let bytes = buffer[..got].get((record.start - start) as usize..(record.end - start) as usize);
    let Some(bytes) = bytes else { return Ok(None) };
    let valid = is_at(segment, place, record.start, bytes);
    let memory = || Memory::Read(Arc::new(buffer), start);
    Ok(valid.then(|| payload_at(memory(), record.start, place.len)))
}

/// Whether these bytes are the record of a place, and intact.
pub(crate) fn is_at(segment: &Segment, place: RecordPlace, offset: u32, bytes: &[u8]) -> bool {
    RecordHeader::parse(bytes).is_ok_and(|header| {
        header.seq == place.seq.0
            && is_len(header, place.len)
            && header.check(segment.salt, offset, bytes).is_ok()
    })
}

/// Returns a record of a unit that is not durable yet, whose appenders have all finished.
pub(crate) fn of_staged(staged: &StagedUnit, place: RecordPlace) -> Option<Payload> {
    let RecordPlace { seq, position, len } = place;
    let offset = u32::try_from(position.0.checked_sub(staged.buffer.base)?).ok()?;
    let end = offset.checked_add(stored_size(len.min(RECORD_LIMIT_MAX) as usize))?;
    if offset < staged.records.start || end > staged.records.end {
        return None;
    }
    let header = RecordHeader::parse(staged.buffer.bytes(offset..end)).ok()?;
    let ours = header.seq == seq.0 && is_len(header, len);
    ours.then(|| payload_at(Memory::StagingBuffer(Arc::clone(&staged.buffer)), offset, len))
}

//! The contents of a log, from memory alone.

use crate::base::error::Result;
use crate::base::position::{Position, Seq, SeqRange};
use crate::format::LogId;
use crate::read::source::Source;
use crate::store::segment_table::{Segment, SegmentTable};

/// The contents of a log. From memory alone, for writers and readers alike.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// The log's random id.
    pub id: LogId,
    /// The session: the number of the last open for writing.
    pub session: u64,
    /// The number before the oldest stored record: records up to it were dropped or never existed.
    pub after: Seq,
    /// The number of the last durable record; 0 when there is none.
    pub durable: Seq,
    /// The position after the last durable record.
    pub position: Position,
    /// Stored records, including those in dropped parts of the oldest segment and in commits in
    /// flight.
    pub records: u64,
    /// Bytes of the payloads of these. `None` where a segment is known by a footer only that an
    /// earlier version of Esker wrote, without this number.
    pub payload_bytes: Option<u64>,
    /// Number of segments.
    pub segments: usize,
    /// Bytes written in segments, without space that is only reserved.
    pub disk_bytes: u64,
    /// Entries of the sparse index in memory; 24 bytes each.
    pub index_entries: usize,
    /// Bytes of memory in the read cache.
    pub read_cache_bytes: u64,
}

impl Metadata {
    pub(crate) fn new(source: &dyn Source, id: LogId, session: u64, read_cache_bytes: u64) -> Self {
        let segments = source.segments().all();
        let low = source.low();
        let first = segments.first().and_then(|oldest| {
            let start = oldest.header.prev_seq == low.seq;
            oldest.state.read().index.first().filter(|_| start).map(|entry| entry.prev_seq)
        });
        let (position, durable) = source.limit();
        let mut metadata = Self {
            id,
            session,
            after: Seq(first.unwrap_or(low.seq)),
            durable: Seq(durable),
            position: Position(position),
            records: 0,
            payload_bytes: Some(0),
            segments: segments.len(),
            disk_bytes: 0,
            index_entries: 0,
            read_cache_bytes,
        };
        for segment in &segments {
            let state = segment.state.read();
            metadata.records += state.records;
            metadata.payload_bytes =
                metadata.payload_bytes.zip(state.payload).map(|(all, more)| all + u64::from(more));
            metadata.disk_bytes += u64::from(state.end);
            metadata.index_entries += state.index.len();
        }
        metadata
    }
}

/// The contents of the segments, as a [`ReadOnlyLog`](crate::ReadOnlyLog) found them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stored {
    /// Readable records: those that were not dropped.
    pub records: u64,
    /// Bytes of the payloads of these. `None` where a segment is known by a footer only that an
    /// earlier version of Esker wrote, without this number.
    pub payload_bytes: Option<u64>,
    /// Bytes in segments, including headers, padding, and what was dropped of the oldest one.
    pub bytes: u64,
    /// The ranges of records that `repair` quarantined, in order, each as a stream returns it with
    /// [`Error::Quarantined`](crate::Error::Quarantined).
    pub quarantined: Vec<SeqRange>,
    /// Numbers among those of the records that no record was given: callers brought their own, and
    /// passed over these.
    pub skipped: u64,
}

impl Stored {
    pub(crate) fn new(source: &dyn Source) -> Result<Self> {
        let trim = source.low().seq;
        let mut stored = Self {
            records: 0,
            payload_bytes: Some(0),
            bytes: 0,
            quarantined: Vec::new(),
            skipped: 0,
        };
        for segment in source.segments().all() {
            let (records, payload, end, last) = {
                let state = segment.state.read();
                (state.records, state.payload.map(u64::from), state.end, state.last_seq)
            };
            stored.bytes += u64::from(end);
            if last <= trim {
                continue;
            }
            let dropped = segment.records_up_to(trim);
            let records = records.saturating_sub(dropped.0);
            stored.records += records;
            stored.payload_bytes = stored
                .payload_bytes
                .zip(payload)
                .map(|(all, more)| all + more.saturating_sub(dropped.1));
            let mut gaps = segment.gaps()?;
            gaps.retain(|gap| gap.to.0 > trim);
            let after = first_follows(&segment, &gaps).max(trim);
            let lost = gaps.iter().map(|gap| gap.to.0 - gap.from.0.max(trim)).sum::<u64>();
            stored.skipped += last.saturating_sub(after).saturating_sub(records + lost);
            stored.quarantined.append(&mut gaps);
        }
        Ok(stored)
    }
}

/// The number that the first record of a segment follows, or the first of these gaps. The first
/// record of a log may follow any number, which the header of its segment does not have.
fn first_follows(segment: &Segment, gaps: &[SeqRange]) -> u64 {
    let header = segment.header.prev_seq;
    let state = segment.state.read();
    let record = state.index.first().map(|entry| entry.prev_seq);
    let gap = gaps.first().map(|gap| gap.from.0);
    record.into_iter().chain(gap).min().filter(|_| header == 0).unwrap_or(header)
}

/// The records of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The number before its first record.
    pub after: Seq,
    /// The number of its last durable record.
    pub last: Seq,
    /// Bytes in it, including headers and padding.
    pub bytes: u64,
}

impl SegmentInfo {
    /// Lists the segments that hold records up to `durable`, oldest first.
    pub(crate) fn list(segments: &SegmentTable, durable: u64) -> Vec<Self> {
        let infos = segments.all().into_iter().map(|segment| {
            let state = segment.state.read();
            Self {
                after: Seq(segment.header.prev_seq),
                last: Seq(state.last_seq.min(durable)),
                bytes: u64::from(state.end),
            }
        });
        infos.filter(|info| info.after < info.last).collect()
    }
}

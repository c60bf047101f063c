//! Reading several records whose places are known, with few reads.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::base::position::RecordPlace;
use crate::format::BLOCK_BYTES;
use crate::format::block::block_up;
use crate::read::batch::{Memory, Payload};
use crate::read::cursor;
use crate::read::placed;
use crate::read::source::Source;
use crate::store::segment_table::Segment;

/// Records are read together if at most this many bytes are between them.
const GAP_MAX: u32 = 16 << 10;
/// The most bytes of one read, unless a record is larger.
const READ_MAX: u32 = 256 << 10;
/// The most threads that read at the same time, the caller's included.
const THREADS_MAX: usize = 8;
/// The reads that a thread is worth starting for.
const READS_PER_THREAD: usize = 4;

/// One read of a file, and the records in it.
struct Read {
    segment: Arc<Segment>,
    blocks: Range<u32>,
    /// Which of the places, and where the record is in the segment.
    records: Vec<(usize, Range<u32>)>,
}

/// Returns the records at these places that are in the files, before `written`, and valid. `None`
/// for others.
pub(crate) fn find(
    source: &dyn Source,
    places: &[RecordPlace],
    written: u64,
    parallel: bool,
) -> Vec<Option<Payload>> {
    let low = source.low().seq;
    let may_be_there = |place: &RecordPlace| place.seq.0 > low && place.position.0 < written;
    let mut order: Vec<_> = (0..places.len()).filter(|n| may_be_there(&places[*n])).collect();
    order.sort_unstable_by_key(|n| places[*n].position);
    let mut reads = Vec::new();
    for n in order {
        if let Some((segment, record)) = placed::in_segment(source, places[n]) {
            add(&mut reads, segment, n, record);
        }
    }
    let mut found = vec![None; places.len()];
    for (n, payload) in perform(&reads, places, parallel) {
        found[n] = Some(payload);
    }
    found
}

/// Adds a record to the last read if it is near, or else to another one.
fn add(reads: &mut Vec<Read>, segment: Arc<Segment>, n: usize, record: Range<u32>) {
    let blocks = record.start / BLOCK_BYTES * BLOCK_BYTES..block_up(record.end);
    if let Some(last) = reads.last_mut()
        && last.segment.number() == segment.number()
        && blocks.start <= last.blocks.end.saturating_add(GAP_MAX)
        && blocks.end.saturating_sub(last.blocks.start) <= READ_MAX
    {
        last.blocks.end = last.blocks.end.max(blocks.end);
        last.records.push((n, record));
        return;
    }
    reads.push(Read { segment, blocks, records: vec![(n, record)] });
}

fn perform(reads: &[Read], places: &[RecordPlace], parallel: bool) -> Vec<(usize, Payload)> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = Vec::new();
        while let Some(read) = reads.get(next.fetch_add(1, Relaxed)) {
            read.perform(places, &mut found);
        }
        found
    };
    let threads = if parallel { (reads.len() / READS_PER_THREAD).min(THREADS_MAX) } else { 0 };
    std::thread::scope(|scope| {
        // A thread that cannot be started is left out: the others read what it would have.
        let start = |_| {
            std::thread::Builder::new().name("esker-read".into()).spawn_scoped(scope, work).ok()
        };
        let others: Vec<_> = (1..threads).filter_map(start).collect();
        let mut found = work();
        others.into_iter().filter_map(|thread| thread.join().ok()).for_each(|other| {
            found.extend(other);
        });
        found
    })
}

impl Read {
    /// Reads the blocks, and returns the records that are valid.
    fn perform(&self, places: &[RecordPlace], found: &mut Vec<(usize, Payload)>) {
        let len = self.blocks.end - self.blocks.start;
        let Ok((buffer, got)) = cursor::load(&self.segment, self.blocks.start, len) else { return };
        let start = self.blocks.start;
        let is_valid = |(n, record): &&(usize, Range<u32>)| {
            let bytes = (record.start - start) as usize..(record.end - start) as usize;
            buffer[..got]
                .get(bytes)
                .is_some_and(|bytes| placed::is_at(&self.segment, places[*n], record.start, bytes))
        };
        let valid: Vec<_> = self.records.iter().filter(is_valid).collect();
        let buffer = Arc::new(buffer);
        found.extend(valid.into_iter().map(|(n, record)| {
            let memory = Memory::Read(Arc::clone(&buffer), start);
            (*n, placed::payload_at(memory, record.start, places[*n].len))
        }));
    }
}

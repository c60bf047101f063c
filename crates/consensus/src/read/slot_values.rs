//! Reads the values of entries one by one, fast where they are about in the order of the records.
//!
//! A value is read by the number of its record. Each such read loads up to an entry of the sparse
//! index. So once two values follow one another closely, the records are streamed instead, and the
//! values of one batch are kept.

use std::ops::Range;

use esker_log::{LogStream, ReadOnlyLog, Seq, Start, View};

use crate::base::slot::Slot;
use crate::read::record_totals::InspectSummary;
use crate::record::Record;
use crate::storage_error::StorageError;

/// Two records at most this far apart follow one another.
const STREAM_GAP_MAX: u64 = 4096;

/// Reads values of an [`Inspection`](crate::Inspection), from
/// [`Inspection::values`](crate::Inspection::values). Memory is bounded: one value, or one batch of
/// records.
#[derive(Debug)]
pub struct ValueReader<'a> {
    reader: &'a ReadOnlyLog,
    /// The record read last.
    previous: Seq,
    stream: Option<LogStream>,
    /// The records of the stream's last batch, and where their payloads are in `bytes`.
    batch: Vec<(Seq, Range<usize>)>,
    bytes: Vec<u8>,
    /// A value outside the batch.
    single: Option<View>,
}

impl<'a> ValueReader<'a> {
    pub(crate) fn new(reader: &'a ReadOnlyLog) -> Self {
        let (stream, batch, bytes) = (None, Vec::new(), Vec::new());
        Self { reader, previous: Seq(0), stream, batch, bytes, single: None }
    }

    /// Reads the value of an entry.
    ///
    /// # Errors
    /// [`StorageError::CorruptedEntry`]; [`StorageError::CorruptedRecord`] for a summary of another
    /// log.
    pub fn get(&mut self, slot: Slot, summary: &InspectSummary) -> Result<&[u8], StorageError> {
        let seq = summary.offset;
        let is_near = seq > self.previous && seq.0 - self.previous.0 <= STREAM_GAP_MAX;
        self.previous = seq;
        self.single = None;
        let mut found = self.find(seq);
        if found.is_none() && is_near && self.stream_to(seq) {
            found = self.find(seq);
        }
        let payload = match found {
            Some(range) => &self.bytes[range],
            None => {
                let read = self.reader.read(seq);
                let read = read
                    .map_err(|cause| StorageError::CorruptedEntry { slot, cause: cause.into() })?;
                self.single.insert(read).payload()
            }
        };
        match Record::decode(payload) {
            Ok(
                Record::Accept { slot: found, value, .. }
                | Record::Chosen { slot: found, value, .. },
            ) if found == slot.0 && value.len() as u64 == summary.len => Ok(value),
            _ => Err(StorageError::CorruptedRecord {
                seq,
                what: "it does not hold the slot's value",
            }),
        }
    }

    fn find(&self, seq: Seq) -> Option<Range<usize>> {
        let at = self.batch.binary_search_by_key(&seq, |(seq, _)| *seq).ok()?;
        self.batch.get(at).map(|(_, range)| range.clone())
    }

    /// Loads the batch with a record. If that fails, the record is read by itself, which reports
    /// why.
    fn stream_to(&mut self, seq: Seq) -> bool {
        let last = self.batch.last().map(|(seq, _)| *seq);
        if last.is_none_or(|last| seq < last || seq.0 - last.0 > STREAM_GAP_MAX) {
            self.stream = None;
        }
        loop {
            if self.stream.is_none() {
                self.stream = self.reader.stream(Start::From(seq)).ok();
            }
            let batch = self.stream.as_mut().map(LogStream::try_next);
            let Some(Ok(Some(batch))) = batch else {
                self.stream = None;
                return false;
            };
            self.batch.clear();
            self.bytes.clear();
            for record in &batch {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(record.payload);
                self.batch.push((record.seq, start..self.bytes.len()));
            }
            if self.batch.last().is_some_and(|(last, _)| *last >= seq) {
                return true;
            }
        }
    }
}

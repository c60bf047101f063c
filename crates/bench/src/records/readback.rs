//! Reads back all records of a benchmark after the log was closed and reopened, and compares every
//! byte and every writer's order. With retention, the retained records are compared.

use std::path::Path;
use std::time::{Duration, Instant};

use esker_log::{Log, Options, Retention, Start};

use crate::records::payload::{HEADER_BYTES, Payload, Recipe, header_of};
use esker_command::exit::{Failure, Outcome};

/// The result of a comparison.
#[derive(Debug)]
pub struct Comparison {
    /// How many records each writer wrote, by its last record in the log; `None` where no record of
    /// it was retained.
    pub counts: Vec<Option<u64>>,
    /// The compared records, and their bytes.
    pub records: u64,
    pub bytes: u64,
    /// The number of the last record.
    pub last: u64,
    pub time: Duration,
}

impl Comparison {
    /// Fails unless the log ends with the last written record, overall and of each writer.
    pub fn ends_with(&self, written: &[u64]) -> Outcome {
        let each = self.counts.iter().zip(written);
        let ends = each.clone().all(|(read, wrote)| read.is_none_or(|read| read == *wrote));
        if ends && self.last == written.iter().sum::<u64>() {
            return Ok(());
        }
        Err(Failure::failed("fewer records were read back than were written"))
    }
}

/// Reads the whole log in `dir` and compares it with the records of `writers` writers, whose counts
/// begin at 0. With retention, the first records of a writer may be missing.
///
/// Fails at the first record that is not the next one of its writer, byte for byte.
pub fn compare(
    dir: &Path,
    options: &Options,
    recipe: &Recipe,
    writers: u32,
) -> Outcome<Comparison> {
    let log_failure = |error| Failure::from_log(&error, dir);
    let mut options = options.clone();
    options.must_exist = true;
    let ring = std::mem::replace(&mut options.retention, Retention::NONE) != Retention::NONE;
    let log =
        Log::builder(dir).options(options).open().map_err(|error| log_failure(error.into()))?;
    let mut writers: Vec<NextRecord> = (0..writers)
        .map(|writer| NextRecord { payload: recipe.payload(writer), count: (!ring).then_some(0) })
        .collect();
    let begin = Instant::now();
    let mut stream = log.stream(Start::Oldest).map_err(|error| log_failure(error.into()))?;
    let mut last = (!ring).then_some(0);
    let (mut records, mut bytes) = (0, 0);
    while let Some(batch) = stream.try_next().map_err(|error| log_failure(error.into()))? {
        for record in &batch {
            let (seq, prev) = (record.seq.0, record.prev.0);
            let follows = seq == prev + 1 && last.is_none_or(|last| last == prev);
            last = Some(seq);
            if !follows || !is_next(&mut writers, prev, record.payload) {
                return Err(Failure::failed(format!(
                    "record {seq} was read back and is not what was written there"
                )));
            }
            records += 1;
            bytes += record.payload.len() as u64;
        }
    }
    let time = begin.elapsed();
    log.close().map_err(|error| log_failure(error.into()))?;
    let counts = writers.iter().map(|next| next.count).collect();
    Ok(Comparison { counts, records, bytes, last: last.unwrap_or_default(), time })
}

/// The next record of a writer.
struct NextRecord {
    payload: Payload,
    /// `None` until the first retained record.
    count: Option<u64>,
}

fn is_next(writers: &mut [NextRecord], prev: u64, record: &[u8]) -> bool {
    let (writer, count) = match header_of(record) {
        Some(header) => header,
        // A record too short for a header comes from the only writer, in order.
        None if record.len() < HEADER_BYTES && writers.len() == 1 => (0, prev),
        None => return false,
    };
    let Some(next) = writers.get_mut(writer as usize) else { return false };
    let is_next = next.count.is_none_or(|next| next == count);
    next.count = count.checked_add(1);
    is_next && next.payload.record(count) == record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_with_needs_the_last_record_of_each_writer() {
        let compared = |counts: &[Option<u64>], last| Comparison {
            counts: counts.to_vec(),
            records: 3,
            bytes: 3,
            last,
            time: Duration::ZERO,
        };
        assert!(compared(&[Some(4), Some(5)], 9).ends_with(&[4, 5]).is_ok());
        assert!(compared(&[None, Some(5)], 9).ends_with(&[4, 5]).is_ok());
        for (counts, last) in [([Some(4), Some(4)], 8), ([None, Some(4)], 9), ([None, None], 8)] {
            assert!(compared(&counts, last).ends_with(&[4, 5]).is_err(), "{counts:?} {last}");
        }
    }
}

//! Reading back what a benchmark wrote, after the log was closed and opened again, and comparing
//! every byte and every writer's order. Where the log is a ring, what it kept is compared.

use std::path::Path;
use std::time::{Duration, Instant};

use esker_log::{Log, Options, Retention, Start};

use crate::bench::records::payload::{HEAD, Payload, Recipe, head_of};
use crate::exit::{Failure, Outcome};

/// What stands in the log.
#[derive(Debug)]
pub struct Compared {
    /// How many records each writer wrote, by the last one of it that is there; `None` for one of
    /// which a ring kept nothing.
    pub counts: Vec<Option<u64>>,
    /// The records that were compared, and their bytes.
    pub records: u64,
    pub bytes: u64,
    /// The number of the last.
    pub last: u64,
    pub time: Duration,
}

impl Compared {
    /// Fails unless what is there ends with the last of all records, and with the last of each
    /// writer.
    pub fn ends_with(&self, written: &[u64]) -> Outcome {
        let each = self.counts.iter().zip(written);
        let ends = each.clone().all(|(read, wrote)| read.is_none_or(|read| read == *wrote));
        if ends && self.last == written.iter().sum::<u64>() {
            return Ok(());
        }
        Err(Failure::failed("fewer records were read back than were written"))
    }
}

/// Reads the whole log in `dir` and compares it with what `writers` writers must have written,
/// whose counts begin at 0; the first of them may be gone where the options keep a ring.
///
/// Fails at the first record that is not the next one of its writer, byte for byte.
pub fn compare(dir: &Path, options: &Options, recipe: &Recipe, writers: u32) -> Outcome<Compared> {
    let of_log = |error| Failure::of_log(&error, dir);
    let mut options = options.clone();
    options.must_exist = true;
    let ring = std::mem::replace(&mut options.retention, Retention::NONE) != Retention::NONE;
    let log = Log::builder(dir).options(options).open().map_err(of_log)?;
    let mut writers: Vec<Next> = (0..writers)
        .map(|writer| Next { payload: recipe.of(writer), count: (!ring).then_some(0) })
        .collect();
    let begin = Instant::now();
    let mut stream = log.stream(Start::Oldest).map_err(of_log)?;
    let mut last = (!ring).then_some(0);
    let (mut records, mut bytes) = (0, 0);
    while let Some(batch) = stream.try_next().map_err(of_log)? {
        for record in &batch {
            let (seq, before) = (record.seq.0, record.prev.0);
            let follows = seq == before + 1 && last.is_none_or(|last| last == before);
            last = Some(seq);
            if !follows || !is_next(&mut writers, before, record.payload) {
                return Err(Failure::failed(format!(
                    "record {seq}, read back, is not what was written there"
                )));
            }
            records += 1;
            bytes += record.payload.len() as u64;
        }
    }
    let time = begin.elapsed();
    log.close().map_err(of_log)?;
    let counts = writers.iter().map(|next| next.count).collect();
    Ok(Compared { counts, records, bytes, last: last.unwrap_or_default(), time })
}

/// The next record of a writer.
struct Next {
    payload: Payload,
    /// `None` until the first record that a ring kept of it.
    count: Option<u64>,
}

fn is_next(writers: &mut [Next], before: u64, record: &[u8]) -> bool {
    let (writer, count) = match head_of(record) {
        Some(reported) => reported,
        // Too short to tell: then there is one writer, and the record's number does.
        None if record.len() < HEAD && writers.len() == 1 => (0, before),
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
    fn what_is_read_back_ends_where_the_writers_ended() {
        let compared = |counts: &[Option<u64>], last| Compared {
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

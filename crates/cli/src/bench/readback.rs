//! Reading back what a benchmark wrote, after the log was closed and opened again, and comparing every
//! byte and every writer's order.

use std::path::Path;

use esker_log::{Log, Options, Start};

use super::payload::{HEAD, Payload, Recipe, head_of};
use crate::exit::{Failure, Outcome};

/// What stands in the log.
#[derive(Debug)]
pub struct Compared {
    /// Records of each writer.
    pub counts: Vec<u64>,
}

/// Reads the whole log in `dir` and compares it with what `writers` writers must have written, whose
/// counts begin at 0.
///
/// Fails at the first record that is not the next one of its writer, byte for byte.
pub fn compare(dir: &Path, options: &Options, recipe: &Recipe, writers: u32) -> Outcome<Compared> {
    let of_log = |error| Failure::of_log(&error, dir);
    let mut options = options.clone();
    options.must_exist = true;
    let log = Log::open(dir, options).map_err(of_log)?;
    let mut writers: Vec<Next> =
        (0..writers).map(|writer| Next { payload: recipe.of(writer), count: 0 }).collect();
    let mut stream = log.stream(Start::Oldest).map_err(of_log)?;
    let mut seq = 0;
    while let Some(batch) = stream.try_next().map_err(of_log)? {
        for record in &batch {
            let follows = record.seq.0 == seq + 1 && record.prev.0 == seq;
            seq = record.seq.0;
            if !follows || !is_next(&mut writers, record.payload) {
                return Err(Failure::failed(format!(
                    "record {seq}, read back, is not what was written there"
                )));
            }
        }
    }
    log.close().map_err(of_log)?;
    Ok(Compared { counts: writers.iter().map(|next| next.count).collect() })
}

/// The next record of a writer.
struct Next {
    payload: Payload,
    count: u64,
}

fn is_next(writers: &mut [Next], record: &[u8]) -> bool {
    let (writer, count) = match head_of(record) {
        Some(told) => told,
        // Too short to tell: then there is one writer.
        None if record.len() < HEAD && writers.len() == 1 => (0, writers[0].count),
        None => return false,
    };
    let Some(next) = writers.get_mut(writer as usize) else { return false };
    let is_next = next.count == count && next.payload.record(count) == record;
    next.count += 1;
    is_next
}

//! Loading the values of uncommitted slots into memory when a log is opened.

use crossbeam_epoch::Guard;
use esker_log::{Seq, Start};

use crate::base::ballot::Ballot;
use crate::memory::value_budget::charge;
use crate::memory::value_pool::new_value;
use crate::record::Record;
use crate::state::inner::Inner;
use crate::storage_error::StorageError;

/// A stream reads through at most this many records to reach the next one needed; for a longer
/// distance a new stream is opened.
const STREAM_GAP_MAX: u64 = 4096;

/// Loads the values of these records and slots into memory, in record order.
pub(crate) fn load_values(
    inner: &Inner,
    mut open: &[(u64, u64)],
    guard: &Guard,
) -> Result<(), StorageError> {
    let mut stream = None;
    let mut reached = 0;
    while let [(seq, slot), rest @ ..] = open {
        if seq.saturating_sub(reached) > STREAM_GAP_MAX {
            stream = None;
        }
        if stream.is_none() {
            stream = inner.log.stream(Start::From(Seq(*seq))).ok();
        }
        let batch = stream.as_mut().and_then(|stream| stream.try_next().ok().flatten());
        let Some(batch) = batch else {
            // The single read reports the error.
            load_value(inner, *slot, None, guard)?;
            (stream, open) = (None, rest);
            continue;
        };
        for record in &batch {
            while let [(seq, slot), rest @ ..] = open
                && *seq <= record.seq.0
            {
                let value = match Record::decode(record.payload) {
                    Ok(Record::Accept { slot: found, ballot, value })
                        if found == *slot && *seq == record.seq.0 =>
                    {
                        Some((ballot, value))
                    }
                    _ => None,
                };
                load_value(inner, *slot, value, guard)?;
                open = rest;
            }
        }
        reached = batch.last().map_or(reached, |last| last.0);
    }
    Ok(())
}

/// Loads the value of an uncommitted slot into memory, from `read` or else from its record.
fn load_value(
    inner: &Inner,
    slot: u64,
    read: Option<(Ballot, &[u8])>,
    guard: &Guard,
) -> Result<(), StorageError> {
    let page = inner.known_page(slot, guard)?;
    let indexed = page.slot(slot);
    let stored;
    let (ballot, value) = match read {
        Some(read) => read,
        None => {
            stored = inner.locked_entry(slot, indexed, guard)?;
            (stored.ballot(), stored.value())
        }
    };
    inner.budget.force(charge(value.len()));
    indexed.resident().swap(Some(new_value(slot, ballot, value, 0)), guard);
    Ok(())
}

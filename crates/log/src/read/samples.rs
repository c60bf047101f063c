//! Samples of the records that a checkpoint was made from.
//!
//! A copy of a log has the id of the original. If both are written, they have other records under
//! the same numbers, and a checkpoint of one must not be used with the other. So a checkpoint keeps
//! checksums of some records: the last ones, and older ones at distances that double. Two logs that
//! differ in the records between their common part and the last one differ in the samples, unless
//! all of the sampled records happen to be equal.

use crate::base::error::Error;
use crate::base::position::Seq;
use crate::format::crc;
use crate::read::cursor;
use crate::read::source::Source;
use crate::store::chunked_file::{SAMPLES_MAX, Samples};

/// The number of last records that are all sampled.
const LAST_SAMPLES: u64 = 16;
/// No more records are sampled when their payloads take this many bytes.
const BYTES_MAX: usize = 8 << 20;

/// The numbers of the sampled records.
fn numbers(last: u64) -> impl Iterator<Item = u64> {
    let doubling = std::iter::successors(Some(LAST_SAMPLES), |distance| distance.checked_mul(2));
    let distances = (0..LAST_SAMPLES).chain(doubling).take(SAMPLES_MAX);
    distances.map_while(move |distance| last.checked_sub(distance).filter(|seq| *seq > 0))
}

/// Samples the records up to this one. A record that cannot be read, or a number that was
/// skipped, gets a 0: nothing is known of it.
pub(crate) fn take(source: &dyn Source, last: u64) -> Samples {
    let (mut crcs, mut bytes) = (Vec::new(), 0);
    for seq in numbers(last) {
        match cursor::read(source, Seq(seq)) {
            Ok(view) => {
                crcs.push(crc(view.payload()));
                bytes += view.payload().len();
            }
            Err(Error::Trimmed(_)) => break,
            Err(_) => crcs.push(0),
        }
        if bytes >= BYTES_MAX {
            break;
        }
    }
    Samples { last, crcs }
}

/// Whether the log has the records that were sampled, as far as it still has records with these
/// numbers. A record that cannot be read decides nothing: a read of it returns the error.
pub(crate) fn matches(source: &dyn Source, samples: &Samples) -> bool {
    if samples.last > source.limit().1 {
        return false;
    }
    let sampled = numbers(samples.last).zip(&samples.crcs).filter(|(_, expected)| **expected != 0);
    for (seq, expected) in sampled {
        match cursor::read(source, Seq(seq)) {
            Ok(view) if crc(view.payload()) == *expected => {}
            Ok(_) | Err(Error::NotFound { .. }) => return false,
            Err(Error::Trimmed(_)) => break,
            Err(_) => {}
        }
    }
    true
}

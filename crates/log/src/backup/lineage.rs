//! Whether all records of an earlier backup are those of this log.
//!
//! Lineages decide: a backup of the same lineage has nothing else, and one of an ancestor has
//! nothing else if it ends at or before the last record that both share. So a log that was restored
//! from a backup may continue it. Copies made by hand have one lineage, although each may continue
//! by itself; the last record of the backup is compared for these, where both have it.
//!
//! An interrupted backup may have left later records of its log in the copy. Only its own lineage
//! continues it, and only if it has these records, too: an older copy of the log does not.

use std::path::Path;
use std::time::{Duration, SystemTime};

use super::origin::Origin;
use crate::base::error::{Error, Result};
use crate::base::position::Seq;
use crate::base::read_options::ReadOptions;
use crate::follower::ReadOnlyLog;
use crate::read::cursor::Start;
use crate::read::stream::LogStream;
use crate::store::manifest::{Lineage, Manifest};

/// The most reads of the origin's end, and the pause before each. A reader in another process
/// learns of a commit a little later than the writer, which may have made the earlier backup.
const ORIGIN_READS_MAX: u32 = 20;
const ORIGIN_READ_PAUSE: Duration = Duration::from_millis(25);

/// A record by what two logs that continued separately do not share.
#[derive(Debug, PartialEq, Eq)]
struct RecordIdentity {
    payload: Vec<u8>,
    time: Option<SystemTime>,
}

/// The identity of an earlier backup.
#[derive(Debug, Clone, Copy)]
pub(super) struct Earlier {
    pub(super) lineage: Lineage,
    /// Its last record; 0 if it is empty.
    pub(super) last: Seq,
    /// Whether the backup after it was interrupted.
    pub(super) is_interrupted: bool,
    /// The last record that is there, one that an interrupted backup left included.
    pub(super) last_there: Seq,
}

/// How an earlier backup differs from the log with this manifest; `None` if it does not.
pub(super) fn differs(
    origin: &Origin<'_>,
    options: &ReadOptions,
    dest: &Path,
    earlier: Earlier,
    manifest: &Manifest,
) -> Result<Option<String>> {
    let Earlier { lineage, last, is_interrupted, last_there } = earlier;
    let own = "was restored, copied or repaired, and continued by itself";
    match manifest.shares_upto(lineage) {
        None => return Ok(Some(format!("it is of another lineage: it or the log {own}"))),
        Some(upto) if upto < last.0 => {
            return Ok(Some(format!("it has records after {upto}, where the log {own}")));
        }
        Some(_) if is_interrupted && lineage != manifest.lineage => {
            let found = "an interrupted backup of another log may have left records in it, and the \
                         log";
            return Ok(Some(format!("{found} {own}")));
        }
        Some(_) => {}
    }
    if last_there == Seq::ZERO {
        return Ok(None);
    }
    match compare(origin, options, dest, last, last_there)? {
        Compared::Same | Compared::Unknown => Ok(None),
        Compared::Different(found) => Ok(Some(found)),
    }
}

#[derive(Debug)]
enum Compared {
    Same,
    Different(String),
    /// Not both have the record.
    Unknown,
}

/// Compares the last record of an earlier backup with that of the log, if the log has as many.
///
/// Recovery may move a record to another segment, with its time, so that places say nothing.
fn compare(
    origin: &Origin<'_>,
    options: &ReadOptions,
    dest: &Path,
    last: Seq,
    last_there: Seq,
) -> Result<Compared> {
    let mut source = (origin.now)()?;
    for _ in 0..ORIGIN_READS_MAX {
        if source.limit().1 < last_there.0 {
            std::thread::sleep(ORIGIN_READ_PAUSE);
            source = (origin.now)()?;
        }
    }
    let (durable, low) = (source.limit().1, source.low().seq);
    if durable < last_there.0 {
        return Ok(Compared::Different(format!(
            "it has record {last_there}, and the log is known to be durable up to record {durable}"
        )));
    }
    if low >= last.0 {
        return Ok(Compared::Unknown);
    }
    let ours = match (origin.stream)(Start::From(last)).and_then(|stream| first(stream, last)) {
        // A backup of the same lineage has the gap, too. Or the log dropped it meanwhile.
        Err(Error::Quarantined(_) | Error::Trimmed(_)) => return Ok(Compared::Unknown),
        found => found?,
    };
    let copy = ReadOnlyLog::builder(dest).options(options.clone()).open();
    let theirs = copy
        .map_err(Error::from)
        .and_then(|copy| Ok(copy.stream(Start::From(last))?))
        .and_then(|stream| first(stream, last));
    let theirs = match theirs {
        // The end of the copy is corrupt, and is copied again. Or the copy is empty.
        Err(Error::Corrupted(_) | Error::NotALog { .. } | Error::Trimmed(_)) => {
            return Ok(Compared::Unknown);
        }
        theirs => theirs?,
    };
    if theirs == ours {
        return Ok(Compared::Same);
    }
    Ok(Compared::Different(format!(
        "its record {last} is another one than that of the log: one of them was restored or \
         copied, and continued by itself"
    )))
}

fn first(mut stream: LogStream, seq: Seq) -> Result<Option<RecordIdentity>> {
    let Some(batch) = stream.try_next()? else { return Ok(None) };
    let record = batch.iter().next().filter(|record| record.seq == seq);
    Ok(record
        .map(|record| RecordIdentity { payload: record.payload.to_vec(), time: record.time() }))
}

//! Whether an earlier backup is one of this log, and not of a copy that continued by itself.
//!
//! The last record of the backup decides where both have it: a log that was restored from the
//! backup and continued may replace it, as everything in the backup is in that log. Where the
//! record cannot be compared, because the log dropped it, for instance, only the same lineage shows
//! that nothing else in the backup would be lost.

use std::path::Path;
use std::time::{Duration, SystemTime};

use super::origin::Origin;
use crate::base::error::{Error, Result};
use crate::base::position::{Seq, SeqRange};
use crate::base::read_options::ReadOptions;
use crate::follower::ReadOnlyLog;
use crate::read::cursor::Start;
use crate::read::stream::LogStream;
use crate::store::manifest::{Lineage, Manifest};

/// A reader in another process learns of a commit a little later than the writer, which may have
/// made the earlier backup: how often, and after which time, it looks again.
const LOOKS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(25);

/// A record by what two logs that continued separately do not share.
#[derive(Debug, PartialEq, Eq)]
struct Known {
    payload: Vec<u8>,
    time: Option<SystemTime>,
}

/// The lineage of the log now. A copy that another process opens for writing begins another one.
pub(super) fn of(origin: &Origin<'_>) -> Result<Lineage> {
    Ok(Manifest::of_log(origin.dir)?.lineage)
}

/// What an earlier backup is known by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Earlier {
    pub(super) lineage: Lineage,
    /// Its last record; `None` if it is empty, or an interrupted backup left a gap in it.
    pub(super) last: Option<Seq>,
}

/// How an earlier backup differs from a log of this lineage; `None` if it does not.
pub(super) fn differs(
    origin: &Origin<'_>,
    options: &ReadOptions,
    dest: &Path,
    earlier: Earlier,
    lineage: Lineage,
) -> Result<Option<String>> {
    let compared = match earlier.last {
        Some(last) => compare(origin, options, dest, last)?,
        None => Compared::Unknown,
    };
    Ok(match compared {
        Compared::Same => None,
        Compared::Unknown => (earlier.lineage != lineage).then(|| {
            "the log does not have its last record any more, and one of them was restored, copied \
             or repaired, and continued by itself"
                .into()
        }),
        Compared::Different(found) => Some(found),
    })
}

/// Whether an earlier backup has records that a repair of the log quarantined, in one of `gaps`.
/// Returns that gap. `last` is the last record of the backup, if it can be read. A backup that
/// cannot be read there counts as one that has them.
pub(super) fn has_quarantined(
    options: &ReadOptions,
    dest: &Path,
    last: Option<Seq>,
    gaps: &[SeqRange],
) -> Result<Option<SeqRange>> {
    let Some(last) = last.filter(|_| !gaps.is_empty()) else { return Ok(None) };
    let copy = ReadOnlyLog::builder(dest).options(options.clone()).open();
    for gap in gaps.iter().filter(|gap| gap.from < last) {
        let found = match &copy {
            Ok(copy) => first_after(copy, gap.from, gap.to),
            Err(error) => Err(error.clone()),
        };
        match found {
            Ok(None) => {}
            Ok(Some(_)) | Err(Error::Corrupted(_)) => return Ok(Some(*gap)),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The first record after one number, up to another. Passes over gaps.
fn first_after(log: &ReadOnlyLog, mut after: Seq, upto: Seq) -> Result<Option<Seq>> {
    while after < upto {
        let next = log.stream(Start::After(after)).and_then(|mut stream| stream.try_next());
        let resume = match next {
            Err(Error::Quarantined { to, .. }) => to,
            Err(Error::Trimmed { oldest }) => Seq(oldest.0.saturating_sub(1)),
            next => {
                let first = next?.and_then(|batch| batch.first());
                return Ok(first.filter(|first| *first <= upto));
            }
        };
        if resume <= after {
            break;
        }
        after = resume;
    }
    Ok(None)
}

#[derive(Debug)]
enum Compared {
    Same,
    Different(String),
    /// Not both have the record.
    Unknown,
}

/// Compares the last record of an earlier backup with that of the log.
///
/// Recovery may move a record to another segment, with its time, so that places say nothing.
fn compare(origin: &Origin<'_>, options: &ReadOptions, dest: &Path, last: Seq) -> Result<Compared> {
    let mut source = (origin.now)()?;
    for _ in 0..LOOKS {
        if source.limit().1 < last.0 {
            std::thread::sleep(PAUSE);
            source = (origin.now)()?;
        }
    }
    let (durable, low) = (source.limit().1, source.low().seq);
    if durable < last.0 {
        return Ok(Compared::Different(format!(
            "it has record {last}, and the log is known to be durable up to record {durable}"
        )));
    }
    if low >= last.0 {
        return Ok(Compared::Unknown);
    }
    let ours = match (origin.stream)(Start::From(last)).and_then(|stream| first(stream, last)) {
        Err(Error::Quarantined { .. }) => {
            return Ok(Compared::Different(format!(
                "record {last} of it is quarantined in the log"
            )));
        }
        // The log dropped it meanwhile.
        Err(Error::Trimmed { .. }) => return Ok(Compared::Unknown),
        found => found?,
    };
    let copy = ReadOnlyLog::builder(dest).options(options.clone()).open();
    let theirs =
        copy.and_then(|copy| copy.stream(Start::From(last))).and_then(|stream| first(stream, last));
    let theirs = match theirs {
        // The end of the copy is corrupt, and is copied again.
        Err(Error::Corrupted(_)) => return Ok(Compared::Unknown),
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

fn first(mut stream: LogStream, seq: Seq) -> Result<Option<Known>> {
    let Some(batch) = stream.try_next()? else { return Ok(None) };
    let record = batch.iter().next().filter(|record| record.seq == seq);
    Ok(record.map(|record| Known { payload: record.payload.to_vec(), time: record.time() }))
}

//! Whether an earlier backup is one of this log, and not of a copy that continued by itself.

use std::path::Path;
use std::time::{Duration, SystemTime};

use super::origin::Origin;
use crate::base::error::{Error, Result};
use crate::base::position::Seq;
use crate::base::read_options::ReadOptions;
use crate::follower::ReadOnlyLog;
use crate::read::cursor::Start;
use crate::read::stream::LogStream;

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

/// How the last record of an earlier backup differs from the log; `None` if it does not, or if the
/// log dropped that record.
///
/// Recovery may move a record to another segment, with its time, so that places say nothing.
pub(super) fn differs(
    origin: &Origin<'_>,
    options: &ReadOptions,
    dest: &Path,
    last: Seq,
) -> Result<Option<String>> {
    let mut source = (origin.now)()?;
    for _ in 0..LOOKS {
        if source.limit().1 < last.0 {
            std::thread::sleep(PAUSE);
            source = (origin.now)()?;
        }
    }
    let (durable, low) = (source.limit().1, source.low().seq);
    if durable < last.0 {
        return Ok(Some(format!(
            "it has record {last}, and the log is known to be durable up to record {durable}"
        )));
    }
    if low >= last.0 {
        return Ok(None);
    }
    let ours = match (origin.stream)(Start::From(last)).and_then(|stream| first(stream, last)) {
        Err(Error::Quarantined { .. }) => {
            return Ok(Some(format!("record {last} of it is quarantined in the log")));
        }
        // The log dropped it meanwhile.
        Err(Error::Trimmed { .. }) => return Ok(None),
        found => found?,
    };
    let copy = ReadOnlyLog::builder(dest).options(options.clone()).open();
    let theirs =
        copy.and_then(|copy| copy.stream(Start::From(last))).and_then(|stream| first(stream, last));
    let theirs = match theirs {
        // The end of the copy is corrupt, and is copied again.
        Err(Error::Corrupted(_)) => return Ok(None),
        theirs => theirs?,
    };
    Ok((theirs != ours).then(|| {
        format!(
            "its record {last} is another one than that of the log: one of them was restored or \
             copied, and continued by itself"
        )
    }))
}

fn first(mut stream: LogStream, seq: Seq) -> Result<Option<Known>> {
    let Some(batch) = stream.try_next()? else { return Ok(None) };
    let record = batch.iter().next().filter(|record| record.seq == seq);
    Ok(record.map(|record| Known { payload: record.payload.to_vec(), time: record.time() }))
}

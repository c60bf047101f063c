//! Reads and checks every byte that belongs to a log.

use std::fmt::Write;
use std::path::Path;

use esker_log::{Corruption, Error, OpenError, ReadOnlyLog, ReadOptions, SeqRange, VerifyReport};
use serde_json::{Value, json};

use super::component::Component;
use esker_command::exit::{Failure, Outcome};
use esker_command::output;
use esker_command::progress;
use esker_command::remedies::on_corruption;

/// Checks the log, and fails when it is corrupt.
pub fn run(dir: &Path, as_json: bool) -> Outcome {
    let bar = progress::bytes_bar(as_json);
    let failed = |error: Error| Failure::from_log(&error, dir);
    let mut report = esker_log::verify_with(dir, ReadOptions::default(), progress::follow(&bar))
        .map_err(|error| failed(error.into()))?;
    bar.finish_and_clear();
    let (corrupt, unread) = corrupt_beside(dir);
    report.corruption.extend(corrupt);
    // What could not be read may be corrupt.
    if as_json {
        let mut shown = report_json(Component::Log, &report);
        shown["sound"] = json!(report.corruption.is_empty() && unread.is_none());
        output::print_json(&shown)?;
    } else {
        let text = report_text(&report);
        output::print(match unread {
            Some(_) => text.trim_end_matches("sound\n"),
            None => &text,
        })?;
    }
    refuse_corruption(&report, dir)?;
    unread.map_or(Ok(()), |error| Err(failed(error)))
}

/// Finds the corruption of the offsets of consumers and of the snapshots of the application, and
/// the first error for which one of them could not be read. Ignores corruption of the log.
pub(super) fn corrupt_beside(dir: &Path) -> (Vec<Corruption>, Option<Error>) {
    let (mut corrupt, mut unread) = (Vec::new(), None);
    let mut note = |outcome: Result<(), Error>| match outcome {
        Err(Error::Corrupted(found)) => corrupt.push(found),
        Err(error) => unread = unread.take().or(Some(error)),
        Ok(()) => {}
    };
    match ReadOnlyLog::open(dir) {
        Ok(log) => {
            note(log.consumers().list().map(drop).map_err(Error::from));
            match log.snapshots().list() {
                Ok(all) => all.into_iter().for_each(|at| note(read_snapshot(&log, at))),
                Err(error) => note(Err(error.into())),
            }
        }
        Err(OpenError::Corrupted(_)) => {}
        Err(error) => note(Err(error.into())),
    }
    (corrupt, unread)
}

/// Reads a snapshot to its end, unless it was removed meanwhile.
fn read_snapshot(log: &ReadOnlyLog, at: u64) -> Result<(), Error> {
    log.snapshots().reader(at)?.map_or(Ok(()), |mut snapshot| Ok(snapshot.verify()?))
}

/// Fails if the log is corrupt.
pub fn refuse_corruption(report: &VerifyReport, dir: &Path) -> Outcome {
    let Some(first) = report.corruption.first() else { return Ok(()) };
    Err(Failure::corrupt(format!(
        "{} is corrupt in {}, first in {} at byte {}{}",
        dir.display(),
        output::counted(report.corruption.len() as u64, "place"),
        first.file.display(),
        first.offset,
        on_corruption(first, dir),
    )))
}

/// Converts one corruption to JSON.
pub fn corruption_json(corruption: &Corruption) -> Value {
    json!({
        "file": corruption.file.to_string_lossy(),
        "offset": corruption.offset,
        "after": corruption.after.0,
        "what": corruption.what,
    })
}

/// Converts ranges of records to JSON.
pub fn ranges_json(ranges: &[SeqRange]) -> Vec<Value> {
    ranges.iter().map(|range| json!({ "from": range.from.0, "to": range.to.0 })).collect()
}

/// Converts a report to JSON.
pub fn report_json(component: Component, report: &VerifyReport) -> Value {
    json!({
        "component": component,
        "sound": report.corruption.is_empty(),
        "segments": report.segments,
        "units": report.units,
        "records": report.records,
        "bytes": report.bytes,
        "after": report.after.0,
        "last": report.last.0,
        "claimed": report.durable_bound.0,
        "damage": report.corruption.iter().map(corruption_json).collect::<Vec<_>>(),
        "quarantined": ranges_json(&report.quarantined),
    })
}

/// Converts a report to text.
pub fn report_text(report: &VerifyReport) -> String {
    let mut text = format!(
        "checked {} in {} and {}, {} bytes; the last is {}\n",
        output::counted(report.records, "record"),
        output::counted(report.units, "commit unit"),
        output::counted(report.segments, "segment"),
        report.bytes,
        report.last
    );
    for range in &report.quarantined {
        let _ = writeln!(text, "quarantined: {range}");
    }
    for corruption in &report.corruption {
        let _ = writeln!(text, "{corruption}");
    }
    if report.corruption.is_empty() {
        text += "sound\n";
    }
    text
}

//! Checks every byte of a consensus log and of its snapshots, and each record.

use std::path::Path;

use esker_consensus::{
    Error, Inspection, InvalidRecord, ReadOnlySnapshots, Slot, SnapshotError, StorageError,
};
use esker_log::{ReadOptions, VerifyReport};
use serde_json::{Value, json};

use super::component::{Component, Directory};
use super::log_verify::ranges_json;
use crate::consensus_dir::{self, Report, Target};
use esker_command::exit::{Failure, Outcome};
use esker_command::output::counted;
use esker_command::progress;
use esker_command::remedies::on_corruption;

/// Checks each log, and fails when one is corrupt, after it has checked all.
pub fn run(directory: &Directory, key: Option<&str>, as_json: bool) -> Outcome {
    let Directory { path, component } = directory;
    let targets = consensus_dir::targets(path, key)?;
    let failures = consensus_dir::each(path, targets, |target| {
        let checked = check(*component, target, as_json);
        checked.unwrap_or_else(|failure| (String::new(), Err(failure)))
    })?;
    failures.into_iter().next().map_or(Ok(()), Err)
}

/// The check of a log.
struct LogCheck {
    report: VerifyReport,
    /// The records of the log, unless some are corrupt or quarantined.
    found: Option<Inspection>,
    snapshots: SnapshotChecks,
}

/// The checks of the snapshots of a log.
#[derive(Default)]
struct SnapshotChecks {
    whole: Vec<Slot>,
    corrupt: Vec<(Slot, String)>,
}

fn check(component: Component, target: &Target, as_json: bool) -> Outcome<Report> {
    if let Some(failure) = target.displaced() {
        let mut line = json!({
            "component": component,
            "dir": target.dir.to_string_lossy(),
            "sound": false,
            "missing": target.is_missing(),
            "damage": [failure.message()],
        });
        target.add_key(&mut line);
        let key = target.key().unwrap_or_default().escape_ascii();
        let what = if target.is_missing() { "missing" } else { "the log of another key" };
        let text = if as_json { format!("{line}\n") } else { format!("log {key}\n{what}\n") };
        return Ok((text, Err(failure)));
    }
    let dir = &target.dir;
    let bar = progress::bytes_bar(as_json);
    let report = esker_log::verify_with(dir, ReadOptions::default(), progress::follow(&bar))
        .map_err(|error| Failure::from_consensus(StorageError::Log(error.into()), dir))?;
    bar.finish_and_clear();
    let valid = report.corruption.is_empty() && report.quarantined.is_empty();
    let found = if valid { Some(read(target, report.records, as_json)?) } else { None };
    let snapshots = check_snapshots(dir)?;
    let checked = LogCheck { report, found, snapshots };
    let failure = checked.failure(dir);
    let text = if as_json {
        let mut line = checked.as_json(failure.is_none());
        line["component"] = json!(component);
        line["dir"] = dir.to_string_lossy().into();
        target.add_key(&mut line);
        format!("{line}\n")
    } else {
        let log = target.key().map(|key| format!("log {}\n", key.escape_ascii()));
        log.unwrap_or_default() + &checked.as_text(failure.is_none())
    };
    Ok((text, failure.map_or(Ok(()), Err)))
}

/// Reads the records, whose number is `records`.
fn read(target: &Target, records: u64, as_json: bool) -> Outcome<Inspection> {
    let bar = progress::records_bar(records, as_json);
    let found = target.read(|read| bar.set_position(read));
    bar.finish_and_clear();
    found
}

/// The slots with an entry.
fn slots(found: &Inspection) -> u64 {
    found.totals.committed + found.totals.uncommitted
}

/// Reads every byte of the snapshots.
fn check_snapshots(dir: &Path) -> Outcome<SnapshotChecks> {
    let failed = |error: Error| Failure::from_consensus(error, dir);
    let snapshots = ReadOnlySnapshots::open(dir).map_err(|error| failed(error.into()))?;
    let mut checks = SnapshotChecks::default();
    for slot in snapshots.list().map_err(|error| failed(error.into()))? {
        match snapshots.verify(slot) {
            Ok(_) => checks.whole.push(slot),
            // It was removed since it was listed.
            Err(SnapshotError::NoSnapshot) => {}
            Err(SnapshotError::CorruptedSnapshot { slot, cause }) => {
                checks.corrupt.push((slot, cause.to_string()));
            }
            Err(error) => return Err(failed(error.into())),
        }
    }
    Ok(checks)
}

impl LogCheck {
    fn invalid(&self) -> &[InvalidRecord] {
        self.found.as_ref().map_or(&[][..], |found| &found.invalid_records)
    }

    /// Why the log is not sound.
    fn failure(&self, dir: &Path) -> Option<Failure> {
        let name = dir.display();
        if let Some(first) = self.report.corruption.first() {
            let advice = on_corruption(first, dir);
            return Some(Failure::corrupt(format!(
                "{name} is corrupt, first in {} at byte {}{advice}",
                first.file.display(),
                first.offset
            )));
        }
        if !self.report.quarantined.is_empty() {
            return Some(Failure::corrupt(format!(
                "corrupt records of {name} were quarantined: it is read-only, and its node has to join its group as \
                 a new member, with another node ID"
            )));
        }
        if let Some(record) = self.invalid().first() {
            return Some(Failure::corrupt(format!(
                "{name}: record {}: {}",
                record.seq, record.what
            )));
        }
        let floor = self.found.as_ref().and_then(|found| found.floor);
        let (newest, corrupt) = (self.snapshots.whole.last(), self.snapshots.corrupt.last());
        let uncovered = floor.filter(|floor| newest.is_none_or(|newest| newest < floor));
        let what = match (corrupt, newest) {
            (Some((slot, what)), _) => {
                format!("the snapshot at slot {slot} is not whole: {what}")
            }
            (None, Some(newest)) if uncovered.is_some() => {
                format!("the newest snapshot is at slot {newest}")
            }
            // Without snapshots, its application keeps the state elsewhere.
            _ => return None,
        };
        let rest = match (uncovered, newest) {
            (Some(floor), _) => format!(
                "no whole one covers the slots up to {floor}, which were dropped: fetch a snapshot from another \
                 replica"
            ),
            (None, Some(newest)) => format!("the newest whole one is at slot {newest}"),
            (None, None) => "none is, but the log has all slots".to_owned(),
        };
        Some(Failure::corrupt(format!("{name}: {what}; {rest}")))
    }

    fn as_json(&self, sound: bool) -> Value {
        let Self { report, found, snapshots } = self;
        json!({
            "sound": sound,
            "records": report.records,
            "bytes": report.bytes,
            "slots": found.as_ref().map(slots),
            "damage": report.corruption.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "quarantined": ranges_json(&report.quarantined),
            "flaws": self
                .invalid()
                .iter()
                .map(|record| json!({ "record": record.seq.0, "what": record.what }))
                .collect::<Vec<_>>(),
            "snapshots": snapshots.whole.iter().map(|slot| slot.0).collect::<Vec<_>>(),
            "corrupt_snapshots": snapshots
                .corrupt
                .iter()
                .map(|(slot, what)| json!({ "slot": slot.0, "damage": what }))
                .collect::<Vec<_>>(),
        })
    }

    fn as_text(&self, sound: bool) -> String {
        let Self { report, found, snapshots } = self;
        let mut text = format!(
            "checked {}, {}\n",
            counted(report.records, "record"),
            counted(report.bytes, "byte")
        );
        report.corruption.iter().for_each(|corruption| text += &format!("{corruption}\n"));
        for range in &report.quarantined {
            text += &format!("quarantined: {range}\n");
        }
        for record in self.invalid() {
            text += &format!("record {}: {}\n", record.seq, record.what);
        }
        for slot in &snapshots.whole {
            text += &format!("snapshot {slot}: whole\n");
        }
        for (slot, what) in &snapshots.corrupt {
            text += &format!("snapshot {slot}: {what}\n");
        }
        if let Some(found) = found.as_ref().filter(|_| sound) {
            text += &format!("sound: {}\n", counted(slots(found), "slot"));
        }
        text
    }
}

//! A snapshot as it is printed.

use std::path::Path;

use esker_consensus::{Error, ReadOnlySnapshots, Slot, SnapshotError, SnapshotInfo};
use serde_json::{Value, json};

use esker_command::exit::{Failure, Outcome};
use esker_command::output;

/// Opens the snapshots of the log in `dir`, beside its writer.
pub fn open(dir: &Path) -> Outcome<ReadOnlySnapshots> {
    ReadOnlySnapshots::open(dir).map_err(|error| Failure::from_consensus(error, dir))
}

/// The failure to use the snapshots of the log in `dir`. `wanted` is what was looked for.
pub fn failure(error: Error, dir: &Path, snapshots: &ReadOnlySnapshots, wanted: &str) -> Failure {
    if !matches!(error, Error::NoSnapshot) {
        return Failure::from_consensus(error, dir);
    }
    let all = snapshots.list().unwrap_or_default();
    let (wanted, there) = match &all[..] {
        [] => ("", String::new()),
        all => {
            let all: Vec<_> = all.iter().map(Slot::to_string).collect();
            (wanted, format!("; it has some at the slots {}", all.join(", ")))
        }
    };
    Failure::failed(format!("{} has no snapshot{wanted}{there}", dir.display()))
}

/// A snapshot as JSON. A note that is not UTF-8 text is base 64.
pub fn as_json(info: &SnapshotInfo) -> Value {
    let mut line = json!({
        "slot": info.slot.0,
        "entries": info.entries,
        "bytes": info.len,
        "file_bytes": info.file_size,
    });
    output::add_bytes(&mut line, "note", &info.note);
    line
}

/// A snapshot as a line of text.
pub fn as_text(info: &SnapshotInfo) -> String {
    let SnapshotInfo { slot, len, note, .. } = info;
    let note = if note.is_empty() { String::new() } else { format!(" {}", note.escape_ascii()) };
    format!("{slot} {}{note}\n", output::counted(*len, "byte"))
}

/// The corruption of a snapshot as JSON.
pub fn damage(slot: Slot, error: &SnapshotError) -> Value {
    let (what, place) = match error {
        SnapshotError::CorruptedSnapshot { cause: esker_log::Error::Corrupted(found), .. } => {
            (found.to_string(), Some(found))
        }
        SnapshotError::CorruptedSnapshot { cause, .. } => (cause.to_string(), None),
        error => (error.to_string(), None),
    };
    let mut line = json!({ "slot": slot.0, "sound": false, "damage": what });
    if let Some(found) = place {
        line["file"] = found.file.to_string_lossy().into();
        line["offset"] = found.offset.into();
    }
    line
}

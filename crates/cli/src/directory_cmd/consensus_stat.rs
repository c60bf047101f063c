//! The summary of a consensus log, alone or one of many.

use std::fmt::Write;

use esker_consensus::{ReadOnlySnapshots, Slot};
use serde_json::json;

use super::component::{Component, Directory};
use super::log_verify::ranges_json;
use super::shutdown::Shutdown;
use crate::consensus_dir::{self, Target};
use esker_command::exit::{Failure, Outcome, complain};

/// Prints a summary of each log.
pub fn run(directory: &Directory, key: Option<&str>, as_json: bool) -> Outcome {
    let Directory { path, component } = directory;
    let targets = consensus_dir::targets(path, key)?;
    let logs = targets.len();
    let failures = consensus_dir::each(path, targets, |target| match target.is_missing() {
        true => (missing(*component, target, as_json), target.read(|_| {}).map(drop)),
        false => match summary(*component, target, as_json) {
            Ok(text) => (text, Ok(())),
            Err(failure) => (String::new(), Err(failure)),
        },
    })?;
    let (count, path) = (failures.len(), path.display());
    if logs > 1 {
        failures.iter().for_each(|failure| complain(failure.message()));
    }
    match failures.into_iter().next() {
        None => Ok(()),
        Some(only) if logs == 1 => Err(only),
        Some(first) => {
            Err(first.instead(format!("{count} of {logs} logs of {path} cannot be read")))
        }
    }
}

fn summary(component: Component, target: &Target, as_json: bool) -> Outcome<String> {
    let found = target.read(|_| {})?;
    let snapshots =
        ReadOnlySnapshots::open(&target.dir).and_then(|snapshots| Ok(snapshots.list()?));
    let snapshots = snapshots.map_err(|error| Failure::from_consensus(error, &target.dir))?;
    let shutdown =
        Shutdown::find(&target.dir).map_err(|error| Failure::from_consensus(error, &target.dir))?;
    let (totals, records) = (found.totals, found.records);
    let number = |slot: Option<Slot>| slot.map(u64::from);
    if as_json {
        let mut summary = json!({
            "component": component,
            "dir": target.dir.to_string_lossy(),
            "promised": found.promised.map(|ballot| json!({ "number": ballot.number, "node": ballot.node })),
            "floor": number(found.floor),
            "frontier": number(found.frontier),
            "committed": totals.committed,
            "lowest": number(totals.lowest),
            "highest": number(totals.highest),
            "uncommitted": totals.uncommitted,
            "snapshots": snapshots.iter().map(|slot| slot.0).collect::<Vec<_>>(),
            "bytes": totals.bytes,
            "quarantined": ranges_json(&found.quarantined),
            "read_only": found.read_only.and_then(consensus_dir::read_only),
            "records": {
                "promises": records.promises,
                "accepts": records.accepts,
                "commits": records.commits,
                "values": records.values,
                "states": records.truncations,
                "checkpoints": records.checkpoints,
            },
        });
        target.add_key(&mut summary);
        shutdown.add_to(&mut summary);
        return Ok(format!("{summary}\n"));
    }
    let shown =
        |slot: Option<Slot>| slot.map_or_else(|| "none".to_owned(), |slot| slot.to_string());
    let mut text = String::new();
    let mut row = |name: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(text, "{name:<12} {value}");
    };
    if let Some(key) = target.key() {
        row("key", &key.escape_ascii());
    }
    row("dir", &target.dir.display());
    row("promised", &found.promised.map_or_else(|| "none".to_owned(), |ballot| ballot.to_string()));
    row("floor", &shown(found.floor));
    row("frontier", &shown(found.frontier));
    row("committed", &totals.committed);
    row("lowest", &shown(totals.lowest));
    row("highest", &shown(totals.highest));
    row("uncommitted", &totals.uncommitted);
    row("bytes", &totals.bytes);
    let all: Vec<_> = snapshots.iter().map(Slot::to_string).collect();
    row("snapshots", &if all.is_empty() { "none".to_owned() } else { all.join(" ") });
    for range in &found.quarantined {
        row("quarantined", range);
    }
    if let Some(reason) = found.read_only.and_then(consensus_dir::read_only) {
        row("read-only", &reason);
    }
    row("shutdown", &shutdown);
    Ok(text)
}

fn missing(component: Component, target: &Target, as_json: bool) -> String {
    if as_json {
        let mut line = json!({
            "component": component,
            "dir": target.dir.to_string_lossy(),
            "missing": true,
        });
        target.add_key(&mut line);
        return format!("{line}\n");
    }
    let key = target.key().unwrap_or_default().escape_ascii();
    format!("{:<12} {key}\n{:<12} {} (missing)\n", "key", "dir", target.dir.display())
}

//! Checks of the answers of a corrupted consensus log.

use std::path::Path;

use esker_consensus::{Ballot, ConsensusLog, Error, PromiseError, Slot, StorageError, inspect_on};
use esker_disk::sim::SimDisk;
use esker_log::{Engine, OpenCheck, repair, verify};
use esker_testkit::{Changes, Files, Rng, store};

use super::build::Sample;
use super::facts::State;
use super::log_content::{LogContent, is_refusal, see};
use super::{DIR, options};

type Checked<T = ()> = Result<T, String>;

pub fn check(
    sample: &Sample,
    damaged: &Files,
    changes: &Changes,
    rng: &mut Rng,
) -> Checked<&'static str> {
    let is_of_log =
        |name: &&String| ["manifest", "mark"].contains(&name.as_str()) || name.ends_with(".seg");
    let left = || damaged.iter().filter(|(name, _)| is_of_log(name) && !name.contains('/'));
    let is_other = |bytes| sample.source.other.values().any(|other| other == bytes);
    // Nothing of this log is left: the directory is a new one, or by its manifest another log.
    let manifest = damaged.get("manifest");
    let is_another = manifest.is_some() && manifest == sample.source.other.get("manifest");
    if left().all(|(_, bytes)| is_another && is_other(bytes)) {
        return Ok("gone");
    }
    if changes.are_of_another(damaged, &sample.source.other, "manifest", &["mark", "manifest.next"])
    {
        return Ok("another log");
    }
    let bound = sample.traces.bound(&sample.source.files, changes);
    let allowed = sample.facts.states_from(bound);
    let bound_by =
        || format!("\n  bound by {}", sample.traces.reported(&sample.source.files, changes));
    let disk = || -> Checked<SimDisk> {
        let disk = sample.disk.fork(1);
        let stored = store(&disk, Path::new(DIR), &sample.source.files, damaged);
        stored.map(|()| disk).map_err(|error| format!("storing the damage: {error}"))
    };
    let validate = if rng.percent(50) { OpenCheck::Quick } else { OpenCheck::Full };
    let first = by_opening(&disk()?, &allowed, validate, changes)
        .map_err(|what| format!("opening ({validate:?}): {what}{}", bound_by()))?;
    log_opens_if_sound(&disk()?, changes)?;
    let repaired = by_repair(sample, &disk()?, &allowed, changes)
        .map_err(|what| format!("after a repair: {what}{}", bound_by()))?;
    Ok(match (first, repaired) {
        (Opened::Whole, _) => "whole",
        (Opened::Partly, _) => "partly",
        (Opened::Refused, true) => "repaired",
        (Opened::Refused, false) => "reported",
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opened {
    Whole,
    /// Some slots say that they cannot be read.
    Partly,
    Refused,
}

/// A log that `verify` calls sound is not refused for corruption of its records.
fn log_opens_if_sound(disk: &SimDisk, changes: &Changes) -> Checked {
    let engine = Engine::manual();
    let mut below = esker_log::Options::on(std::sync::Arc::new(disk.process()));
    below.engine = Some(engine.clone());
    let report = verify(DIR, &below);
    let sound = report.is_ok_and(|report| report.corruption.is_empty());
    let is_of_segments = |error: &esker_log::Error| match error {
        esker_log::Error::Corrupted(damage) => {
            let name = damage.file.file_name().unwrap_or_default().to_string_lossy();
            name.ends_with(".seg") || name == "manifest"
        }
        _ => false,
    };
    for check in [OpenCheck::Full, OpenCheck::Quick].into_iter().filter(|_| sound) {
        let (log, engine) = open(disk, check);
        engine.stop();
        match log {
            Err(Error::Storage(StorageError::Log(error))) if is_of_segments(&error) => {
                return Err(format!("verify says sound, and opening ({check:?}) says {error}"));
            }
            Err(error) if !is_refusal(&error) && !note_excuses(&error, changes) => {
                return Err(format!("an undue refusal: {error:?}"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn open(disk: &SimDisk, validate: OpenCheck) -> (Result<ConsensusLog, Error>, Engine) {
    let engine = Engine::manual();
    let mut options = options(disk, &engine);
    options.log.check = validate;
    let log = ConsensusLog::builder(DIR).options(options).open();
    (log.map_err(Error::from), engine)
}

fn by_opening(
    disk: &SimDisk,
    allowed: &[State],
    validate: OpenCheck,
    changes: &Changes,
) -> Checked<Opened> {
    let mut opened = Opened::Whole;
    // What a second opening finds is what the first one left.
    for _ in 0..2 {
        let (log, engine) = open(disk, validate);
        let log = match log {
            Ok(log) => log,
            Err(error) if is_refusal(&error) || note_excuses(&error, changes) => {
                return Ok(Opened::Refused);
            }
            Err(error) => return Err(format!("an undue refusal: {error:?}")),
        };
        let seen = see(&log)?;
        let outcome = one_of(&seen, allowed);
        drop(log);
        engine.stop();
        outcome?;
        if !seen.unreadable.is_empty() {
            opened = Opened::Partly;
        }
    }
    Ok(opened)
}

/// The app metadata is that of another component. The log says so and does not open; repair
/// leaves them alone.
fn note_excuses(error: &Error, changes: &Changes) -> bool {
    use esker_log::Error as Below;
    let is_other = matches!(error, Error::Storage(StorageError::Log(Below::WrongComponent { .. })));
    changes.touches_file("note") && is_other
}

fn one_of(seen: &LogContent, allowed: &[State]) -> Checked {
    if allowed.iter().any(|state| seen.may_be(state)) {
        return Ok(());
    }
    if std::env::var_os("ESKER_TRACE").is_some() {
        for (n, state) in allowed.iter().enumerate() {
            println!("allowed {n}: {}", seen.differs(state));
        }
    }
    let last = allowed.last().map(|state| seen.differs(state)).unwrap_or_default();
    let first = allowed.first().map(|state| seen.differs(state)).unwrap_or_default();
    Err(format!("SILENT OR WRONG: {last}; and without what nothing vouches for: {first}"))
}

/// Whether something was repaired.
fn by_repair(
    sample: &Sample,
    disk: &SimDisk,
    allowed: &[State],
    changes: &Changes,
) -> Checked<bool> {
    let engine = Engine::manual();
    let mut below = esker_log::Options::on(std::sync::Arc::new(disk.process()));
    below.segment_size = 64 << 10;
    below.engine = Some(engine.clone());
    let is_sound = verify(DIR, &below).is_ok_and(|report| report.corruption.is_empty());
    let done = match repair(DIR, &below) {
        Ok(done) => done,
        Err(esker_log::RepairError::Corrupted(damage)) => {
            return Err(format!("it refuses: {damage}"));
        }
        Err(error) if is_refusal(&StorageError::Log(error.clone().into()).into()) => {
            return Ok(false);
        }
        Err(error) => return Err(format!("an undue refusal: {error:?}")),
    };
    let is_changed =
        !done.quarantined.is_empty() || done.manifest_rebuilt || done.manifest_corrected;
    if is_sound == is_changed {
        return Err(format!("verify said sound: {is_sound}, and it reports {done:?}"));
    }
    let report = verify(DIR, &below).map_err(|error| format!("verify says {error:?}"))?;
    if let Some(damage) = report.corruption.first() {
        return Err(format!("verify finds {damage}"));
    }
    let (log, engine) = open(disk, OpenCheck::Full);
    let log = match log {
        Ok(log) => log,
        Err(error) if note_excuses(&error, changes) => return Ok(false),
        Err(error) => return Err(format!("opening: {error:?}")),
    };
    let ballot = Ballot { number: 1 << 40, node: 1 };
    let outcome = match log.promise(ballot, Slot(0)).map(|ticket| ticket.blocking_wait()) {
        Ok(promised) => {
            promised.map_err(|error| format!("promising: {error:?}"))?;
            // It continues: then it has to know everything. The promise is the one just given.
            let mut seen = see(&log)?;
            let known = |state: &State| {
                let mut seen = LogContent { unreadable: seen.unreadable.clone(), ..clone(&seen) };
                seen.state.promise = state.promise;
                seen.may_be(state)
            };
            if allowed.iter().any(known) {
                Ok(())
            } else {
                seen.state.promise = allowed.last().map_or(ballot, |state| state.promise);
                one_of(&seen, allowed).and(Err("it continues and forgot".into()))
            }
        }
        Err(PromiseError::Storage(StorageError::ReadOnly { .. })) => see(&log).and_then(|seen| {
            is_true(sample, &seen)?;
            is_inspected(sample, &seen, disk)
        }),
        Err(error) => Err(format!("promising: {error:?}")),
    };
    drop(log);
    engine.stop();
    outcome.map(|()| !done.quarantined.is_empty() || done.manifest_rebuilt)
}

fn clone(seen: &LogContent) -> LogContent {
    LogContent { state: seen.state.clone(), unreadable: seen.unreadable.clone() }
}

/// Checks an inspection: it has all that the log shows as committed, and nothing that was
/// not.
fn is_inspected(sample: &Sample, seen: &LogContent, disk: &SimDisk) -> Checked {
    let found = match inspect_on(std::sync::Arc::new(disk.process()), DIR) {
        Ok(found) => found,
        Err(error) => return Err(format!("inspecting: {error:?}")),
    };
    let chosen = sample.facts.chosen();
    let slots = found.slots().map_err(|error| format!("inspecting: {error:?}"))?;
    let mut values = found.values();
    for (n, slot) in slots.iter().filter(|(_, slot)| slot.committed) {
        match values.get(*n, slot) {
            Ok(value) if Some(value) == chosen.get(&n.0).map(Vec::as_slice) => {}
            Ok(_) => return Err(format!("WRONG CHOICE in slot {n}, inspected")),
            Err(error) => return Err(format!("inspecting slot {n}: {error:?}")),
        }
    }
    for (n, slot) in seen.state.slots.iter().filter(|(_, slot)| slot.committed) {
        let there = slots.get(&Slot(*n)).is_some_and(|it| it.committed && it.ballot == slot.ballot);
        if !there {
            return Err(format!("slot {n} is committed, and not where the log is inspected"));
        }
    }
    Ok(())
}

/// Checks a read-only log: its answers may be incomplete, and have to be true.
fn is_true(sample: &Sample, seen: &LogContent) -> Checked {
    let chosen = sample.facts.chosen();
    let state = sample.facts.state();
    if seen.state.promise > state.promise {
        return Err(format!("{} is promised, and never was", seen.state.promise));
    }
    for (n, slot) in &seen.state.slots {
        if !sample.facts.was_tried(*n, slot.ballot, &slot.value) {
            return Err(format!("WRONG VALUE in slot {n}, under {}", slot.ballot));
        }
        if slot.committed && chosen.get(n) != Some(&slot.value) {
            return Err(format!("WRONG CHOICE in slot {n}: what {} brought", slot.ballot));
        }
    }
    Ok(())
}

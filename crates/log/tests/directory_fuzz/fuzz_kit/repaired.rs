//! What has to be there after a repair.

use std::collections::BTreeSet;

use esker_log::{Engine, Error, Log, OnCorruption, Start, repair, verify};
use esker_testkit::Rng;

use super::check::{Checked, Corruption};
use super::location::Location;
use super::reading::{self, Item};

/// Repairs in one of the ways there are, and holds the log that is left against the history. Gives
/// whether there was something to repair, and it was.
pub fn check(
    damage: &Corruption<'_>,
    location: &Location,
    verifies: bool,
    rng: &mut Rng,
) -> Checked<bool> {
    let way =
        [OnCorruption::Fail, OnCorruption::Fail, OnCorruption::Quarantine, OnCorruption::Truncate]
            [rng.index(4)];
    let done = match way {
        OnCorruption::Fail => by_function(damage, location),
        _ => by_opening(damage, location, way),
    };
    let what = |what: String| format!("after a repair ({way:?}): {what}");
    match done.map_err(what)? {
        Done::Refused if verifies => Err(what("refused, and verify calls it sound".into())),
        Done::Refused => Ok(false),
        Done::Left(reported) => {
            let kept = way != OnCorruption::Truncate;
            left(damage, location, kept, reported).map_err(what).map(|()| !verifies)
        }
    }
}

enum Done {
    Refused,
    /// Whether it reported something.
    Left(bool),
}

fn by_function(damage: &Corruption<'_>, location: &Location) -> Checked<Done> {
    let engine = Engine::manual();
    match repair(&location.dir, location.options(&engine)) {
        Ok(done) => Ok(Done::Left(!done.quarantined.is_empty() || done.manifest_rebuilt)),
        Err(error) => refused(damage, &error),
    }
}

fn by_opening(damage: &Corruption<'_>, location: &Location, way: OnCorruption) -> Checked<Done> {
    let engine = Engine::manual();
    let mut options = location.options(&engine);
    options.on_corruption = way;
    match Log::builder(&location.dir).options(options).open() {
        Ok(log) => {
            drop(log);
            engine.stop();
            Ok(Done::Left(true))
        }
        Err(error) => refused(damage, &error),
    }
}

/// Some corruption is not for a repair: files of another log or version, or nothing that says whose
/// log it is.
fn refused(damage: &Corruption<'_>, error: &Error) -> Checked<Done> {
    match error {
        Error::Corrupted(_) => Err(format!("it refuses: {error:?}")),
        error => damage.refusal(error).map(|()| Done::Refused),
    }
}

fn left(damage: &Corruption<'_>, location: &Location, kept: bool, reported: bool) -> Checked {
    is_sound(location)?;
    let engine = Engine::manual();
    let open = || {
        Log::builder(&location.dir)
            .options(location.options(&engine))
            .open()
            .map_err(|error| format!("opening: {error:?}"))
    };
    let log = open()?;
    let read = reading::of_log(&log, Start::Oldest)?;
    if let Some(error) = &read.error {
        return Err(format!("it is read with {error:?}"));
    }
    damage.history().check_items(&read.items, damage.lost())?;
    let there: BTreeSet<u64> = read
        .items
        .iter()
        .filter(|item| matches!(item, Item::Record { .. }))
        .map(Item::last)
        .collect();
    if kept {
        let begins_again = (damage.trim_is_lost() && reported).then(|| log.accepted().0);
        damage.nothing_is_silent(&read, begins_again)?;
        if let Some(seq) = damage.intact.iter().find(|seq| !there.contains(seq)) {
            return Err(format!("INTACT {seq} was given up"));
        }
        if !reported && damage.claimed.iter().any(|seq| !there.contains(seq)) {
            return Err("SILENT LOSS: it says that nothing was damaged".into());
        }
    }
    let claimed = damage.claimed.last().copied().filter(|_| kept).unwrap_or(0);
    let mut items = read.items;
    items.extend(append(&log, claimed)?);
    engine.run();
    log.close().map_err(|error| format!("closing: {error:?}"))?;
    drop(log);
    let log = open().map_err(|error| format!("after a clean close: {error}"))?;
    let again = reading::of_log(&log, Start::Oldest)?;
    if again.error.is_some() || again.items != items {
        let (items, again_items) = (items.len(), again.items.len());
        return Err(format!("{again_items} of {items} came back, {:?}", again.error));
    }
    drop(log);
    engine.stop();
    is_sound(location)
}

fn is_sound(location: &Location) -> Checked {
    let engine = Engine::manual();
    let report = verify(&location.dir, location.options(&engine));
    let report = report.map_err(|error| format!("verify says {error:?}"))?;
    match report.corruption.first() {
        Some(first) => Err(format!("verify finds {first}")),
        None => Ok(()),
    }
}

/// Appends a few records, whose numbers no durable record had.
fn append(log: &Log, claimed: u64) -> Checked<Vec<Item>> {
    let mut new = Vec::new();
    let mut prev = log.accepted().0;
    let payloads: [&[u8]; 3] = [b"one more", &[7; 5000], b""];
    let failed = |error: Error| format!("appending: {error:?}");
    log.append_atomic(&payloads[..2]).and_then(|ticket| ticket.blocking_wait()).map_err(failed)?;
    let last = log.append(payloads[2]).and_then(|ticket| ticket.blocking_wait()).map_err(failed)?;
    if prev < claimed {
        return Err(format!(
            "{claimed} was durable, and its number is assigned again after {prev}"
        ));
    }
    for payload in payloads {
        let payload = payload.to_vec();
        new.push(Item::Record { seq: prev + 1, prev, payload });
        prev += 1;
    }
    if last.seq.0 != prev {
        return Err(format!("{prev} was expected, and it is {}", last.seq));
    }
    Ok(new)
}

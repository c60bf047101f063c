//! The records that must be there after a repair.

use std::collections::BTreeSet;

use esker_log::{
    Append, Engine, Error, Log, OnCorruption, OpenCheck, Repaired, Start, repair, verify,
};
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
        OnCorruption::Fail => by_function(damage, location, verifies),
        _ => by_opening(damage, location, way),
    };
    let what = |what: String| format!("after a repair ({way:?}): {what}");
    match done.map_err(what)? {
        Done::Refused if verifies => Err(what("refused, and verify calls it sound".into())),
        Done::Refused => Ok(false),
        Done::Left(reported) => {
            let kept = way != OnCorruption::Truncate;
            left(damage, location, kept, reported.as_ref()).map_err(what).map(|()| !verifies)
        }
    }
}

enum Done {
    Refused,
    /// With the report; `None` after an opening, which reports to the application's log.
    Left(Option<Repaired>),
}

fn by_function(damage: &Corruption<'_>, location: &Location, verifies: bool) -> Checked<Done> {
    let engine = Engine::manual();
    match repair(&location.dir, location.options(&engine)) {
        Ok(done) => {
            let is_changed =
                !done.quarantined.is_empty() || done.manifest_rebuilt || done.manifest_corrected;
            if verifies == is_changed {
                return Err(format!("verify said sound: {verifies}, and it reports {done:?}"));
            }
            Ok(Done::Left(Some(done)))
        }
        Err(error) => refused(damage, &error.into()),
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
            Ok(Done::Left(None))
        }
        Err(error) => refused(damage, &error.into()),
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

/// The records that are reported as lost are not there, and each record that is not there is
/// reported: of those that something says were durable. `begin`: the log begins after this number,
/// and nothing says what was before it.
fn is_the_difference(
    damage: &Corruption<'_>,
    done: &Repaired,
    there: &BTreeSet<u64>,
    begin: u64,
) -> Checked {
    let ranges = || done.quarantined.iter().filter(|range| range.from < range.to);
    let dead = damage.history().dead.iter().map(|(seq, _)| *seq);
    let last = dead.fold(damage.history().last(), u64::max);
    for range in ranges() {
        if let Some(seq) = there.range(range.from.0 + 1..=range.to.0).next() {
            return Err(format!("{seq} is there, and reported as lost in {range:?}"));
        }
        if range.to.0 > last {
            return Err(format!("the log never went past {last}, and {range:?} is reported"));
        }
    }
    let is_reported = |seq: u64| ranges().any(|range| range.from.0 < seq && seq <= range.to.0);
    let lost = damage
        .claimed
        .iter()
        .find(|seq| **seq > begin && !there.contains(seq) && !is_reported(**seq));
    match lost {
        Some(seq) => Err(format!("{seq} is lost, and reported are {:?}", done.quarantined)),
        None => Ok(()),
    }
}

fn left(
    damage: &Corruption<'_>,
    location: &Location,
    kept: bool,
    done: Option<&Repaired>,
) -> Checked {
    is_sound(location)?;
    let reported = done.is_none_or(|done| !done.quarantined.is_empty() || done.manifest_rebuilt);
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
        if let Some(done) = done {
            let empty = begins_again.unwrap_or(0);
            let begin = begins_again.map_or(0, |_| read.items.first().map_or(empty, Item::prev));
            is_the_difference(damage, done, &there, begin)?;
        }
    }
    let claimed = damage.claimed.last().copied().filter(|_| kept).unwrap_or(0);
    let mut items = read.items;
    items.extend(append(&log, claimed)?);
    engine.run();
    log.close().map_err(|error| format!("closing: {error:?}"))?;
    drop(log);
    // The first one leaves a log that was not closed.
    for check in [OpenCheck::Full, OpenCheck::Quick] {
        let mut options = location.options(&engine);
        options.check = check;
        let log = Log::builder(&location.dir).options(options).open();
        let log = log.map_err(|error| format!("opening again ({check:?}): {error}"))?;
        let again = reading::of_log(&log, Start::Oldest)?;
        if again.error.is_some() || again.items != items {
            let (items, again_items) = (items.len(), again.items.len());
            return Err(format!("{again_items} of {items} came back, {:?}", again.error));
        }
    }
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
    log.write(Append::records(&payloads[..2]).atomic())
        .map_err(Error::from)
        .and_then(|ticket| ticket.blocking_wait().map_err(Into::into))
        .map_err(failed)?;
    let last = log
        .append(payloads[2])
        .and_then(|ticket| Ok(ticket.blocking_wait()?))
        .map_err(|error| failed(error.into()))?;
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

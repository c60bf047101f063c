//! Checks of reads, iterations and scans: a committed value never changes.

use std::collections::BTreeMap;

use esker_consensus::Ballot;

use super::answers::{may_be_chosen, may_be_floor, may_be_there};
use super::{CallOutcome, End, Event, Operation, ensure};

/// Checks what was read. `committed` is what was seen durably committed so far, in earlier lives,
/// too.
pub fn check(history: &[Event], committed: &mut BTreeMap<u64, Ballot>) -> Result<(), String> {
    for event in history {
        match &event.what {
            Operation::Read { slot, found } => read(history, event, *slot, *found)?,
            Operation::Iterate { from, seen, end } => iterate(history, event, *from, seen, *end)?,
            Operation::Scan { seen } => scan(history, event, seen)?,
            Operation::Accept { slot, done, .. } if done.is_ordered() => {
                above_the_floor(history, event, *slot)?;
            }
            _ => {}
        }
        for (slot, ballot) in seen_committed(&event.what) {
            let known = *committed.entry(slot).or_insert(ballot);
            ensure!(
                known == ballot,
                "slot {slot} was committed under {known}, and now is {ballot}"
            );
            ensure!(
                may_be_chosen(history, slot, ballot, event.ret.max(returned(event))),
                "slot {slot} is committed under {ballot}, which no caller committed"
            );
        }
    }
    Ok(())
}

fn returned(event: &Event) -> u64 {
    match &event.what {
        Operation::Promise { answer: Some(answer), .. } => answer.returned,
        _ => event.ret,
    }
}

/// The slots that an event found durably committed.
fn seen_committed(what: &Operation) -> Vec<(u64, Ballot)> {
    match what {
        Operation::Read { slot, found: Ok(Some(ballot)) } => vec![(*slot, *ballot)],
        Operation::Iterate { seen, .. } => seen.clone(),
        Operation::Promise { answer: Some(answer), .. } => {
            let seen = answer.seen.iter().filter(|(.., committed)| *committed);
            seen.map(|(slot, ballot, _)| (*slot, *ballot)).collect()
        }
        _ => Vec::new(),
    }
}

/// Slots that were durably committed before a tick.
fn durable_before(history: &[Event], tick: u64) -> impl Iterator<Item = u64> {
    history.iter().filter_map(move |event| match event.what {
        Operation::Commit { slot, done, .. } | Operation::Learn { slot, done, .. } => {
            done.is_durable_before(tick).then_some(slot)
        }
        _ => None,
    })
}

fn read(
    history: &[Event],
    event: &Event,
    slot: u64,
    found: Result<Option<Ballot>, End>,
) -> Result<(), String> {
    match found {
        Ok(None) => {
            let lost = durable_before(history, event.call).any(|committed| committed == slot);
            ensure!(!lost, "slot {slot} is committed, and was not found");
        }
        Err(End::Truncated(floor)) => ensure!(
            floor >= slot && may_be_floor(history, floor, event.ret),
            "slot {slot} is said to be below the floor {floor}"
        ),
        _ => {}
    }
    Ok(())
}

fn iterate(
    history: &[Event],
    event: &Event,
    from: Option<u64>,
    seen: &[(u64, Ballot)],
    end: End,
) -> Result<(), String> {
    ensure!(seen.is_sorted_by(|a, b| a.0 < b.0), "an iteration goes back: {seen:?}");
    let last = seen.last().map(|(slot, _)| *slot);
    if let End::Truncated(floor) = end {
        let rest = last.map(|last| last + 1).or(from).unwrap_or(0);
        ensure!(
            floor >= rest && may_be_floor(history, floor, event.ret),
            "an iteration was refused at {rest} because of floor {floor}"
        );
    }
    // Where it began, as far as it is known.
    let Some(first) = from.or(seen.first().map(|(slot, _)| *slot)) else { return Ok(()) };
    let limit = match (end, last) {
        (End::Whole, _) => u64::MAX,
        (_, Some(last)) => last,
        (_, None) => return Ok(()),
    };
    for slot in durable_before(history, event.call) {
        let visited = seen.binary_search_by_key(&slot, |(slot, _)| *slot).is_ok();
        // Without a start, it begins above a floor that a caller asked for.
        let below = from.is_none()
            && slot < first
            && history.iter().any(|raise| {
                raise.call < event.ret
                    && matches!(raise.what, Operation::Raise { start, .. } if start > slot)
            });
        ensure!(
            visited || below || from.is_some_and(|from| slot < from) || slot > limit,
            "slot {slot} is committed, and an iteration from {from:?} to {limit} passed over it: {seen:?}"
        );
    }
    Ok(())
}

fn scan(history: &[Event], event: &Event, seen: &[(u64, Ballot)]) -> Result<(), String> {
    ensure!(seen.is_sorted_by(|a, b| a.0 < b.0), "a scan goes back: {seen:?}");
    for (slot, ballot) in seen {
        ensure!(
            may_be_there(history, *slot, *ballot, event.ret),
            "slot {slot} is uncommitted under {ballot}, which no caller accepted"
        );
    }
    for accept in history.iter().filter(|accept| accept.ret < event.call) {
        let Operation::Accept { slot, ballot, done } = accept.what else { continue };
        let gone = history.iter().any(|other| {
            other.call < event.ret
                && match other.what {
                    Operation::Commit { slot: s, done, .. }
                    | Operation::Learn { slot: s, done, .. } => {
                        s == slot && done != CallOutcome::Refused
                    }
                    Operation::Raise { start, .. } => start > slot,
                    _ => false,
                }
        });
        let found = seen.iter().find(|(s, _)| *s == slot);
        ensure!(
            !done.is_ordered() || gone || found.is_some_and(|(_, there)| *there >= ballot),
            "slot {slot} is uncommitted under {ballot}, and a scan found {found:?}"
        );
    }
    Ok(())
}

/// Nothing is accepted below a floor.
fn above_the_floor(history: &[Event], accept: &Event, slot: u64) -> Result<(), String> {
    for event in history.iter().filter(|event| event.ret < accept.call) {
        if let Operation::Raise { start, done, .. } = event.what {
            ensure!(
                !done.is_ordered() || slot >= start,
                "slot {slot} was accepted below the floor, which was raised to {start}"
            );
        }
    }
    Ok(())
}

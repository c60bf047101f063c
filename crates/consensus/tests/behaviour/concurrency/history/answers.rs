//! Checks of a promise's answer, and of the refusals after a promise.

use std::collections::BTreeMap;

use esker_consensus::Ballot;

use super::{Answer, CallOutcome, End, Event, Operation, ensure};

/// Checks every promise of a history.
pub fn check(history: &[Event]) -> Result<(), String> {
    for event in history {
        if let Operation::Promise { ballot, from, done, answer } = &event.what
            && done.is_ordered()
        {
            refuses_what_is_lower(history, event, *ballot)?;
            if let Some(answer) = answer {
                let reported = Reported { history, event, from: *from, answer };
                reported.check().map_err(|what| format!("promise {ballot} from {from}: {what}"))?;
            }
        }
    }
    Ok(())
}

/// Nothing below a promise is accepted after it, but what is committed already.
fn refuses_what_is_lower(
    history: &[Event],
    promise: &Event,
    promised: Ballot,
) -> Result<(), String> {
    for event in history.iter().filter(|event| event.call > promise.ret) {
        match event.what {
            Operation::Accept { slot, ballot, done } if done.is_ordered() && ballot < promised => {
                ensure!(
                    may_be_chosen(history, slot, ballot, event.ret),
                    "slot {slot} was accepted under {ballot} after {promised} was promised"
                );
            }
            Operation::Promise { ballot, done, .. } => {
                ensure!(
                    !done.is_ordered() || ballot >= promised,
                    "{ballot} was promised after {promised}"
                );
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether a commit of this slot and ballot was called before a tick.
pub fn may_be_chosen(history: &[Event], slot: u64, ballot: Ballot, before: u64) -> bool {
    history.iter().filter(|event| event.call < before).any(|event| match event.what {
        Operation::Commit { slot: s, ballot: b, done }
        | Operation::Learn { slot: s, ballot: b, done } => {
            (s, b) == (slot, ballot) && done != CallOutcome::Refused
        }
        _ => false,
    })
}

/// Whether a value under this ballot was brought to this slot before a tick.
pub fn may_be_there(history: &[Event], slot: u64, ballot: Ballot, before: u64) -> bool {
    history.iter().filter(|event| event.call < before).any(|event| match event.what {
        Operation::Accept { slot: s, ballot: b, done }
        | Operation::Learn { slot: s, ballot: b, done } => {
            (s, b) == (slot, ballot) && done != CallOutcome::Refused
        }
        _ => false,
    })
}

/// Whether a floor was asked for before a tick.
pub fn may_be_floor(history: &[Event], floor: u64, before: u64) -> bool {
    history.iter().filter(|event| event.call < before).any(
        |event| matches!(event.what, Operation::Raise { start, .. } if start.checked_sub(1) == Some(floor)),
    )
}

/// An answer, with the promise that it came from.
struct Reported<'a> {
    history: &'a [Event],
    event: &'a Event,
    from: u64,
    answer: &'a Answer,
}

impl Reported<'_> {
    fn check(&self) -> Result<(), String> {
        let start = self.answer.floor.map_or(0, |floor| floor + 1);
        self.floor(start)?;
        let first = self.from.max(start);
        let seen: BTreeMap<u64, (Ballot, bool)> =
            self.answer.seen.iter().map(|(slot, ballot, done)| (*slot, (*ballot, *done))).collect();
        ensure!(
            self.answer.seen.is_sorted_by_key(|(slot, ..)| *slot)
                && seen.len() == self.answer.seen.len()
                && seen.keys().all(|slot| *slot >= first),
            "the slots are out of order: {:?}",
            seen.keys()
        );
        self.is_real(&seen)?;
        let end = match self.answer.end {
            End::Whole => u64::MAX,
            End::Stopped => seen.keys().next_back().map_or(first, |last| last + 1),
            End::Off => return Ok(()),
            End::Truncated(floor) => {
                let rest = seen.keys().next_back().map_or(first, |last| last + 1);
                ensure!(
                    may_be_floor(self.history, floor, self.answer.returned) && floor >= rest,
                    "refused at {rest} because of floor {floor}"
                );
                // What it listed before is whole.
                rest
            }
        };
        self.is_whole(first..end, &seen)
    }

    /// The floor is one that was asked for, and none that was there before is forgotten.
    fn floor(&self, start: u64) -> Result<(), String> {
        if let Some(floor) = self.answer.floor {
            ensure!(
                may_be_floor(self.history, floor, self.event.ret),
                "no caller asked for the floor {floor}"
            );
        }
        for event in self.history.iter().filter(|event| event.ret < self.event.call) {
            if let Operation::Raise { start: raised, done, .. } = event.what {
                ensure!(
                    !done.is_ordered() || raised <= start,
                    "the answer begins at {start}, and the floor was raised to {raised}"
                );
            }
        }
        Ok(())
    }

    /// Nothing is listed that was not there by the promise's place, or chosen since.
    fn is_real(&self, seen: &BTreeMap<u64, (Ballot, bool)>) -> Result<(), String> {
        for (slot, (ballot, committed)) in seen {
            let by = if *committed { self.answer.returned } else { self.event.ret };
            ensure!(
                may_be_there(self.history, *slot, *ballot, by),
                "slot {slot} is listed under {ballot}, which came later or never"
            );
            ensure!(
                !committed || may_be_chosen(self.history, *slot, *ballot, by),
                "slot {slot} is listed as committed under {ballot}"
            );
        }
        Ok(())
    }

    /// Everything that came first is listed, or what replaced it.
    fn is_whole(
        &self,
        slots: std::ops::Range<u64>,
        seen: &BTreeMap<u64, (Ballot, bool)>,
    ) -> Result<(), String> {
        for event in self.history.iter().filter(|event| event.ret < self.event.call) {
            let (slot, ballot, done, committed) = match event.what {
                Operation::Accept { slot, ballot, done } => (slot, ballot, done, false),
                Operation::Learn { slot, ballot, done } => (slot, ballot, done, true),
                // Under whatever ballot it is committed.
                Operation::Commit { slot, done, .. } => (slot, Ballot::ZERO, done, true),
                _ => continue,
            };
            if !done.is_ordered() || !slots.contains(&slot) {
                continue;
            }
            let found = seen.get(&slot).copied();
            let listed =
                found.is_some_and(|(there, chosen)| chosen || (!committed && there >= ballot));
            ensure!(
                listed,
                "slot {slot} was accepted under {ballot}, committed: {committed}; listed is {found:?}; \
                 the answer: {:?}",
                self.answer
            );
        }
        Ok(())
    }
}

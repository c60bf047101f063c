//! The state that an open consensus log reports.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use esker_consensus::{Ballot, ConsensusLog, Error, IterateOptions, ReadError, Slot, StorageError};
use esker_log::Error as Below;

use super::facts::{SlotState, State};

/// Slots that programs use, and a few more.
pub const SLOTS: u64 = 400;

/// The entries that are reported; `None` for a slot that cannot be read.
#[derive(Debug)]
pub struct LogContent {
    pub state: State,
    pub unreadable: BTreeMap<u64, Error>,
}

/// Whether an error reports corruption, or a directory that is no log, and nothing else.
pub fn is_refusal(error: &Error) -> bool {
    match error {
        Error::Storage(StorageError::Log(cause) | StorageError::CorruptedEntry { cause, .. }) => {
            matches!(
                cause,
                Below::Corrupted(_)
                    | Below::Quarantined { .. }
                    | Below::UnsupportedVersion { .. }
                    | Below::ForeignFile { .. }
                    | Below::NotALog { .. }
            )
        }
        _ => false,
    }
}

/// Asks for everything, in every way, and demands that the answers agree.
pub fn see(log: &ConsensusLog) -> Result<LogContent, String> {
    let guard = log.pin();
    let mut state = State { promise: log.promised().unwrap_or(Ballot::ZERO), ..State::default() };
    state.start = log.floor().map_or(0, |floor| floor.0 + 1);
    state.next = log.frontier().map_or(0, |frontier| frontier.0 + 1);
    let mut unreadable = BTreeMap::new();
    for slot in 0..SLOTS {
        match log.read(Slot(slot), &guard) {
            Ok(entry) => {
                let (ballot, value) = (entry.ballot(), entry.value().to_vec());
                let committed = entry.is_committed();
                state.slots.insert(slot, SlotState { ballot, value, committed });
            }
            Err(ReadError::SlotNotFound { .. }) => {}
            Err(ReadError::Truncated { .. }) if slot < state.start => {}
            Err(error) => {
                let error = Error::from(error);
                if !is_refusal(&error) {
                    return Err(format!("slot {slot}: {error:?}"));
                }
                unreadable.insert(slot, error);
            }
        }
    }
    let mut options = IterateOptions::default();
    options.skip_errors = true;
    let mut reported = BTreeMap::new();
    let from = Slot(state.start);
    let done = log.iterate(from.., options, |entry| {
        reported.insert(entry.slot().0, entry.value().to_vec());
        ControlFlow::Continue(())
    });
    done.map_err(|error| format!("iterating: {error:?}"))?;
    let committed = state.slots.iter().filter(|(_, slot)| slot.committed);
    let committed: BTreeMap<u64, Vec<u8>> =
        committed.map(|(slot, there)| (*slot, there.value.clone())).collect();
    if committed != reported {
        let (one, other): (Vec<_>, Vec<_>) =
            (committed.keys().collect(), reported.keys().collect());
        return Err(format!("slots {one:?} are read as committed, and {other:?} are reported"));
    }
    let open = log
        .maintenance()
        .scan_uncommitted(&guard)
        .map_err(|error| format!("scanning: {error:?}"))?;
    let open: Vec<_> = open.iter().map(|e| (e.slot().0, e.ballot(), e.value().to_vec())).collect();
    let read = state.slots.iter().filter(|(_, slot)| !slot.committed);
    let read: Vec<_> = read.map(|(n, slot)| (*n, slot.ballot, slot.value.clone())).collect();
    if open != read {
        return Err(format!("{} slots are scanned, and {} read", open.len(), read.len()));
    }
    Ok(LogContent { state, unreadable })
}

impl LogContent {
    /// Whether a log in that state may report this. `unreadable` slots may hold anything
    /// that is there.
    pub fn may_be(&self, state: &State) -> bool {
        let seen = &self.state;
        (seen.promise, seen.start, seen.next) == (state.promise, state.start, state.next)
            && self.unreadable.keys().all(|slot| state.slots.contains_key(slot))
            && state
                .slots
                .iter()
                .all(|(n, slot)| self.unreadable.contains_key(n) || seen.slots.get(n) == Some(slot))
            && seen.slots.keys().all(|n| state.slots.contains_key(n))
    }

    /// The first difference, for a message.
    pub fn differs(&self, state: &State) -> String {
        let seen = &self.state;
        let (one, other) =
            ((seen.promise, seen.start, seen.next), (state.promise, state.start, state.next));
        if one != other {
            return format!("promise, start, next are {one:?}, and were {other:?}");
        }
        let brief = |slot: Option<&SlotState>| {
            slot.map(|slot| (slot.ballot, slot.value.len(), slot.committed))
        };
        let all = state.slots.keys().chain(seen.slots.keys());
        let mut other = all.filter(|n| seen.slots.get(n) != state.slots.get(n));
        let other = other.find(|n| !self.unreadable.contains_key(n));
        other.map_or_else(
            || "a slot that is none cannot be read".into(),
            |n| {
                let (is, was) = (brief(seen.slots.get(n)), brief(state.slots.get(n)));
                format!("slot {n} is {is:?}, and was {was:?}")
            },
        )
    }
}

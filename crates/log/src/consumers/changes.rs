//! Changes that wait for each other: one thread writes for all that came while another wrote.

use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::offsets::{CONSUMERS_MAX, Offsets};
use crate::base::error::{Error, Result};
use crate::base::position::Seq;

/// A change of one offset, or of several together.
#[derive(Debug)]
pub(super) enum Change {
    One {
        name: String,
        /// The offset that is expected, if one is.
        expected: Option<Option<Seq>>,
        /// The new offset; `None` removes the consumer.
        offset: Option<Seq>,
    },
    /// Sets all of these, or none.
    All(Offsets),
}

impl Change {
    /// Makes the change. Returns the offset before, of a change of one.
    pub(super) fn apply(&self, offsets: &mut Offsets) -> Result<Option<Seq>> {
        match self {
            Change::One { name, expected, offset } => apply_one(offsets, name, *expected, *offset),
            Change::All(all) => apply_all(offsets, all).map(|()| None),
        }
    }
}

fn apply_one(
    offsets: &mut Offsets,
    name: &str,
    expected: Option<Option<Seq>>,
    offset: Option<Seq>,
) -> Result<Option<Seq>> {
    let found = offsets.get(name).copied();
    if expected.is_some_and(|expected| expected != found) {
        return Err(Error::OffsetChanged { name: name.into(), found });
    }
    match offset {
        None => offsets.remove(name),
        Some(_) if found.is_none() && offsets.len() >= CONSUMERS_MAX => {
            return Err(Error::TooManyConsumers { limit: CONSUMERS_MAX });
        }
        Some(offset) => offsets.insert(name.into(), offset),
    };
    Ok(found)
}

fn apply_all(offsets: &mut Offsets, all: &Offsets) -> Result<()> {
    let added = all.keys().filter(|&name| !offsets.contains_key(name)).count();
    if offsets.len() + added > CONSUMERS_MAX {
        return Err(Error::TooManyConsumers { limit: CONSUMERS_MAX });
    }
    for (name, offset) in all {
        match offsets.get_mut(name) {
            Some(found) => *found = *offset,
            None => drop(offsets.insert(name.clone(), *offset)),
        }
    }
    Ok(())
}

#[derive(Debug)]
struct WaitingChange {
    change: Change,
    outcome: OnceLock<Result<Option<Seq>>>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Arc<WaitingChange>>,
    writing: bool,
}

/// The changes that wait.
#[derive(Debug, Default)]
pub(super) struct Changes {
    state: Mutex<State>,
    written: Condvar,
}

impl Changes {
    /// Makes a change, by `write` of all changes that wait, on this thread or another.
    pub(super) fn make(
        &self,
        change: Change,
        write: impl FnOnce(&[&Change]) -> Result<Vec<Result<Option<Seq>>>>,
    ) -> Result<Option<Seq>> {
        let mine = Arc::new(WaitingChange { change, outcome: OnceLock::new() });
        let mut state = self.state.lock();
        state.waiting.push(Arc::clone(&mine));
        while state.writing && mine.outcome.get().is_none() {
            self.written.wait(&mut state);
        }
        if let Some(outcome) = mine.outcome.get() {
            return outcome.clone();
        }
        state.writing = true;
        let all = std::mem::take(&mut state.waiting);
        let outcomes = MutexGuard::unlocked(&mut state, || {
            let changes: Vec<_> = all.iter().map(|waiting| &waiting.change).collect();
            write(&changes)
        });
        state.writing = false;
        for (n, waiting) in all.iter().enumerate() {
            let outcome = match &outcomes {
                Ok(outcomes) => outcomes[n].clone(),
                Err(error) => Err(error.clone()),
            };
            let first = waiting.outcome.set(outcome).is_ok();
            debug_assert!(first, "a change is made once");
        }
        self.written.notify_all();
        mine.outcome.get().cloned().unwrap_or(Err(Error::Stopped))
    }
}

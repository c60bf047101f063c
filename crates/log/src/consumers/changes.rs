//! Changes that wait for each other: one thread writes for all that came while another wrote.

use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::offsets::{CONSUMERS_MAX, Offsets};
use crate::base::error::{Error, Result};
use crate::base::position::Seq;

/// A change of one offset.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) name: String,
    /// What the offset must be, if it must be anything.
    pub(super) expected: Option<Option<Seq>>,
    /// What it becomes; `None` removes it.
    pub(super) offset: Option<Seq>,
}

impl Change {
    /// Makes the change. Returns the offset before.
    pub(super) fn apply(&self, offsets: &mut Offsets) -> Result<Option<Seq>> {
        let found = offsets.get(&self.name).copied();
        if self.expected.is_some_and(|expected| expected != found) {
            return Err(Error::OffsetChanged { name: self.name.clone(), found });
        }
        match self.offset {
            None => offsets.remove(&self.name),
            Some(_) if found.is_none() && offsets.len() >= CONSUMERS_MAX => {
                return Err(Error::TooManyConsumers { limit: CONSUMERS_MAX });
            }
            Some(offset) => offsets.insert(self.name.clone(), offset),
        };
        Ok(found)
    }
}

#[derive(Debug)]
struct Waiting {
    change: Change,
    outcome: OnceLock<Result<Option<Seq>>>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Arc<Waiting>>,
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
        let mine = Arc::new(Waiting { change, outcome: OnceLock::new() });
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

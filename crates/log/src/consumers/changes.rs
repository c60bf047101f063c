//! Changes that wait for each other: one thread writes for all that came while another wrote.

use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex};

use super::offsets::{CONSUMERS_MAX, Offsets};
use crate::base::error::{Error, Result};
use crate::base::log_error::LogError;
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
    /// The invariant that does not hold, if there is one. No change is made any more.
    broken: Option<&'static str>,
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
        while state.writing && mine.outcome.get().is_none() && state.broken.is_none() {
            self.written.wait(&mut state);
        }
        if let Some(outcome) = mine.outcome.get() {
            return outcome.clone();
        }
        if let Some(invariant) = state.broken {
            return Err(Error::Internal { invariant });
        }
        state.writing = true;
        let all = std::mem::take(&mut state.waiting);
        drop(state);
        let writing = WritingGuard(self);
        self.write_all(&all, write);
        drop(writing);
        mine.outcome
            .get()
            .cloned()
            .unwrap_or_else(|| Err(self.broken("a change waits until a thread writes it")))
    }

    /// Writes these changes, and gives each its outcome.
    fn write_all(
        &self,
        all: &[Arc<WaitingChange>],
        write: impl FnOnce(&[&Change]) -> Result<Vec<Result<Option<Seq>>>>,
    ) {
        let changes: Vec<_> = all.iter().map(|waiting| &waiting.change).collect();
        let outcomes = write(&changes).and_then(|outcomes| match outcomes.len() == all.len() {
            true => Ok(outcomes),
            false => Err(self.broken("a write has an outcome for each of its changes")),
        });
        for (n, waiting) in all.iter().enumerate() {
            let outcome = match &outcomes {
                Ok(outcomes) => outcomes[n].clone(),
                Err(error) => Err(error.clone()),
            };
            let first = waiting.outcome.set(outcome).is_ok();
            debug_assert!(first, "a change is made once");
        }
    }

    /// Ends all changes because this does not hold. Panics in debug builds.
    #[cold]
    fn broken(&self, invariant: &'static str) -> Error {
        self.state.lock().broken.get_or_insert(invariant);
        LogError::broken(invariant).into()
    }
}

/// Held by the thread that writes. The others wait for it, also where it panics.
struct WritingGuard<'a>(&'a Changes);

impl Drop for WritingGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.writing = false;
        if std::thread::panicking() && state.broken.is_none() {
            let invariant = "a write of the offsets of consumers does not panic";
            tracing::error!(invariant, "an invariant of the log does not hold");
            state.broken = Some(invariant);
        }
        drop(state);
        self.0.written.notify_all();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    fn change() -> Change {
        Change::One { name: "billing".into(), expected: None, offset: Some(Seq(7)) }
    }

    fn is_internal(outcome: Result<Option<Seq>>) -> bool {
        matches!(outcome, Err(Error::Internal { .. }))
    }

    /// Guards against "stopped", which says that an engine ended.
    #[test]
    fn a_change_without_an_outcome_ends_all_changes() {
        let changes = Changes::default();
        let made = catch_unwind(AssertUnwindSafe(|| changes.make(change(), |_| Ok(Vec::new()))));
        assert_eq!(made.is_err(), cfg!(debug_assertions), "a broken invariant panics");
        assert!(made.is_ok_and(is_internal) || cfg!(debug_assertions));
        let again =
            changes.make(change(), |changes| Ok(changes.iter().map(|_| Ok(None)).collect()));
        assert!(is_internal(again));
    }

    /// Guards against threads that wait for ever for one that is gone.
    #[test]
    fn a_panic_of_the_thread_that_writes_ends_the_wait_of_the_others() {
        let changes = Changes::default();
        let (entered, enters) = mpsc::channel();
        let (ended, ends) = mpsc::channel();
        std::thread::scope(|threads| {
            let changes = &changes;
            threads.spawn(move || {
                let write = |_: &[&Change]| -> Result<Vec<Result<Option<Seq>>>> {
                    entered.send(()).unwrap();
                    while changes.state.lock().waiting.is_empty() {
                        std::thread::yield_now();
                    }
                    panic!("on purpose");
                };
                let made = catch_unwind(AssertUnwindSafe(|| changes.make(change(), write)));
                assert!(made.is_err());
            });
            enters.recv().unwrap();
            threads.spawn(move || ended.send(changes.make(change(), |_| Ok(vec![Ok(None)]))));
            let outcome = ends.recv_timeout(Duration::from_secs(60));
            if outcome.is_err() {
                // Lets the test end.
                changes.state.lock().writing = false;
                changes.written.notify_all();
            }
            assert!(is_internal(outcome.unwrap()));
        });
    }
}

//! A model of epochs for the model checker: deferred work runs when no guard is held.
//!
//! Real epochs run it earlier, when every guard held at the time of the deferral is gone. The model
//! still checks whether a cell waits at all, and whether a reader sees the complete value.

use crate::sync::FairMutex;

type Deferred = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct GuardState {
    guards: usize,
    deferred: Vec<Deferred>,
}

loom::lazy_static! {
    static ref GUARD_STATE: FairMutex<GuardState> = FairMutex::new(GuardState::default());
}

pub(crate) struct Guard(());

pub(crate) fn pin() -> Guard {
    GUARD_STATE.lock().guards += 1;
    Guard(())
}

impl Guard {
    pub(crate) fn defer(&self, then: impl FnOnce() + Send + 'static) {
        GUARD_STATE.lock().deferred.push(Box::new(then));
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut state = GUARD_STATE.lock();
        state.guards -= 1;
        let due = if state.guards == 0 { std::mem::take(&mut state.deferred) } else { Vec::new() };
        drop(state);
        due.into_iter().for_each(|then| then());
    }
}

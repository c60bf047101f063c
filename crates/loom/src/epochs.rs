//! Epochs as a cell needs them, for the model checker: what is deferred runs when no guard is held.
//!
//! The real ones run it sooner, when every guard that was held *then* is gone. What this leaves to be
//! seen is whether a cell waits at all, and whether a reader sees all of what it finds.

use crate::sync::FairMutex;

type Deferred = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Held {
    guards: usize,
    deferred: Vec<Deferred>,
}

loom::lazy_static! {
    static ref HELD: FairMutex<Held> = FairMutex::new(Held::default());
}

pub(crate) struct Guard(());

pub(crate) fn pin() -> Guard {
    HELD.lock().guards += 1;
    Guard(())
}

impl Guard {
    pub(crate) fn defer(&self, then: impl FnOnce() + Send + 'static) {
        HELD.lock().deferred.push(Box::new(then));
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut held = HELD.lock();
        held.guards -= 1;
        let due = if held.guards == 0 { std::mem::take(&mut held.deferred) } else { Vec::new() };
        drop(held);
        due.into_iter().for_each(|then| then());
    }
}

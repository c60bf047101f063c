//! Holding an operation in flight until a test lets it go.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a held operation looks whether its power is still on.
const LOOK: Duration = Duration::from_millis(5);

/// A gate that starts closed. Clones are the same gate.
///
/// Operations held at it go on when it is opened, and fail when the power goes.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<(Mutex<Held>, Condvar)>);

#[derive(Debug, Default)]
struct Held {
    open: bool,
    waiting: usize,
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets through everything that waits and everything that comes.
    pub fn open(&self) {
        self.held().open = true;
        self.0.1.notify_all();
    }

    /// Holds what comes from now on.
    pub fn close(&self) {
        self.held().open = false;
    }

    /// The number of operations held at this moment.
    pub fn waiting(&self) -> usize {
        self.held().waiting
    }

    /// Waits until `count` operations are held, `limit` at most, and says whether it came to that.
    pub fn wait_for(&self, count: usize, limit: Duration) -> bool {
        let held = self.held();
        let fewer = |held: &mut Held| held.waiting < count;
        let (held, _) =
            self.0.1.wait_timeout_while(held, limit, fewer).unwrap_or_else(PoisonError::into_inner);
        held.waiting >= count
    }

    /// Waits until the gate is open or `alive` says no.
    pub(crate) fn pass(&self, alive: impl Fn() -> bool) {
        let mut held = self.held();
        held.waiting += 1;
        self.0.1.notify_all();
        while !held.open {
            let (next, _) =
                self.0.1.wait_timeout(held, LOOK).unwrap_or_else(PoisonError::into_inner);
            drop(next);
            let alive = alive();
            held = self.held();
            if !alive {
                break;
            }
        }
        held.waiting -= 1;
        self.0.1.notify_all();
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

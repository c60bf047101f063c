//! Gates that hold an operation in flight until the test releases it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a held operation checks whether the power is still on.
const POWER_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// A gate that starts closed. Clones share the same gate.
///
/// Operations held at it continue when it is opened, and fail when the power is cut.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<(Mutex<GateState>, Condvar)>);

#[derive(Debug, Default)]
struct GateState {
    open: bool,
    waiting: usize,
}

impl Gate {
    /// Creates a closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Releases all held operations and lets later ones pass.
    pub fn open(&self) {
        self.lock().open = true;
        self.0.1.notify_all();
    }

    /// Holds all operations that arrive from now on.
    pub fn close(&self) {
        self.lock().open = false;
    }

    /// Returns the number of operations held now.
    pub fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// Waits until `count` operations are held, at most `limit`. Returns whether that happened.
    pub fn wait_for(&self, count: usize, limit: Duration) -> bool {
        let state = self.lock();
        let fewer = |state: &mut GateState| state.waiting < count;
        let (state, _) = self
            .0
            .1
            .wait_timeout_while(state, limit, fewer)
            .unwrap_or_else(PoisonError::into_inner);
        state.waiting >= count
    }

    /// Waits until the gate is open or `alive` returns `false`.
    pub(crate) fn pass(&self, alive: impl Fn() -> bool) {
        let mut state = self.lock();
        state.waiting += 1;
        self.0.1.notify_all();
        while !state.open {
            let (next, _) = self
                .0
                .1
                .wait_timeout(state, POWER_CHECK_INTERVAL)
                .unwrap_or_else(PoisonError::into_inner);
            drop(next);
            let alive = alive();
            state = self.lock();
            if !alive {
                break;
            }
        }
        state.waiting -= 1;
        self.0.1.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Panics of the tasks of a node. A node that continues without one of them may lead and do
//! nothing, so it stops: see `node/start.rs`.

use std::cell::RefCell;
use std::future::Future;
use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

thread_local! {
    static CURRENT_MONITOR: RefCell<Option<PanicMonitor>> = const { RefCell::new(None) };
}

/// The first panic of a task on the threads of a node. Clones are handles of one monitor.
#[derive(Debug, Clone, Default)]
pub(crate) struct PanicMonitor(Arc<FirstPanic>);

#[derive(Debug, Default)]
struct FirstPanic {
    task: OnceLock<&'static str>,
    recorded: Notify,
}

impl PanicMonitor {
    /// Records the panics of tasks on this thread from now on.
    pub(crate) fn set_for_thread(&self) {
        CURRENT_MONITOR.set(Some(self.clone()));
    }

    /// Waits until a task has panicked, and returns its name. One task at a time may wait.
    pub(crate) async fn wait_for_panic(&self) -> &'static str {
        loop {
            if let Some(task) = self.0.task.get() {
                return task;
            }
            self.0.recorded.notified().await;
        }
    }
}

/// Runs a task of a node, and records its panic. `task` is its name in a message.
pub(crate) async fn monitored<F: Future>(task: &'static str, future: F) -> F::Output {
    let _guard = PanicGuard(task);
    future.await
}

/// Records a panic when it is dropped by one.
struct PanicGuard(&'static str);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        // A thread that ends has no monitor any more.
        let monitor = CURRENT_MONITOR.try_with(|monitor| monitor.borrow().clone());
        if let Some(PanicMonitor(first)) = monitor.ok().flatten() {
            // The first panic is the reason.
            let _ = first.task.set(self.0);
            first.recorded.notify_one();
        }
    }
}

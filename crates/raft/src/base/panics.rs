//! Panics of the tasks of a node. A node that continues without one of them may lead and do
//! nothing, so it stops: see `node/start.rs`.

use std::cell::RefCell;
use std::future::Future;
use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

thread_local! {
    static PANICS: RefCell<Option<Panics>> = const { RefCell::new(None) };
}

/// The first panic of a task on the threads of a node. Clones are handles of one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Panics(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    task: OnceLock<&'static str>,
    is_noted: Notify,
}

impl Panics {
    /// Tasks that panic on this thread are noted here.
    pub(crate) fn on_this_thread(&self) {
        PANICS.set(Some(self.clone()));
    }

    /// Waits until a task has panicked, and returns its name. One task at a time may.
    pub(crate) async fn first(&self) -> &'static str {
        loop {
            if let Some(task) = self.0.task.get() {
                return task;
            }
            self.0.is_noted.notified().await;
        }
    }
}

/// Runs a task of a node, which notes if it panics. `task` is its name in a message.
pub(crate) async fn noted<F: Future>(task: &'static str, future: F) -> F::Output {
    let _note = NoteOfPanic(task);
    future.await
}

/// Dropped when its task ends.
struct NoteOfPanic(&'static str);

impl Drop for NoteOfPanic {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        // A thread that ends has none.
        let noted = PANICS.try_with(|panics| panics.borrow().clone());
        if let Some(Panics(shared)) = noted.ok().flatten() {
            // The first is the reason.
            let _ = shared.task.set(self.0);
            shared.is_noted.notify_one();
        }
    }
}

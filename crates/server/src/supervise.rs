//! Tasks that run for as long as the node does: the first that ends stops it.
//!
//! A node whose task has ended, in a panic or not, would go on without what that task does: lead
//! and issue nothing, or never notice that its disk stalls. So it stops, and whatever started it
//! starts it again.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::error::ServerError;

/// Why the node may not go on.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// Its data is not for this process: see [`ServerError::OtherData`].
    OtherData(String),
    /// One of its tasks has ended, and how.
    Task(String),
}

impl From<Failure> for ServerError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::OtherData(why) => Self::OtherData(why),
            Failure::Task(why) => Self::Stopped(why),
        }
    }
}

/// Learns of the first task that ends. Clones are handles of one.
#[derive(Debug, Clone)]
pub(crate) struct Supervisor {
    /// How many ended.
    count: Arc<AtomicU64>,
    /// Whether the node stops: then tasks may end.
    stop: watch::Receiver<bool>,
    failure: Arc<watch::Sender<Option<Failure>>>,
}

impl Supervisor {
    pub(crate) fn new(count: Arc<AtomicU64>, stop: watch::Receiver<bool>) -> Self {
        Self { count, stop, failure: Arc::new(watch::Sender::new(None)) }
    }

    /// The task, whose end before the node stops is reported under this name.
    pub(crate) fn watch<T: Future<Output = ()> + Send>(
        &self,
        name: &'static str,
        task: T,
    ) -> impl Future<Output = ()> + Send + use<T> {
        let supervisor = self.clone();
        async move {
            let how = match AssertUnwindSafe(task).catch_unwind().await {
                Ok(()) if supervisor.is_stopping() => return,
                Ok(()) => "ended".to_owned(),
                Err(panic) => format!("panicked: {}", message(&*panic)),
            };
            supervisor.count.fetch_add(1, Relaxed);
            tracing::error!(task = name, how, "a task of the node ended; the node stops");
            supervisor.fail(Failure::Task(format!("its task \"{name}\" {how}")));
        }
    }

    /// The node may not go on. The first reason counts.
    pub(crate) fn fail(&self, failure: Failure) {
        self.failure.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert(failure);
            is_first
        });
    }

    /// Whether tasks may end: the node stops, was dropped, or may not go on.
    fn is_stopping(&self) -> bool {
        let is_stopped = *self.stop.borrow() || self.stop.has_changed().is_err();
        is_stopped || self.failure.borrow().is_some()
    }

    /// Waits until the node may not go on. Cancel safe.
    pub(crate) async fn failed(&self) -> Failure {
        let mut failure = self.failure.subscribe();
        match failure.wait_for(Option::is_some).await.map(|why| why.clone()) {
            Ok(Some(why)) => why,
            // The sender is in `self`.
            _ => std::future::pending().await,
        }
    }
}

/// The tasks that run beside the requests. Dropping them ends them.
#[derive(Debug)]
pub(crate) struct Tasks {
    tasks: JoinSet<()>,
    pub(crate) supervisor: Supervisor,
}

impl Tasks {
    pub(crate) fn new(supervisor: Supervisor) -> Self {
        Self { tasks: JoinSet::new(), supervisor }
    }

    /// Starts a task of this name, on the tokio runtime that this is called from.
    pub(crate) fn spawn(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.tasks.spawn(self.supervisor.watch(name, task));
    }

    /// Ends all of them.
    pub(crate) async fn shutdown(mut self) {
        self.tasks.shutdown().await;
    }
}

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref().copied()).unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]

    use super::*;

    fn tasks() -> (Tasks, watch::Sender<bool>, Arc<AtomicU64>) {
        let (stop, stopping) = watch::channel(false);
        let count = Arc::default();
        (Tasks::new(Supervisor::new(Arc::clone(&count), stopping)), stop, count)
    }

    async fn why(tasks: &Tasks) -> String {
        ServerError::from(tasks.supervisor.failed().await).to_string()
    }

    /// A node went on without a task that had panicked, and without one that had ended.
    #[tokio::test]
    async fn the_first_task_that_ends_is_the_reason() {
        let (mut tasks, _stop, count) = tasks();
        tasks.spawn("last", std::future::pending());
        tasks.spawn("break", async { panic!("as a bug would") });
        let reason = "the node stopped: its task \"break\" panicked: as a bug would";
        assert_eq!(why(&tasks).await, reason);
        tasks.supervisor.watch("end", async {}).await;
        assert_eq!((why(&tasks).await.as_str(), count.load(Relaxed)), (reason, 1));
        let (tasks, _stop, count) = self::tasks();
        tasks.supervisor.watch("end", async {}).await;
        assert_eq!(why(&tasks).await, "the node stopped: its task \"end\" ended");
        assert_eq!(count.load(Relaxed), 1);
        let number = 7;
        tasks.supervisor.watch("break", async { panic!("{number}") }).await;
        assert_eq!(count.load(Relaxed), 2);
    }

    #[tokio::test]
    async fn tasks_end_with_the_node() {
        let (tasks, stop, count) = tasks();
        stop.send_replace(true);
        tasks.supervisor.watch("end", async {}).await;
        drop(stop);
        tasks.supervisor.watch("end", async {}).await;
        assert_eq!(count.load(Relaxed), 0);
        tasks.shutdown().await;
    }
}

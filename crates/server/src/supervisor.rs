//! Supervision of the tasks that run for as long as the node does: the first one that ends stops
//! the node, and so does the first broken invariant.
//!
//! A node whose task has ended, in a panic or not, would run on without the work of that task: it
//! would lead and issue nothing, or never notice that its disk stalls. So it stops, and the service
//! manager starts it again.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::error::{BrokenInvariant, ServerError};

/// The reason why the node has to stop.
#[derive(Debug, Clone)]
pub(crate) enum NodeFailure {
    /// The data is not for this process: see [`ServerError::DataMismatch`].
    DataMismatch(String),
    /// A supervised task ended; the text has its name and how it ended.
    Task(String),
    /// An invariant of the node does not hold.
    Internal { invariant: &'static str },
}

impl From<NodeFailure> for ServerError {
    fn from(failure: NodeFailure) -> Self {
        match failure {
            NodeFailure::DataMismatch(why) => Self::DataMismatch(why),
            NodeFailure::Task(why) => Self::Stopped(why),
            NodeFailure::Internal { invariant } => Self::Internal { invariant },
        }
    }
}

/// The first failure of a node, which stops it. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct FailureSignal(Arc<watch::Sender<Option<NodeFailure>>>);

impl Default for FailureSignal {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl FailureSignal {
    /// Stops the node because of this failure. Returns whether it is the first; later ones are
    /// dropped.
    pub(crate) fn set(&self, failure: NodeFailure) -> bool {
        self.0.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert(failure);
            is_first
        })
    }

    /// Stops the node because an invariant does not hold.
    ///
    /// # Panics
    /// In debug builds, when the failure is recorded and logged.
    #[track_caller]
    pub(crate) fn report_broken(&self, BrokenInvariant(invariant): BrokenInvariant) {
        if self.set(NodeFailure::Internal { invariant }) {
            tracing::error!(invariant, "an invariant of the node does not hold; the node stops");
        }
        debug_assert!(false, "broken invariant: {invariant}");
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Waits for the first failure. Cancel safe.
    pub(crate) async fn wait(&self) -> NodeFailure {
        let mut failure = self.0.subscribe();
        match failure.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(failure)) => failure.clone(),
            // The sender is in `self`.
            _ => {
                let invariant = "a failure signal outlives its waiters";
                self.report_broken(BrokenInvariant(invariant));
                NodeFailure::Internal { invariant }
            }
        }
    }
}

/// Stops the node when a task ends that should not. Clones are handles of one.
#[derive(Debug, Clone)]
pub(crate) struct Supervisor {
    /// The number of tasks that ended, a metric.
    failed_tasks: Arc<AtomicU64>,
    /// Whether the node stops: then tasks may end.
    stop: watch::Receiver<bool>,
    failures: FailureSignal,
}

impl Supervisor {
    pub(crate) fn new(
        failed_tasks: Arc<AtomicU64>,
        stop: watch::Receiver<bool>,
        failures: FailureSignal,
    ) -> Self {
        Self { failed_tasks, stop, failures }
    }

    /// Wraps a task: if it ends before the node stops, the node fails and names it.
    pub(crate) fn watch<T: Future<Output = ()> + Send>(
        &self,
        name: &'static str,
        task: T,
    ) -> impl Future<Output = ()> + Send + use<T> {
        let supervisor = self.clone();
        async move {
            let how = match AssertUnwindSafe(task).catch_unwind().await {
                Ok(()) if supervisor.may_tasks_end() => return,
                Ok(()) => "ended".to_owned(),
                Err(panic) => format!("panicked: {}", panic_message(&*panic)),
            };
            supervisor.failed_tasks.fetch_add(1, Relaxed);
            tracing::error!(task = name, how, "a task of the node ended; the node stops");
            supervisor.fail(NodeFailure::Task(format!("its task \"{name}\" {how}")));
        }
    }

    /// Stops the node. The first failure counts.
    pub(crate) fn fail(&self, failure: NodeFailure) {
        self.failures.set(failure);
    }

    /// Whether tasks may end: the node stops, was dropped, or has failed.
    fn may_tasks_end(&self) -> bool {
        let is_stopped = *self.stop.borrow() || self.stop.has_changed().is_err();
        is_stopped || self.failures.is_set()
    }

    /// Waits for the first failure. Cancel safe.
    pub(crate) async fn failed(&self) -> NodeFailure {
        self.failures.wait().await
    }
}

/// The tasks that run beside the requests. Dropping them ends them.
#[derive(Debug)]
pub(crate) struct Tasks {
    tasks: JoinSet<()>,
    supervisor: Supervisor,
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

    /// Waits for the first failure of the node. Cancel safe.
    pub(crate) async fn failed(&self) -> NodeFailure {
        self.supervisor.failed().await
    }

    /// Ends all tasks.
    pub(crate) async fn shutdown(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Returns the message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> &str {
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
        (
            Tasks::new(Supervisor::new(Arc::clone(&count), stopping, FailureSignal::default())),
            stop,
            count,
        )
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

    /// The first failure is the one that is reported.
    #[tokio::test]
    async fn a_broken_invariant_stops_the_node() {
        let (tasks, _stop, _count) = tasks();
        let failures = &tasks.supervisor.failures;
        assert!(failures.set(NodeFailure::Internal { invariant: "two is two" }));
        assert!(!failures.set(NodeFailure::DataMismatch("later".into())));
        let failure = ServerError::from(tasks.failed().await);
        assert!(matches!(failure, ServerError::Internal { invariant: "two is two" }));
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "broken invariant: two is two"))]
    fn a_broken_invariant_panics_in_debug_builds() {
        let failures = FailureSignal::default();
        failures.report_broken(BrokenInvariant("two is two"));
        assert!(failures.is_set());
    }
}

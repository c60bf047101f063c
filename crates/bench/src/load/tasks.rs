//! Callers that are async tasks.

use std::io;
use std::sync::{Arc, OnceLock};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::Barrier;

use crate::load::slice::SliceStart;

/// Threads that run the async callers.
pub const WORKER_THREADS: usize = 2;

/// Creates the runtime of async callers.
///
/// # Errors
/// The system started no thread.
pub fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread().enable_time().worker_threads(WORKER_THREADS).build()
}

/// Runs each caller as a task of its own. All start to work at the same time. Returns the start,
/// and what `work` returned, in the order of the callers.
///
/// # Panics
/// If a caller panics.
pub fn run<C, F>(
    runtime: &Runtime,
    callers: impl ExactSizeIterator<Item = C>,
    work: impl Fn(C, SliceStart) -> F + Send + Sync + 'static,
) -> (SliceStart, Vec<F::Output>)
where
    C: Send + 'static,
    F: Future + Send,
    F::Output: Send + 'static,
{
    let parties = callers.len() + 1;
    let shared = Arc::new((Barrier::new(parties), Barrier::new(parties), OnceLock::new(), work));
    let tasks: Vec<_> = callers
        .map(|caller| {
            let shared = Arc::clone(&shared);
            runtime.spawn(async move {
                let (ready, go, start, work) = &*shared;
                ready.wait().await;
                go.wait().await;
                work(caller, *start.get_or_init(SliceStart::now)).await
            })
        })
        .collect();
    runtime.block_on(async {
        let (ready, go, start, _) = &*shared;
        ready.wait().await;
        let start = *start.get_or_init(SliceStart::now);
        go.wait().await;
        let mut results = Vec::with_capacity(tasks.len());
        for task in tasks {
            let ended = task.await;
            results
                .push(ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())));
        }
        (start, results)
    })
}

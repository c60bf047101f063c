//! Callers that are async tasks, on two threads.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Barrier;

use crate::callers::{Clock, Member, Until};

/// Threads that run the async callers.
const WORKERS: usize = 2;

/// A log whose appends are awaited.
pub trait Awaited: Clone + Send + Sync + 'static {
    /// Appends a record; it is durable when this returns.
    fn append(&self, record: &[u8]) -> impl Future<Output = Result<()>> + Send;

    /// Appends what the caller has next, in one call: a record, or a batch.
    fn append_next(&self, member: &mut Member) -> impl Future<Output = Result<()>> + Send {
        async { self.append(member.next()).await }
    }
}

/// What runs them.
pub fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(WORKERS).build()?)
}

/// Lets every caller work as a task of its own; how long they took.
pub fn run_tasks(
    log: &impl Awaited,
    runtime: &Runtime,
    members: &mut Vec<Member>,
    until: Until,
) -> Result<Duration> {
    let doors = members.len() + 1;
    let (ready, go) = (Arc::new(Barrier::new(doors)), Arc::new(Barrier::new(doors)));
    let begin = Arc::new(OnceLock::new());
    let mut tasks = Vec::with_capacity(members.len());
    for mut member in members.drain(..) {
        let (log, begin) = (log.clone(), Arc::clone(&begin));
        let (ready, go) = (Arc::clone(&ready), Arc::clone(&go));
        tasks.push(runtime.spawn(async move {
            ready.wait().await;
            go.wait().await;
            let mut clock = Clock::start(*begin.get_or_init(Instant::now), until);
            loop {
                log.append_next(&mut member).await?;
                if clock.is_over(&mut member.times) {
                    return anyhow::Ok(member);
                }
            }
        }));
    }
    runtime.block_on(async {
        ready.wait().await;
        let begin = *begin.get_or_init(Instant::now);
        go.wait().await;
        for task in tasks {
            members.push(task.await??);
        }
        Ok(begin.elapsed())
    })
}

//! Logs whose appends are awaited, by callers that are async tasks.

use std::time::Duration;

use anyhow::Result;
use esker_bench::load::slice::{SliceStart, Until};
use esker_bench::load::tasks;
use esker_bench::measure::call_clock::CallClock;
use esker_bench::measure::per_thread::PerThread;
use tokio::runtime::Runtime;

use crate::callers::Member;

/// A log whose appends are awaited.
pub trait AwaitedLog: Clone + Send + Sync + 'static {
    /// Appends a record; it is durable when this returns.
    fn append(&self, record: &[u8]) -> impl Future<Output = Result<()>> + Send;

    /// Appends what the caller has next, in one call: a record, or a batch.
    fn append_next(&self, member: &mut Member) -> impl Future<Output = Result<()>> + Send {
        async { self.append(member.next()).await }
    }
}

/// Lets every caller work as a task of its own. Returns how long they took.
pub fn run_tasks(
    log: &impl AwaitedLog,
    runtime: &Runtime,
    members: &mut Vec<Member>,
    until: Until,
    times: &PerThread,
) -> Result<Duration> {
    let (log, times) = (log.clone(), times.clone());
    let work = move |mut member: Member, start: SliceStart| {
        let (log, times) = (log.clone(), times.clone());
        async move {
            let (limit, deadline) = until.limits(start.begin);
            let mut clock = CallClock::with_deadline(1, deadline);
            for _ in 0..limit {
                log.append_next(&mut member).await?;
                if clock.is_over(|time| times.add(time)) {
                    break;
                }
            }
            anyhow::Ok(member)
        }
    };
    let (start, ended) = tasks::run(runtime, std::mem::take(members).into_iter(), work);
    let took = start.begin.elapsed();
    *members = ended.into_iter().collect::<Result<_>>()?;
    Ok(took)
}

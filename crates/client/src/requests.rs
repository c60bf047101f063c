//! The client's thread, and the requests that it sends, each for the callers of one batch.

use std::io;
use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};

use crate::error::Error;
use crate::leader::{Ended, Leader};
use crate::queue::{LANES, Queue, Taken};

/// The most names of hosts that are looked up at a time. The system may take long for one.
const LOOKUPS_MAX: usize = 16;

/// The state that the handles of a client and its thread share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) queue: Queue,
    pub(crate) leader: Leader,
}

/// The callers get an error, also if the thread that would answer them ends in a panic.
struct CloseOnDrop(Arc<Shared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.queue.close();
    }
}

/// Starts the thread, which ends when the queue is closed. A runtime of the caller may lack timers,
/// or may not be driven while a call waits; then neither answers nor deadlines would reach it.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<()> {
    let (started, starting) = std::sync::mpsc::sync_channel(1);
    let shared = Arc::clone(shared);
    std::thread::Builder::new().name("esker-client".into()).spawn(move || {
        let mut builder = Builder::new_current_thread();
        match builder.enable_all().max_blocking_threads(LOOKUPS_MAX).build() {
            Ok(runtime) => {
                drop(started.send(Ok(())));
                serve(runtime, &shared);
            }
            Err(error) => drop(started.send(Err(error))),
        }
    })?;
    starting.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
}

fn serve(runtime: Runtime, shared: &Arc<Shared>) {
    for lane in 0..LANES {
        runtime.spawn(run(Arc::clone(shared), lane));
    }
    runtime.block_on(expire(Arc::clone(shared)));
    // Lookups are not waited for.
    runtime.shutdown_background();
}

/// Sends one request after the other, until the queue is closed.
async fn run(shared: Arc<Shared>, lane: usize) {
    let shared = CloseOnDrop(shared);
    let Shared { queue, leader } = &*shared.0;
    while let Some(taken) = queue.take(lane).await {
        let ended = answer(leader, &taken).await;
        queue.finish(taken, ended);
    }
}

/// Wakes callers whose deadline passes, until the queue is closed.
async fn expire(shared: Arc<Shared>) {
    let shared = CloseOnDrop(shared);
    shared.0.queue.expire().await;
}

/// Asks until there is an answer, or no caller waits for one any longer. Deadlines of callers do
/// not interrupt an attempt, which has bounds of its own: a deadline that is shorter than the wait
/// before the next attempt, or than connecting, would start it over with each call.
async fn answer(leader: &Leader, taken: &Taken) -> Ended {
    loop {
        if let Some(ended) = leader.ask(taken.count).await {
            return ended;
        }
        if taken.is_abandoned() {
            return Err(Error::Deadline { last: leader.last() });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::task::{Context, Poll, Waker};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::address::Address;
    use crate::call::Call;

    /// Callers are not left waiting for ever.
    #[test]
    fn calls_of_a_client_whose_thread_ended_fail() {
        let endpoint = Address::of_endpoint("127.0.0.1:1").unwrap();
        let leader = Leader::new(vec![endpoint], None, Duration::from_secs(1));
        let shared = Arc::new(Shared { queue: Queue::new(9, 9), leader });
        let deadline = Instant::now() + Duration::from_secs(3600);
        let mut waiting = std::pin::pin!(Call::new(&shared.queue, 1, deadline));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        drop(CloseOnDrop(Arc::clone(&shared)));
        let late = std::pin::pin!(Call::new(&shared.queue, 1, deadline)).poll(&mut context);
        for ended in [waiting.poll(&mut context), late] {
            assert!(matches!(ended, Poll::Ready(Err(Error::Closed))), "{ended:?}");
        }
    }
}

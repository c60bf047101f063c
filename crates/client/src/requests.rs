//! Requests, each for the callers of one batch.

use std::sync::Arc;

use crate::error::Error;
use crate::leader::{Ended, Leader};
use crate::queue::{Queue, Taken};

/// What the handles of a client and its tasks share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) queue: Queue,
    pub(crate) leader: Leader,
}

/// The callers get an error, also if the runtime drops the task that would answer them.
struct CloseOnDrop(Arc<Shared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.queue.close();
    }
}

/// Sends one request after the other, until the queue is closed.
pub(crate) async fn run(shared: Arc<Shared>, lane: usize) {
    let shared = CloseOnDrop(shared);
    let Shared { queue, leader } = &*shared.0;
    while let Some(taken) = queue.take(lane).await {
        let ended = answer(leader, &taken).await;
        queue.finish(taken, ended);
    }
}

/// Wakes callers whose deadline passes, until the queue is closed.
pub(crate) async fn expire(shared: Arc<Shared>) {
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

//! Requests for numbers that wait to be proposed. Those that wait at a time share a command.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::sequences::{NEXT_REQUESTS_MAX, NextRequest};
use crate::service::sequence_error::SequenceError;

/// The most commands that are under way. Requests that come meanwhile wait for the first of these,
/// and share the next one.
const COMMANDS_MAX: usize = 4;

/// The first number, or why there is none.
pub(crate) type SequenceResult = Result<u64, SequenceError>;

/// A request that waits for its numbers.
#[derive(Debug)]
pub(crate) struct WaitingRequest {
    pub(crate) request: NextRequest,
    pub(crate) answer: oneshot::Sender<SequenceResult>,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: VecDeque<WaitingRequest>,
    /// Tasks that propose commands, [`COMMANDS_MAX`] at most. While a request waits, there is one.
    proposers: usize,
}

/// The queue of one node.
#[derive(Debug)]
pub(crate) struct SequenceQueue {
    state: Mutex<QueueState>,
    limit: usize,
}

/// A task that proposes commands, until this is dropped.
#[derive(Debug)]
#[must_use = "the requests that wait are proposed by the task that has this"]
pub(crate) struct Proposer<'a> {
    queue: &'a SequenceQueue,
    has_ended: bool,
}

impl SequenceQueue {
    /// Creates a queue of at most `limit` requests.
    pub(crate) fn new(limit: usize) -> Self {
        Self { state: Mutex::default(), limit }
    }

    /// Appends a request. Returns whether the caller has to start a task that becomes a
    /// [`Proposer`].
    ///
    /// # Errors
    /// [`SequenceError::Busy`]: the queue is full.
    pub(crate) fn push(&self, request: WaitingRequest) -> Result<bool, SequenceError> {
        let mut state = self.state.lock();
        if state.waiting.len() >= self.limit {
            return Err(SequenceError::Busy);
        }
        state.waiting.push_back(request);
        let starts = state.proposers < COMMANDS_MAX;
        state.proposers += usize::from(starts);
        Ok(starts)
    }

    /// Takes up the task that [`SequenceQueue::push`] asked for.
    pub(crate) fn proposer(&self) -> Proposer<'_> {
        Proposer { queue: self, has_ended: false }
    }
}

impl Proposer<'_> {
    /// Takes the requests of the next command, without those whose callers have gone. An empty
    /// batch ends the task.
    pub(crate) fn take_batch(&mut self) -> Vec<WaitingRequest> {
        let mut state = self.queue.state.lock();
        let mut batch = Vec::new();
        while batch.len() < NEXT_REQUESTS_MAX
            && let Some(request) = state.waiting.pop_front()
        {
            if !request.answer.is_closed() {
                batch.push(request);
            }
        }
        // Under the lock: a request that comes next starts a task.
        if batch.is_empty() && !self.has_ended {
            self.has_ended = true;
            state.proposers -= 1;
        }
        batch
    }
}

/// Also of a task that panics, or that its runtime drops.
impl Drop for Proposer<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.queue.state.lock().proposers -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::timestamp::Timestamp;

    fn request(index: u64) -> (WaitingRequest, oneshot::Receiver<SequenceResult>) {
        let (answer, answered) = oneshot::channel();
        let key = Timestamp { epoch: 1, index };
        let request = NextRequest { name: "a".parse().unwrap(), count: 1, key };
        (WaitingRequest { request, answer }, answered)
    }

    fn keys(batch: &[WaitingRequest]) -> Vec<u64> {
        batch.iter().map(|waiting| waiting.request.key.index).collect()
    }

    #[test]
    fn requests_share_the_next_command_in_their_order() {
        let queue = SequenceQueue::new(70);
        let mut callers = Vec::new();
        let mut push = |index| {
            let (request, answered) = request(index);
            callers.push(answered);
            queue.push(request)
        };
        let starts: Vec<_> = (0..70).map(|index| push(index).unwrap()).collect();
        assert_eq!(starts.iter().filter(|starts| **starts).count(), COMMANDS_MAX);
        assert_eq!(push(70), Err(SequenceError::Busy));
        let mut proposer = queue.proposer();
        assert_eq!(keys(&proposer.take_batch()), (0..64).collect::<Vec<_>>());
        assert_eq!(keys(&proposer.take_batch()), (64..70).collect::<Vec<_>>());
        assert_eq!(push(71), Ok(false));
        assert_eq!(keys(&proposer.take_batch()), [71]);
        // It ends, and the next request starts another one.
        assert!(proposer.take_batch().is_empty());
        drop(proposer);
        assert_eq!(push(72), Ok(true));
        assert_eq!(push(73), Ok(false));
        // A task that ends in any other way, too.
        drop(queue.proposer());
        assert_eq!(push(74), Ok(true));
    }

    #[test]
    fn requests_without_a_caller_are_not_proposed() {
        let queue = SequenceQueue::new(9);
        let (gone, answered) = request(1);
        assert_eq!(queue.push(gone), Ok(true));
        drop(answered);
        let (stays, _answered) = request(2);
        assert_eq!(queue.push(stays), Ok(true));
        assert_eq!(keys(&queue.proposer().take_batch()), [2]);
    }
}

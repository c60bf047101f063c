//! Requests to append that came over one connection, in their order.
//!
//! openraft has to get them in the order in which they were sent: a leader that gets a success and
//! then a conflict takes the second for a loss of data. It answers them in order; one
//! sync makes the entries of many durable. After an answer that is no success it takes no more of
//! them, and the leader begins again.

use std::collections::VecDeque;
use std::io;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use openraft::Raft;
use openraft::error::Fatal;
use openraft::raft::{AppendEntriesRequest, StreamAppendError, StreamAppendResult};
use openraft::storage::RaftStateMachine;
use tokio::sync::mpsc;

use crate::base::config::{Id, StoredConfig};
use crate::network::message::Answer;
use crate::network::peer::CALLS_MAX;

/// What openraft answers to the requests that it got.
type Answers<C> = BoxStream<'static, Result<StreamAppendResult<C>, Fatal<C>>>;

/// The requests that openraft takes.
struct Passed<C: StoredConfig> {
    requests: mpsc::Sender<AppendEntriesRequest<C>>,
    answers: Answers<C>,
}

/// A call without an answer: its number, its length, and its last entry.
struct Waiting {
    call: u64,
    len: usize,
    last: Option<Id>,
}

pub(super) struct Appends<C: StoredConfig, S: RaftStateMachine<C>> {
    raft: Raft<C, S>,
    lease_ms: u32,
    passed: Option<Passed<C>>,
    waiting: VecDeque<Waiting>,
    answered: VecDeque<(u64, usize, Answer)>,
}

impl<C: StoredConfig, S: RaftStateMachine<C>> Appends<C, S> {
    pub(super) fn new(raft: &Raft<C, S>) -> Self {
        let (waiting, answered) = (VecDeque::new(), VecDeque::new());
        // Above 49 days it is less than it could be.
        let lease_ms = u32::try_from(raft.config().election_timeout_max).unwrap_or(u32::MAX);
        Self { raft: raft.clone(), lease_ms, passed: None, waiting, answered }
    }

    /// Calls without an answer.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.answered.len()
    }

    /// Passes a request on after those before it. There is room for it.
    pub(super) fn push(
        &mut self,
        call: u64,
        len: usize,
        request: io::Result<AppendEntriesRequest<C>>,
    ) {
        let refused = match request {
            Ok(request) => {
                let last = request.entries.last().map(|entry| entry.log_id);
                let last = last.or(request.prev_log_id);
                let passed = self.passed.get_or_insert_with(|| Passed::new(&self.raft));
                match passed.requests.try_send(request) {
                    Ok(()) => return self.waiting.push_back(Waiting { call, len, last }),
                    Err(_) => "the requests before it were not appended".into(),
                }
            }
            Err(error) => error.to_string(),
        };
        self.answered.push_back((call, len, Answer::Refused(refused)));
    }

    /// Waits for an answer. Cancel safe.
    pub(super) async fn ready(&mut self) {
        if !self.answered.is_empty() {
            return;
        }
        let Some(passed) = &mut self.passed else { return };
        let answer = passed.answers.next().await;
        let Some(Waiting { call, len, last }) = self.waiting.pop_front() else { return };
        let (answer, is_last) = match answer {
            Some(Ok(Ok(through))) if through == last => (Answer::Appended(self.lease_ms), false),
            Some(Ok(Ok(through))) => (Answer::appended_through(through, self.lease_ms), true),
            Some(Ok(Err(StreamAppendError::Conflict(_)))) => (Answer::Conflict, true),
            Some(Ok(Err(StreamAppendError::HigherVote(vote)))) => {
                (Answer::HigherVote(vote.into()), true)
            }
            Some(Err(fatal)) => (Answer::Refused(fatal.to_string()), true),
            None => (Answer::Refused("the node stops".into()), true),
        };
        self.answered.push_back((call, len, answer));
        if is_last {
            self.passed = None;
            let after = self.waiting.drain(..).map(|Waiting { call, len, .. }| {
                (call, len, Answer::Refused("a request before it was not appended".into()))
            });
            self.answered.extend(after);
        }
    }

    /// The next answer that is there.
    pub(super) fn pop(&mut self) -> Option<(u64, usize, Answer)> {
        self.answered.pop_front()
    }
}

impl<C: StoredConfig> Passed<C> {
    fn new<S: RaftStateMachine<C>>(raft: &Raft<C, S>) -> Self {
        let (requests, passed) = mpsc::channel(CALLS_MAX);
        let passed = stream::unfold(passed, |mut passed| async move {
            let request = passed.recv().await?;
            Some((request, passed))
        });
        Self { requests, answers: raft.stream_append(passed).boxed() }
    }
}

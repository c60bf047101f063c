//! Requests to append that came over one connection, in their order.
//!
//! openraft has to get them in the order in which they were sent: a leader that gets a success and
//! then a conflict treats the conflict as a loss of data. openraft answers them in order, and one
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

use crate::base::failure::Internal;
use crate::base::type_config::{EntryId, StoredConfig};
use crate::network::message::Answer;
use crate::network::peer::CALLS_MAX;

/// The answers of openraft to the requests that it got, in their order.
type AnswerStream<C> = BoxStream<'static, Result<StreamAppendResult<C>, Fatal<C>>>;

/// A stream of requests to openraft, and of its answers.
struct AppendStream<C: StoredConfig> {
    requests: mpsc::Sender<AppendEntriesRequest<C>>,
    answers: AnswerStream<C>,
}

/// A call that openraft has not answered: its number, its length, and its last entry.
struct QueuedAppend {
    call: u64,
    len: usize,
    last: Option<EntryId>,
}

/// The requests to append of one connection, and the answers that are not sent yet.
pub(super) struct AppendQueue<C: StoredConfig, S: RaftStateMachine<C>> {
    raft: Raft<C, S>,
    lease_ms: u32,
    stream: Option<AppendStream<C>>,
    waiting: VecDeque<QueuedAppend>,
    /// Answers with the number and the length of their calls.
    answered: VecDeque<(u64, usize, Answer)>,
}

impl<C: StoredConfig, S: RaftStateMachine<C>> AppendQueue<C, S> {
    pub(super) fn new(raft: &Raft<C, S>) -> Self {
        let (waiting, answered) = (VecDeque::new(), VecDeque::new());
        // The field holds 49 days. A longer lease is promised in part.
        let lease_ms = u32::try_from(raft.config().election_timeout_max).unwrap_or(u32::MAX);
        Self { raft: raft.clone(), lease_ms, stream: None, waiting, answered }
    }

    /// The number of calls whose answers were not taken.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.answered.len()
    }

    /// Passes a request to openraft, after the requests before it. The caller has checked that
    /// there are fewer than [`CALLS_MAX`].
    pub(super) fn push(
        &mut self,
        call: u64,
        len: usize,
        request: io::Result<AppendEntriesRequest<C>>,
    ) {
        debug_assert!(self.len() < CALLS_MAX, "a connection has a bounded number of calls");
        let refused = match request {
            Ok(request) => {
                let last = request.entries.last().map(|entry| entry.log_id);
                let last = last.or(request.prev_log_id);
                let stream = self.stream.get_or_insert_with(|| AppendStream::new(&self.raft));
                match stream.requests.try_send(request) {
                    Ok(()) => return self.waiting.push_back(QueuedAppend { call, len, last }),
                    Err(_) => "the requests before it were not appended".into(),
                }
            }
            Err(error) => error.to_string(),
        };
        self.answered.push_back((call, len, Answer::Refused(refused)));
    }

    /// Waits for an answer. There is a call without one. Cancel safe.
    pub(super) async fn ready(&mut self) -> Result<(), Internal> {
        if !self.answered.is_empty() {
            return Ok(());
        }
        let Some(stream) = &mut self.stream else {
            return Err(Internal::new("a call without an answer has a stream"));
        };
        let answer = stream.answers.next().await;
        let Some(QueuedAppend { call, len, last }) = self.waiting.pop_front() else {
            return Err(Internal::new("openraft answers each request once"));
        };
        if let Some(Ok(Ok(through))) = &answer
            && *through > last
        {
            return Err(Internal::new("openraft appends no more than it was sent"));
        }
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
            self.stream = None;
            let after = self.waiting.drain(..).map(|QueuedAppend { call, len, .. }| {
                (call, len, Answer::Refused("a request before it was not appended".into()))
            });
            self.answered.extend(after);
        }
        Ok(())
    }

    /// Takes the next answer, if there is one.
    pub(super) fn pop(&mut self) -> Option<(u64, usize, Answer)> {
        self.answered.pop_front()
    }
}

impl<C: StoredConfig> AppendStream<C> {
    fn new<S: RaftStateMachine<C>>(raft: &Raft<C, S>) -> Self {
        let (requests, received) = mpsc::channel(CALLS_MAX);
        let received = stream::unfold(received, |mut received| async move {
            let request = received.recv().await?;
            Some((request, received))
        });
        Self { requests, answers: raft.stream_append(received).boxed() }
    }
}

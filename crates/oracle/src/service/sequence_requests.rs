//! Requests about sequences: each is a command of the replicated state.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use esker_raft::{Bytes, Command, Node, NodeError, Replica};
use tokio::sync::oneshot;

use crate::oracle_state::OracleState;
use crate::sequence::{SEQUENCE_COUNT_MAX, SEQUENCE_NUMBER_MAX, SequenceName};
use crate::sequences::{CreateSequence, NextNumbers, NextRequest, RemoveSequence, SequenceStatus};
use crate::service::sequence_error::SequenceError;
use crate::service::sequence_queue::{SequenceQueue, SequenceResult, WaitingRequest};
use crate::timestamp::Timestamp;

/// The sequences of an oracle: named series of numbers without a gap or a repeat. Clones are
/// handles of the same.
///
/// # Durability
/// An answer comes when a quorum has its command durable, and this node has applied it.
///
/// # Cost
/// A round trip to the followers and a sync, of each of a majority. Requests that wait at the same
/// time share these, up to 64 in a command; four commands are under way at a time.
#[derive(Debug, Clone)]
pub struct OracleSequences(Arc<SequenceService>);

#[derive(Debug)]
struct SequenceService {
    node: Arc<Node>,
    replica: Replica<OracleState>,
    queue: SequenceQueue,
    patience: Duration,
    /// The invariant that does not hold. Then no request is answered any more.
    broken: OnceLock<&'static str>,
}

impl OracleSequences {
    pub(crate) fn new(
        node: Arc<Node>,
        replica: Replica<OracleState>,
        buffer: usize,
        patience: Duration,
    ) -> Self {
        let queue = SequenceQueue::new(buffer);
        Self(Arc::new(SequenceService { node, replica, queue, patience, broken: OnceLock::new() }))
    }

    /// Takes the next `count` numbers of a sequence. Returns the first: they are consecutive.
    ///
    /// `key` is a timestamp that this cluster issued, one for each request, and the same in each
    /// try of it. A try after the one that took the numbers returns the same ones. So after any
    /// error the request may be sent again under its key, to this node or another, until the answer
    /// to its key is not kept any more: at least 131,072 requests with higher keys.
    ///
    /// # Cancel safety
    /// The numbers may be taken. Another try under the same key returns them.
    ///
    /// # Errors
    /// [`SequenceError`], within [`OracleOptions::patience`](crate::OracleOptions::patience) or
    /// soon after.
    pub async fn next(
        &self,
        name: &SequenceName,
        count: u32,
        key: Timestamp,
    ) -> Result<u64, SequenceError> {
        let service = &self.0;
        service.check()?;
        if !(1..=SEQUENCE_COUNT_MAX).contains(&count) {
            return Err(SequenceError::Count(count));
        }
        let (answer, answered) = oneshot::channel();
        let request = NextRequest { name: name.clone(), count, key };
        if service.queue.push(WaitingRequest { request, answer })? {
            tokio::spawn(Arc::clone(service).propose_waiting());
        }
        match tokio::time::timeout(service.patience, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => {
                service.check()?;
                Err(NodeError::Stopped("its task has ended".into()).into())
            }
            Err(_) => Err(NodeError::TimedOut.into()),
        }
    }

    /// Creates a sequence, whose first number is `first`.
    ///
    /// # Cancel safety
    /// The sequence may be created.
    ///
    /// # Errors
    /// [`SequenceError`], within [`OracleOptions::patience`](crate::OracleOptions::patience).
    /// [`SequenceError::Exists`] also after a try that failed and was carried out.
    pub async fn create(&self, name: &SequenceName, first: u64) -> Result<(), SequenceError> {
        if !(1..=SEQUENCE_NUMBER_MAX).contains(&first) {
            return Err(SequenceError::First(first));
        }
        let command = CreateSequence { name: name.clone(), first }.encode();
        let answer = self.0.propose(command).await?;
        let outcome = CreateSequence::answered(&answer)
            .ok_or_else(|| self.0.fail("a command that creates a sequence has its answer"))?;
        Ok(outcome?)
    }

    /// Removes a sequence. One that is created under its name later is another sequence.
    ///
    /// # Cancel safety
    /// The sequence may be removed.
    ///
    /// # Errors
    /// [`SequenceError`], within [`OracleOptions::patience`](crate::OracleOptions::patience).
    /// [`SequenceError::NoSequence`] also after a try that failed and was carried out.
    pub async fn remove(&self, name: &SequenceName) -> Result<(), SequenceError> {
        let answer = self.0.propose(RemoveSequence { name: name.clone() }.encode()).await?;
        let was_there = RemoveSequence::answered(&answer)
            .ok_or_else(|| self.0.fail("a command that removes a sequence has its answer"))?;
        if was_there { Ok(()) } else { Err(SequenceError::NoSequence) }
    }

    /// Lists all sequences by their names, with at least all that was answered before the call. The
    /// node proves that it leads, and nothing is proposed.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    ///
    /// # Errors
    /// [`SequenceError::Unavailable`], within
    /// [`OracleOptions::patience`](crate::OracleOptions::patience).
    pub async fn list(&self) -> Result<Vec<SequenceStatus>, SequenceError> {
        self.0.node.ensure_linearizable(self.0.patience).await?;
        Ok(self.0.replica.with(|state| state.sequences().list()))
    }
}

impl SequenceService {
    /// Fails if an invariant does not hold.
    fn check(&self) -> Result<(), SequenceError> {
        self.broken.get().map_or(Ok(()), |invariant| Err(SequenceError::Internal { invariant }))
    }

    /// Fails the sequences for good: an invariant does not hold. Panics in a debug build.
    fn fail(&self, invariant: &'static str) -> SequenceError {
        if self.broken.set(invariant).is_ok() {
            tracing::error!(invariant, "an invariant does not hold: no sequence is used any more");
        }
        debug_assert!(false, "broken invariant: {invariant}");
        SequenceError::Internal { invariant }
    }

    async fn propose(&self, command: Command) -> Result<Bytes, SequenceError> {
        self.check()?;
        Ok(self.node.propose(command, self.patience).await?)
    }

    /// Proposes the requests that wait, until there is none.
    async fn propose_waiting(self: Arc<Self>) {
        let mut proposer = self.queue.proposer();
        loop {
            // The tasks that are ready send their requests first.
            tokio::task::yield_now().await;
            let batch = proposer.take_batch();
            if batch.is_empty() {
                return;
            }
            let command = {
                let requests: Vec<_> = batch.iter().map(|waiting| &waiting.request).collect();
                NextNumbers::encode(&requests)
            };
            let outcomes = self.propose(command).await.and_then(|answer| {
                NextNumbers::answered(&answer, batch.len())
                    .ok_or_else(|| self.fail("a command for numbers has an answer to each request"))
            });
            match outcomes {
                Ok(outcomes) => {
                    for (waiting, outcome) in batch.into_iter().zip(outcomes) {
                        drop(waiting.answer.send(outcome.map_err(SequenceError::from)));
                    }
                }
                Err(error) => {
                    for waiting in batch {
                        let refused: SequenceResult = Err(error.clone());
                        drop(waiting.answer.send(refused));
                    }
                }
            }
        }
    }
}

//! Requests: their queue, their order, and their deadlines.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use esker_raft::Node;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::epochs::Epochs;
use crate::range::Range;
use crate::service::counters::{Counters, OracleStats, count};
use crate::service::error::{COUNT_MAX, OracleError};
use crate::service::issuer::Issuer;
use crate::service::options::OracleOptions;

struct Request {
    count: u32,
    since: Instant,
    answer: oneshot::Sender<Result<Range, OracleError>>,
}

/// Issues timestamps while its node leads. Clones are handles of one oracle, which stops when the
/// last is dropped.
///
/// Requests that wait share one proof of leadership, which begins after they came, and are answered
/// in their order. One proof is in flight at a time. While requests come, the epoch advances in the
/// background; a request waits for an advance only if the epoch is older than two intervals, or
/// not of this process and term. Without requests nothing is proposed.
#[derive(Debug, Clone)]
pub struct Oracle {
    requests: mpsc::Sender<Request>,
    counters: Arc<Counters>,
    max_timestamps: u32,
}

impl Oracle {
    /// Starts an oracle on this node, on the tokio runtime that this is called from.
    pub fn start(node: Arc<Node<Epochs>>, options: OracleOptions) -> Self {
        let limit = options.buffer.max(1);
        let (requests, waiting) = mpsc::channel(limit);
        let counters = Arc::new(Counters::new());
        let patience = options.patience;
        let max_timestamps = options.max_timestamps.clamp(1, COUNT_MAX);
        let issuer = Issuer::new(node, options, Arc::clone(&counters));
        let server = Server { issuer, counters: Arc::clone(&counters), patience, limit };
        tokio::spawn(server.serve(waiting));
        Self { requests, counters, max_timestamps }
    }

    /// So many timestamps: of one epoch, with consecutive indexes, above all that any call returned
    /// before this one began.
    ///
    /// # Cancel safety
    /// Dropping the future loses the timestamps; they are not issued to another call.
    ///
    /// # Errors
    /// Those of [`OracleError`], within [`OracleOptions::patience`] or soon after.
    pub async fn timestamps(&self, count: u32) -> Result<Range, OracleError> {
        if !(1..=self.max_timestamps).contains(&count) {
            return Err(OracleError::Count(count));
        }
        let (answer, answered) = oneshot::channel();
        let request = Request { count, since: Instant::now(), answer };
        self.requests.try_send(request).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => OracleError::Busy,
            mpsc::error::TrySendError::Closed(_) => OracleError::Stopped,
        })?;
        answered.await.unwrap_or(Err(OracleError::Stopped))
    }

    /// The most timestamps of one request.
    pub fn max_timestamps(&self) -> u32 {
        self.max_timestamps
    }

    /// What it did.
    pub fn stats(&self) -> OracleStats {
        self.counters.stats()
    }

    /// Requests that wait to be taken into a batch.
    pub fn waiting(&self) -> usize {
        self.requests.max_capacity() - self.requests.capacity()
    }

    /// Waits until so many advances of the epoch have missed their deadline, one after another
    /// ([`OracleOptions::failed_advances`]). It still tries: the process decides.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn gave_up(&self) {
        // The sender is in `self`.
        drop(self.counters.gave_up.subscribe().wait_for(|gave_up| *gave_up).await);
    }
}

struct Server {
    issuer: Issuer,
    counters: Arc<Counters>,
    patience: Duration,
    /// The most requests of a batch.
    limit: usize,
}

impl Server {
    async fn serve(mut self, mut requests: mpsc::Receiver<Request>) {
        let mut batch = Vec::new();
        while requests.recv_many(&mut batch, self.limit).await > 0 {
            self.fill(&mut batch, &mut requests).await;
            count(&self.counters.batches, 1);
            // All of the batch came before the proof begins.
            let mut waiting = VecDeque::from(batch);
            if let Err(error) = self.answer(&mut waiting).await {
                for request in waiting.drain(..) {
                    drop(request.answer.send(Err(error.clone())));
                }
            }
            // Its memory is used again.
            batch = Vec::from(waiting);
        }
    }

    /// Lets the tasks that are ready send their requests, as long as any does: a proof costs more
    /// than all that it serves. No request waits for one that is not there.
    async fn fill(&self, batch: &mut Vec<Request>, requests: &mut mpsc::Receiver<Request>) {
        let mut empty = 0;
        while empty < 3 {
            tokio::task::yield_now().await;
            let before = batch.len();
            while batch.len() < self.limit
                && let Ok(request) = requests.try_recv()
            {
                batch.push(request);
            }
            empty = if batch.len() == before { empty + 1 } else { 0 };
        }
    }

    /// Answers the requests from the front, and leaves those that cannot be answered.
    ///
    /// A node that leads in a later term was elected after the proof began, and so after the
    /// requests came: what that leader issued before these are answered may be higher.
    async fn answer(&mut self, waiting: &mut VecDeque<Request>) -> Result<(), OracleError> {
        let Self { issuer, counters, patience, .. } = self;
        let began = Instant::now();
        let late = Late { counters, patience: *patience };
        let owner = late.refuse_while(waiting, issuer.prepare(*patience)).await?;
        let (mut requests, mut timestamps) = (0, 0);
        while let Some(request) = waiting.front() {
            let Some(range) = issuer.take(owner, request.count) else {
                // The indexes of the epoch are used up.
                late.refuse_while(waiting, issuer.advance(owner, *patience)).await?;
                continue;
            };
            let Some(request) = waiting.pop_front() else { break };
            (requests, timestamps) = (requests + 1, timestamps + u64::from(range.count));
            drop(request.answer.send(Ok(range)));
        }
        count(&counters.requests, requests);
        count(&counters.timestamps, timestamps);
        let latency_ns = began.elapsed().as_nanos() as u64;
        tracing::debug!(requests, timestamps, latency_ns, "answered a batch");
        Ok(())
    }
}

/// Refuses requests that have waited for too long.
struct Late<'a> {
    counters: &'a Counters,
    patience: Duration,
}

impl Late<'_> {
    /// Waits for the work. It is not given up for a request that does not wait for it any longer:
    /// others do.
    async fn refuse_while<T>(
        &self,
        waiting: &mut VecDeque<Request>,
        work: impl Future<Output = T>,
    ) -> T {
        let mut work = pin!(work);
        loop {
            let Some(oldest) = waiting.front() else { return work.await };
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = tokio::time::sleep_until(oldest.since + self.patience) => {}
            }
            let is_late = |request: &Request| request.since.elapsed() >= self.patience;
            while waiting.front().is_some_and(is_late) {
                let Some(late) = waiting.pop_front() else { break };
                count(&self.counters.timed_out, 1);
                drop(late.answer.send(Err(OracleError::TimedOut)));
            }
        }
    }
}

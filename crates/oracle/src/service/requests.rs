//! Requests: their queue, their order, and their deadlines.

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use esker_raft::{Node, Replica};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::clock::{CREDIBLE_CLOCKS, Reference, follow};
use crate::oracle_state::OracleState;
use crate::range::Range;
use crate::service::clock_state::{ClockReport, ClockState};
use crate::service::counters::{Counters, OracleStats, count};
use crate::service::error::{COUNT_MAX, OracleError};
use crate::service::issued_epochs::IssuedEpochs;
use crate::service::issuer::Issuer;
use crate::service::options::OracleOptions;
use crate::service::sequence_requests::OracleSequences;
use crate::timestamp::{Timestamp, TimestampWidth};

const _: () = assert!(
    COUNT_MAX as u64 <= Timestamp::U64_INDEX_MAX,
    "a new epoch has as many timestamps of 64 bits as a request may ask for"
);

/// The most turns that other tasks get before a proof begins.
const FILL_ROUNDS_MAX: u32 = 64;

/// A request that waits for its timestamps.
struct Request {
    count: u32,
    width: TimestampWidth,
    /// Set if the epoch follows the clock at once before this is answered.
    follows_clock: bool,
    since: Instant,
    answer: oneshot::Sender<Result<Range, OracleError>>,
}

/// Issues timestamps while its node leads. Clones are handles of one oracle, which stops when the
/// last is dropped.
///
/// Where reads under a lease are on ([`LeaseReads`](crate::LeaseReads)), a leader that has a lease
/// answers at once.
///
/// Otherwise requests that wait share one proof of leadership, which begins after they came, and
/// are answered in their order. One proof is in flight at a time. While requests come, the epoch
/// advances in the background; a request waits for an advance only if the epoch is older than two
/// intervals, or not of this process and term. Without requests nothing is proposed.
#[derive(Debug, Clone)]
pub struct Oracle {
    requests: mpsc::Sender<Request>,
    issued: Arc<IssuedEpochs>,
    counters: Arc<Counters>,
    clock: Arc<ClockState>,
    sequences: OracleSequences,
    max_timestamps: u32,
    max_clock_step: Duration,
}

impl Oracle {
    /// Starts an oracle on this node, which replicates this state, on the tokio runtime that this
    /// is called from.
    pub fn start(node: Arc<Node>, state: Replica<OracleState>, options: OracleOptions) -> Self {
        let limit = options.buffer.max(1);
        let (requests, waiting) = mpsc::channel(limit);
        let counters = Arc::new(Counters::new());
        let patience = options.patience;
        let max_clock_step = options.max_clock_step;
        let max_timestamps = options.max_timestamps.clamp(1, COUNT_MAX);
        let sequences = OracleSequences::new(Arc::clone(&node), state.clone(), limit, patience);
        let issued = Arc::new(IssuedEpochs::new(node, state, options.epoch_interval));
        let clock = Arc::new(ClockState::new());
        let issuer =
            Issuer::new(Arc::clone(&issued), options, Arc::clone(&counters), Arc::clone(&clock));
        let alarm = Alarm::new();
        let server =
            RequestServer { issuer, counters: Arc::clone(&counters), patience, limit, alarm };
        tokio::spawn(server.serve(waiting));
        Self { requests, issued, counters, clock, sequences, max_timestamps, max_clock_step }
    }

    /// Issues `count` timestamps of one epoch, with consecutive indexes, above all that any call
    /// returned before this one began.
    ///
    /// # Cancel safety
    /// Dropping the future loses the timestamps; they are not issued to another call.
    ///
    /// # Errors
    /// [`OracleError`], within [`OracleOptions::patience`] or soon after.
    pub fn timestamps(&self, count: u32) -> impl Future<Output = Result<Range, OracleError>> {
        self.timestamps_of_width(count, TimestampWidth::Bits128)
    }

    /// Issues timestamps as [`Oracle::timestamps`] does, which have a form of this width. An epoch
    /// has 262,143 of 64 bits; after these a request for such ones waits for the next epoch.
    ///
    /// # Cancel safety
    /// Dropping the future loses the timestamps; they are not issued to another call.
    ///
    /// # Errors
    /// [`OracleError`], within [`OracleOptions::patience`] or soon after.
    pub async fn timestamps_of_width(
        &self,
        count: u32,
        width: TimestampWidth,
    ) -> Result<Range, OracleError> {
        if !(1..=self.max_timestamps).contains(&count) {
            return Err(OracleError::Count(count));
        }
        // The task of requests ends with an error that this returned.
        if let Ok(Some(range)) = self.issued.take_leased(count, width.index_max()) {
            self.counters.count_leased(range);
            return Ok(range);
        }
        self.queued(count, width, false).await
    }

    /// Issues timestamps, after the requests that wait.
    async fn queued(
        &self,
        count: u32,
        width: TimestampWidth,
        follows_clock: bool,
    ) -> Result<Range, OracleError> {
        let (answer, answered) = oneshot::channel();
        let request = Request { count, width, follows_clock, since: Instant::now(), answer };
        self.requests.try_send(request).map_err(|error| {
            // This request may have been the one to have the epoch advanced.
            self.issued.renew();
            match error {
                mpsc::error::TrySendError::Full(_) => OracleError::Busy,
                mpsc::error::TrySendError::Closed(_) => self.stopped(),
            }
        })?;
        answered.await.unwrap_or_else(|_| Err(self.stopped()))
    }

    /// The error of an oracle whose task has ended.
    fn stopped(&self) -> OracleError {
        self.issued.check().err().unwrap_or(OracleError::Stopped)
    }

    /// Follows the node's clock at once, however far ahead it is, for an operator who knows that it
    /// is right. Returns the epoch that follows it. A clock that is behind the epoch is not
    /// followed: then [`Oracle::clock`] reports [`Step::Backward`](crate::Step::Backward).
    ///
    /// # Cancel safety
    /// The epoch may still follow.
    ///
    /// # Errors
    /// The errors of [`Oracle::timestamps`]. The epoch may still follow later.
    pub async fn follow_clock(&self) -> Result<u64, OracleError> {
        self.queued(1, TimestampWidth::Bits128, true).await.map(|range| range.first.epoch)
    }

    /// The sequences. Their requests have a queue of their own.
    pub fn sequences(&self) -> &OracleSequences {
        &self.sequences
    }

    /// A report of the clock of this node and of its last epoch.
    pub fn clock(&self) -> ClockReport {
        let own = self.issued.current().map(|(_, start)| start);
        let epochs = self.issued.epochs();
        let epoch = epochs.last();
        let clock = self.issued.node().clock().now();
        let epoch_age = own.filter(|own| own.epoch == epoch).map(|own| own.at.elapsed());
        let reference = Reference { epoch, age: epoch_age.unwrap_or_default() };
        ClockReport {
            clock,
            epoch,
            epoch_age,
            spread: self.clock.spread(),
            step: self.clock.step(),
            epoch_age_max: self.issued.epoch_age_max(),
            next_epoch: follow(clock, epoch, reference, self.max_clock_step)
                .wall
                .max(epochs.least_next().unwrap_or(u64::MAX)),
        }
    }

    /// The reason why this node issues no timestamps until an operator acts: sets its clock right
    /// ([`OracleError::Clock`]), replaces the cluster ([`OracleError::NoEpochLeft`]), or starts the
    /// process again ([`OracleError::Stopped`], [`OracleError::Internal`]). It does not depend on
    /// which node leads. Before the first epoch of the cluster only the clock of this node counts:
    /// another node with a clock that is right may issue.
    pub fn blocked(&self) -> Option<OracleError> {
        if self.requests.is_closed() {
            return Some(self.stopped());
        }
        let epochs = self.issued.epochs();
        if epochs.are_used_up() {
            return Some(OracleError::NoEpochLeft);
        }
        if epochs.last() > 0 {
            return None;
        }
        let clock = self.issued.node().clock().now();
        (!CREDIBLE_CLOCKS.contains(&clock)).then_some(OracleError::Clock { clock })
    }

    /// The most timestamps of one request.
    pub fn max_timestamps(&self) -> u32 {
        self.max_timestamps
    }

    /// The counters of the oracle.
    pub fn stats(&self) -> OracleStats {
        self.counters.stats()
    }

    /// Requests that wait to be taken into a batch.
    pub fn waiting(&self) -> usize {
        self.requests.max_capacity() - self.requests.capacity()
    }

    /// Waits until the task that issues timestamps has ended. While there is a handle, it ends only
    /// in a panic, or when an invariant does not hold: then every request fails with
    /// [`OracleError::Stopped`] or [`OracleError::Internal`].
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn ended(&self) {
        self.requests.closed().await;
    }

    /// Waits until [`OracleOptions::failed_advances`] deadlines in a row have passed by which this
    /// leader got no epoch that requests needed. A node that cannot prove that it leads asks for
    /// none. The oracle continues: the process decides.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn gave_up(&self) {
        // The sender is in `self`.
        drop(self.counters.gave_up.subscribe().wait_for(|gave_up| *gave_up).await);
    }
}

/// The task that answers requests.
struct RequestServer {
    issuer: Issuer,
    counters: Arc<Counters>,
    patience: Duration,
    /// The most requests of a batch.
    limit: usize,
    alarm: Alarm,
}

impl RequestServer {
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
                if matches!(error, OracleError::Internal { .. }) {
                    return;
                }
            }
            debug_assert!(waiting.is_empty(), "each request of a batch has its answer");
            // Its memory is used again.
            batch = Vec::from(waiting);
        }
    }

    /// Lets the tasks that are ready send their requests, as long as any does: a proof costs more
    /// than all that it serves. No request waits for one that has not been sent.
    async fn fill(&self, batch: &mut Vec<Request>, requests: &mut mpsc::Receiver<Request>) {
        let (mut empty, mut rounds) = (0, 0);
        while empty < 3 && rounds < FILL_ROUNDS_MAX {
            rounds += 1;
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

    /// Answers the requests from the front, and leaves the ones that cannot be answered.
    ///
    /// A node that leads in a later term was elected after the proof began, and so after the
    /// requests came: what that leader issued before these are answered may be higher.
    async fn answer(&mut self, waiting: &mut VecDeque<Request>) -> Result<(), OracleError> {
        let Self { issuer, counters, patience, alarm, .. } = self;
        let began = Instant::now();
        let mut deadlines = RequestDeadlines { counters, patience: *patience, alarm };
        let owner = deadlines.refuse_while(waiting, issuer.prepare(*patience)).await?;
        if waiting.iter().any(|request| request.follows_clock) {
            match deadlines.refuse_while(waiting, issuer.follow_at_once(owner, *patience)).await {
                Err(error @ OracleError::Internal { .. }) => return Err(error),
                // Clients that only want timestamps get them.
                Err(error) => refuse_to_follow(waiting, &error),
                Ok(()) => {}
            }
        }
        let (mut requests, mut timestamps) = (0, 0);
        let answered = loop {
            let Some(request) = waiting.front() else { break Ok(()) };
            match issuer.take(owner, request.count, request.width.index_max()) {
                Ok(Some(range)) => {
                    (requests, timestamps) = (requests + 1, timestamps + u64::from(range.count));
                    if let Some(request) = waiting.pop_front() {
                        drop(request.answer.send(Ok(range)));
                    }
                }
                // The indexes of the epoch, or those of 64 bits, are used up.
                Ok(None) => {
                    let replaced = issuer.replace_used_up(owner, *patience);
                    if let Err(error) = deadlines.refuse_while(waiting, replaced).await {
                        break Err(error);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        // Also of a batch that fails: those before the failure have their timestamps.
        count(&counters.requests, requests);
        count(&counters.timestamps, timestamps);
        let latency_ns = began.elapsed().as_nanos() as u64;
        tracing::debug!(requests, timestamps, latency_ns, "answered a batch");
        answered
    }
}

/// Refuses the requests that epochs follow the clock.
fn refuse_to_follow(waiting: &mut VecDeque<Request>, error: &OracleError) {
    let (refused, others): (VecDeque<_>, VecDeque<_>) =
        waiting.drain(..).partition(|request| request.follows_clock);
    *waiting = others;
    for request in refused {
        let answer = Err(error.clone());
        drop(request.answer.send(answer));
    }
}

/// The deadlines of requests: refuses the ones that have waited for too long.
struct RequestDeadlines<'a> {
    counters: &'a Counters,
    patience: Duration,
    alarm: &'a mut Alarm,
}

impl RequestDeadlines<'_> {
    /// Waits for the work while a request waits for it. Work continues while any request waits.
    async fn refuse_while<T>(
        &mut self,
        waiting: &mut VecDeque<Request>,
        work: impl Future<Output = Result<T, OracleError>>,
    ) -> Result<T, OracleError> {
        let mut work = pin!(work);
        while let Some(oldest) = waiting.front() {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = self.alarm.wait_until(oldest.since + self.patience) => {}
            }
            let is_late = |request: &Request| request.since.elapsed() >= self.patience;
            while waiting.front().is_some_and(is_late)
                && let Some(late) = waiting.pop_front()
            {
                count(&self.counters.timed_out, 1);
                drop(late.answer.send(Err(OracleError::TimedOut)));
            }
        }
        Err(OracleError::TimedOut)
    }
}

/// A timer that is set again only after it has fired, once for many deadlines that rise: tokio
/// wakes its driver for a timer that is earlier than all others.
struct Alarm(Pin<Box<Sleep>>);

impl Alarm {
    fn new() -> Self {
        Self(Box::pin(sleep_until(Instant::now())))
    }

    async fn wait_until(&mut self, deadline: Instant) {
        while Instant::now() < deadline {
            if self.0.is_elapsed() || self.0.deadline() > deadline {
                self.0.as_mut().reset(deadline);
            }
            self.0.as_mut().await;
        }
    }
}

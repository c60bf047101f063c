//! An oracle on a node: answers requests while the node leads.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use esker_raft::{Member, Node, NodeError};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::allotment::{Allotment, Range};
use crate::clock::{Reference, Step, follow};
use crate::epochs::{Advance, Epochs, Owner};

/// The most timestamps of one request.
pub const COUNT_MAX: u32 = 65_536;

/// The time, in nanoseconds since the beginning of 1970.
pub type WallClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// How an [`Oracle`] works.
#[derive(Clone)]
#[non_exhaustive]
pub struct OracleOptions {
    /// Requests that wait at a time, beside as many that are being answered; above that,
    /// [`OracleError::Busy`]. 10,000.
    pub buffer: usize,
    /// How old an epoch gets while requests come. 100 ms.
    pub epoch_interval: Duration,
    /// How far the clock may step forward and be followed at once. 10 s.
    pub max_clock_step: Duration,
    /// How long a proof of leadership, and an advance of the epoch, may take. 1 s.
    pub patience: Duration,
    /// The system's clock.
    pub clock: WallClock,
}

impl Default for OracleOptions {
    fn default() -> Self {
        let since = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let clock = move || since().map_or(0, |since| since.as_nanos() as u64);
        Self {
            buffer: 10_000,
            epoch_interval: Duration::from_millis(100),
            max_clock_step: Duration::from_secs(10),
            patience: Duration::from_secs(1),
            clock: Arc::new(clock),
        }
    }
}

impl fmt::Debug for OracleOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OracleOptions")
            .field("buffer", &self.buffer)
            .field("epoch_interval", &self.epoch_interval)
            .field("max_clock_step", &self.max_clock_step)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

/// Why there is no timestamp.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OracleError {
    /// Too many requests wait.
    Busy,
    /// 0, or more than [`COUNT_MAX`].
    Count(u32),
    /// Another node leads, or none does.
    NotLeader {
        /// The node that leads, as far as this one knows.
        leader: Option<(u64, Member)>,
    },
    /// The node cannot prove that it leads, or cannot advance the epoch.
    Unavailable(NodeError),
    /// The oracle was dropped.
    Stopped,
}

impl fmt::Display for OracleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("too many requests are waiting"),
            Self::Count(count) => write!(f, "{count} timestamps: ask for 1 to {COUNT_MAX}"),
            Self::NotLeader { leader: Some((node, _)) } => {
                write!(f, "this node does not lead; node {node} does")
            }
            Self::NotLeader { leader: None } => f.write_str("no node leads"),
            Self::Unavailable(_) => f.write_str("no timestamp can be issued now"),
            Self::Stopped => f.write_str("the oracle has stopped"),
        }
    }
}

impl std::error::Error for OracleError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unavailable(error) => Some(error),
            _ => None,
        }
    }
}

impl From<NodeError> for OracleError {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::NotLeader { leader } => Self::NotLeader { leader },
            error => Self::Unavailable(error),
        }
    }
}

struct Request {
    count: u32,
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
}

impl Oracle {
    /// Starts an oracle on this node, on the tokio runtime that this is called from.
    pub fn start(node: Arc<Node<Epochs>>, options: OracleOptions) -> Self {
        let (requests, waiting) = mpsc::channel(options.buffer.max(1));
        let session = node.log().recovery().session;
        let server = Server {
            node,
            options,
            session,
            allotment: None,
            reference: None,
            advancing: None,
            is_step_known: false,
        };
        tokio::spawn(server.serve(waiting));
        Self { requests }
    }

    /// So many timestamps: of one epoch, with consecutive indexes, above all that any call returned
    /// before this one began.
    ///
    /// # Cancel safety
    /// Dropping the future loses the timestamps; they are not issued to another call.
    ///
    /// # Errors
    /// Those of [`OracleError`], each within three times [`OracleOptions::patience`].
    pub async fn timestamps(&self, count: u32) -> Result<Range, OracleError> {
        if !(1..=COUNT_MAX).contains(&count) {
            return Err(OracleError::Count(count));
        }
        let (answer, answered) = oneshot::channel();
        self.requests.try_send(Request { count, answer }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => OracleError::Busy,
            mpsc::error::TrySendError::Closed(_) => OracleError::Stopped,
        })?;
        answered.await.unwrap_or(Err(OracleError::Stopped))
    }
}

struct Server {
    node: Arc<Node<Epochs>>,
    options: OracleOptions,
    session: u64,
    /// What this process hands out, and since when it is known.
    allotment: Option<(Allotment, Instant)>,
    /// The last epoch of this process, and when it was applied. Of those of other processes it is
    /// not known when that was: the log is applied again after a restart.
    reference: Option<(u64, Instant)>,
    advancing: Option<JoinHandle<Result<(), NodeError>>>,
    /// Whether the present step of the clock is in the log.
    is_step_known: bool,
}

impl Server {
    async fn serve(mut self, mut requests: mpsc::Receiver<Request>) {
        let (mut batch, limit) = (Vec::new(), self.options.buffer.max(1));
        while requests.recv_many(&mut batch, limit).await > 0 {
            // All of the batch came before the proof begins.
            let answered = self.answer(&mut batch).await;
            for Request { answer, .. } in batch.drain(..) {
                drop(answer.send(Err(answered.clone().err().unwrap_or(OracleError::Stopped))));
            }
        }
    }

    /// Answers the batch from the front, and leaves in it what cannot be answered.
    ///
    /// A node that leads in a later term was elected after the proof began, and so after the
    /// requests came: what that leader issued before these are answered may be higher.
    async fn answer(&mut self, batch: &mut Vec<Request>) -> Result<(), OracleError> {
        let term = self.node.prove_leadership(self.options.patience).await?;
        let owner = Owner { term, node: self.node.id(), session: self.session };
        self.keep_epoch(owner).await?;
        let mut rest = std::mem::take(batch).into_iter();
        while let Some(Request { count, answer }) = rest.next() {
            let taken = match self.take(owner, count) {
                Some(range) => Ok(range),
                None => self.take_of_new_epoch(owner, count).await,
            };
            let failed = taken.as_ref().err().cloned();
            drop(answer.send(taken));
            if let Some(error) = failed {
                *batch = rest.collect();
                return Err(error);
            }
        }
        Ok(())
    }

    fn take(&mut self, owner: Owner, count: u32) -> Option<Range> {
        let (allotment, _) = self.allotment.as_mut()?;
        (allotment.owner() == owner).then(|| allotment.take(count)).flatten()
    }

    /// The indexes of the epoch are used up.
    async fn take_of_new_epoch(&mut self, owner: Owner, count: u32) -> Result<Range, OracleError> {
        self.advance(owner).await?;
        self.take(owner, count).ok_or(OracleError::Unavailable(NodeError::Unknown))
    }

    /// Has an epoch of this owner that is young enough.
    async fn keep_epoch(&mut self, owner: Owner) -> Result<(), OracleError> {
        if self.advancing.as_ref().is_some_and(JoinHandle::is_finished) {
            self.advancing = None;
            self.take_up(owner);
        }
        let age = self.allotment.as_ref().filter(|(allotment, _)| allotment.owner() == owner);
        let age = age.map_or(Duration::MAX, |(_, since)| since.elapsed());
        if age > self.options.epoch_interval.saturating_mul(2) {
            return self.advance(owner).await;
        }
        if age > self.options.epoch_interval && self.advancing.is_none() {
            self.begin_advance(owner);
        }
        Ok(())
    }

    async fn advance(&mut self, owner: Owner) -> Result<(), OracleError> {
        let before = self.allotment.as_ref().map(|(ours, _)| ours.epoch());
        // One that began before may be of another term.
        for _ in 0..2 {
            if self.advancing.is_none() {
                self.begin_advance(owner);
            }
            let Some(advancing) = self.advancing.take() else { break };
            let advanced = advancing.await.unwrap_or(Err(NodeError::Unknown));
            self.take_up(owner);
            let ours = self.allotment.as_ref().map(|(ours, _)| ours);
            let is_ours =
                ours.is_some_and(|ours| ours.owner() == owner && Some(ours.epoch()) > before);
            if is_ours {
                return Ok(());
            }
            advanced?;
        }
        Err(OracleError::Unavailable(NodeError::Unknown))
    }

    fn begin_advance(&mut self, owner: Owner) {
        let reference =
            self.reference.map(|(epoch, since)| Reference { epoch, age: since.elapsed() });
        let followed = follow((self.options.clock)(), reference, self.options.max_clock_step);
        let is_step = followed.step != Step::None;
        if is_step && !self.is_step_known {
            tracing::warn!(step = ?followed.step, "the clock stepped");
        }
        self.is_step_known = is_step;
        let command = Advance { owner, wall: followed.wall }.encode();
        let (node, patience) = (Arc::clone(&self.node), self.options.patience);
        self.advancing =
            Some(tokio::spawn(async move { node.propose(command, patience).await.map(drop) }));
    }

    /// Hands out of the last epoch from now on, if it is this owner's and was not before.
    fn take_up(&mut self, owner: Owner) {
        let epochs = self.node.with(|epochs| *epochs);
        let current = self.allotment.as_ref().map(|(allotment, _)| allotment);
        if let Some(allotment) = Allotment::of(&epochs, owner, current) {
            let now = Instant::now();
            self.reference = Some((allotment.epoch(), now));
            self.allotment = Some((allotment, now));
        }
    }
}

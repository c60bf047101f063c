//! The owner of an epoch at work: proves that it leads, and advances the epoch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use esker_raft::{NodeError, Prover};
use tokio::task::JoinHandle;

use crate::clock::{Reference, Step, follow};
use crate::epochs::{Advance, Owner};
use crate::range::Range;
use crate::service::counters::{Counters, count};
use crate::service::error::OracleError;
use crate::service::leased::{Leased, Taken};
use crate::service::options::OracleOptions;

pub(crate) struct Issuer {
    leased: Arc<Leased>,
    prover: Prover,
    options: OracleOptions,
    counters: Arc<Counters>,
    session: u64,
    /// The last epoch of this process, and when it was applied. Of those of other processes it is
    /// not known when that was: the log is applied again after a restart.
    reference: Option<(u64, Instant)>,
    advancing: Option<JoinHandle<Result<Option<Taken>, NodeError>>>,
    /// Advances in a row that missed their deadline.
    missed: u32,
    /// What the clock did when it was last read: a step is reported once.
    step: Step,
}

impl Issuer {
    pub(crate) fn new(
        leased: Arc<Leased>,
        options: OracleOptions,
        counters: Arc<Counters>,
    ) -> Self {
        let session = leased.node.log().recovery().session;
        let prover = Prover::new(Arc::clone(&leased.node));
        Self {
            leased,
            prover,
            options,
            counters,
            session,
            reference: None,
            advancing: None,
            missed: 0,
            step: Step::None,
        }
    }

    /// Proves that this node leads, and has an epoch of its own that is young enough. Cancel safe.
    ///
    /// Waits for as long as a quorum may still answer, and then for the advance for so long.
    pub(crate) async fn prepare(&mut self, patience: Duration) -> Result<Owner, OracleError> {
        let term = match self.leased.term() {
            Some(term) => term,
            None => self.prover.prove().await?,
        };
        let owner = Owner { term, node: self.leased.node.id(), session: self.session };
        if self.advancing.as_ref().is_some_and(JoinHandle::is_finished) {
            drop(self.advanced(patience).await);
        }
        let age = self.leased.current.with(|current| {
            let ours = current.as_ref().filter(|(allotment, _)| allotment.owner() == owner);
            ours.map_or(Duration::MAX, |(_, since)| since.elapsed())
        });
        if age > self.options.epoch_interval.saturating_mul(2) {
            self.advance(owner, patience).await?;
        } else if age > self.options.epoch_interval && self.advancing.is_none() {
            self.begin_advance(owner);
        }
        Ok(owner)
    }

    /// Hands out so many timestamps of this owner's epoch, if it has as many.
    pub(crate) fn take(&mut self, owner: Owner, count: u32) -> Option<Range> {
        self.leased.current.with(|current| {
            let (allotment, _) = current.as_mut()?;
            (allotment.owner() == owner).then(|| allotment.take(count)).flatten()
        })
    }

    /// Has a new epoch of this owner. Cancel safe.
    pub(crate) async fn advance(
        &mut self,
        owner: Owner,
        patience: Duration,
    ) -> Result<(), OracleError> {
        let began = Instant::now();
        let before =
            self.leased.current.with(|current| current.as_ref().map(|(ours, _)| ours.epoch()));
        // One that began before may be of another term.
        for _ in 0..2 {
            if self.advancing.is_none() {
                self.begin_advance(owner);
            }
            let advanced = self.advanced(patience.saturating_sub(began.elapsed())).await;
            let is_ours = self.leased.current.with(|current| {
                let ours = current.as_ref().map(|(ours, _)| ours);
                ours.is_some_and(|ours| ours.owner() == owner && Some(ours.epoch()) > before)
            });
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
        self.report(followed.step);
        let command = Advance { owner, wall: followed.wall }.encode();
        let (leased, patience) = (Arc::clone(&self.leased), self.options.patience);
        self.advancing = Some(tokio::spawn(async move {
            let answer = leased.node.propose(command, patience).await;
            // At once: the next request may come much later.
            let taken = answer.map(|answer| leased.take_up(owner, &answer));
            leased.renew();
            taken
        }));
    }

    fn report(&mut self, step: Step) {
        let ms = |by: Duration| u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        let (before, now) = (std::mem::discriminant(&self.step), std::mem::discriminant(&step));
        self.step = step;
        if before == now {
            return;
        }
        match step {
            Step::None => tracing::info!("epochs follow the clock again"),
            Step::Backward(by) => {
                count(&self.counters.backward_steps, 1);
                tracing::warn!(by_ms = ms(by), "the clock is behind the last epoch");
            }
            Step::Forward(by) => {
                count(&self.counters.forward_steps, 1);
                tracing::warn!(by_ms = ms(by), "the clock is further ahead than is believed");
            }
        }
    }

    /// Waits for the advance that is under way, which takes its epoch up.
    async fn advanced(&mut self, patience: Duration) -> Result<(), NodeError> {
        let Some(advancing) = self.advancing.as_mut() else { return Ok(()) };
        let Ok(advanced) = tokio::time::timeout(patience, advancing).await else {
            return Err(NodeError::TimedOut);
        };
        self.advancing = None;
        let advanced = advanced.unwrap_or(Err(NodeError::Unknown));
        self.missed = match &advanced {
            Err(NodeError::TimedOut) => self.missed.saturating_add(1),
            _ => 0,
        };
        match &advanced {
            Ok(taken) => {
                count(&self.counters.advances, 1);
                self.reference = taken.or(self.reference);
            }
            Err(error) => {
                count(&self.counters.failed_advances, 1);
                tracing::warn!(%error, in_a_row = self.missed, "the epoch did not advance");
            }
        }
        if self.missed >= self.options.failed_advances {
            self.counters.gave_up.send_replace(true);
        }
        advanced.map(drop)
    }
}

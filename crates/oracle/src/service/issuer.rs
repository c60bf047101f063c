//! The owner of an epoch at work: proves that it leads, and advances the epoch.

use std::fmt::Display;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use esker_raft::{NodeError, Prover};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::Instrument;

use crate::clock::{Followed, Reference, Step, agree, at_once, follow};
use crate::epochs::{Advance, Owner};
use crate::range::Range;
use crate::service::clock_state::ClockState;
use crate::service::counters::{Counters, count};
use crate::service::error::OracleError;
use crate::service::leased::{Leased, Taken};
use crate::service::options::OracleOptions;
use crate::service::spans::SPANS;

/// Between two warnings that the epoch did not advance.
const WARN: Duration = Duration::from_secs(1);

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
    /// Deadlines in a row by which this leader got no epoch that it asked for, and when the next
    /// one begins to run: with the first request for an epoch after a success.
    missed: u32,
    unmet: Option<Instant>,
    /// Advances in a row that failed, and when that was last a warning.
    failed: u32,
    warned: Option<Instant>,
    clock: Arc<ClockState>,
}

impl Issuer {
    pub(crate) fn new(
        leased: Arc<Leased>,
        options: OracleOptions,
        counters: Arc<Counters>,
        clock: Arc<ClockState>,
    ) -> Self {
        let session = leased.node.log().maintenance().recovery().session;
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
            unmet: None,
            failed: 0,
            warned: None,
            clock,
        }
    }

    /// Proves that this node leads, and has an epoch of its own that is young enough. Cancel safe.
    ///
    /// Waits for as long as a quorum may still answer, and then for the advance for so long.
    pub(crate) async fn prepare(&mut self, patience: Duration) -> Result<Owner, OracleError> {
        // A proof compares the clocks: the first epoch needs that.
        let leased = self.leased.term().filter(|_| self.reference.is_some());
        let term = match leased {
            Some(term) => term,
            None => self.prover.prove().await?,
        };
        if self.reference.is_none() {
            // How far a clock is believed depends on the last epoch, which this node may not have
            // applied yet.
            self.leased.node.prove_leadership(patience).await?;
        }
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
            self.begin_advance(owner)?;
        }
        Ok(owner)
    }

    /// Has a new epoch of this owner, which follows the clock however far ahead it is. Cancel safe.
    pub(crate) async fn follow_at_once(
        &mut self,
        owner: Owner,
        patience: Duration,
    ) -> Result<(), OracleError> {
        // One that is under way was proposed before this was asked for.
        drop(self.advanced(patience).await);
        if self.advancing.is_some() {
            return Err(OracleError::Unavailable(NodeError::TimedOut));
        }
        let last = self.last()?;
        let clock = self.leased.node.clock().now();
        let followed = at_once(clock, last).ok_or(OracleError::ClockTooHigh { clock })?;
        self.propose(owner, followed);
        self.advanced(patience).await?;
        match self.reference {
            Some((epoch, _)) if epoch >= followed.wall => Ok(()),
            _ => Err(OracleError::Unavailable(NodeError::Unknown)),
        }
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
                self.begin_advance(owner)?;
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

    fn begin_advance(&mut self, owner: Owner) -> Result<(), OracleError> {
        let followed = self.follow().inspect_err(|error| {
            count(&self.counters.failed_advances, 1);
            self.warn(error);
        })?;
        self.propose(owner, followed);
        Ok(())
    }

    /// The last epoch, if there may be one after it.
    fn last(&self) -> Result<u64, OracleError> {
        let epochs = self.leased.epochs.with(|epochs| *epochs);
        if epochs.are_used_up() { Err(OracleError::NoEpochLeft) } else { Ok(epochs.last()) }
    }

    fn propose(&mut self, owner: Owner, followed: Followed) {
        self.report(followed.step);
        let command = Advance { owner, wall: followed.wall }.encode();
        let (leased, patience) = (Arc::clone(&self.leased), self.options.patience);
        let span = tracing::info_span!(target: SPANS, "advance the epoch", owner.term);
        let advance = async move {
            let answer = leased.node.propose(command, patience).await;
            // At once: the next request may come much later.
            let taken = answer.map(|answer| leased.take_up(owner, &answer));
            leased.renew();
            taken
        };
        self.unmet.get_or_insert_with(Instant::now);
        self.advancing = Some(tokio::spawn(advance.instrument(span)));
    }

    /// The epoch to propose.
    fn follow(&self) -> Result<Followed, OracleError> {
        let last = self.last()?;
        let own = self.leased.node.clock().now();
        let clocks = self.prover.voter_clocks();
        self.clock.compared(&clocks);
        let largest_step = self.options.max_clock_step;
        if let Some((epoch, since)) = self.reference {
            let reference = Reference { epoch, age: since.elapsed() };
            return Ok(follow(own, last, reference, largest_step));
        }
        let ahead = Duration::from_nanos(own.saturating_sub(last));
        if clocks.others.is_empty() && last > 0 && ahead > largest_step {
            let by_ms = ms(ahead);
            // As at each start of a node that is the only one.
            tracing::info!(by_ms, "this node is the only voter; epochs follow its clock");
        }
        let agreed = agree(own, &clocks.others, last, largest_step);
        agreed.ok_or(OracleError::Clock { clock: own })
    }

    /// A step is reported once.
    fn report(&self, step: Step) {
        let before = self.clock.stepped(step);
        if std::mem::discriminant(&before) == std::mem::discriminant(&step) {
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
        let advanced = advanced.unwrap_or_else(|error| match error.try_into_panic() {
            // The task that issues timestamps ends with it, which is noticed.
            Ok(panic) => resume_unwind(panic),
            Err(_) => Err(NodeError::Unknown),
        });
        match &advanced {
            // Where followers do not store what they are sent, openraft refuses proposals as soon
            // as the one before them is late. A deadline is missed when it has passed.
            Err(NodeError::TimedOut | NodeError::NoQuorum) => self.miss(),
            _ => (self.missed, self.unmet) = (0, None),
        }
        match &advanced {
            Ok(taken) => {
                count(&self.counters.advances, 1);
                self.failed = 0;
                self.reference = taken.or(self.reference);
            }
            Err(error) => {
                count(&self.counters.failed_advances, 1);
                self.warn(error);
            }
        }
        if self.missed >= self.options.failed_advances {
            self.counters.gave_up.send_replace(true);
        }
        advanced.map(drop)
    }

    fn miss(&mut self) {
        let since = *self.unmet.get_or_insert_with(Instant::now);
        if since.elapsed() >= self.options.patience {
            self.missed = self.missed.saturating_add(1);
            self.unmet = Some(Instant::now());
        }
    }

    /// The epoch did not advance.
    fn warn(&mut self, error: &impl Display) {
        self.failed = self.failed.saturating_add(1);
        let (in_a_row, missed) = (self.failed, self.missed);
        // A leader that is deposed fails as often as requests come.
        if self.warned.is_none_or(|warned| warned.elapsed() >= WARN) {
            self.warned = Some(Instant::now());
            tracing::warn!(%error, in_a_row, missed, "the epoch did not advance");
        } else {
            tracing::debug!(%error, in_a_row, missed, "the epoch did not advance");
        }
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

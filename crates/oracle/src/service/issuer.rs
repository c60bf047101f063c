//! The owner of an epoch at work: proves that it leads, and advances the epoch.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use esker_raft::{NodeError, Prover};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tracing::Instrument;

use crate::clock::{EpochProposal, Reference, Step, agree, follow, follow_at_once};
use crate::epochs::{Advance, Owner};
use crate::range::Range;
use crate::service::advance_failures::AdvanceFailures;
use crate::service::clock_state::ClockState;
use crate::service::counters::{Counters, count};
use crate::service::error::OracleError;
use crate::service::issued_epochs::{EpochStart, IssuedEpochs};
use crate::service::options::OracleOptions;
use crate::service::span_target::SPAN_TARGET;

/// The age of the last comparison of clocks after which a leader with a lease proves that it leads
/// anyway: a proof brings the clocks of the voters.
const CLOCK_COMPARISON_AGE_MAX: Duration = Duration::from_secs(1);

/// The shortest time for which an epoch is used: an epoch has a millisecond of its own, so epochs
/// that ended sooner would run ahead of the clock.
const EPOCH_USE_MIN: Duration = Duration::from_millis(1);

pub(crate) struct Issuer {
    issued: Arc<IssuedEpochs>,
    prover: Prover,
    /// The time of the last proof, which compared the clocks.
    proved: Option<Instant>,
    options: OracleOptions,
    counters: Arc<Counters>,
    session: u64,
    /// The last epoch of this process. It has no time for epochs of other processes: the log is
    /// applied again after a restart.
    reference: Option<EpochStart>,
    advancing: Option<JoinHandle<Result<Option<EpochStart>, NodeError>>>,
    failures: AdvanceFailures,
    clock: Arc<ClockState>,
}

impl Issuer {
    pub(crate) fn new(
        issued: Arc<IssuedEpochs>,
        options: OracleOptions,
        counters: Arc<Counters>,
        clock: Arc<ClockState>,
    ) -> Self {
        let session = issued.node().log().maintenance().recovery().session;
        let prover = Prover::new(Arc::clone(issued.node()));
        Self {
            issued,
            prover,
            proved: None,
            options,
            counters,
            session,
            reference: None,
            advancing: None,
            failures: AdvanceFailures::default(),
            clock,
        }
    }

    /// Proves that this node leads, and has an epoch of its own that is young enough. Cancel safe.
    ///
    /// Waits for as long as a quorum may still answer, and then up to `patience` for an advance.
    pub(crate) async fn prepare(&mut self, patience: Duration) -> Result<Owner, OracleError> {
        self.issued.check()?;
        // A proof compares the clocks: the first epoch needs that, and alarms do.
        let is_compared = self.proved.is_some_and(|at| at.elapsed() < CLOCK_COMPARISON_AGE_MAX);
        let leased = self.issued.term().filter(|_| is_compared);
        let term = match leased {
            Some(term) => term,
            None => {
                let term = self.prover.prove().await?;
                self.proved = Some(Instant::now());
                term
            }
        };
        if self.reference.is_none() {
            // How far a clock is believed depends on the last epoch, which this node may not have
            // applied yet.
            self.issued.node().ensure_linearizable(patience).await?;
        }
        let owner = Owner { term, node: self.issued.node().id(), session: self.session };
        if self.advancing.as_ref().is_some_and(JoinHandle::is_finished) {
            drop(self.finish_advance(patience).await);
        }
        let current = self.issued.current().filter(|(current, _)| *current == owner);
        let age = current.map_or(Duration::MAX, |(_, start)| start.at.elapsed());
        if age > self.issued.epoch_age_max() {
            self.advance(owner, patience).await?;
        } else if age > self.options.epoch_interval && self.advancing.is_none() {
            self.begin_advance(owner)?;
        }
        Ok(owner)
    }

    /// Takes a new epoch for this owner, which follows the clock however far ahead it is. Cancel
    /// safe.
    pub(crate) async fn follow_at_once(
        &mut self,
        owner: Owner,
        patience: Duration,
    ) -> Result<(), OracleError> {
        // An advance that is under way was proposed before this was requested.
        drop(self.finish_advance(patience).await);
        if self.advancing.is_some() {
            return Err(OracleError::Unavailable(NodeError::TimedOut));
        }
        let last = self.last()?;
        let clock = self.issued.node().clock().now();
        let proposal = follow_at_once(clock, last).ok_or(OracleError::ClockTooHigh { clock })?;
        self.propose(owner, proposal);
        self.finish_advance(patience).await?;
        match self.reference {
            Some(start) if start.epoch >= proposal.wall => Ok(()),
            _ => Err(OracleError::Unavailable(NodeError::Unknown)),
        }
    }

    /// Hands out timestamps of this owner's epoch, if it has as many.
    pub(crate) fn take(
        &mut self,
        owner: Owner,
        count: u32,
        index_max: u64,
    ) -> Result<Option<Range>, OracleError> {
        self.issued.take(owner, count, index_max)
    }

    /// Takes a new epoch for this owner, because the indexes of the current one are used up. Waits
    /// until that was used for its millisecond. Cancel safe.
    pub(crate) async fn replace_used_up(
        &mut self,
        owner: Owner,
        patience: Duration,
    ) -> Result<(), OracleError> {
        let began = Instant::now();
        if let Some((_, start)) = self.issued.current() {
            sleep_until(start.at + EPOCH_USE_MIN).await;
        }
        self.advance(owner, patience.saturating_sub(began.elapsed())).await
    }

    /// Takes a new epoch for this owner. Cancel safe.
    async fn advance(&mut self, owner: Owner, patience: Duration) -> Result<(), OracleError> {
        let began = Instant::now();
        let before = self.issued.current().map(|(_, start)| start.epoch);
        // An advance that began earlier may be of another term.
        for _ in 0..2 {
            if self.advancing.is_none() {
                self.begin_advance(owner)?;
            }
            let advanced = self.finish_advance(patience.saturating_sub(began.elapsed())).await;
            let current = self.issued.current();
            if current.is_some_and(|(ours, start)| ours == owner && Some(start.epoch) > before) {
                return Ok(());
            }
            self.issued.check()?;
            advanced?;
        }
        Err(OracleError::Unavailable(NodeError::Unknown))
    }

    fn begin_advance(&mut self, owner: Owner) -> Result<(), OracleError> {
        let proposal = self.follow().inspect_err(|error| {
            count(&self.counters.failed_advances, 1);
            self.failures.fail(error);
        })?;
        self.propose(owner, proposal);
        Ok(())
    }

    /// The last epoch. Fails if there is none after it.
    fn last(&self) -> Result<u64, OracleError> {
        let epochs = self.issued.epochs();
        if epochs.are_used_up() { Err(OracleError::NoEpochLeft) } else { Ok(epochs.last()) }
    }

    fn propose(&mut self, owner: Owner, proposal: EpochProposal) {
        debug_assert!(self.advancing.is_none(), "one advance at a time is under way");
        self.report(proposal.step);
        let command = Advance { owner, wall: proposal.wall }.encode();
        let (issued, patience) = (Arc::clone(&self.issued), self.options.patience);
        let span = tracing::info_span!(target: SPAN_TARGET, "advance the epoch", owner.term);
        let advance = async move {
            let answer = issued.node().propose(command, patience).await;
            // At once: the next request may come much later.
            let taken_up = answer.and_then(|answer| issued.take_up(owner, &answer));
            issued.renew();
            taken_up
        };
        self.failures.begin();
        self.advancing = Some(tokio::spawn(advance.instrument(span)));
    }

    /// The epoch to propose.
    fn follow(&self) -> Result<EpochProposal, OracleError> {
        let last = self.last()?;
        let own = self.issued.node().clock().now();
        let clocks = self.prover.voter_clocks();
        self.clock.compare(&clocks);
        let largest_step = self.options.max_clock_step;
        if let Some(start) = self.reference {
            let reference = Reference { epoch: start.epoch, age: start.at.elapsed() };
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

    /// Reports a step of the clock, once.
    fn report(&self, step: Step) {
        let before = self.clock.replace_step(step);
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
    async fn finish_advance(&mut self, patience: Duration) -> Result<(), NodeError> {
        let Some(advancing) = self.advancing.as_mut() else { return Ok(()) };
        let Ok(ended) = tokio::time::timeout(patience, advancing).await else {
            return Err(NodeError::TimedOut);
        };
        self.advancing = None;
        let advanced = ended.unwrap_or_else(|error| match error.try_into_panic() {
            // The task that issues timestamps ends with it, and the process notices that.
            Ok(panic) => resume_unwind(panic),
            Err(_) => Err(NodeError::Unknown),
        });
        match &advanced {
            Err(NodeError::TimedOut | NodeError::NoQuorum) => {
                self.failures.time_out(self.options.patience);
            }
            _ => self.failures.answer(),
        }
        match &advanced {
            Ok(start) => {
                debug_assert!(
                    start.is_none_or(|start| {
                        self.reference.is_none_or(|before| before.epoch < start.epoch)
                    }),
                    "the epochs of a process rise"
                );
                count(&self.counters.advances, 1);
                self.failures.succeed();
                self.reference = start.or(self.reference);
            }
            Err(error) => {
                count(&self.counters.failed_advances, 1);
                self.failures.fail(error);
            }
        }
        if self.failures.missed() >= self.options.failed_advances {
            self.counters.gave_up.send_replace(true);
        }
        advanced.map(drop)
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

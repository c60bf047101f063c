//! Appending: assigns a payload its place in the order, and returns a ticket.
//!
//! The appending thread computes its record's checksum outside the lock. The unit's header holds
//! the sum of the checksums, which does not depend on the order in which the threads finish.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Instant;

use esker_disk::process;

use crate::base::log_error::refuse_if_forked;
use crate::base::operation_errors::AppendError;
use crate::base::position::{Position, RecordPlace, Seq};
use crate::base::purpose::Purpose;
use crate::commit::core::schedule::Event;
use crate::commit::core::{Need, Placement, Refusal};
use crate::commit::preallocation::Space;
use crate::commit::space_request::SpaceRequest;
use crate::commit::write_half::WriteHalf;
use crate::runtime::parked_thread::{park, thread_waker};
use crate::runtime::waiters::{Registration, WaitCondition};
use crate::staging::fill_tracker::FillTracker;
use crate::write::input::Input;
use crate::write::ticket::Ticket;

pub(crate) type Accepted = (u64, u64, Position);

/// Keeps the unit of a copied record from being committed until it is dropped. It is also dropped
/// when a caller's closure panics: otherwise nothing would ever be committed again.
#[derive(Debug)]
pub(crate) struct FillGuard<'a> {
    fill_tracker: &'a FillTracker,
    bytes: u32,
    crc: u32,
    unit: u64,
    pub(crate) place: RecordPlace,
}

impl FillGuard<'_> {
    pub(crate) fn release(self) -> Accepted {
        (self.place.seq.0, self.unit, self.place.position)
    }
}

impl Drop for FillGuard<'_> {
    fn drop(&mut self) {
        self.fill_tracker.filled(self.bytes, self.crc);
    }
}

impl WriteHalf {
    /// Attempts an append without waiting for room or for disk space.
    pub(crate) fn without_waiting<T>(
        &self,
        attempt: impl FnMut() -> Result<T, Refusal>,
    ) -> Result<T, AppendError> {
        refuse_if_forked()?;
        self.while_space(attempt, |need| match self.preallocates_itself() {
            true => self.preallocate_or_full(need),
            false => Err(self.leave_space(need)),
        })
    }

    /// Accepts a record without waiting for room, but preallocates space on this thread.
    pub(crate) fn try_append_here(&self, record: Input<'_>) -> Result<Ticket, AppendError> {
        refuse_if_forked()?;
        let accepted = self.while_space(
            || self.accept(record, Purpose::Ordinary),
            |need| self.preallocate_or_full(need),
        )?;
        Ok(self.ticket(accepted))
    }

    /// Preallocates space without waiting for a commit, and requests one that may free some.
    fn preallocate_or_full(&self, need: Need) -> Result<(), AppendError> {
        match self.preallocate(need, self.preallocates_itself())? {
            Space::Preallocated => return Ok(()),
            Space::AfterCommit { unit } => self.on(Event::TicketPolled { unit }),
            Space::AfterChange => {}
        }
        Err(AppendError::Full)
    }

    fn while_space<T>(
        &self,
        mut attempt: impl FnMut() -> Result<T, Refusal>,
        mut preallocate: impl FnMut(Need) -> Result<(), AppendError>,
    ) -> Result<T, AppendError> {
        loop {
            match attempt() {
                Ok(done) => return Ok(done),
                Err(Refusal::NeedsSpace(need)) => preallocate(need)?,
                Err(Refusal::Full) => return Err(AppendError::Full),
                Err(Refusal::Error(error)) => return Err(error),
                Err(Refusal::Broken(broken)) => return Err(self.broken(broken).into()),
            }
        }
    }

    /// As `with_room`, but waits as a pending future.
    pub(crate) async fn with_room_async<T>(
        &self,
        mut attempt: impl FnMut() -> Result<T, Refusal>,
    ) -> Result<T, AppendError> {
        let mut place = Registration::new(&self.waiters);
        let mut request = SpaceRequest::default();
        poll_fn(|cx| {
            let log = self;
            refuse_if_forked()?;
            let mut registered = false;
            loop {
                let need = match attempt() {
                    Ok(done) => return Poll::Ready(Ok(done)),
                    Err(Refusal::Error(error)) => return Poll::Ready(Err(error)),
                    Err(Refusal::Broken(broken)) => {
                        return Poll::Ready(Err(log.broken(broken).into()));
                    }
                    Err(Refusal::NeedsSpace(need)) if log.preallocates_itself() => {
                        match log.preallocate_or_full(need) {
                            Ok(()) => continue,
                            // The commit is requested, and ends the wait.
                            Err(AppendError::Full) => None,
                            Err(error) => return Poll::Ready(Err(error)),
                        }
                    }
                    Err(Refusal::NeedsSpace(need)) => Some(need),
                    Err(Refusal::Full) => None,
                };
                let last_attempt = registered;
                registered = true;
                log.waiters.register(&mut place.key, WaitCondition::Room, cx.waker());
                match need {
                    // Request after registering, so that the answer is not missed.
                    Some(need) => match log.request_space(need, &mut request) {
                        Ok(()) => return Poll::Pending,
                        Err(error) => return Poll::Ready(Err(error)),
                    },
                    None if last_attempt => break,
                    None => {}
                }
            }
            log.on(Event::RoomPolled);
            Poll::Pending
        })
        .await
    }

    pub(crate) fn ticket(&self, (seq, unit, position): Accepted) -> Ticket {
        Ticket::new(self.strong_self(), seq, unit, position)
    }

    pub(crate) fn check_batch(&self, records: &[Input<'_>]) -> Result<(), AppendError> {
        refuse_if_forked()?;
        self.lock().core.check_batch(records.iter().map(Input::size))?;
        Ok(())
    }

    /// Takes a place under the lock, and fills it without the lock.
    pub(crate) fn accept(&self, record: Input<'_>, purpose: Purpose) -> Result<Accepted, Refusal> {
        self.accept_then(record, purpose, |_| {})
    }

    /// As [`WriteHalf::accept`]. Calls `placed` without the lock, before the record can become
    /// durable.
    #[inline]
    pub(crate) fn accept_then(
        &self,
        record: Input<'_>,
        purpose: Purpose,
        placed: impl FnOnce(RecordPlace),
    ) -> Result<Accepted, Refusal> {
        let Input { numbering, payload } = record;
        let mut state = self.lock();
        let placement = state.core.place(numbering, payload.len(), purpose)?;
        self.on_accepted(&mut state);
        drop(state);
        let guard = self.copy(placement, payload);
        placed(guard.place);
        Ok(guard.release())
    }

    #[inline]
    fn copy(&self, placed: Placement, payload: &[u8]) -> FillGuard<'_> {
        let Placement { place, buffer, unit, position } = placed;
        let fill_tracker = self.fill_tracker(unit);
        let len = payload.len() as u32;
        let of = RecordPlace { seq: Seq(place.seq), position, len };
        let (bytes, crc) = place.fill(&buffer, payload);
        FillGuard { fill_tracker, bytes, crc, unit, place: of }
    }

    /// Accepts records atomically. `None` without records.
    pub(crate) fn accept_whole(&self, records: &[Input<'_>]) -> Result<Option<Accepted>, Refusal> {
        let guard = self.accept_whole_then(records, |_| {})?;
        Ok(guard.map(FillGuard::release))
    }

    /// As [`WriteHalf::accept_whole`]. Calls `placed` with the place of each, under the lock. The
    /// records can become durable only when what this returns is dropped. `None` without records.
    pub(crate) fn accept_whole_then(
        &self,
        records: &[Input<'_>],
        mut placed: impl FnMut(RecordPlace),
    ) -> Result<Option<FillGuard<'_>>, Refusal> {
        let mut state = self.lock();
        let stored = state.core.check_batch(records.iter().map(Input::size))?;
        if records.is_empty() {
            return Ok(None);
        }
        state.core.prepare_batch(stored)?;
        let mut last = None;
        // The places are filled under the lock, one after another, so the unit cannot be sealed
        // between them.
        for &Input { numbering, payload } in records {
            let place = state.core.place_prepared(numbering, payload.len())?;
            let guard = self.copy(place, payload);
            placed(guard.place);
            last = Some(guard);
        }
        self.on_accepted(&mut state);
        Ok(last)
    }

    /// Whether the largest record would find room now, or would be refused for another reason.
    pub(crate) fn has_room(&self) -> bool {
        process::is_forked() || self.lock().core.has_room()
    }

    /// Whether a commit can still make this unit durable, and wakes who waits when it ends.
    fn is_undecided(&self, unit: u64) -> bool {
        let state = self.lock();
        state.core.failure().is_none() && state.core.durable().unit < unit
    }

    /// Whether there is no engine thread that would preallocate space for a caller.
    fn preallocates_itself(&self) -> bool {
        self.engine.is_manual()
    }

    /// Retries until there is room. A commit ends a wait, and the caller runs it if no other thread
    /// does. Space is preallocated on this thread, except for callers with a deadline.
    pub(crate) fn with_room<T>(
        &self,
        deadline: Option<Instant>,
        mut attempt: impl FnMut() -> Result<T, Refusal>,
    ) -> Result<T, AppendError> {
        refuse_if_forked()?;
        let mut place = Registration::new(&self.waiters);
        let mut registered = false;
        let mut request = SpaceRequest::default();
        loop {
            match attempt() {
                Ok(done) => return Ok(done),
                Err(Refusal::Error(error)) => return Err(error),
                Err(Refusal::Broken(broken)) => return Err(self.broken(broken).into()),
                Err(Refusal::NeedsSpace(need))
                    if deadline.is_none() || self.preallocates_itself() =>
                {
                    match self.preallocate(need, true)? {
                        Space::Preallocated | Space::AfterChange => {}
                        Space::AfterCommit { unit } => {
                            if !self.drive(unit, deadline) {
                                // Right before parking: preallocating may use the thread's wake.
                                self.waiters.register(
                                    &mut place.key,
                                    WaitCondition::Room,
                                    &thread_waker(),
                                );
                                if self.is_undecided(unit) && !park(deadline) {
                                    return Err(AppendError::Timeout);
                                }
                            }
                        }
                    }
                    // A commit that ended meanwhile has taken the waker.
                    registered = false;
                }
                Err(Refusal::NeedsSpace(need)) => {
                    self.waiters.register(&mut place.key, WaitCondition::Room, &thread_waker());
                    self.request_space(need, &mut request)?;
                    if !park(deadline) {
                        return Err(AppendError::Timeout);
                    }
                }
                Err(Refusal::Full) if registered => {
                    if !park(deadline) {
                        return Err(AppendError::Timeout);
                    }
                    registered = false;
                }
                Err(Refusal::Full) => {
                    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                        return Err(AppendError::Timeout);
                    }
                    if !self.drive_one(deadline) {
                        // Register before the next attempt, so that a commit that ends in between
                        // is not missed.
                        self.waiters.register(&mut place.key, WaitCondition::Room, &thread_waker());
                        registered = true;
                    }
                }
            }
        }
    }
}

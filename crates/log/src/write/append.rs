//! Appending: assigns a payload its place in the order, and returns a ticket.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Instant;

use crate::base::error::{Error, Result};
use crate::base::position::{Position, Seq};
use crate::commit::core::schedule::Event;
use crate::commit::core::{Need, Placement, Refusal};
use crate::commit::space_request::SpaceRequest;
use crate::commit::write_half::WriteHalf;
use crate::runtime::waiters::{For, Registered, park, thread_waker};
use crate::write::input::Input;
use crate::write::ticket::Ticket;

pub(crate) type Accepted = (u64, u64, Position);

impl WriteHalf {
    /// Attempts an append without waiting for room or for disk space to be reserved.
    pub(crate) fn without_waiting<T>(
        &self,
        attempt: impl FnMut() -> std::result::Result<T, Refusal>,
    ) -> Result<T> {
        Self::while_space(attempt, |need| match self.reserves_itself() {
            true => self.reserve(need),
            false => Err(self.leave_space(need)),
        })
    }

    /// Accepts a record without waiting for room, but reserves space on this thread.
    pub(crate) fn try_append_here(&self, record: Input<'_>) -> Result<Ticket> {
        let accepted = Self::while_space(|| self.accept(record, false), |need| self.reserve(need))?;
        Ok(self.ticket(accepted))
    }

    fn while_space<T>(
        mut attempt: impl FnMut() -> std::result::Result<T, Refusal>,
        mut reserve: impl FnMut(Need) -> Result<()>,
    ) -> Result<T> {
        loop {
            match attempt() {
                Ok(done) => return Ok(done),
                Err(Refusal::NeedsSpace(need)) => reserve(need)?,
                Err(Refusal::Full) => return Err(Error::Full),
                Err(Refusal::Error(error)) => return Err(error),
            }
        }
    }

    /// As `with_room`, but waits as a pending future.
    pub(crate) async fn with_room_async<T>(
        &self,
        mut attempt: impl FnMut() -> std::result::Result<T, Refusal>,
    ) -> Result<T> {
        let mut place = Registered::new(&self.waiters);
        let mut request = SpaceRequest::default();
        poll_fn(|cx| {
            let log = self;
            let mut registered = false;
            loop {
                let need = match attempt() {
                    Ok(done) => return Poll::Ready(Ok(done)),
                    Err(Refusal::Error(error)) => return Poll::Ready(Err(error)),
                    Err(Refusal::NeedsSpace(need)) if log.reserves_itself() => {
                        match log.reserve(need) {
                            Ok(()) => continue,
                            Err(error) => return Poll::Ready(Err(error)),
                        }
                    }
                    Err(Refusal::NeedsSpace(need)) => Some(need),
                    Err(Refusal::Full) => None,
                };
                let last_attempt = registered;
                registered = true;
                log.waiters.register(&mut place.key, For::Room, cx.waker());
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

    pub(crate) fn check_batch(&self, records: &[Input<'_>]) -> Result<()> {
        self.lock().core.check_batch(records.iter().map(Input::size))?;
        Ok(())
    }

    /// Takes a place under the lock, and fills it without the lock.
    pub(crate) fn accept(
        &self,
        record: Input<'_>,
        internal: bool,
    ) -> std::result::Result<Accepted, Refusal> {
        let Input { numbering, payload } = record;
        let mut state = self.lock();
        let placed = state.core.reserve(numbering, payload.len(), internal)?;
        self.on_accepted(&mut state);
        drop(state);
        Ok(self.fill(placed, payload))
    }

    /// As [`WriteHalf::accept`], of a record that may use half of the reserve.
    pub(crate) fn accept_freeing(
        &self,
        record: Input<'_>,
    ) -> std::result::Result<Accepted, Refusal> {
        let Input { numbering, payload } = record;
        let mut state = self.lock();
        let internal = state.core.lends_reserve();
        let placed = state.core.reserve(numbering, payload.len(), internal)?;
        self.on_accepted(&mut state);
        drop(state);
        Ok(self.fill(placed, payload))
    }

    fn fill(&self, placed: Placement, payload: &[u8]) -> Accepted {
        let Placement { place, buffer, unit, position } = placed;
        let seq = place.seq;
        let (bytes, crc) = place.fill(&buffer, payload);
        self.fill_tracker(unit).filled(bytes, crc);
        (seq, unit, position)
    }

    pub(crate) fn append_whole(
        &self,
        records: &[Input<'_>],
    ) -> std::result::Result<Option<Ticket>, Refusal> {
        self.append_whole_each(records, |_, _| {})
    }

    /// Appends records atomically. Calls `placed` with the number and position of each, under the
    /// lock.
    pub(crate) fn append_whole_each(
        &self,
        records: &[Input<'_>],
        mut placed: impl FnMut(Seq, Position),
    ) -> std::result::Result<Option<Ticket>, Refusal> {
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
            let place = state.core.reserve_prepared(numbering, payload.len())?;
            let accepted = self.fill(place, payload);
            placed(Seq(accepted.0), accepted.2);
            last = Some(accepted);
        }
        self.on_accepted(&mut state);
        drop(state);
        Ok(last.map(|accepted| self.ticket(accepted)))
    }

    /// Whether the largest record would find room now, or would be refused for another reason.
    pub(crate) fn has_room(&self) -> bool {
        self.lock().core.has_room()
    }

    /// Whether there is no engine thread that would reserve space for a caller.
    fn reserves_itself(&self) -> bool {
        self.engine.is_manual()
    }

    /// Retries until there is room. A commit ends a wait, and the caller runs it if no other thread
    /// does. Space is reserved on this thread, except for callers with a deadline.
    pub(crate) fn with_room<T>(
        &self,
        deadline: Option<Instant>,
        mut attempt: impl FnMut() -> std::result::Result<T, Refusal>,
    ) -> Result<T> {
        let mut place = Registered::new(&self.waiters);
        let mut registered = false;
        let mut request = SpaceRequest::default();
        loop {
            match attempt() {
                Ok(done) => return Ok(done),
                Err(Refusal::Error(error)) => return Err(error),
                Err(Refusal::NeedsSpace(need)) if deadline.is_none() || self.reserves_itself() => {
                    self.reserve(need)?;
                }
                Err(Refusal::NeedsSpace(need)) => {
                    self.waiters.register(&mut place.key, For::Room, &thread_waker());
                    self.request_space(need, &mut request)?;
                    if !park(deadline) {
                        return Err(Error::Timeout);
                    }
                }
                Err(Refusal::Full) if registered => {
                    if !park(deadline) {
                        return Err(Error::Timeout);
                    }
                    registered = false;
                }
                Err(Refusal::Full) => {
                    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                        return Err(Error::Timeout);
                    }
                    if !self.drive_one(deadline) {
                        // Register before the next attempt, so that a commit that ends in between
                        // is not missed.
                        self.waiters.register(&mut place.key, For::Room, &thread_waker());
                        registered = true;
                    }
                }
            }
        }
    }
}

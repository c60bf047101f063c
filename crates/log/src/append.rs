//! Appending: from a payload to a place in the order and a ticket.

use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::core::{Need, Placed, Refusal};
use crate::error::{Error, Result};
use crate::input::{Append, Input, Inputs};
use crate::log::{Log, Shared};
use crate::space::Asking;
use crate::ticket::Ticket;
use crate::waiters::{For, park, thread_waker};

impl Log {
    /// Accepts a record: gives it its place in the order and copies the payload. The ticket tells
    /// when it is durable.
    ///
    /// Waits, blocking, while the staging memory is full or the policy allows no more records at
    /// risk; that ends with a commit, which this call drives itself if nobody else does. In async
    /// code [`Log::append_async`] waits without blocking.
    ///
    /// No memory is allocated for a record.
    ///
    /// # Errors
    /// [`Error::TooLarge`]; [`Error::Sequence`] and [`Error::Conflict`] for a numbered record that
    /// does not follow the last one; [`Error::NoSpace`] on a full disk, after which the log goes on;
    /// [`Error::Io`] when a segment could not be made for another reason, after which it does not;
    /// [`Error::Poisoned`], [`Error::Closed`], [`Error::Stopped`]. In all these cases nothing was
    /// accepted.
    pub fn append(&self, record: impl Append) -> Result<Ticket> {
        self.append_until(&record, None)
    }

    /// As [`Log::append`], for records that a component needs in order to give space back:
    /// checkpoints, floors, copies of what is still live. They may use the reserve of preallocated
    /// space, which ordinary appends may not. Blocks.
    ///
    /// # Durability
    /// As [`Log::append`].
    ///
    /// # Errors
    /// As [`Log::append`]; [`Error::NoSpace`] when the reserve is used up, too.
    pub fn append_internal(&self, record: impl Append) -> Result<Ticket> {
        let record = Input::take(&record);
        let accepted = self.shared.with_room(None, || self.shared.accept(record, true))?;
        Ok(self.shared.ticket(accepted))
    }

    /// As [`Log::append`], but waits for room no longer than this. The commit that makes
    /// room is left to the engine, so that a disk that hangs does not hold up this call.
    ///
    /// # Errors
    /// As [`Log::append`], and [`Error::Deadline`] when nothing was accepted in time.
    pub fn append_timeout(&self, record: impl Append, timeout: Duration) -> Result<Ticket> {
        self.append_until(&record, Instant::now().checked_add(timeout))
    }

    /// As [`Log::append`], but does not wait for room, nor for space to be reserved on the disk.
    ///
    /// # Errors
    /// As [`Log::append`], and [`Error::Full`].
    pub fn try_append(&self, record: impl Append) -> Result<Ticket> {
        self.try_while(Input::take(&record), |need| match self.shared.reserves_itself() {
            true => self.shared.reserve(need),
            false => Err(self.shared.leave_space(need)),
        })
    }

    /// As [`Log::try_append`], but reserves space on this thread.
    pub(crate) fn try_append_here(&self, record: &impl Append) -> Result<Ticket> {
        self.try_while(Input::take(record), |need| self.shared.reserve(need))
    }

    fn try_while(
        &self,
        record: Input<'_>,
        mut reserve: impl FnMut(Need) -> Result<()>,
    ) -> Result<Ticket> {
        loop {
            match self.shared.accept(record, false) {
                Ok(accepted) => return Ok(self.shared.ticket(accepted)),
                Err(Refusal::NeedsSpace(need)) => reserve(need)?,
                Err(Refusal::Full) => return Err(Error::Full),
                Err(Refusal::Error(error)) => return Err(error),
            }
        }
    }

    /// As [`Log::append`], but a wait for room is a pending future.
    ///
    /// Cancel-safe: a future that is dropped before it is ready has accepted nothing.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub async fn append_async(&self, record: impl Append) -> Result<Ticket> {
        Ok(self.shared.ticket(self.accept_async(Input::take(&record)).await?))
    }

    async fn accept_async(&self, record: Input<'_>) -> Result<Accepted> {
        let mut place = Registered { shared: &self.shared, key: None };
        let mut asking = Asking::default();
        poll_fn(|cx| {
            let shared = &self.shared;
            let mut registered = false;
            loop {
                let need = match shared.accept(record, false) {
                    Ok(accepted) => return Poll::Ready(Ok(accepted)),
                    Err(Refusal::Error(error)) => return Poll::Ready(Err(error)),
                    Err(Refusal::NeedsSpace(need)) if shared.reserves_itself() => {
                        match shared.reserve(need) {
                            Ok(()) => continue,
                            Err(error) => return Poll::Ready(Err(error)),
                        }
                    }
                    Err(Refusal::NeedsSpace(need)) => Some(need),
                    Err(Refusal::Full) => None,
                };
                let last_look = registered;
                registered = true;
                shared.waiters.register(&mut place.key, For::Room, cx.waker());
                match need {
                    // Asked behind the registration, so that the answer is not missed.
                    Some(need) => match shared.ask_for_space(need, &mut asking) {
                        Ok(()) => return Poll::Pending,
                        Err(error) => return Poll::Ready(Err(error)),
                    },
                    None if last_look => break,
                    None => {}
                }
            }
            let state = shared.lock();
            shared.kick(&state);
            Poll::Pending
        })
        .await
    }

    /// Accepts records in order, each on its own: a crash may keep any prefix of them. There may be
    /// any number of them, of any size together. The ticket is that of the last.
    ///
    /// Everything is checked before anything is accepted. Without records the ticket is that of the
    /// last record accepted so far.
    ///
    /// # Errors
    /// As [`Log::append`]. When the log fails in the middle, or the disk is full there, a prefix was
    /// accepted ([`Log::accepted`] says how long it is); so it was when
    /// another writer's record came between [`Numbered`](crate::Numbered) ones, which
    /// [`Log::append_atomic`] does not let happen.
    pub fn append_batch<A: Append>(&self, records: &[A]) -> Result<Ticket> {
        let records = Inputs::take(records);
        self.shared.check_batch(&records)?;
        let mut last = None;
        for &record in &*records {
            // A ticket that is replaced was never looked at, and asks for nothing.
            last = Some(self.shared.append_until_quietly(record, None)?);
        }
        match last {
            Some(accepted) => Ok(self.shared.ticket(accepted)),
            None => self.flush(),
        }
    }

    /// As [`Log::append_batch`], but waits for room are pending futures.
    ///
    /// A future that is dropped before it is ready has accepted a prefix of the records.
    ///
    /// # Errors
    /// As [`Log::append_batch`].
    pub async fn append_batch_async<A: Append>(&self, records: &[A]) -> Result<Ticket> {
        let records = Inputs::take(records);
        self.shared.check_batch(&records)?;
        let mut last = None;
        for &record in &*records {
            last = Some(self.accept_async(record).await?);
        }
        match last {
            Some(accepted) => Ok(self.shared.ticket(accepted)),
            None => self.flush(),
        }
    }

    /// Accepts records as one: after a crash all of them are there, or none. Together they take at
    /// most 64 MiB, and 16 to 23 bytes more for each.
    ///
    /// # Errors
    /// As [`Log::append`], and [`Error::BatchTooLarge`].
    pub fn append_atomic<A: Append>(&self, records: &[A]) -> Result<Ticket> {
        let records = Inputs::take(records);
        match self.shared.with_room(None, || self.shared.append_whole(&records))? {
            Some(ticket) => Ok(ticket),
            None => self.flush(),
        }
    }

    /// A barrier: a ticket that resolves when everything accepted before this call is durable.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Closed`] or [`Error::Stopped`] when the log takes no more
    /// records.
    pub fn flush(&self) -> Result<Ticket> {
        let state = self.shared.lock();
        if let Some(latch) = state.core.latch() {
            return Err(latch.refusal());
        }
        let (seq, unit) = (state.core.last_seq(), state.core.last_unit());
        drop(state);
        let position = crate::Position(self.shared.published.position());
        Ok(self.shared.ticket((seq, unit, position)))
    }

    fn append_until(&self, record: &impl Append, deadline: Option<Instant>) -> Result<Ticket> {
        let record = Input::take(record);
        Ok(self.shared.ticket(self.shared.append_until_quietly(record, deadline)?))
    }
}

type Accepted = (u64, u64, crate::Position);

impl Shared {
    fn ticket(&self, (seq, unit, position): Accepted) -> Ticket {
        Ticket::new(self.me(), seq, unit, position)
    }

    fn check_batch(&self, records: &[Input<'_>]) -> Result<()> {
        self.lock().core.check_batch(records.iter().map(Input::size))?;
        Ok(())
    }

    fn append_until_quietly(
        &self,
        record: Input<'_>,
        deadline: Option<Instant>,
    ) -> Result<Accepted> {
        self.with_room(deadline, || self.accept(record, false))
    }

    /// Takes a place under the lock, and fills it without.
    fn accept(&self, record: Input<'_>, internal: bool) -> std::result::Result<Accepted, Refusal> {
        let Input { numbering, payload } = record;
        let mut state = self.lock();
        let placed = state.core.place(numbering, payload.len(), internal)?;
        self.start_period(&mut state);
        self.kick(&state);
        self.came_back(&state);
        drop(state);
        Ok(self.fill(placed, payload))
    }

    fn fill(&self, placed: Placed, payload: &[u8]) -> Accepted {
        let Placed { place, window, unit, position } = placed;
        let seq = place.seq;
        let (bytes, crc) = place.fill(&window, payload);
        self.progress(unit).filled(bytes, crc);
        (seq, unit, position)
    }

    fn append_whole(&self, records: &[Input<'_>]) -> std::result::Result<Option<Ticket>, Refusal> {
        let mut state = self.lock();
        let stored = state.core.check_batch(records.iter().map(Input::size))?;
        if records.is_empty() {
            return Ok(None);
        }
        state.core.prepare_batch(records.len() as u64, stored)?;
        let mut last = None;
        // The places are filled under the lock, one after another: the unit cannot be sealed
        // between them.
        for &Input { numbering, payload } in records {
            let placed = state.core.place_prepared(numbering, payload.len())?;
            last = Some(self.fill(placed, payload));
        }
        self.start_period(&mut state);
        self.kick(&state);
        self.came_back(&state);
        drop(state);
        Ok(last.map(|accepted| self.ticket(accepted)))
    }

    /// Whether the largest record would find room now, or would be refused for another reason.
    pub(crate) fn has_room(&self) -> bool {
        self.lock().core.has_room()
    }

    /// Whether there is no thread that would reserve space for a caller.
    fn reserves_itself(&self) -> bool {
        self.engine.is_manual()
    }

    /// Tries until there is room. A wait ends with a commit, which the caller drives itself if nobody
    /// else does. Space is reserved on this thread, but for callers with a deadline.
    fn with_room<T>(
        &self,
        deadline: Option<Instant>,
        mut attempt: impl FnMut() -> std::result::Result<T, Refusal>,
    ) -> Result<T> {
        let mut place = Registered { shared: self, key: None };
        let mut registered = false;
        let mut asking = Asking::default();
        loop {
            match attempt() {
                Ok(done) => return Ok(done),
                Err(Refusal::Error(error)) => return Err(error),
                Err(Refusal::NeedsSpace(need)) if deadline.is_none() || self.reserves_itself() => {
                    self.reserve(need)?;
                }
                Err(Refusal::NeedsSpace(need)) => {
                    self.waiters.register(&mut place.key, For::Room, &thread_waker());
                    self.ask_for_space(need, &mut asking)?;
                    if !park(deadline) {
                        return Err(Error::Deadline);
                    }
                }
                Err(Refusal::Full) if registered => {
                    if !park(deadline) {
                        return Err(Error::Deadline);
                    }
                    registered = false;
                }
                Err(Refusal::Full) => {
                    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                        return Err(Error::Deadline);
                    }
                    if !self.drive_one(deadline) {
                        // Registered before the next attempt, so that a commit that ends between
                        // the two is not missed.
                        self.waiters.register(&mut place.key, For::Room, &thread_waker());
                        registered = true;
                    }
                }
            }
        }
    }
}

/// A place on the list of waiters that is given back when a future is dropped.
pub(crate) struct Registered<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) key: Option<crate::waiters::Key>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.shared.waiters.remove(key);
        }
    }
}

//! Preallocation by the engine, for callers that must not block.

use crate::base::operation_errors::AppendError;
use crate::commit::core::Need;
use crate::commit::core::schedule::Event;
use crate::commit::preallocation::Space;
use crate::commit::space_request::{Failed, SpaceRequest};
use crate::commit::write_half::WriteHalf;
use crate::runtime::deferred_wakes::wake_threads_first;

impl WriteHalf {
    /// Queues a request for space again that waited.
    pub(crate) fn retry_space(&self) {
        if std::mem::take(&mut self.lock().space.waits) {
            self.queue_commit();
        }
    }

    /// Requests space from the engine, for a caller that is registered as waiting for room.
    ///
    /// # Errors
    /// The error of a preallocation made since the caller's first request, if it failed.
    pub(crate) fn request_space(
        &self,
        need: Need,
        request: &mut SpaceRequest,
    ) -> Result<(), AppendError> {
        let mut state = self.lock();
        let requests = state.space.like(need);
        if let Some(at) = request.0 {
            if requests.handled < at {
                return Ok(());
            }
            // A failed request for more bytes says nothing about a smaller one.
            if let Some(failed) = &requests.failed
                && failed.bytes <= need.bytes
            {
                return Err(failed.error.clone());
            }
        }
        requests.made += 1;
        request.0 = Some(requests.made);
        requests.ask(need);
        drop(state);
        self.queue_commit();
        Ok(())
    }

    /// Leaves the preallocation to the engine, for a caller that does not wait. Returns that
    /// caller's error: that of the last request of any caller, unless segments left the log since.
    pub(crate) fn leave_space(&self, need: Need) -> AppendError {
        let drops = self.segments.drops();
        let mut request = {
            let mut state = self.lock();
            let requests = state.space.like(need);
            requests.failed.take_if(|failed| failed.drops != drops);
            SpaceRequest(Some(requests.made))
        };
        match self.request_space(need, &mut request) {
            Ok(()) => AppendError::Full,
            Err(error) => {
                let _ = self.request_space(need, &mut SpaceRequest::default());
                error
            }
        }
    }

    /// Preallocates the requested space, on a thread of the engine. If that has to wait for a
    /// commit or for another thread, the request stays, and the end of these queues it again.
    pub(crate) fn preallocate_requested(&self) {
        let requested = self.lock().space.take();
        for (need, made) in requested.into_iter().flatten() {
            self.preallocate_for(need, made);
        }
    }

    fn preallocate_for(&self, need: Need, made: u64) {
        let drops = self.segments.drops();
        let outcome = self.preallocate(need, false);
        let mut state = self.lock();
        let failed = match outcome {
            Ok(Space::AfterCommit { unit }) => {
                state.space.like(need).ask(need);
                let is_durable = state.core.durable().unit >= unit;
                state.space.waits |= !is_durable;
                drop(state);
                match is_durable {
                    true => self.queue_commit(),
                    false => self.on(Event::TicketPolled { unit }),
                }
                return;
            }
            Ok(Space::AfterChange) => {
                state.space.like(need).ask(need);
                state.space.waits = true;
                drop(state);
                // The other thread may have ended before it could see that.
                drop(self.try_change_segments());
                return;
            }
            Ok(Space::Preallocated) => None,
            Err(error) => Some(Failed { bytes: need.bytes, drops, error }),
        };
        let requests = state.space.like(need);
        // Another thread may have handled a later request meanwhile.
        if made >= requests.handled {
            (requests.handled, requests.failed) = (made, failed);
        }
        let mut wakers = Vec::new();
        drop(state);
        self.waiters.take_callers(0, &mut wakers);
        wake_threads_first(&mut wakers);
    }
}

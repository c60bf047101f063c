//! Calls for numbers of sequences: each has one request, with one key in all of its attempts.

use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::error::{AttemptError, Error};
use crate::leader::Leader;
use crate::sequence_error::{SequenceError, SequenceErrorKind};
use crate::sequence_request::{CallProgress, SequenceRequest};

/// The most requests at a time: fewer than the streams of a connection that a node accepts.
const SEQUENCE_REQUESTS_MAX: usize = 128;

/// The answer of a call.
pub(crate) type SequenceReply = Result<RangeInclusive<u64>, SequenceError>;

/// The bounds of a client's calls for numbers of sequences.
#[derive(Debug)]
pub(crate) struct SequenceCalls {
    calls: Arc<Semaphore>,
    calls_max: usize,
    requests: Semaphore,
}

impl SequenceCalls {
    /// Creates the bounds of a client with at most `calls_max` calls.
    pub(crate) fn new(calls_max: usize) -> Self {
        let requests = Semaphore::new(SEQUENCE_REQUESTS_MAX);
        Self { calls: Arc::new(Semaphore::new(calls_max)), calls_max, requests }
    }

    /// Admits one more call, which holds the permit to its end.
    ///
    /// # Errors
    /// [`Error::Busy`].
    pub(crate) fn admit(&self) -> Result<OwnedSemaphorePermit, Error> {
        let busy = Error::Busy { most: self.calls_max };
        Arc::clone(&self.calls).try_acquire_owned().map_err(|_| busy)
    }

    /// Asks until there is an answer, the deadline passes, or the caller is gone; and replies.
    pub(crate) async fn run(
        &self,
        leader: &Leader,
        request: &SequenceRequest,
        deadline: Instant,
        mut reply: oneshot::Sender<SequenceReply>,
    ) {
        let (progress, last) = (CallProgress::default(), Mutex::default());
        let mut asked = pin!(self.ask(leader, request, &progress, &last));
        tokio::select! {
            biased;
            ended = &mut asked => {
                if let Some(ended) = ended {
                    // The caller may be gone.
                    drop(reply.send(ended));
                }
                return;
            }
            () = tokio::time::sleep_until(deadline.into()) => {}
            () = reply.closed() => {}
        }
        progress.end();
        let kind = SequenceErrorKind::Deadline { last: last.lock().clone() };
        drop(reply.send(Err(request.error(kind, progress.may_have_taken()))));
        // A deadline that is shorter than connecting would start it over with each call.
        drop(asked.await);
    }

    /// Asks until there is an answer; `None` once no caller waits for one.
    async fn ask(
        &self,
        leader: &Leader,
        request: &SequenceRequest,
        progress: &CallProgress,
        last: &Mutex<Option<AttemptError>>,
    ) -> Option<SequenceReply> {
        loop {
            let Ok(_permit) = self.requests.acquire().await else {
                let error = Error::internal("the requests of a client are never closed");
                let may_have_taken = progress.may_have_taken();
                return Some(Err(request.error(SequenceErrorKind::Client(error), may_have_taken)));
            };
            if progress.is_over() {
                return None;
            }
            match leader.ask_sequence(request, progress).await {
                Ok(result) => {
                    let may_have_taken = progress.may_have_taken();
                    return Some(result.map_err(|kind| request.error(kind, may_have_taken)));
                }
                Err(failure) => {
                    let mut last = last.lock();
                    if let Some(failure) = failure.filter(|it| it.replaces(last.as_ref())) {
                        *last = Some(failure);
                    }
                }
            }
        }
    }
}

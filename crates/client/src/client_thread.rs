//! The thread of a client, and the requests that it sends, one for each batch.

use std::sync::Arc;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::Error;
use crate::leader::{Leader, RequestResult};
use crate::queue::{InFlightBatch, Queue, REQUEST_LANES};
use crate::sequence_call::SequenceCalls;

/// The most host names that are resolved, or files that are read, at a time. The system may take
/// long for one.
const LOOKUPS_MAX: usize = 16;

/// The state that the handles of a client and its thread share.
#[derive(Debug)]
pub(crate) struct ClientState {
    pub(crate) queue: Queue,
    pub(crate) leader: Leader,
    pub(crate) sequences: SequenceCalls,
}

/// Closes the queue when it is dropped, also by a panic: the callers get an error.
struct CloseOnDrop(Arc<ClientState>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.queue.close();
    }
}

/// Starts the thread, which ends when the queue is closed, and returns its runtime. One of the
/// caller may lack timers, or may not be driven while a call waits; then neither answers nor
/// deadlines would reach it.
pub(crate) fn start(state: &Arc<ClientState>) -> Result<Handle, Error> {
    let (started, starting) = std::sync::mpsc::sync_channel(1);
    let state = Arc::clone(state);
    let thread = std::thread::Builder::new().name("esker-client".into()).spawn(move || {
        let mut builder = Builder::new_current_thread();
        match builder.enable_all().max_blocking_threads(LOOKUPS_MAX).build() {
            Ok(runtime) => {
                drop(started.send(Ok(runtime.handle().clone())));
                serve(runtime, &state);
            }
            Err(error) => drop(started.send(Err(error))),
        }
    });
    thread.map_err(|error| Error::NoThread(Arc::new(error)))?;
    match starting.recv() {
        Ok(started) => started.map_err(|error| Error::NoThread(Arc::new(error))),
        Err(_) => Err(Error::internal("the thread of a client reports its start")),
    }
}

fn serve(runtime: Runtime, state: &Arc<ClientState>) {
    for lane in 0..REQUEST_LANES {
        runtime.spawn(send_requests(Arc::clone(state), lane));
    }
    runtime.block_on(expire_calls(Arc::clone(state)));
    // Lookups of host names are not waited for.
    runtime.shutdown_background();
}

/// Sends one request after the other, until the queue is closed.
async fn send_requests(state: Arc<ClientState>, lane: usize) {
    let state = CloseOnDrop(state);
    let ClientState { queue, leader, .. } = &*state.0;
    while let Some(batch) = queue.take(lane).await {
        let result = request(leader, &batch).await;
        queue.finish(batch, result);
    }
}

/// Wakes callers whose deadline passes, until the queue is closed.
async fn expire_calls(state: Arc<ClientState>) {
    let state = CloseOnDrop(state);
    state.0.queue.expire().await;
}

/// Asks until there is an answer, or no caller waits for one any longer. Deadlines of callers do
/// not interrupt an attempt, which has bounds of its own: a deadline that is shorter than the wait
/// before the next attempt, or than connecting, would start it over with each call.
async fn request(leader: &Leader, batch: &InFlightBatch) -> RequestResult {
    loop {
        if let Some(result) = leader.ask(batch.count, batch.width).await {
            return result;
        }
        if batch.is_abandoned() {
            return Err(Error::Deadline { last: leader.last_failure() });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::task::{Context, Poll, Waker};
    use std::time::{Duration, Instant};

    use esker_oracle::TimestampWidth;

    use super::*;
    use crate::address::Address;
    use crate::call::Call;
    use crate::transport::Transport;

    fn call(state: &ClientState) -> Call<'_> {
        let deadline = Instant::now() + Duration::from_secs(3600);
        Call::new(&state.queue, 1, TimestampWidth::Bits128, deadline)
    }

    fn state() -> Arc<ClientState> {
        let endpoint = Address::from_node("127.0.0.1:1").unwrap();
        let leader = Leader::new(Transport::Plain, vec![endpoint], None, Duration::from_secs(1));
        let sequences = SequenceCalls::new(9);
        Arc::new(ClientState { queue: Queue::new(9, 9), leader, sequences })
    }

    /// Callers are not left waiting for ever.
    #[test]
    fn calls_of_a_client_whose_thread_ended_fail() {
        let state = state();
        let mut waiting = std::pin::pin!(call(&state));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        drop(CloseOnDrop(Arc::clone(&state)));
        let late = std::pin::pin!(call(&state)).poll(&mut context);
        for ended in [waiting.poll(&mut context), late] {
            assert!(matches!(ended, Poll::Ready(Err(Error::Closed))), "{ended:?}");
        }
    }

    /// A client with a bug answers nothing more.
    #[test]
    fn a_broken_invariant_ends_all_calls() {
        let state = state();
        let mut context = Context::from_waker(Waker::noop());
        let mut sent = std::pin::pin!(call(&state));
        assert!(sent.as_mut().poll(&mut context).is_pending());
        let runtime = Builder::new_current_thread().build().unwrap();
        let batch = runtime.block_on(state.queue.take(0)).unwrap();
        let mut waiting = std::pin::pin!(call(&state));
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        state.queue.finish(batch, Err(Error::Internal { invariant: "two is two" }));
        state.queue.close();
        let late = std::pin::pin!(call(&state)).poll(&mut context);
        for ended in [sent.poll(&mut context), waiting.poll(&mut context), late] {
            let is_internal = matches!(ended, Poll::Ready(Err(Error::Internal { .. })));
            assert!(is_internal, "{ended:?}");
        }
    }
}

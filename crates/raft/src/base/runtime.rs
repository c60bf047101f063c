//! tokio with fewer ticks.

use std::cell::Cell;
use std::future::Future;
use std::time::Duration;

use openraft::{AsyncRuntime, OptionalSend};
use openraft_rt_tokio::TokioRuntime;

thread_local! {
    /// How much later a tick comes on this thread.
    static LATER: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// tokio as openraft's runtime, on threads that [`FewerTicks::on_this_thread`] was called on.
///
/// openraft looks at its deadlines five times in a heartbeat interval, which is most of what an
/// idle node does. It sleeps until an instant for these ticks alone, or for less than a
/// microsecond: here such a sleep ends later. The deadlines of heartbeats and elections stay as
/// they are, and are noticed later by that much at most.
#[derive(Debug)]
pub struct FewerTicks(TokioRuntime);

impl FewerTicks {
    /// One tick of three: the other two are four tenths of a round trip each.
    pub(crate) fn on_this_thread(round_trip: Duration) {
        LATER.set(round_trip * 4 / 5);
    }
}

impl AsyncRuntime for FewerTicks {
    type JoinError = <TokioRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <TokioRuntime as AsyncRuntime>::Sleep;
    type Instant = <TokioRuntime as AsyncRuntime>::Instant;
    type TimeoutError = <TokioRuntime as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> =
        <TokioRuntime as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = <TokioRuntime as AsyncRuntime>::ThreadLocalRng;
    type Mpsc = <TokioRuntime as AsyncRuntime>::Mpsc;
    type Watch = <TokioRuntime as AsyncRuntime>::Watch;
    type Oneshot = <TokioRuntime as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        TokioRuntime::spawn(future)
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        TokioRuntime::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        TokioRuntime::sleep_until(deadline + LATER.get())
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        duration: Duration,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: Self::Instant,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout_at(deadline, future)
    }

    fn is_panic(join_error: &Self::JoinError) -> bool {
        TokioRuntime::is_panic(join_error)
    }

    fn thread_rng() -> Self::ThreadLocalRng {
        TokioRuntime::thread_rng()
    }

    fn new(threads: usize) -> Self {
        Self(TokioRuntime::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Instant;

    use super::*;

    #[test]
    fn a_tick_is_later_on_the_threads_of_a_node_alone() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let sleep = || {
            let begun = Instant::now();
            runtime.block_on(async {
                FewerTicks::sleep_until(openraft::Instant::now()).await;
            });
            begun.elapsed()
        };
        assert_eq!(LATER.get(), Duration::ZERO);
        sleep();
        FewerTicks::on_this_thread(Duration::from_millis(50));
        assert!(sleep() >= Duration::from_millis(40));
    }
}

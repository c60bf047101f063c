//! openraft's runtime: tokio, with timers that fire at ticks, and a clock that counts suspended
//! time.

use std::future::Future;
use std::time::Duration;

use openraft::{AsyncRuntime, OptionalSend};
use openraft_rt_tokio::TokioRuntime;

use crate::base::boot_instant::BootInstant;
use crate::base::environment::{NodeRng, node_rng};
use crate::base::panic_monitor::monitored;
use crate::base::tick_clock::{Elapsed, Sleep, Timeout};

/// tokio, with timers that fire at the ticks of a [`TickClock`](crate::base::tick_clock::TickClock)
/// on the threads of a node.
///
/// openraft looks at its deadlines five times in a heartbeat interval, and gives each heartbeat a
/// deadline: that is most of what an idle node does. The deadlines stay as they are, and are
/// noticed at the next tick.
#[derive(Debug)]
pub struct NodeRuntime(TokioRuntime);

impl AsyncRuntime for NodeRuntime {
    type JoinError = <TokioRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::JoinHandle<T>;
    type Sleep = Sleep;
    type Instant = BootInstant;
    type TimeoutError = Elapsed;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = Timeout<T>;
    type ThreadLocalRng = NodeRng;
    type Mpsc = <TokioRuntime as AsyncRuntime>::Mpsc;
    #[cfg(feature = "simulation")]
    type Watch = crate::base::ordered_watch::NodeWatch;
    #[cfg(not(feature = "simulation"))]
    type Watch = <TokioRuntime as AsyncRuntime>::Watch;
    type Oneshot = <TokioRuntime as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        TokioRuntime::spawn(monitored("a task of openraft", future))
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        Sleep::until(tokio::time::Instant::now() + duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        Sleep::until(deadline.to_tokio())
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        duration: Duration,
        future: F,
    ) -> Self::Timeout<R, F> {
        Timeout::at(tokio::time::Instant::now() + duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: Self::Instant,
        future: F,
    ) -> Self::Timeout<R, F> {
        Timeout::at(deadline.to_tokio(), future)
    }

    fn is_panic(join_error: &Self::JoinError) -> bool {
        TokioRuntime::is_panic(join_error)
    }

    fn thread_rng() -> Self::ThreadLocalRng {
        node_rng()
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

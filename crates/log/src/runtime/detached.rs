//! Calls that block, for a task: each on a thread of its own.

use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::thread;

use esker_disk::process;
use parking_lot::Mutex;

/// The result of the call, once there is one, and who waits for it.
struct Call<T> {
    outcome: Option<thread::Result<T>>,
    waker: Option<Waker>,
}

/// Makes the call on a new thread, and waits for its result. For calls that are rare.
///
/// A future that is dropped after its first poll leaves the call to its thread, which drops the
/// result.
///
/// # Errors
/// An error of the system if it starts no thread: the call was not made. [`Refusal::Forked`] in a
/// child that `fork` made, also of a process that made the call before.
///
/// [`Refusal::Forked`]: esker_disk::Refusal::Forked
pub(crate) async fn detached<T: Send + 'static>(
    call: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    process::register()?;
    let waiting = Arc::new(Mutex::new(Call { outcome: None, waker: None }));
    let theirs = Arc::clone(&waiting);
    let run = move || {
        let outcome = catch_unwind(AssertUnwindSafe(call));
        let mut waiting = theirs.lock();
        waiting.outcome = Some(outcome);
        let waker = waiting.waker.take();
        drop(waiting);
        if let Some(waker) = waker {
            waker.wake();
        }
    };
    let thread = thread::Builder::new().name("esker-call".into());
    thread.spawn(run)?;
    let outcome: io::Result<thread::Result<T>> = poll_fn(|cx| {
        process::register()?;
        let mut waiting = waiting.lock();
        match waiting.outcome.take() {
            Some(outcome) => Poll::Ready(Ok(outcome)),
            None => {
                waiting.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    })
    .await;
    outcome?.map_or_else(|panic| resume_unwind(panic), Ok)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn block_on<T>(call: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .map(|here| here.block_on(call))
            .unwrap()
    }

    #[test]
    fn the_result_is_that_of_the_call() {
        assert_eq!(block_on(detached(|| 7)).unwrap(), 7);
    }

    #[test]
    fn a_panic_of_the_call_is_one_of_the_caller() {
        let called = || block_on(detached(|| -> () { resume_unwind(Box::new("why")) }));
        let panic = catch_unwind(called).err();
        assert_eq!(panic.and_then(|panic| panic.downcast_ref().copied()), Some("why"));
    }

    /// The thread drops what no one waits for.
    #[test]
    fn a_call_that_is_given_up_is_made() {
        let (send, made) = std::sync::mpsc::channel();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        struct Made(std::sync::mpsc::Sender<()>);
        impl Drop for Made {
            fn drop(&mut self) {
                let _ = self.0.send(());
            }
        }
        let mut call = Box::pin(detached(move || {
            let _ = wait.recv();
            Made(send)
        }));
        let mut cx = std::task::Context::from_waker(Waker::noop());
        assert!(call.as_mut().poll(&mut cx).is_pending());
        drop(call);
        drop(go);
        assert_eq!(made.recv(), Ok(()));
    }
}

//! The executor that awaits a call, and the runtime on which the client was built, do not matter.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use esker_client::{Client, Error};
use tokio::runtime::{Builder, Runtime};

use crate::fake::{Fake, HeldAnswers, Issuer, TEST_TIMEOUT};

/// The nodes run on this one.
fn driven() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Without timers and sockets.
fn bare() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

/// Runs it on a thread. A call that never ends fails the test.
fn on_a_thread<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (ended, ends): (_, Receiver<T>) = channel();
    std::thread::spawn(move || drop(ended.send(run())));
    ends.recv_timeout(TEST_TIMEOUT).unwrap()
}

/// The simplest executor.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        std::thread::park();
    }
}

/// Bug: the tasks of the client were on the runtime on which it was built. A call over another one
/// waited without end: neither an answer nor its deadline reached it.
#[test]
fn a_client_that_was_built_on_a_runtime_that_is_not_driven_serves() {
    let nodes = driven();
    let held = nodes.block_on(HeldAnswers::start(&Issuer::new()));
    let idle = Builder::new_current_thread().enable_all().build().unwrap();
    let client = {
        let _entered = idle.enter();
        held.fake.client().build().unwrap()
    };
    let call = |patience| {
        let client = client.clone();
        move || block_on(client.timestamps_by(1, std::time::Instant::now() + patience))
    };
    let error = on_a_thread(call(Duration::from_millis(100))).unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    held.release(2);
    assert_eq!(on_a_thread(call(TEST_TIMEOUT)).unwrap().first.index, 2);
}

/// Bug: the tasks of a client on a runtime without timers panicked.
#[test]
fn a_runtime_without_timers_and_sockets_is_enough() {
    let nodes = driven();
    let fake = nodes.block_on(Fake::issuing(&Issuer::new()));
    let builder = fake.client();
    let called = move || {
        bare().block_on(async { builder.build().unwrap().timestamp().await.map(|got| got.index) })
    };
    assert_eq!(on_a_thread(called).unwrap(), 1);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let builder = Client::builder().endpoint(address).timeout(Duration::from_millis(100));
    let called = move || bare().block_on(async { builder.build().unwrap().timestamp().await });
    let error = on_a_thread(called).unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
}

/// A client outside of any runtime, and one whose runtime ended.
#[test]
fn a_client_needs_no_runtime() {
    let nodes = driven();
    let fake = nodes.block_on(Fake::issuing(&Issuer::new()));
    let outside = fake.client().build().unwrap();
    let ended = bare().block_on(async { fake.client().build().unwrap() });
    let call = |client: Client| move || block_on(client.timestamp()).unwrap().index;
    assert_eq!([outside, ended].map(|client| on_a_thread(call(client))), [1, 2]);
}

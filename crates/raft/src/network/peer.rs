//! Calls to another node over one connection. Answers come back in any order.

use std::collections::HashMap;
use std::io;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::{FutureExt, SinkExt, StreamExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tokio_util::codec::Framed;

use crate::base::failure::{TerminalState, internal_cause};
use crate::network::address::Address;
use crate::network::frame::{Frame, FrameCodec};
use crate::network::handshake::Handshake;
use crate::network::message::{Answer, Request};
use crate::network::timeouts::{SILENCE_TIMEOUT, with_deadline};
use crate::network::transport::Connection;

/// The most calls without an answer on one connection.
pub(crate) const CALLS_MAX: usize = 256;
/// The time for opening a connection, in which three addresses of a host are tried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Call {
    request: Frame,
    answer: oneshot::Sender<io::Result<Answer>>,
}

/// Calls to one node. The connection is opened by the first call, and again by the first after it
/// failed. Dropping all clones closes it.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    calls: mpsc::Sender<Call>,
}

/// A call that was sent, or waits to be.
#[derive(Debug)]
pub(crate) struct PendingCall(oneshot::Receiver<io::Result<Answer>>);

impl PendingCall {
    /// Waits for the answer. The caller has a deadline of its own, or the connection's silence.
    pub(crate) async fn answer(self) -> io::Result<Answer> {
        self.0.await.unwrap_or_else(|_| Err(connection_ended()))
    }
}

fn connection_ended() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the connection ended")
}

impl Peer {
    /// Calls to the node at this address, on the runtime that this is called from.
    /// A broken invariant fails the node that has this terminal state.
    pub(crate) fn new(address: Address, handshake: Handshake, terminal: TerminalState) -> Self {
        let (calls, waiting) = mpsc::channel(CALLS_MAX);
        tokio::spawn(run_connections(address, handshake, waiting, terminal));
        Self { calls }
    }

    /// Sends a call after those that were sent before it. Waits while too many are not answered.
    pub(crate) async fn send(&self, request: &Request) -> io::Result<PendingCall> {
        let (answer, pending) = oneshot::channel();
        let call = Call { request: Frame::new(0, request)?, answer };
        self.calls.send(call).await.map_err(|_| connection_ended())?;
        Ok(PendingCall(pending))
    }

    /// Sends a call, and waits for the answer, for `timeout` together.
    pub(crate) async fn call(&self, request: &Request, timeout: Duration) -> io::Result<Answer> {
        with_deadline(timeout, async { self.send(request).await?.answer().await }).await
    }
}

/// Opens a connection, and checks that the other side accepts it.
pub(crate) async fn connect(address: &Address, handshake: &Handshake) -> io::Result<Connection> {
    with_deadline(CONNECT_TIMEOUT, async {
        let mut stream = address.connect(handshake.to).await?;
        handshake.write(&mut stream).await?;
        let answer = Handshake::read(&mut stream).await?;
        answer.check_welcome()?;
        if (answer.from, answer.to, answer.cluster)
            != (handshake.to, handshake.from, handshake.cluster)
        {
            return Err(io::Error::other("its handshake is for another connection"));
        }
        Ok(stream)
    })
    .await
}

/// Runs one connection after the other. Each is opened by the first call after the last one ended.
async fn run_connections(
    address: Address,
    handshake: Handshake,
    mut calls: mpsc::Receiver<Call>,
    terminal: TerminalState,
) {
    let mut is_known_down = false;
    while let Some(first) = calls.recv().await {
        // Its caller may have given up.
        if first.answer.is_closed() {
            continue;
        }
        let node = handshake.to;
        let connection = async {
            match connect(&address, &handshake).await {
                Ok(stream) => {
                    tracing::info!(node, address = &*address.get(), "connected to a node");
                    is_known_down = false;
                    exchange_frames(stream, first, &mut calls).await
                }
                Err(error) => {
                    let said = Err(io::Error::new(error.kind(), error.to_string()));
                    drop(first.answer.send(said));
                    Err(error)
                }
            }
        };
        // A panic ends this connection, and not those after it: the node would be out of reach.
        let ended = AssertUnwindSafe(connection).catch_unwind().await;
        let ended = ended.unwrap_or_else(|_| Err(io::Error::other("its task panicked")));
        if let Err(error) = ended {
            if !is_known_down {
                tracing::warn!(node, address = &*address.get(), %error, "a node cannot be reached");
            }
            is_known_down = true;
            if let Some(internal) = internal_cause(&error) {
                terminal.fail_internal(internal);
            }
        }
    }
}

/// Sends calls and hands out answers, until the connection fails or there are no more callers.
async fn exchange_frames(
    stream: Connection,
    first: Call,
    calls: &mut mpsc::Receiver<Call>,
) -> io::Result<()> {
    let mut frames = Framed::new(stream, FrameCodec::default());
    let mut waiting = HashMap::new();
    let (mut next, mut heard, mut to_send) = (0_u64, Instant::now(), Some(first));
    loop {
        if let Some(call) = to_send.take() {
            let mut call = Some(call);
            // Those that are there already go out together.
            while let Some(Call { request, answer }) = call {
                if waiting.is_empty() {
                    heard = Instant::now();
                }
                waiting.insert(next, answer);
                debug_assert!(waiting.len() <= CALLS_MAX, "the receiver reads as many calls");
                let frame = Frame { call: next, ..request };
                next += 1;
                with_deadline(SILENCE_TIMEOUT, frames.feed(frame)).await?;
                let has_room = waiting.len() < CALLS_MAX;
                call = if has_room { calls.try_recv().ok() } else { None };
            }
            with_deadline(SILENCE_TIMEOUT, frames.flush()).await?;
        }
        if waiting.len() >= CALLS_MAX {
            waiting.retain(|_, answer| !answer.is_closed());
        }
        let (is_waiting, has_room) = (!waiting.is_empty(), waiting.len() < CALLS_MAX);
        tokio::select! {
            biased;
            frame = frames.next() => {
                let Some(frame) = frame.transpose()? else { return Ok(()) };
                heard = Instant::now();
                if let Some(answer) = waiting.remove(&frame.call) {
                    drop(answer.send(frame.message()));
                }
            }
            call = calls.recv(), if has_room => match call {
                Some(call) => to_send = Some(call),
                None => return Ok(()),
            },
            () = sleep_until(heard + SILENCE_TIMEOUT), if is_waiting => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the node is silent"));
            }
        }
    }
}

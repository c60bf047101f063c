//! The listener of clients over TCP, and its connections.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hyper::body::{Body, Frame, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

use crate::http::body::AnswerBody;
use crate::http::client_connection::ConnectionState;
use crate::http::connection_slots::{ConnectionSlot, ConnectionSlots, RESERVE_TIMEOUT};
use crate::http::route;
use crate::idle::{AnswerGuard, IDLE_CHECK_INTERVAL, IdleCheck, RequestGuard, Traffic, Verdict};
use crate::node_state::NodeState;
use crate::options::STREAMS_MAX;
use crate::tls::{Accepted, PortTls};

/// The longest header of a request, over each protocol.
pub(crate) const HEADER_BYTES_MAX: u32 = 16 << 10;
/// The time that the rest of a request may take when the node stops.
const STOP_GRACE: Duration = Duration::from_secs(1);
/// The wait after a failure to accept, which mostly means that there are no file descriptors.
pub(crate) const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

const _: () = assert!(RESERVE_TIMEOUT.as_secs() < IDLE_CHECK_INTERVAL.as_secs());

/// Serves connections until `stop`, and then until all of them have ended.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Arc<PortTls>,
    state: Arc<NodeState>,
    connections: usize,
    mut stop: watch::Receiver<bool>,
) {
    let slots = ConnectionSlots::new(connections, state.failures().clone());
    let mut builder = Builder::new(TokioExecutor::new());
    // A client may close its half of the connection after its request, as `nc -N` does.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).half_close(true);
    builder.http1().max_buf_size(HEADER_BYTES_MAX as usize);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(STREAMS_MAX);
    builder.http2().max_header_list_size(HEADER_BYTES_MAX);
    let builder = Arc::new(builder);
    loop {
        let accepted = async {
            let slot = slots.acquire().await;
            (slot, listener.accept().await)
        };
        let (slot, accepted) = tokio::select! {
            accepted = accepted => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match (slot, accepted) {
            (Some(slot), Ok((stream, from))) => {
                let slot = slots.leave_reserve(slot);
                if slot.is_reserve {
                    state.count_over_limit("h1 and h2c", connections);
                }
                let connection = Connection { state: Arc::clone(&state), from, slot };
                let (tls, builder) = (Arc::clone(&tls), Arc::clone(&builder));
                tokio::spawn(connection.accept(stream, tls, builder, stop.clone()));
            }
            (_, Err(error)) => {
                state.log_accept_failure(&error);
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
            (None, _) => break,
        }
    }
    drop(listener);
    slots.wait_all_free().await;
}

/// An accepted connection.
struct Connection {
    state: Arc<NodeState>,
    from: SocketAddr,
    slot: ConnectionSlot,
}

/// An event of a connection beside its requests.
enum LifecycleEvent {
    /// The node stops, or the connection has had its one request.
    Stop,
    /// The time for requests that had not come whole is over.
    GraceEnded,
    IdleCheck,
    /// The time in the reserve is over.
    ReserveEnded,
    /// Requests wait for the memory that its answers hold.
    Evicted,
}

/// The future of an event.
type EventFuture = Pin<Box<dyn Future<Output = LifecycleEvent> + Send>>;

/// The events that a connection waits for. A connection is polled twice for each request, and these
/// futures only when one of them is woken.
type LifecycleEvents = FuturesUnordered<EventFuture>;

impl Connection {
    /// Does the handshake, if the caller begins one, and serves the connection.
    async fn accept(
        self,
        stream: TcpStream,
        tls: Arc<PortTls>,
        builder: Arc<Builder<TokioExecutor>>,
        mut stop: watch::Receiver<bool>,
    ) {
        // Answers are small, and each is a write of its own.
        drop(stream.set_nodelay(true));
        let state = Arc::clone(&self.state);
        let _guard = state.counters().guard_connection();
        let accepted = async {
            let accepted = tls.accept(stream, self.from, self.slot.is_reserve);
            match self.slot.is_reserve {
                true => tokio::time::timeout(RESERVE_TIMEOUT, accepted).await.ok().flatten(),
                false => accepted.await,
            }
        };
        let accepted = tokio::select! {
            biased;
            accepted = accepted => accepted,
            _ = stop.wait_for(|stop| *stop) => None,
        };
        if let Some(accepted) = accepted {
            self.serve(accepted, builder, stop).await;
        }
    }

    async fn serve(
        self,
        Accepted { stream, access }: Accepted,
        builder: Arc<Builder<TokioExecutor>>,
        stop: watch::Receiver<bool>,
    ) {
        let is_reserve = self.slot.is_reserve;
        let requests = ConnectionState::new(Arc::clone(&self.state), self.from, access, is_reserve);
        let traffic = Arc::clone(requests.client().traffic());
        let requested = Arc::new(Notify::new());
        let answer = service_fn(|request| {
            if is_reserve {
                requested.notify_one();
            }
            let guard = RequestGuard::new(&traffic);
            let answered = route::answer(Arc::clone(&requests), request);
            async move { Ok::<_, Infallible>(answered.await.map(|body| TrackedBody::new(body, guard))) }
        });
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), answer));
        let mut idle = IdleCheck::default();
        let mut events = self.events(&traffic, &requested, stop);
        let mut is_overdue = false;
        loop {
            tokio::select! {
                biased;
                ended = &mut connection => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, address = %self.from, "a connection failed");
                    }
                    break;
                }
                Some(event) = events.next() => match event {
                    LifecycleEvent::Stop => {
                        connection.as_mut().graceful_shutdown();
                        events.push(after(STOP_GRACE, LifecycleEvent::GraceEnded));
                    }
                    // Half a request is none.
                    LifecycleEvent::GraceEnded if requests.is_quiet() => break,
                    LifecycleEvent::GraceEnded => {
                        events.push(after(STOP_GRACE, LifecycleEvent::GraceEnded));
                    }
                    // A request that has come is answered, however slow the machine is. A client
                    // that does not take the answer loses its slot.
                    LifecycleEvent::ReserveEnded
                        if requests.is_quiet() || (is_overdue && traffic.has_untaken()) => break,
                    LifecycleEvent::ReserveEnded => {
                        is_overdue = true;
                        events.push(after(RESERVE_TIMEOUT, LifecycleEvent::ReserveEnded));
                    }
                    LifecycleEvent::Evicted => {
                        tracing::debug!(address = %self.from, "requests wait for its memory");
                        break;
                    }
                    LifecycleEvent::IdleCheck => {
                        let verdict = idle.check(&traffic);
                        if verdict != Verdict::Keep {
                            tracing::debug!(address = %self.from, ?verdict, "closed a connection");
                            break;
                        }
                        events.push(after(IDLE_CHECK_INTERVAL, LifecycleEvent::IdleCheck));
                    }
                },
            }
        }
    }

    /// Returns the first events. `requested` is notified of each request in the reserve.
    fn events(
        &self,
        traffic: &Arc<Traffic>,
        requested: &Arc<Notify>,
        mut stop: watch::Receiver<bool>,
    ) -> LifecycleEvents {
        let events = LifecycleEvents::new();
        events.push(after(IDLE_CHECK_INTERVAL, LifecycleEvent::IdleCheck));
        events.push(Box::pin(async move {
            // Stopped, or forgotten: both end it.
            drop(stop.wait_for(|stop| *stop).await);
            LifecycleEvent::Stop
        }));
        let traffic = Arc::clone(traffic);
        events.push(Box::pin(async move {
            traffic.evicted().await;
            LifecycleEvent::Evicted
        }));
        if self.slot.is_reserve {
            let requested = Arc::clone(requested);
            events.push(Box::pin(async move {
                requested.notified().await;
                LifecycleEvent::Stop
            }));
            events.push(after(RESERVE_TIMEOUT, LifecycleEvent::ReserveEnded));
        }
        events
    }
}

fn after(wait: Duration, event: LifecycleEvent) -> EventFuture {
    Box::pin(async move {
        tokio::time::sleep(wait).await;
        event
    })
}

/// The body of an answer. When it is dropped, the connection has taken it, or ended.
struct TrackedBody {
    body: AnswerBody,
    _untaken: AnswerGuard,
    _request: RequestGuard,
}

impl TrackedBody {
    fn new(body: AnswerBody, request: RequestGuard) -> Self {
        Self { body, _untaken: request.answer_ready(), _request: request }
    }
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

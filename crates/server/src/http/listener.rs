//! Connections of clients.

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
use crate::http::client::Requests;
use crate::http::connection_places::{ConnectionPlace, ConnectionPlaces, RESERVE_TIME};
use crate::http::route;
use crate::looks::{LOOK, Looks, Traffic, Underway, Verdict, Waits};
use crate::shared::Shared;

const STREAMS: u32 = 128;
const HEADER_MAX: u32 = 16 << 10;
/// How long the rest of a request may take when the node stops.
const GRACE: Duration = Duration::from_secs(1);
/// After a failure to accept: no file descriptors, mostly.
const AGAIN: Duration = Duration::from_millis(50);

/// Serves connections until `stop`, and then until all of them have ended.
pub(crate) async fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    connections: usize,
    mut stop: watch::Receiver<bool>,
) {
    let places = ConnectionPlaces::new(connections);
    let mut builder = Builder::new(TokioExecutor::new());
    // A client may close its half of the connection behind its request, as `nc -N` does.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).half_close(true);
    builder.http1().max_buf_size(HEADER_MAX as usize);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(STREAMS);
    builder.http2().max_header_list_size(HEADER_MAX);
    let builder = Arc::new(builder);
    loop {
        let accepted = async {
            let place = places.next().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            accepted = accepted => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match (place, accepted) {
            (Some(place), Ok((stream, from))) => {
                let place = places.taken(place);
                if place.is_reserve {
                    shared.is_full("h1 and h2c", connections);
                }
                let connection = Connection { shared: Arc::clone(&shared), from, place };
                tokio::spawn(connection.serve(stream, Arc::clone(&builder), stop.clone()));
            }
            (_, Err(error)) => {
                if shared.full.is_new("accept", None, &error.to_string()) {
                    tracing::warn!(%error, "a connection was not accepted");
                }
                tokio::time::sleep(AGAIN).await;
            }
            (None, _) => break,
        }
    }
    drop(listener);
    places.all_free().await;
}

struct Connection {
    shared: Arc<Shared>,
    from: SocketAddr,
    place: ConnectionPlace,
}

/// What happens to a connection beside its requests.
enum Event {
    Stop,
    /// The time for requests that had not come whole is over.
    Ending,
    Look,
    /// The time in the reserve is over.
    Late,
    /// Others wait for what its answers hold.
    Evicted,
}

/// Waits for events. A connection is polled twice for each request, and these futures only when one
/// of them is woken.
type Events = FuturesUnordered<Pin<Box<dyn Future<Output = Event> + Send>>>;

impl Connection {
    async fn serve(
        self,
        stream: TcpStream,
        builder: Arc<Builder<TokioExecutor>>,
        stop: watch::Receiver<bool>,
    ) {
        // Answers are small, and each is a write of its own.
        drop(stream.set_nodelay(true));
        let _open = self.shared.counters.open();
        let is_reserve = self.place.is_reserve;
        let requests = Requests::new(Arc::clone(&self.shared), self.from, is_reserve);
        let requested = Arc::new(Notify::new());
        let answer = service_fn(|request| {
            if is_reserve {
                requested.notify_one();
            }
            let underway = Underway::new(&requests.client.traffic);
            let answered = route::answer(Arc::clone(&requests), request);
            async move { Ok::<_, Infallible>(answered.await.map(|body| Taken::new(body, underway))) }
        });
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), answer));
        let mut looks = Looks::default();
        let mut events = self.events(&requests.client.traffic, &requested, stop);
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
                    Event::Stop => {
                        connection.as_mut().graceful_shutdown();
                        events.push(after(GRACE, Event::Ending));
                    }
                    // Half a request is none.
                    Event::Ending if requests.are_answered() => break,
                    Event::Ending => events.push(after(GRACE, Event::Ending)),
                    Event::Late => break,
                    Event::Evicted => {
                        tracing::debug!(address = %self.from, "others wait for what it holds");
                        break;
                    }
                    Event::Look => {
                        let verdict = looks.look(&requests.client.traffic);
                        if verdict != Verdict::Stays {
                            tracing::debug!(address = %self.from, ?verdict, "closed a connection");
                            break;
                        }
                        events.push(after(LOOK, Event::Look));
                    }
                },
            }
        }
    }

    /// The first events. `requested` is notified at each request in the reserve.
    fn events(
        &self,
        traffic: &Arc<Traffic>,
        requested: &Arc<Notify>,
        mut stop: watch::Receiver<bool>,
    ) -> Events {
        let events = Events::new();
        events.push(after(LOOK, Event::Look));
        events.push(Box::pin(async move {
            // Stopped, or forgotten: both end it.
            drop(stop.wait_for(|stop| *stop).await);
            Event::Stop
        }));
        let traffic = Arc::clone(traffic);
        events.push(Box::pin(async move {
            traffic.evicted().await;
            Event::Evicted
        }));
        if self.place.is_reserve {
            let requested = Arc::clone(requested);
            events.push(Box::pin(async move {
                requested.notified().await;
                Event::Stop
            }));
            events.push(after(RESERVE_TIME, Event::Late));
        }
        events
    }
}

fn after(wait: Duration, event: Event) -> Pin<Box<dyn Future<Output = Event> + Send>> {
    Box::pin(async move {
        tokio::time::sleep(wait).await;
        event
    })
}

/// The body of an answer. When it is dropped, the connection has taken it, or ended.
struct Taken {
    body: AnswerBody,
    _waits: Waits,
    _underway: Underway,
}

impl Taken {
    fn new(body: AnswerBody, underway: Underway) -> Self {
        Self { body, _waits: underway.waits(), _underway: underway }
    }
}

impl Body for Taken {
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

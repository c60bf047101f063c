//! A connection over QUIC, and its requests.

use std::fmt;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use h3::quic::BidiStream;
use h3::server::{RequestResolver, RequestStream};
use http_body_util::{BodyExt, Full};
use hyper::header::{CONTENT_LENGTH, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{MissedTickBehavior, timeout};

use crate::http::answer::Answer;
use crate::http::cluster::{BODY_BYTES_MAX, BODY_TIMEOUT};
use crate::http::http3::bounded_stream::BoundedConnection;
use crate::http::listener::HEADER_BYTES_MAX;
use crate::idle::IDLE_TIMEOUT;

/// The most streams of a connection that end without a request.
const EMPTY_STREAMS_MAX: usize = 1000;
/// The time that HTTP/3 may take to begin, and to say that it ends.
const SETUP_TIMEOUT: Duration = Duration::from_secs(5);
/// The time that the header of a request may take, from its first byte.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The time that a client may take to receive an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// The least and the most time for the last answers to arrive before a connection is closed.
const ARRIVAL_TIME_MIN: Duration = Duration::from_millis(50);
const ARRIVAL_TIME_MAX: Duration = Duration::from_secs(1);

const _: () = assert!(ARRIVAL_TIME_MIN.as_millis() <= ARRIVAL_TIME_MAX.as_millis());

type QuicConnection = BoundedConnection<h3_quinn::Connection>;
type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// The error of a connection that ended because one of its requests panicked.
#[derive(Debug)]
pub(super) struct RequestPanicked;

impl fmt::Display for RequestPanicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a request panicked")
    }
}

impl std::error::Error for RequestPanicked {}

/// Serves a connection to its end, or until `evicted` is ready.
///
/// # Errors
/// [`RequestPanicked`]; other failures are those of the client or of the network.
pub(super) async fn serve<H, F>(
    quic: quinn::Connection,
    stop: watch::Receiver<bool>,
    handler: H,
    evicted: impl Future<Output = ()> + Send,
) -> Result<(), RequestPanicked>
where
    H: Fn(Request<Full<Bytes>>) -> F + Clone + Send + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let from = quic.remote_address();
    tokio::select! {
        served = try_serve(quic, stop, handler) => match served {
            Ok(()) => {}
            Err(error) if error.is::<RequestPanicked>() => return Err(RequestPanicked),
            Err(error) => {
                tracing::debug!(error, address = %from, "an HTTP/3 connection failed");
            }
        },
        // Its requests end with it, and unsent answers are dropped.
        () = evicted => tracing::debug!(address = %from, "requests wait for its memory"),
    }
    Ok(())
}

async fn try_serve<H, F>(
    connection: quinn::Connection,
    stop: watch::Receiver<bool>,
    handler: H,
) -> Result<(), AnyError>
where
    H: Fn(Request<Full<Bytes>>) -> F + Clone + Send + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let mut builder = h3::server::builder();
    builder.max_field_section_size(HEADER_BYTES_MAX.into()).send_grease(false);
    let quic = BoundedConnection::new(h3_quinn::Connection::new(connection.clone()));
    let mut http = timeout(SETUP_TIMEOUT, builder.build::<_, Bytes>(quic)).await??;
    let mut requests = JoinSet::new();
    let accepted = accept_requests(&mut http, &mut requests, stop, handler).await;
    if accepted.is_err() {
        requests.abort_all();
    }
    // Checked first: a connection whose request panics may fail before that is noticed.
    while let Some(ended) = requests.join_next().await {
        has_had_request(ended)?;
    }
    accepted?;
    // Closing drops packets that were not acknowledged.
    let arrival = (connection.rtt() * 4).clamp(ARRIVAL_TIME_MIN, ARRIVAL_TIME_MAX);
    drop(timeout(arrival, connection.closed()).await);
    Ok(())
}

/// Starts a task for each request, until the connection is to end.
async fn accept_requests<H, F>(
    http: &mut h3::server::Connection<QuicConnection, Bytes>,
    requests: &mut JoinSet<bool>,
    mut stop: watch::Receiver<bool>,
    handler: H,
) -> Result<(), AnyError>
where
    H: Fn(Request<Full<Bytes>>) -> F + Clone + Send + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let (mut is_idle, mut is_stopping, mut empty) = (false, false, 0);
    let mut idle = tokio::time::interval(IDLE_TIMEOUT);
    idle.set_missed_tick_behavior(MissedTickBehavior::Delay);
    idle.tick().await;
    while !is_stopping || !requests.is_empty() {
        tokio::select! {
            biased;
            accepted = http.accept() => match accepted? {
                Some(request) => {
                    is_idle = false;
                    requests.spawn(exchange(request, handler.clone()));
                }
                None => break,
            },
            Some(ended) = requests.join_next() => {
                // `h3` never forgets a stream without a request.
                empty += usize::from(!has_had_request(ended)?);
                if empty > EMPTY_STREAMS_MAX {
                    break;
                }
            }
            () = stopped(&mut stop), if !is_stopping => {
                is_stopping = true;
                timeout(SETUP_TIMEOUT, http.shutdown(1)).await??;
            }
            _ = idle.tick() => {
                if is_idle {
                    break;
                }
                is_idle = true;
            }
        }
    }
    Ok(())
}

/// Whether the stream of this task had a request. Fails if the task panicked.
fn has_had_request(ended: Result<bool, JoinError>) -> Result<bool, RequestPanicked> {
    match ended {
        Ok(has_had_request) => Ok(has_had_request),
        Err(error) if error.is_panic() => Err(RequestPanicked),
        // Tasks are cancelled with their connection alone.
        Err(_) => Ok(false),
    }
}

/// Waits until the node stops, or was dropped.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}

/// Answers a request; returns whether the stream had one. A failure ends the stream alone; `h3`
/// ends the connection if it has to.
async fn exchange<H, F>(request: RequestResolver<QuicConnection, Bytes>, handler: H) -> bool
where
    H: Fn(Request<Full<Bytes>>) -> F,
    F: Future<Output = Answer>,
{
    let (request, mut stream) = match timeout(HEADER_TIMEOUT, request.resolve_request()).await {
        Ok(Ok(resolved)) => resolved,
        Ok(Err(error)) => {
            tracing::debug!(%error, "an HTTP/3 stream without a request");
            return false;
        }
        Err(_) => return false,
    };
    let exchanged = async move {
        let is_head = request.method() == Method::HEAD;
        let body = receive_body(&mut stream, request.method()).await?;
        let answer = handler(request.map(|()| Full::new(body))).await;
        timeout(ANSWER_TIMEOUT, send(&mut stream, answer, is_head)).await??;
        // Stopping a client that still sends its request may cost it the answer.
        timeout(BODY_TIMEOUT, async {
            while stream.recv_data().await?.is_some() {}
            Ok(())
        })
        .await?
    };
    if let Err(error) = exchanged.await {
        let error: AnyError = error;
        tracing::debug!(error, "an HTTP/3 request failed");
    }
    true
}

/// Receives the body of a request that may have one: all of it, or the beginning of one that is too
/// long.
async fn receive_body<S>(
    stream: &mut RequestStream<S, Bytes>,
    method: &Method,
) -> Result<Bytes, AnyError>
where
    S: BidiStream<Bytes>,
{
    if method != Method::POST {
        return Ok(Bytes::new());
    }
    let mut body = BytesMut::new();
    let read = async {
        while let Some(mut data) = stream.recv_data().await? {
            let bytes = data.remaining();
            body.extend_from_slice(&data.copy_to_bytes(bytes));
            if body.len() > BODY_BYTES_MAX {
                break;
            }
        }
        Ok::<_, AnyError>(())
    };
    timeout(BODY_TIMEOUT, read).await??;
    Ok(body.freeze())
}

/// Sends an answer.
async fn send<S>(
    stream: &mut RequestStream<S, Bytes>,
    answer: Answer,
    is_head: bool,
) -> Result<(), AnyError>
where
    S: BidiStream<Bytes>,
{
    let (mut head, mut body) = answer.into_parts();
    let mut unsent_bytes = body.len();
    if !is_head && head.status != StatusCode::NO_CONTENT {
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    stream.send_response(Response::from_parts(head, ())).await?;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame;
        if let Ok(chunk) = frame.into_data() {
            unsent_bytes -= chunk.len();
            stream.send_data(chunk).await?;
        }
    }
    debug_assert_eq!(unsent_bytes, 0, "an answer is as long as its header says");
    Ok(stream.finish().await?)
}

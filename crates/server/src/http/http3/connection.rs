//! One connection, and its requests.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use h3::quic::BidiStream;
use h3::server::{RequestResolver, RequestStream};
use http_body_util::{BodyExt, Full};
use hyper::header::{CONTENT_LENGTH, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use quinn::Incoming;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, timeout};

use crate::http::answer::Answer;
use crate::http::cluster::{BODY_MAX, BODY_TIME};
use crate::http::http3::bounded::Bounded;

/// A connection without a request for so long is closed.
pub(super) const IDLE: Duration = Duration::from_secs(75);
const HEADER_MAX: u64 = 16 << 10;
/// Streams of a connection that end without a request.
const EMPTY_MAX: usize = 1000;
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long the header of a request may take, from its first byte.
const HEADER: Duration = Duration::from_secs(10);
/// How long a client may take to receive an answer.
const ANSWER: Duration = Duration::from_secs(20);
/// How long the last answers may take to arrive before a connection is closed.
const ARRIVAL: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

type Quic = Bounded<h3_quinn::Connection>;
type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Accepts a connection, and serves it to its end, or until it is `evicted`.
pub(super) async fn serve<H, F>(
    incoming: Incoming,
    handshake: Arc<()>,
    stop: watch::Receiver<bool>,
    handler: H,
    evicted: impl Future<Output = ()> + Send,
) where
    H: Fn(Request<Full<Bytes>>) -> F + Clone + Send + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let from = incoming.remote_address();
    tokio::select! {
        served = tried(incoming, handshake, stop, handler) => {
            if let Err(error) = served {
                tracing::debug!(error, address = %from, "an HTTP/3 connection failed");
            }
        }
        // Its requests end with it, and what is not sent is forgotten.
        () = evicted => tracing::debug!(address = %from, "others wait for what it holds"),
    }
}

async fn tried<H, F>(
    incoming: Incoming,
    handshake: Arc<()>,
    mut stop: watch::Receiver<bool>,
    handler: H,
) -> Result<(), AnyError>
where
    H: Fn(Request<Full<Bytes>>) -> F + Clone + Send + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let connection = timeout(HANDSHAKE, incoming.accept()?).await??;
    drop(handshake);
    let mut builder = h3::server::builder();
    builder.max_field_section_size(HEADER_MAX).send_grease(false);
    let quic = Bounded::new(h3_quinn::Connection::new(connection.clone()));
    let mut http = timeout(HANDSHAKE, builder.build::<_, Bytes>(quic)).await??;
    let mut requests = JoinSet::new();
    let (mut is_idle, mut is_stopping, mut empty) = (false, false, 0);
    let mut idle = tokio::time::interval(IDLE);
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
                empty += usize::from(!ended.unwrap_or(false));
                if empty > EMPTY_MAX {
                    break;
                }
            }
            // Stopped, or forgotten: both end it.
            () = stopped(&mut stop), if !is_stopping => {
                is_stopping = true;
                timeout(HANDSHAKE, http.shutdown(1)).await??;
            }
            _ = idle.tick() => {
                if is_idle {
                    break;
                }
                is_idle = true;
            }
        }
    }
    while requests.join_next().await.is_some() {}
    // Closing forgets what was not acknowledged.
    let arrival = (connection.rtt() * 4).clamp(ARRIVAL.0, ARRIVAL.1);
    drop(timeout(arrival, connection.closed()).await);
    Ok(())
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}

/// Answers a request. What fails here ends its stream alone; `h3` ends the connection where it has
/// to.
///
/// Returns whether there was one.
async fn exchange<H, F>(request: RequestResolver<Quic, Bytes>, handler: H) -> bool
where
    H: Fn(Request<Full<Bytes>>) -> F,
    F: Future<Output = Answer>,
{
    let (request, mut stream) = match timeout(HEADER, request.resolve_request()).await {
        Ok(Ok(resolved)) => resolved,
        Ok(Err(error)) => {
            tracing::debug!(%error, "an HTTP/3 stream without a request");
            return false;
        }
        Err(_) => return false,
    };
    let exchanged = async move {
        let is_head = request.method() == Method::HEAD;
        let body = body(&mut stream, request.method()).await?;
        let answer = handler(request.map(|()| Full::new(body))).await;
        timeout(ANSWER, send(&mut stream, answer, is_head)).await??;
        // To stop a client that still sends its request may cost it the answer.
        timeout(BODY_TIME, async {
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

/// The body of a request: of one that may have one, all of it, or more than it may have.
async fn body<S>(stream: &mut RequestStream<S, Bytes>, method: &Method) -> Result<Bytes, AnyError>
where
    S: BidiStream<Bytes>,
{
    if method != Method::POST {
        return Ok(Bytes::new());
    }
    let mut body = BytesMut::new();
    let read = async {
        while let Some(mut part) = stream.recv_data().await? {
            let len = part.remaining();
            body.extend_from_slice(&part.copy_to_bytes(len));
            if body.len() > BODY_MAX {
                break;
            }
        }
        Ok::<_, AnyError>(())
    };
    timeout(BODY_TIME, read).await??;
    Ok(body.freeze())
}

async fn send<S>(
    stream: &mut RequestStream<S, Bytes>,
    answer: Answer,
    is_head: bool,
) -> Result<(), AnyError>
where
    S: BidiStream<Bytes>,
{
    let (mut head, mut body) = answer.into_parts();
    if !is_head && head.status != StatusCode::NO_CONTENT {
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    stream.send_response(Response::from_parts(head, ())).await?;
    while let Some(piece) = body.frame().await {
        let Ok(piece) = piece;
        if let Ok(piece) = piece.into_data() {
            stream.send_data(piece).await?;
        }
    }
    Ok(stream.finish().await?)
}

//! A limit of the bytes that each stream of a QUIC connection receives.
//!
//! `h3` buffers a frame until it is complete, whatever its length, even an unknown frame. Flow
//! control does not help: buffered bytes count as read. So a stream that receives more than a
//! request can have fails, and so does a stream of a connection whose requests have too much
//! together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::quic::{
    BidiStream, Connection, ConnectionErrorIncoming, OpenStreams, RecvStream, SendStream,
    StreamErrorIncoming, StreamId, WriteBuf,
};

use crate::http::cluster::BODY_BYTES_MAX;
use crate::http::listener::HEADER_BYTES_MAX;

/// The most bytes of a request: header and body, with their frames.
const REQUEST_BYTES_MAX: usize = 128 << 10;
/// The most bytes of all requests of a connection that have not ended.
const REQUESTS_BYTES_MAX: usize = 1 << 20;
/// The most bytes of one of the client's control streams, in the life of a connection.
const CONTROL_BYTES_MAX: usize = 256 << 10;

const _: () = assert!(
    HEADER_BYTES_MAX as usize + BODY_BYTES_MAX < REQUEST_BYTES_MAX,
    "a request within the limits of HTTP fits a stream"
);
const _: () = assert!(REQUEST_BYTES_MAX <= REQUESTS_BYTES_MAX);

/// A connection, or the opener of its streams, with bounded streams.
pub(super) struct BoundedConnection<T> {
    connection: T,
    requests: ByteBudget,
}

impl<T> BoundedConnection<T> {
    pub(super) fn new(connection: T) -> Self {
        Self { connection, requests: ByteBudget::new(REQUESTS_BYTES_MAX) }
    }
}

/// The number of bytes that may still be received. Clones share it.
#[derive(Clone)]
struct ByteBudget(Arc<AtomicUsize>);

impl ByteBudget {
    fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    fn try_take(&self, bytes: usize) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        let before = self.0.fetch_add(bytes, Relaxed);
        let fits = before + bytes <= REQUESTS_BYTES_MAX.max(CONTROL_BYTES_MAX);
        debug_assert!(fits, "a stream gives back what it took");
    }
}

impl<B: Buf, T: OpenStreams<B>> OpenStreams<B> for BoundedConnection<T> {
    type BidiStream = BoundedStream<T::BidiStream>;
    type SendStream = T::SendStream;

    fn poll_open_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::BidiStream, StreamErrorIncoming>> {
        let stream = self.connection.poll_open_bidi(cx);
        stream.map_ok(|stream| BoundedStream::new(stream, REQUEST_BYTES_MAX, self.requests.clone()))
    }

    fn poll_open_send(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::SendStream, StreamErrorIncoming>> {
        self.connection.poll_open_send(cx)
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.connection.close(code, reason);
    }
}

impl<B: Buf, T> Connection<B> for BoundedConnection<T>
where
    T: Connection<B>,
    <T as OpenStreams<B>>::BidiStream: RecvStream<Buf = Bytes>,
    T::RecvStream: RecvStream<Buf = Bytes>,
{
    type RecvStream = BoundedStream<T::RecvStream>;
    type OpenStreams = BoundedConnection<T::OpenStreams>;

    fn poll_accept_recv(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::RecvStream, ConnectionErrorIncoming>> {
        let stream = self.connection.poll_accept_recv(cx);
        stream.map_ok(|stream| {
            BoundedStream::new(stream, CONTROL_BYTES_MAX, ByteBudget::new(CONTROL_BYTES_MAX))
        })
    }

    fn poll_accept_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::BidiStream, ConnectionErrorIncoming>> {
        let stream = self.connection.poll_accept_bidi(cx);
        stream.map_ok(|stream| BoundedStream::new(stream, REQUEST_BYTES_MAX, self.requests.clone()))
    }

    fn opener(&self) -> Self::OpenStreams {
        BoundedConnection { connection: self.connection.opener(), requests: self.requests.clone() }
    }
}

/// A stream that fails when it receives too much.
pub(super) struct BoundedStream<S> {
    stream: S,
    received: ReceivedBytes,
}

impl<S> BoundedStream<S> {
    /// Limits a stream to `bytes_max` bytes, and to the rest of the budget of `all`.
    fn new(stream: S, bytes_max: usize, all: ByteBudget) -> Self {
        Self { stream, received: ReceivedBytes { bytes: 0, bytes_max, all } }
    }
}

/// The number of bytes that a stream received. They are given back when the stream ends.
struct ReceivedBytes {
    bytes: usize,
    bytes_max: usize,
    all: ByteBudget,
}

impl ReceivedBytes {
    /// Counts more bytes, if they are within the limits.
    fn try_add(&mut self, more: usize) -> bool {
        debug_assert!(self.bytes <= self.bytes_max, "a stream that received too much has failed");
        let fits = more <= self.bytes_max - self.bytes && self.all.try_take(more);
        if fits {
            self.bytes += more;
        }
        fits
    }
}

impl Drop for ReceivedBytes {
    fn drop(&mut self) {
        self.all.give_back(self.bytes);
    }
}

impl<S: RecvStream> RecvStream for BoundedStream<S> {
    type Buf = S::Buf;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Self::Buf>, StreamErrorIncoming>> {
        let Poll::Ready(data) = self.stream.poll_data(cx)? else { return Poll::Pending };
        let bytes = data.as_ref().map_or(0, Buf::remaining);
        Poll::Ready(if self.received.try_add(bytes) {
            Ok(data)
        } else {
            Err(StreamErrorIncoming::Unknown("more bytes than requests may have".into()))
        })
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.stream.stop_sending(error_code);
    }

    fn recv_id(&self) -> StreamId {
        self.stream.recv_id()
    }
}

impl<B: Buf, S: SendStream<B>> SendStream<B> for BoundedStream<S> {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.stream.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<B>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.stream.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.stream.poll_finish(cx)
    }

    fn reset(&mut self, reset_code: u64) {
        self.stream.reset(reset_code);
    }

    fn send_id(&self) -> StreamId {
        self.stream.send_id()
    }
}

impl<B: Buf, S: BidiStream<B>> BidiStream<B> for BoundedStream<S> {
    type SendStream = S::SendStream;
    type RecvStream = BoundedStream<S::RecvStream>;

    fn split(self) -> (Self::SendStream, Self::RecvStream) {
        let (send, receive) = self.stream.split();
        (send, BoundedStream { stream: receive, received: self.received })
    }
}

//! A QUIC connection whose streams take a bounded number of bytes.
//!
//! `h3` buffers a frame until it is complete, however long it says that it is, and an unknown one,
//! too. Flow control does not help: what is buffered was read. So a stream that brought more than
//! a request can have fails, and so does one of a connection whose requests have too much together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::quic::{
    BidiStream, Connection, ConnectionErrorIncoming, OpenStreams, RecvStream, SendStream,
    StreamErrorIncoming, StreamId, WriteBuf,
};

/// The most bytes of a request: header and body, with their frames.
const REQUEST_MAX: usize = 128 << 10;
/// The most bytes of all requests of a connection that have not ended.
const REQUESTS_MAX: usize = 1 << 20;
/// The most bytes of one of the client's control streams, in the life of a connection.
const CONTROL_MAX: usize = 256 << 10;

/// A connection, or what opens its streams, with bounded streams.
pub(super) struct Bounded<T> {
    connection: T,
    requests: Budget,
}

impl<T> Bounded<T> {
    pub(super) fn new(connection: T) -> Self {
        Self { connection, requests: Budget::new(REQUESTS_MAX) }
    }
}

/// How many bytes may still come, of all that have a clone.
#[derive(Clone)]
struct Budget(Arc<AtomicUsize>);

impl Budget {
    fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    fn takes(&self, bytes: usize) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }

    fn gives_back(&self, bytes: usize) {
        self.0.fetch_add(bytes, Relaxed);
    }
}

impl<B: Buf, T: OpenStreams<B>> OpenStreams<B> for Bounded<T> {
    type BidiStream = Stream<T::BidiStream>;
    type SendStream = T::SendStream;

    fn poll_open_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::BidiStream, StreamErrorIncoming>> {
        let stream = self.connection.poll_open_bidi(cx);
        stream.map_ok(|stream| Stream::new(stream, REQUEST_MAX, self.requests.clone()))
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

impl<B: Buf, T> Connection<B> for Bounded<T>
where
    T: Connection<B>,
    <T as OpenStreams<B>>::BidiStream: RecvStream<Buf = Bytes>,
    T::RecvStream: RecvStream<Buf = Bytes>,
{
    type RecvStream = Stream<T::RecvStream>;
    type OpenStreams = Bounded<T::OpenStreams>;

    fn poll_accept_recv(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::RecvStream, ConnectionErrorIncoming>> {
        let stream = self.connection.poll_accept_recv(cx);
        stream.map_ok(|stream| Stream::new(stream, CONTROL_MAX, Budget::new(CONTROL_MAX)))
    }

    fn poll_accept_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::BidiStream, ConnectionErrorIncoming>> {
        let stream = self.connection.poll_accept_bidi(cx);
        stream.map_ok(|stream| Stream::new(stream, REQUEST_MAX, self.requests.clone()))
    }

    fn opener(&self) -> Self::OpenStreams {
        Bounded { connection: self.connection.opener(), requests: self.requests.clone() }
    }
}

/// A stream, and how many bytes may still come.
pub(super) struct Stream<S> {
    stream: S,
    came: Came,
}

impl<S> Stream<S> {
    fn new(stream: S, most: usize, all: Budget) -> Self {
        Self { stream, came: Came { bytes: 0, most, all } }
    }
}

/// The bytes that came. They are given back when the stream ends.
struct Came {
    bytes: usize,
    most: usize,
    all: Budget,
}

impl Came {
    fn takes(&mut self, more: usize) -> bool {
        let fits = more <= self.most - self.bytes && self.all.takes(more);
        if fits {
            self.bytes += more;
        }
        fits
    }
}

impl Drop for Came {
    fn drop(&mut self) {
        self.all.gives_back(self.bytes);
    }
}

impl<S: RecvStream> RecvStream for Stream<S> {
    type Buf = S::Buf;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Self::Buf>, StreamErrorIncoming>> {
        let Poll::Ready(came) = self.stream.poll_data(cx)? else { return Poll::Pending };
        let len = came.as_ref().map_or(0, Buf::remaining);
        Poll::Ready(if self.came.takes(len) {
            Ok(came)
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

impl<B: Buf, S: SendStream<B>> SendStream<B> for Stream<S> {
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

impl<B: Buf, S: BidiStream<B>> BidiStream<B> for Stream<S> {
    type SendStream = S::SendStream;
    type RecvStream = Stream<S::RecvStream>;

    fn split(self) -> (Self::SendStream, Self::RecvStream) {
        let (send, receive) = self.stream.split();
        (send, Stream { stream: receive, came: self.came })
    }
}

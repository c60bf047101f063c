//! A QUIC connection whose streams take a bounded number of bytes.
//!
//! `h3` buffers a frame until it is complete, however long it says that it is, and an unknown one,
//! too. Flow control does not help: what is buffered was read. So a stream that brought more than
//! a request can have fails.

use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::quic::{
    BidiStream, Connection, ConnectionErrorIncoming, OpenStreams, RecvStream, SendStream,
    StreamErrorIncoming, StreamId, WriteBuf,
};

/// The most bytes of a request: header and body, with their frames.
const REQUEST_MAX: usize = 128 << 10;
/// The most bytes of one of the client's control streams, in the life of a connection.
const CONTROL_MAX: usize = 1 << 20;

/// A connection, or what opens its streams, with bounded streams.
pub(super) struct Bounded<T>(T);

impl<T> Bounded<T> {
    pub(super) fn new(connection: T) -> Self {
        Self(connection)
    }
}

impl<B: Buf, T: OpenStreams<B>> OpenStreams<B> for Bounded<T> {
    type BidiStream = Stream<T::BidiStream>;
    type SendStream = T::SendStream;

    fn poll_open_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::BidiStream, StreamErrorIncoming>> {
        self.0.poll_open_bidi(cx).map_ok(|stream| Stream::new(stream, REQUEST_MAX))
    }

    fn poll_open_send(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::SendStream, StreamErrorIncoming>> {
        self.0.poll_open_send(cx)
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.0.close(code, reason);
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
        self.0.poll_accept_recv(cx).map_ok(|stream| Stream::new(stream, CONTROL_MAX))
    }

    fn poll_accept_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::BidiStream, ConnectionErrorIncoming>> {
        self.0.poll_accept_bidi(cx).map_ok(|stream| Stream::new(stream, REQUEST_MAX))
    }

    fn opener(&self) -> Self::OpenStreams {
        Bounded(self.0.opener())
    }
}

/// A stream, and how many bytes may still come.
pub(super) struct Stream<S> {
    stream: S,
    left: usize,
}

impl<S> Stream<S> {
    fn new(stream: S, left: usize) -> Self {
        Self { stream, left }
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
        Poll::Ready(match self.left.checked_sub(len) {
            Some(left) => {
                self.left = left;
                Ok(came)
            }
            None => Err(StreamErrorIncoming::Unknown("more bytes than a stream may have".into())),
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
        (send, Stream::new(receive, self.left))
    }
}

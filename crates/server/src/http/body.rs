//! The body of an answer.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use crate::rooms::{HeldBytes, Room};

/// The bytes of a long answer that are handed to a connection at a time.
/// The longest frame of HTTP/2 that all clients take.
const PIECE_BYTES: usize = 16 << 10;

/// The body of an answer. A long one is taken in pieces: each shows that its client takes it.
#[derive(Debug)]
pub(crate) enum AnswerBody {
    Short(Bytes),
    Held(HeldBytes),
}

impl AnswerBody {
    /// A body with its room, if it needs one, until the client took it.
    pub(crate) fn new(bytes: Bytes, room: Option<Room>) -> Self {
        match room {
            Some(room) => Self::Held(room.holding(bytes)),
            None => Self::Short(bytes),
        }
    }

    /// The bytes that are left.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Short(bytes) => bytes.len(),
            Self::Held(bytes) => bytes.len(),
        }
    }
}

impl Default for AnswerBody {
    fn default() -> Self {
        Self::Short(Bytes::new())
    }
}

impl From<Bytes> for AnswerBody {
    fn from(bytes: Bytes) -> Self {
        Self::Short(bytes)
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = match self.get_mut() {
            Self::Short(bytes) => std::mem::take(bytes),
            Self::Held(bytes) => bytes.take(PIECE_BYTES),
        };
        Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.len() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use http_body_util::BodyExt;

    use super::*;
    use crate::rooms::Rooms;

    #[tokio::test]
    async fn a_long_body_comes_whole_in_pieces() {
        let rooms = Rooms::default();
        let [lists, ..] = rooms.shares(&Arc::default());
        let bytes: Bytes = (0..PIECE_BYTES + 17).map(|at| at as u8).collect();
        let room = lists.room(bytes.len() as u32).await.unwrap();
        let mut body = AnswerBody::new(bytes.clone(), Some(room));
        assert_eq!(body.size_hint().exact(), Some(bytes.len() as u64));
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!((first.len(), body.is_end_stream()), (PIECE_BYTES, false));
        let rest = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(body.is_end_stream() && body.frame().await.is_none());
        assert_eq!([&first[..], &rest].concat(), bytes);
        drop((body, first));
        assert!(!lists.is_free(), "the rest may not be sent");
        drop(rest);
        assert!(lists.is_free());
    }
}

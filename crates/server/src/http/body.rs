//! Bodies of answers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use crate::memory_budget::{AnswerBytes, Permit};

/// The bytes of a long answer that are handed to a connection at a time: the longest frame of
/// HTTP/2 that all clients accept.
const CHUNK_BYTES: usize = 16 << 10;

/// The body of an answer. A long one is handed on in chunks: each shows that the client takes it.
#[derive(Debug)]
pub(crate) enum AnswerBody {
    Short(Bytes),
    Permitted(AnswerBytes),
}

impl AnswerBody {
    /// Creates a body that holds its permit, if it needs one, until the client took it.
    pub(crate) fn new(bytes: Bytes, permit: Option<Permit>) -> Self {
        match permit {
            Some(permit) => Self::Permitted(permit.into_answer(bytes)),
            None => Self::Short(bytes),
        }
    }

    /// Returns the number of bytes that are left.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Short(bytes) => bytes.len(),
            Self::Permitted(bytes) => bytes.len(),
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
        let chunk = match self.get_mut() {
            Self::Short(bytes) => std::mem::take(bytes),
            Self::Permitted(bytes) => bytes.take(CHUNK_BYTES),
        };
        Poll::Ready((!chunk.is_empty()).then(|| Ok(Frame::data(chunk))))
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
    use crate::memory_budget::MemoryBudget;
    use crate::supervisor::FailureSignal;

    #[tokio::test]
    async fn a_long_body_comes_whole_in_chunks() {
        let memory = MemoryBudget::new(FailureSignal::default());
        let lists = memory.add_connection(&Arc::default()).lists;
        let bytes: Bytes = (0..CHUNK_BYTES + 17).map(|at| at as u8).collect();
        let permit = lists.acquire(bytes.len() as u32).await.unwrap();
        let mut body = AnswerBody::new(bytes.clone(), Some(permit));
        assert_eq!(body.size_hint().exact(), Some(bytes.len() as u64));
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!((first.len(), body.is_end_stream()), (CHUNK_BYTES, false));
        let rest = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(body.is_end_stream() && body.frame().await.is_none());
        assert_eq!([&first[..], &rest].concat(), bytes);
        drop((body, first));
        assert!(!lists.is_unused(), "the rest may not be sent");
        drop(rest);
        assert!(lists.is_unused());
    }
}

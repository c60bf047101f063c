//! The wait of one caller.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use esker_oracle::{Range, Timestamp};

use crate::error::Error;
use crate::queue::{Joined, Queue};

/// A call: it joins a batch when it is first polled, and is dropped with its answer.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    queue: &'a Queue,
    count: u32,
    deadline: Instant,
    joined: Option<Joined>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(queue: &'a Queue, count: u32, deadline: Instant) -> Self {
        Self { queue, count, deadline, joined: None }
    }
}

impl Future for Call<'_> {
    type Output = Result<Range, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { queue, count, deadline, joined } = &mut *self;
        let Some(joined) = joined else {
            let (queue, count, waker) = (*queue, *count, context.waker().clone());
            return match queue.join(count, *deadline, waker) {
                Ok(place) => {
                    *joined = Some(place);
                    Poll::Pending
                }
                Err(error) => Poll::Ready(Err(error)),
            };
        };
        loop {
            match joined.answer() {
                Some((Ok(range), offset)) => {
                    // The range of the whole batch does not overflow.
                    let Timestamp { epoch, index } = range.first;
                    let first = Timestamp { epoch, index: index + u64::from(offset) };
                    return Poll::Ready(Ok(Range { first, count: *count }));
                }
                Some((Err(error), _)) => return Poll::Ready(Err(error.clone())),
                None if Instant::now() >= *deadline => {
                    return Poll::Ready(Err(Error::Deadline { last: None }));
                }
                None if joined.wait(context.waker()) => return Poll::Pending,
                None => {}
            }
        }
    }
}

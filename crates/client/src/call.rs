//! The call of one caller: a future that waits for its batch.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use esker_oracle::{Range, Timestamp, TimestampWidth};

use crate::error::Error;
use crate::queue::{BatchSlot, Queue};

/// A call. It joins a batch when it is first polled, and waits for the answer of the batch.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    queue: &'a Queue,
    count: u32,
    width: TimestampWidth,
    deadline: Instant,
    slot: Option<BatchSlot>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(
        queue: &'a Queue,
        count: u32,
        width: TimestampWidth,
        deadline: Instant,
    ) -> Self {
        Self { queue, count, width, deadline, slot: None }
    }
}

impl Future for Call<'_> {
    type Output = Result<Range, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { queue, count, width, deadline, slot } = &mut *self;
        let Some(slot) = slot else {
            let (queue, count, waker) = (*queue, *count, context.waker().clone());
            return match queue.join(count, *width, *deadline, waker) {
                Ok(joined) => {
                    self.slot = Some(joined);
                    Poll::Pending
                }
                Err(error) => Poll::Ready(Err(error)),
            };
        };
        loop {
            match slot.answer() {
                Some((Ok(range), offset)) => {
                    let own = part(range, offset, *count);
                    return Poll::Ready(own.ok_or_else(|| {
                        queue.fail("a batch has the timestamps of all of its callers")
                    }));
                }
                Some((Err(error), _)) => return Poll::Ready(Err(error.clone())),
                None if Instant::now() >= *deadline => {
                    return Poll::Ready(Err(Error::Deadline { last: None }));
                }
                None if slot.wait(context.waker()) => return Poll::Pending,
                None => {}
            }
        }
    }
}

/// Returns the timestamps of one caller, which begin at its offset in those of the batch.
fn part(range: &Range, offset: u32, count: u32) -> Option<Range> {
    let end = offset.checked_add(count)?;
    let Timestamp { epoch, index } = range.first;
    let index = index.checked_add(u64::from(offset))?;
    (end <= range.count).then_some(Range { first: Timestamp { epoch, index }, count })
}

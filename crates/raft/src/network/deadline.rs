//! Waits for a peer that end.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use tokio_io_timeout::TimeoutStream;

use crate::network::transport::Connection;

/// A connection whose reads and writes end with an error if the peer stalls.
pub(super) type Guarded = Pin<Box<TimeoutStream<Connection>>>;

pub(super) fn guarded(stream: Connection, read: Duration, write: Duration) -> Guarded {
    let mut stream = TimeoutStream::new(stream);
    stream.set_read_timeout(Some(read));
    stream.set_write_timeout(Some(write));
    Box::pin(stream)
}

/// What `wait` returns, or [`io::ErrorKind::TimedOut`] after `limit`.
pub(super) async fn within<T>(
    limit: Duration,
    wait: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    tokio::time::timeout(limit, wait).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

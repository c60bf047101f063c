//! Waits for a peer, with a deadline, and the deadlines that both sides of a connection have.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use tokio_io_timeout::TimeoutStream;

use crate::network::transport::Connection;

/// The time for which a node may be silent while calls or queries wait for it: a network that drops
/// packets does not close connections.
pub(super) const SILENCE_TIMEOUT: Duration = Duration::from_secs(1);
/// The time for which the sender of a snapshot may send nothing, and its receiver take nothing; and
/// the time in which the receiver has to find what it has of the snapshot.
pub(super) const SNAPSHOT_STALL_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection whose reads and writes end with an error if the peer stalls.
pub(super) type TimeoutConnection = Pin<Box<TimeoutStream<Connection>>>;

/// Ends reads and writes of a connection with an error after these times.
pub(super) fn with_timeouts(
    stream: Connection,
    read: Duration,
    write: Duration,
) -> TimeoutConnection {
    let mut stream = TimeoutStream::new(stream);
    stream.set_read_timeout(Some(read));
    stream.set_write_timeout(Some(write));
    Box::pin(stream)
}

/// Waits for `wait`. Fails with [`io::ErrorKind::TimedOut`] after `limit`.
pub(super) async fn with_deadline<T>(
    limit: Duration,
    wait: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    tokio::time::timeout(limit, wait).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

//! The client of one connection, and what it may hold of the node's memory.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::time::{Instant, sleep_until};

use crate::shared::{ANSWERS, Shared};

/// Bytes of long answers of one connection: a quarter of what all may take.
const OF_ONE: usize = ANSWERS / 4;
/// An answer of so many bytes needs no room: a connection has few of them at a time.
pub(crate) const SHORT: usize = 256;
/// A connection that has long answers, and takes none of them for so long, is closed.
const STALL: Duration = Duration::from_secs(20);

/// The client of one connection. Clones are of the same.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) from: SocketAddr,
    all: Arc<Semaphore>,
    own: Arc<Semaphore>,
    unsent: Arc<Mutex<Unsent>>,
    /// It has a long answer on its way, after it had none.
    begins: Arc<Notify>,
}

/// Long answers on their way, and when the last was sent or the first of them began.
#[derive(Debug)]
struct Unsent {
    answers: usize,
    moved: Instant,
}

/// What the requests of a connection use.
#[derive(Debug)]
pub(crate) struct Requests {
    pub(crate) shared: Arc<Shared>,
    pub(crate) client: Client,
    /// How many there were.
    pub(crate) begun: AtomicU64,
}

impl Requests {
    pub(crate) fn new(shared: Arc<Shared>, from: SocketAddr) -> Arc<Self> {
        let client = Client::new(&shared.answers, from);
        Arc::new(Self { shared, client, begun: AtomicU64::new(0) })
    }
}

/// Room for a long answer. It is given back when the answer is sent, or its connection ended.
#[derive(Debug)]
pub(crate) struct Room {
    _all: OwnedSemaphorePermit,
    own: OwnedSemaphorePermit,
    unsent: Arc<Mutex<Unsent>>,
}

impl Client {
    /// A client with a part of this room.
    pub(crate) fn new(all: &Arc<Semaphore>, from: SocketAddr) -> Self {
        Self {
            from,
            all: Arc::clone(all),
            begins: Arc::default(),
            own: Arc::new(Semaphore::new(OF_ONE)),
            unsent: Arc::new(Mutex::new(Unsent { answers: 0, moved: Instant::now() })),
        }
    }

    /// Room for an answer of so many bytes; none while others that are not taken have it.
    pub(crate) fn room(&self, bytes: u32) -> Result<Room, TryAcquireError> {
        let own = Arc::clone(&self.own).try_acquire_many_owned(bytes)?;
        let all = Arc::clone(&self.all).try_acquire_many_owned(bytes)?;
        let unsent = Arc::clone(&self.unsent);
        {
            let mut unsent = unsent.lock();
            if unsent.answers == 0 {
                unsent.moved = Instant::now();
                self.begins.notify_one();
            }
            unsent.answers += 1;
        }
        Ok(Room { _all: all, own, unsent })
    }

    /// A body with room of its own until it is sent, unless it is short.
    pub(crate) fn hold(&self, body: Bytes) -> Result<Bytes, TryAcquireError> {
        if body.len() <= SHORT {
            return Ok(body);
        }
        // A body of 4 GiB has no room, either.
        let room = self.room(u32::try_from(body.len()).unwrap_or(u32::MAX))?;
        Ok(room.holding(body))
    }

    /// Waits until it has long answers and has taken none for too long. While it has none, there is
    /// no timer.
    pub(crate) async fn stalled(&self) {
        loop {
            self.begins.notified().await;
            while let Some(end) = self.patience_ends() {
                if end <= Instant::now() {
                    return;
                }
                sleep_until(end).await;
            }
        }
    }

    /// Until when it may take none; `None` if it has none.
    fn patience_ends(&self) -> Option<Instant> {
        let unsent = self.unsent.lock();
        (unsent.answers > 0).then(|| unsent.moved + STALL)
    }
}

impl Room {
    /// The bytes of the answer.
    pub(crate) fn bytes(&self) -> usize {
        self.own.num_permits()
    }

    /// The answer, which holds the room until it is sent.
    pub(crate) fn holding(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Long { bytes, _room: self })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut unsent = self.unsent.lock();
        unsent.answers = unsent.answers.saturating_sub(1);
        unsent.moved = Instant::now();
    }
}

struct Long {
    bytes: Bytes,
    _room: Room,
}

impl AsRef<[u8]> for Long {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const MIB: u32 = 1 << 20;

    fn client(all: &Arc<Semaphore>) -> Client {
        Client::new(all, SocketAddr::from(([127, 0, 0, 1], 1)))
    }

    #[tokio::test]
    async fn a_connection_has_a_quarter_of_the_room() {
        let all = Arc::new(Semaphore::new(ANSWERS));
        let (one, other) = (client(&all), client(&all));
        let mut rooms: Vec<_> = (0..64).map(|_| one.room(MIB).unwrap()).collect();
        assert!(one.room(1).is_err());
        assert!(other.room(MIB).is_ok());
        drop(rooms.pop());
        assert!(one.room(MIB).is_ok());
        drop(rooms);
        assert_eq!(all.available_permits(), ANSWERS);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_stalled_and_one_that_takes_some_is_not() {
        let all = Arc::new(Semaphore::new(ANSWERS));
        let client = client(&all);
        let stalls = |wait: Duration| {
            let client = client.clone();
            async move { tokio::time::timeout(wait, client.stalled()).await.is_ok() }
        };
        assert!(!stalls(STALL * 10).await, "it has no answers");
        // One answer is sent every ten seconds.
        let watching = client.clone();
        let watch = tokio::spawn(async move { watching.stalled().await });
        let mut rooms: Vec<_> = (0..6).map(|_| client.room(MIB).unwrap()).collect();
        while rooms.len() > 1 {
            tokio::time::sleep(STALL / 2).await;
            assert!(!watch.is_finished());
            rooms.pop();
        }
        tokio::time::sleep(STALL + Duration::from_millis(10)).await;
        assert!(watch.is_finished());
    }
}

//! The client of one connection, and what it may hold of the node's memory.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

use crate::shared::Shared;

/// Bytes of long lists of timestamps on their way.
const LISTS: usize = 256 << 20;
/// Bytes of other long answers, and of the bodies of changes: clients of timestamps leave operators
/// their room.
const OTHERS: usize = 64 << 20;
/// The part of one connection: so many have all of it.
const PARTS: (usize, usize) = (4, 16);
/// An answer of so many bytes needs no room: a connection has few of them at a time.
pub(crate) const SHORT: usize = 256;

/// What all connections hold together.
#[derive(Debug)]
pub(crate) struct Rooms {
    lists: Arc<Semaphore>,
    others: Arc<Semaphore>,
}

impl Default for Rooms {
    fn default() -> Self {
        Self::new(LISTS, OTHERS)
    }
}

impl Rooms {
    /// So many bytes.
    pub(crate) fn new(lists: usize, others: usize) -> Self {
        Self { lists: Arc::new(Semaphore::new(lists)), others: Arc::new(Semaphore::new(others)) }
    }
}

/// The client of one connection. Clones are of the same.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) from: SocketAddr,
    lists: Share,
    others: Share,
}

/// What one connection holds of what all hold.
#[derive(Debug, Clone)]
struct Share {
    all: Arc<Semaphore>,
    own: Arc<Semaphore>,
}

impl Share {
    fn new(all: &Arc<Semaphore>, most: usize) -> Self {
        Self { all: Arc::clone(all), own: Arc::new(Semaphore::new(most)) }
    }

    fn room(&self, bytes: u32) -> Result<Room, TryAcquireError> {
        let own = Arc::clone(&self.own).try_acquire_many_owned(bytes)?;
        let all = Arc::clone(&self.all).try_acquire_many_owned(bytes)?;
        Ok(Room { _all: all, own })
    }
}

/// What the requests of a connection use.
#[derive(Debug)]
pub(crate) struct Requests {
    pub(crate) shared: Arc<Shared>,
    pub(crate) client: Client,
    /// How many there were.
    pub(crate) begun: AtomicU64,
    /// How many of them were answered, and the answers taken.
    pub(crate) ended: AtomicU64,
}

impl Requests {
    pub(crate) fn new(shared: Arc<Shared>, from: SocketAddr) -> Arc<Self> {
        let client = Client::new(&shared.rooms, from);
        Arc::new(Self { shared, client, begun: AtomicU64::new(0), ended: AtomicU64::new(0) })
    }
}

/// Room for a long answer. It is given back when the answer is sent, or its connection ended.
#[derive(Debug)]
pub(crate) struct Room {
    _all: OwnedSemaphorePermit,
    own: OwnedSemaphorePermit,
}

impl Client {
    /// A client with a part of these rooms.
    pub(crate) fn new(rooms: &Rooms, from: SocketAddr) -> Self {
        Self {
            from,
            lists: Share::new(&rooms.lists, LISTS / PARTS.0),
            others: Share::new(&rooms.others, OTHERS / PARTS.1),
        }
    }

    /// Room for a list of so many bytes; none while others that are not taken have it.
    pub(crate) fn room(&self, bytes: u32) -> Result<Room, TryAcquireError> {
        self.lists.room(bytes)
    }

    /// Room for the body of a change.
    pub(crate) fn room_for_body(&self, bytes: u32) -> Result<Room, TryAcquireError> {
        self.others.room(bytes)
    }

    /// The body of another answer, with room of its own until it is sent, unless it is short.
    pub(crate) fn hold(&self, body: Bytes) -> Result<Bytes, TryAcquireError> {
        if body.len() <= SHORT {
            return Ok(body);
        }
        // A body of 4 GiB has no room, either.
        let room = self.others.room(u32::try_from(body.len()).unwrap_or(u32::MAX))?;
        Ok(room.holding(body))
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

    fn client(rooms: &Rooms) -> Client {
        Client::new(rooms, SocketAddr::from(([127, 0, 0, 1], 1)))
    }

    #[test]
    fn a_connection_has_a_part_of_the_room() {
        let rooms = Rooms::default();
        let (one, other) = (client(&rooms), client(&rooms));
        let mut held: Vec<_> = (0..64).map(|_| one.room(MIB).unwrap()).collect();
        assert!(one.room(1).is_err());
        assert!(other.room(MIB).is_ok());
        drop(held.pop());
        assert!(one.room(MIB).is_ok());
        drop(held);
        assert_eq!(rooms.lists.available_permits(), LISTS);
        let held: Vec<_> = (0..4).map(|_| one.room_for_body(MIB).unwrap()).collect();
        assert!(one.room_for_body(1).is_err());
        assert!(other.room_for_body(MIB).is_ok());
        drop(held);
        assert_eq!(rooms.others.available_permits(), OTHERS);
    }

    #[test]
    fn lists_take_no_room_of_operators() {
        let rooms = Rooms::default();
        let clients: Vec<_> = (0..4).map(|_| client(&rooms)).collect();
        let lists: Vec<_> = clients.iter().map(|client| client.room(64 * MIB).unwrap()).collect();
        assert!(client(&rooms).room(1).is_err());
        assert!(client(&rooms).hold(vec![0; 1000].into()).is_ok());
        drop(lists);
    }
}

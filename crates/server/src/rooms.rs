//! What connections hold of the node's memory, together and each.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

use crate::looks::{Traffic, Waits};

/// Bytes of long lists of timestamps on their way.
const LISTS: usize = 256 << 20;
/// Bytes of other long answers, and of the bodies of changes: clients of timestamps leave operators
/// their room.
const OTHERS: usize = 64 << 20;
const BODIES: usize = 64 << 20;
/// The part of one connection: so many have all of it.
const PARTS: (usize, usize) = (4, 16);

/// What all connections hold together.
#[derive(Debug)]
pub(crate) struct Rooms {
    lists: Arc<Semaphore>,
    others: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
}

impl Default for Rooms {
    fn default() -> Self {
        Self::new(LISTS, OTHERS, BODIES)
    }
}

impl Rooms {
    /// The part of a new connection in the room of lists, of other answers, and of bodies.
    pub(crate) fn shares(&self, traffic: &Arc<Traffic>) -> [Share; 3] {
        [
            Share::new(&self.lists, LISTS / PARTS.0, traffic),
            Share::new(&self.others, OTHERS / PARTS.1, traffic),
            Share::new(&self.bodies, BODIES / PARTS.1, traffic),
        ]
    }

    /// So many bytes.
    pub(crate) fn new(lists: usize, others: usize, bodies: usize) -> Self {
        let [lists, others, bodies] =
            [lists, others, bodies].map(|room| Arc::new(Semaphore::new(room)));
        Self { lists, others, bodies }
    }
}

/// What one connection holds of what all hold.
#[derive(Debug, Clone)]
pub(crate) struct Share {
    all: Arc<Semaphore>,
    own: Arc<Semaphore>,
    most: usize,
    traffic: Arc<Traffic>,
}

impl Share {
    fn new(all: &Arc<Semaphore>, most: usize, traffic: &Arc<Traffic>) -> Self {
        let own = Arc::new(Semaphore::new(most));
        Self { all: Arc::clone(all), own, most, traffic: Arc::clone(traffic) }
    }

    /// Whether none of it is taken.
    pub(crate) fn is_free(&self) -> bool {
        self.own.available_permits() == self.most
    }

    /// Room for so many bytes; none while others that are not taken have it.
    pub(crate) fn room(&self, bytes: u32) -> Result<Room, TryAcquireError> {
        let own = Arc::clone(&self.own).try_acquire_many_owned(bytes)?;
        let all = Arc::clone(&self.all).try_acquire_many_owned(bytes)?;
        Ok(Room { _all: all, own, _waits: Waits::new(&self.traffic) })
    }
}

/// Room for a long answer. It is given back when the answer is sent, or its connection ended.
#[derive(Debug)]
pub(crate) struct Room {
    _all: OwnedSemaphorePermit,
    own: OwnedSemaphorePermit,
    /// A connection may have handed the answer on, and not sent it.
    _waits: Waits,
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

    #[test]
    fn a_connection_has_a_part_of_the_room() {
        let rooms = Rooms::default();
        let ([lists, others, bodies], [of_another, ..]) =
            (rooms.shares(&Arc::default()), rooms.shares(&Arc::default()));
        let mut held: Vec<_> = (0..64).map(|_| lists.room(MIB).unwrap()).collect();
        assert!(lists.room(1).is_err());
        assert!(of_another.room(MIB).is_ok());
        drop(held.pop());
        assert!(lists.room(MIB).is_ok());
        assert!(!lists.is_free());
        drop(held);
        assert!(lists.is_free());
        assert_eq!(rooms.lists.available_permits(), LISTS);
        let held: Vec<_> = (0..4).map(|_| others.room(MIB).unwrap()).collect();
        assert!(others.room(1).is_err() && bodies.room(1).is_ok());
        drop(held);
        assert_eq!(rooms.others.available_permits(), OTHERS);
    }
}

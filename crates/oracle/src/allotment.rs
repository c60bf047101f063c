//! What the owner of an epoch hands out.

use crate::epochs::{Epochs, Owner};
use crate::range::Range;
use crate::timestamp::Timestamp;

/// The indexes of an epoch that its owner has not handed out. There is one of it for each epoch, in
/// the process that owns it, so it cannot be copied.
#[derive(Debug, PartialEq, Eq)]
pub struct Allotment {
    owner: Owner,
    epoch: u64,
    /// The next index; 0 when all were handed out.
    next: u64,
}

impl Allotment {
    /// What an owner may hand out of the last epoch: all of it if that is its own and was never
    /// taken up before, and nothing otherwise.
    ///
    /// `current` is what it hands out at the moment. An epoch that is not above that was taken up
    /// before, and the indexes of it continue there.
    pub fn of(epochs: &Epochs, owner: Owner, current: Option<&Allotment>) -> Option<Self> {
        let is_new = current.is_none_or(|current| epochs.last() > current.epoch);
        (epochs.owner() == owner && epochs.last() > 0 && is_new).then(|| Self {
            owner,
            epoch: epochs.last(),
            next: 1,
        })
    }

    /// Whose epoch it is. Only in that term, proven after a request arrived, is the request
    /// answered from it.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// The epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Hands out so many timestamps. `None`, and none is used, for 0 and when the epoch does not
    /// have as many: then it takes another epoch.
    pub fn take(&mut self, count: u32) -> Option<Range> {
        let last = self.next.checked_add(u64::from(count.checked_sub(1)?))?;
        if self.next == 0 {
            return None;
        }
        let first = Timestamp { epoch: self.epoch, index: self.next };
        self.next = last.wrapping_add(1);
        Some(Range { first, count })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use esker_raft::Machine;

    use super::*;
    use crate::epochs::Advance;

    const FIRST: Owner = Owner { term: 1, node: 1, session: 4 };

    fn advanced(epochs: &mut Epochs, owner: Owner, wall: u64) {
        epochs.apply(Advance { owner, wall }.encode());
    }

    #[test]
    fn indexes_are_consecutive_from_one() {
        let mut epochs = Epochs::default();
        assert_eq!(Allotment::of(&epochs, Owner::default(), None), None);
        advanced(&mut epochs, FIRST, 50);
        let mut allotment = Allotment::of(&epochs, FIRST, None).unwrap();
        let mut expected = 1;
        for count in [1, 1, 7, 65_536, 1] {
            let range = allotment.take(count).unwrap();
            assert_eq!(range.timestamps().count(), count as usize);
            for timestamp in range.timestamps() {
                assert_eq!(timestamp, Timestamp { epoch: 50, index: expected });
                expected += 1;
            }
        }
        assert_eq!(allotment.take(0), None);
        assert_eq!(allotment.take(1).unwrap().first.index, expected);
    }

    #[test]
    fn an_index_that_overflows_is_not_handed_out() {
        let at = |next| Allotment { owner: FIRST, epoch: 50, next };
        let mut allotment = at(u64::MAX - 3);
        assert_eq!(allotment.take(5), None);
        assert_eq!(allotment.take(4).unwrap().first.index, u64::MAX - 3);
        for _ in 0..3 {
            assert_eq!(allotment.take(1), None);
        }
        assert_eq!(at(u64::MAX).take(1).unwrap().first.index, u64::MAX);
        assert_eq!(at(u64::MAX).take(2), None);
    }

    /// The seed issued an epoch's indexes again when a node led for the second time.
    #[test]
    fn only_its_process_owns_an_epoch() {
        let mut epochs = Epochs::default();
        advanced(&mut epochs, FIRST, 50);
        let restarted = Owner { session: 5, ..FIRST };
        let leads_again = Owner { term: 3, ..FIRST };
        let other = Owner { node: 2, ..FIRST };
        for owner in [restarted, leads_again, other] {
            assert_eq!(Allotment::of(&epochs, owner, None), None, "{owner:?}");
        }
        let current = Allotment::of(&epochs, FIRST, None).unwrap();
        // It is not taken up twice.
        assert_eq!(Allotment::of(&epochs, FIRST, Some(&current)), None);
        advanced(&mut epochs, other, 60);
        assert_eq!(Allotment::of(&epochs, FIRST, Some(&current)), None);
        advanced(&mut epochs, FIRST, 70);
        assert_eq!(Allotment::of(&epochs, FIRST, Some(&current)).unwrap().epoch(), 70);
    }
}

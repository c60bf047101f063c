//! The indexes of an epoch that its owner hands out.

use crate::epochs::{Epochs, Owner};
use crate::range::Range;
use crate::timestamp::Timestamp;

/// The indexes of an epoch that its owner has not handed out. Each epoch has one allotment, in the
/// process that owns the epoch, so it cannot be copied.
#[derive(Debug, PartialEq, Eq)]
pub struct Allotment {
    owner: Owner,
    epoch: u64,
    /// The next index; 0 when all were handed out.
    next: u64,
}

impl Allotment {
    /// Takes up the last epoch: all of its indexes, if it is the owner's and was never taken up
    /// before. `None` otherwise.
    ///
    /// `current` is the owner's current allotment. An epoch that is not above that was taken up
    /// before, and its indexes continue there.
    pub fn take_up(epochs: &Epochs, owner: Owner, current: Option<&Allotment>) -> Option<Self> {
        let is_new = current.is_none_or(|current| epochs.last() > current.epoch);
        (epochs.owner() == owner && epochs.last() > 0 && is_new).then(|| Self {
            owner,
            epoch: epochs.last(),
            next: 1,
        })
    }

    /// The owner of the epoch. A request is answered from it only in the owner's term, proven after
    /// the request arrived.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// The epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Hands out `count` timestamps with indexes up to `index_max`. `None`, and no index is used,
    /// for 0 and when the epoch does not have as many: then the request needs another epoch.
    pub fn take(&mut self, count: u32, index_max: u64) -> Option<Range> {
        let last = self.next.checked_add(u64::from(count.checked_sub(1)?))?;
        if self.next == 0 || last > index_max {
            return None;
        }
        let first = Timestamp { epoch: self.epoch, index: self.next };
        self.next = last.wrapping_add(1);
        let range = Range { first, count };
        debug_assert_eq!(range.last().map(|last| last.index), Some(last), "a range is whole");
        Some(range)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::epochs::Advance;

    const FIRST_OWNER: Owner = Owner { term: 1, node: 1, session: 4 };

    fn advanced(epochs: &mut Epochs, owner: Owner, wall: u64) {
        epochs.apply(&Advance { owner, wall }.encode()).unwrap();
    }

    #[test]
    fn indexes_are_consecutive_from_one() {
        let mut epochs = Epochs::default();
        assert_eq!(Allotment::take_up(&epochs, Owner::default(), None), None);
        advanced(&mut epochs, FIRST_OWNER, 50);
        let mut allotment = Allotment::take_up(&epochs, FIRST_OWNER, None).unwrap();
        let mut expected = 1;
        for count in [1, 1, 7, 65_536, 1] {
            let range = allotment.take(count, u64::MAX).unwrap();
            assert_eq!(range.timestamps().count(), count as usize);
            for timestamp in range.timestamps() {
                assert_eq!(timestamp, Timestamp { epoch: 50, index: expected });
                expected += 1;
            }
        }
        assert_eq!(allotment.take(0, u64::MAX), None);
        assert_eq!(allotment.take(1, u64::MAX).unwrap().first.index, expected);
    }

    #[test]
    fn an_index_that_overflows_is_not_handed_out() {
        let at = |next| Allotment { owner: FIRST_OWNER, epoch: 50, next };
        let mut allotment = at(u64::MAX - 3);
        assert_eq!(allotment.take(5, u64::MAX), None);
        assert_eq!(allotment.take(4, u64::MAX).unwrap().first.index, u64::MAX - 3);
        for _ in 0..3 {
            assert_eq!(allotment.take(1, u64::MAX), None);
        }
        assert_eq!(at(u64::MAX).take(1, u64::MAX).unwrap().first.index, u64::MAX);
        assert_eq!(at(u64::MAX).take(2, u64::MAX), None);
    }

    #[test]
    fn an_index_above_the_limit_of_its_request_is_not_handed_out() {
        let mut epochs = Epochs::default();
        advanced(&mut epochs, FIRST_OWNER, 50);
        let mut allotment = Allotment::take_up(&epochs, FIRST_OWNER, None).unwrap();
        assert_eq!(allotment.take(10, 9), None);
        assert_eq!(allotment.take(8, 9).unwrap().first.index, 1);
        assert_eq!(allotment.take(2, 9), None);
        assert_eq!(allotment.take(1, 9).unwrap().first.index, 9);
        assert_eq!(allotment.take(1, 9), None);
        assert_eq!(allotment.take(1, u64::MAX).unwrap().first.index, 10);
    }

    /// The seed issued an epoch's indexes again when a node led for the second time.
    #[test]
    fn only_its_process_owns_an_epoch() {
        let mut epochs = Epochs::default();
        advanced(&mut epochs, FIRST_OWNER, 50);
        let restarted = Owner { session: 5, ..FIRST_OWNER };
        let leads_again = Owner { term: 3, ..FIRST_OWNER };
        let other = Owner { node: 2, ..FIRST_OWNER };
        for owner in [restarted, leads_again, other] {
            assert_eq!(Allotment::take_up(&epochs, owner, None), None, "{owner:?}");
        }
        let current = Allotment::take_up(&epochs, FIRST_OWNER, None).unwrap();
        // It is not taken up twice.
        assert_eq!(Allotment::take_up(&epochs, FIRST_OWNER, Some(&current)), None);
        advanced(&mut epochs, other, 6_000_000);
        assert_eq!(Allotment::take_up(&epochs, FIRST_OWNER, Some(&current)), None);
        advanced(&mut epochs, FIRST_OWNER, 7_000_000);
        let next = Allotment::take_up(&epochs, FIRST_OWNER, Some(&current)).unwrap();
        assert_eq!(next.epoch(), 7_000_000);
    }
}

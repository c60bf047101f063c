//! The replicated epochs: the last epoch, its owner, and whether leases are counted on.

use bytes::Bytes;
use esker_raft::Command;

use crate::command::{COMMAND_VERSION, read_u64s};
use crate::timestamp::NANOS_PER_MILLISECOND;

/// A new epoch above the last by a nanosecond at least. Logs of earlier builds have it.
const KIND_ADVANCE_BY_NANOSECOND: u8 = 1;
const KIND_LEASE_READS: u8 = 2;
const KIND_ADVANCE: u8 = 3;
/// Bytes of the epochs in a state.
pub(crate) const EPOCHS_BYTES: usize = 33;
/// Bytes of a command for a new epoch.
const ADVANCE_BYTES: usize = 34;

const _: () = assert!(EPOCHS_BYTES == 4 * size_of::<u64>() + 1);
const _: () = assert!(ADVANCE_BYTES == 2 + 4 * size_of::<u64>());
const _: () = assert!(ADVANCE_BYTES <= Command::MAX);

/// A process that leads in a term. No two are the same: the session is new with every opening of
/// the node's log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The term in which it leads.
    pub term: u64,
    /// The node.
    pub node: u64,
    /// The session of the node's log.
    pub session: u64,
}

/// The command for a new epoch.
///
/// ```text
/// 0 version (1) | 1 kind (3) | 2 term u64 | 10 node u64 | 18 session u64 | 26 wall clock u64
/// ```
///
/// Numbers are big-endian. The kind 1 of earlier builds has the same fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advance {
    /// The owner of the epoch.
    pub owner: Owner,
    /// The epoch to be, if it is in a later millisecond than the last one: the proposer's clock.
    pub wall: u64,
}

impl Advance {
    /// Encodes the command.
    pub fn encode(&self) -> Command {
        let Owner { term, node, session } = self.owner;
        let mut bytes = vec![COMMAND_VERSION, KIND_ADVANCE];
        bytes.extend([term, node, session, self.wall].map(u64::to_be_bytes).concat());
        debug_assert_eq!(bytes.len(), ADVANCE_BYTES, "a command has all of its fields");
        debug_assert_eq!(Self::decode(&bytes[2..]), Some(*self), "an encoded command can be read");
        Command(bytes.into())
    }

    fn decode(content: &[u8]) -> Option<Self> {
        let [term, node, session, wall] = read_u64s(content)?;
        Some(Self { owner: Owner { term, node, session }, wall })
    }

    /// The epoch in the answer to this command; `None` when it was not understood, or when there is
    /// no epoch left.
    pub fn answered(answer: &Bytes) -> Option<u64> {
        debug_assert!(matches!(answer.len(), 0 | 8), "an answer has an epoch, or nothing");
        read_u64s::<1>(answer).map(|[epoch]| epoch)
    }
}

/// The command that switches reads under a lease on or off: whether a leader that has a lease may
/// answer without a proof.
///
/// ```text
/// 0 version (1) | 1 kind (1) | 2 on or off (1)
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseReads(pub bool);

impl LeaseReads {
    /// Encodes the command.
    pub fn encode(self) -> Command {
        Command(vec![COMMAND_VERSION, KIND_LEASE_READS, u8::from(self.0)].into())
    }

    fn decode(content: &[u8]) -> Option<Self> {
        match content {
            [0] => Some(Self(false)),
            [1] => Some(Self(true)),
            _ => None,
        }
    }
}

/// The replicated epochs: the last epoch, its owner, and whether leases are counted on. They are a
/// part of [`OracleState`](crate::OracleState).
///
/// ```text
/// 0 epoch u64 | 8 term u64 | 16 node u64 | 24 session u64 | 32 reads under a lease (1)
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Epochs {
    epoch: u64,
    owner: Owner,
    lease_reads: bool,
}

impl Epochs {
    /// The last epoch; 0 before the first.
    pub fn last(&self) -> u64 {
        self.epoch
    }

    /// The owner of the last epoch.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Returns whether a leader may answer under its lease, without a proof.
    pub fn lease_reads(&self) -> bool {
        self.lease_reads
    }

    /// Returns whether there is no epoch after the last one, for good.
    pub fn are_used_up(&self) -> bool {
        self.least_next().is_none()
    }

    /// Returns the lowest epoch after the last one: the beginning of the next millisecond. Each
    /// epoch has a millisecond of its own, because timestamps of 64 bits have the millisecond
    /// alone, and are in the same order. `None` when there is none left, in the year 2554.
    pub(crate) fn least_next(&self) -> Option<u64> {
        match self.epoch {
            0 => Some(1),
            last => (last / NANOS_PER_MILLISECOND + 1).checked_mul(NANOS_PER_MILLISECOND),
        }
    }

    /// Takes a new epoch: the wall clock, or the lowest one that there may be.
    fn advance(&mut self, advance: Advance, least: Option<u64>) -> Option<u64> {
        let epoch = least?.max(advance.wall);
        debug_assert!(epoch > self.epoch, "epochs rise");
        (self.epoch, self.owner) = (epoch, advance.owner);
        Some(epoch)
    }

    /// Applies a command for a new epoch, or one that switches leases. Returns its answer, or
    /// `None` for any other command, which changes nothing. The clock is in the command: so all
    /// replicas stay the same.
    pub(crate) fn apply(&mut self, command: &Command) -> Option<Bytes> {
        let epoch = match command.0.split_first_chunk() {
            Some(([COMMAND_VERSION, KIND_ADVANCE], content)) => {
                let least = self.least_next();
                Advance::decode(content).map(|advance| self.advance(advance, least))
            }
            Some(([COMMAND_VERSION, KIND_ADVANCE_BY_NANOSECOND], content)) => {
                let least = self.epoch.checked_add(1);
                Advance::decode(content).map(|advance| self.advance(advance, least))
            }
            Some(([COMMAND_VERSION, KIND_LEASE_READS], content)) => LeaseReads::decode(content)
                .map(|LeaseReads(on)| {
                    self.lease_reads = on;
                    None
                }),
            _ => None,
        };
        Some(epoch?.map_or_else(Bytes::new, |epoch| Bytes::copy_from_slice(&epoch.to_be_bytes())))
    }

    /// Encodes the epochs as a part of a state.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Owner { term, node, session } = self.owner;
        let mut bytes = [self.epoch, term, node, session].map(u64::to_be_bytes).concat();
        bytes.push(u8::from(self.lease_reads));
        debug_assert_eq!(bytes.len(), EPOCHS_BYTES, "the epochs have all of their fields");
        bytes
    }

    /// Decodes the epochs of a state.
    pub(crate) fn decode(bytes: &[u8; EPOCHS_BYTES]) -> Option<Self> {
        let [numbers @ .., lease_reads @ (0 | 1)] = bytes else { return None };
        let [epoch, term, node, session] = read_u64s(numbers)?;
        let owner = Owner { term, node, session };
        Some(Self { epoch, owner, lease_reads: *lease_reads == 1 })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn owner(term: u64) -> Owner {
        Owner { term, node: term % 3, session: 7 * term }
    }

    fn advance(wall: u64) -> Command {
        Advance { owner: owner(1), wall }.encode()
    }

    fn decode(bytes: &[u8]) -> Option<Epochs> {
        Epochs::decode(bytes.try_into().unwrap())
    }

    /// The seed stopped every replica, for good, when a clock went back.
    #[test]
    fn epochs_rise_whatever_the_clock_does() {
        let mut epochs = Epochs::default();
        let cases = [
            (100, 100),
            (50, 1_000_000),
            (0, 2_000_000),
            (2_999_999, 3_000_000),
            (4_000_001, 4_000_001),
            (4_000_001, 5_000_000),
            (4_000_000_000_000_000_001, 4_000_000_000_000_000_001),
            (7, 4_000_000_000_001_000_000),
        ];
        for (wall, expected) in cases {
            let answer = epochs.apply(&advance(wall)).unwrap();
            assert_eq!(Advance::answered(&answer), Some(expected));
            assert_eq!((epochs.last(), epochs.owner()), (expected, owner(1)));
        }
    }

    /// The log of an earlier build gives the epochs that were issued from it.
    #[test]
    fn earlier_commands_keep_their_epochs() {
        let mut epochs = Epochs::default();
        for (wall, expected) in [(100, 100), (50, 101), (0, 102), (103, 103), (103, 104)] {
            let mut command = advance(wall).0.to_vec();
            command[1] = KIND_ADVANCE_BY_NANOSECOND;
            let answer = epochs.apply(&Command(command.into())).unwrap();
            assert_eq!(Advance::answered(&answer), Some(expected));
        }
        assert_eq!(Advance::answered(&epochs.apply(&advance(7)).unwrap()), Some(1_000_000));
    }

    #[test]
    fn after_the_last_epoch_there_is_none() {
        let mut epochs = Epochs::default();
        let answer = epochs.apply(&advance(u64::MAX)).unwrap();
        assert_eq!(Advance::answered(&answer), Some(u64::MAX));
        let before = epochs;
        for wall in [0, u64::MAX] {
            assert_eq!(Advance::answered(&epochs.apply(&advance(wall)).unwrap()), None);
            assert_eq!(epochs, before);
        }
    }

    #[test]
    fn lease_reads_are_switched_and_kept() {
        let mut epochs = Epochs::default();
        assert!(!epochs.lease_reads());
        epochs.apply(&LeaseReads(true).encode()).unwrap();
        epochs.apply(&advance(9)).unwrap();
        assert!(epochs.lease_reads() && epochs.last() == 9);
        assert_eq!(decode(&epochs.encode()), Some(epochs));
        epochs.apply(&LeaseReads(false).encode()).unwrap();
        assert!(!epochs.lease_reads());
    }

    proptest::proptest! {
        /// Replicas that get the same commands in other batches, one of them through a snapshot,
        /// end equal.
        #[test]
        fn replicas_end_equal(
            walls in proptest::collection::vec((1_u64..9, proptest::num::u64::ANY), 1..40),
            at in 0_usize..40,
        ) {
            let command = |&(term, wall): &(u64, u64)| Advance { owner: owner(term), wall }.encode();
            let mut whole = Epochs::default();
            let answers: Vec<_> = walls.iter().map(|wall| whole.apply(&command(wall)).unwrap()).collect();
            let mut part = Epochs::default();
            let at = at.min(walls.len());
            walls[..at].iter().for_each(|wall| drop(part.apply(&command(wall)).unwrap()));
            let mut restored = decode(&part.encode()).unwrap();
            for (wall, answer) in walls[at..].iter().zip(&answers[at..]) {
                proptest::prop_assert_eq!(&restored.apply(&command(wall)).unwrap(), answer);
            }
            proptest::prop_assert_eq!(restored, whole);
        }
    }
}

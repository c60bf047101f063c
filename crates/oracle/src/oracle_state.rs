//! The replicated state of an oracle: its epochs and its sequences.

use std::io::{self, BufReader, Cursor, Read};

use bytes::Bytes;
use esker_raft::{Command, Commands, Machine};

use crate::command::unknown_command;
use crate::epochs::{EPOCHS_BYTES, Epochs};
use crate::sequences::Sequences;
use crate::state_fields::{damaged, read};

/// The first byte of a state, and that of states without sequences, which earlier builds wrote.
const STATE_VERSION: u8 = 3;
const STATE_VERSION_WITHOUT_SEQUENCES: u8 = 2;

/// The replicated state of an oracle: its epochs and its sequences.
///
/// ```text
/// state: 0 version (3) | 1 epoch u64 | 9 term u64 | 17 node u64 | 25 session u64
///       33 reads under a lease (1) | 34 sequences and answers, in version 3 alone
/// ```
///
/// A state with 131,072 answers and 10,000 sequences, the most of both, has 5.6 MB at most.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OracleState {
    epochs: Epochs,
    sequences: Sequences,
}

impl OracleState {
    /// The epochs.
    pub fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// The sequences.
    pub(crate) fn sequences(&self) -> &Sequences {
        &self.sequences
    }
}

/// Fails at an unknown command alone: so all replicas that continue stay the same.
impl Machine<Commands> for OracleState {
    fn apply(&mut self, command: Command) -> io::Result<Bytes> {
        let Self { epochs, sequences } = self;
        let answer = epochs.apply(&command);
        let answer = answer.or_else(|| sequences.apply(&command, epochs.last()));
        answer.ok_or_else(|| unknown_command(&command))
    }

    fn answer(&self) -> Bytes {
        Bytes::new()
    }

    fn state(&self) -> io::Result<Box<dyn Read + Send>> {
        let mut bytes = vec![STATE_VERSION];
        bytes.extend(self.epochs.encode());
        self.sequences.encode(&mut bytes);
        Ok(Box::new(Cursor::new(bytes)))
    }

    fn restore(&mut self, state: &mut dyn Read) -> io::Result<()> {
        let mut state = BufReader::new(state);
        let [version] = read(&mut state)?;
        let has_sequences = match version {
            STATE_VERSION => true,
            STATE_VERSION_WITHOUT_SEQUENCES => false,
            _ => return Err(damaged(&format!("this build does not know version {version}"))),
        };
        let epochs: [u8; EPOCHS_BYTES] = read(&mut state)?;
        let epochs = Epochs::decode(&epochs);
        let epochs = epochs.ok_or_else(|| damaged("a flag is neither on nor off"))?;
        let limit = self.sequences.limit();
        let sequences = match has_sequences {
            true => Sequences::decode(&mut state, limit)?,
            false => Sequences::with_limit(limit),
        };
        if state.bytes().next().transpose()?.is_some() {
            return Err(damaged("it does not end after its last field"));
        }
        *self = Self { epochs, sequences };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::epochs::{Advance, LeaseReads, Owner};
    use crate::sequence::{SEQUENCE_NUMBER_MAX, SequenceName};
    use crate::sequences::{CreateSequence, NextNumbers, NextRequest};
    use crate::timestamp::Timestamp;

    const EPOCH: u64 = 1_000_000;

    fn advance(wall: u64) -> Command {
        Advance { owner: Owner { term: 1, node: 2, session: 3 }, wall }.encode()
    }

    fn name(name: &str) -> SequenceName {
        name.parse().unwrap()
    }

    fn next(of: &str, count: u32, index: u64) -> Command {
        let key = Timestamp { epoch: EPOCH, index };
        NextNumbers::encode(&[&NextRequest { name: name(of), count, key }])
    }

    /// Two sequences, and more requests than there are answers kept.
    fn filled() -> OracleState {
        let mut state = OracleState { sequences: Sequences::with_limit(3), ..Default::default() };
        state.apply(advance(EPOCH)).unwrap();
        state.apply(LeaseReads(true).encode()).unwrap();
        for (of, first) in [("invoices", 1), ("b", SEQUENCE_NUMBER_MAX)] {
            state.apply(CreateSequence { name: name(of), first }.encode()).unwrap();
        }
        state.apply(next("b", 1, 1)).unwrap();
        for index in 2..6 {
            state.apply(next("invoices", 3, index)).unwrap();
        }
        state
    }

    fn encode(state: &OracleState) -> Vec<u8> {
        let mut bytes = Vec::new();
        state.state().unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    }

    fn empty() -> OracleState {
        OracleState { sequences: Sequences::with_limit(3), ..Default::default() }
    }

    #[test]
    fn a_state_comes_back_and_no_damaged_one_does() {
        let state = filled();
        let bytes = encode(&state);
        let mut restored = empty();
        restored.restore(&mut &bytes[..]).unwrap();
        assert_eq!(restored, state);
        let cut = (0..bytes.len()).map(|len| bytes[..len].to_vec());
        let longer = [&bytes[..], &[0]].concat();
        for wrong in cut.chain([longer]) {
            assert!(restored.restore(&mut &wrong[..]).is_err(), "{} bytes", wrong.len());
            assert_eq!(restored, state);
        }
        // A changed byte gives another state, or none.
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut wrong = bytes.clone();
                wrong[at] ^= 1 << bit;
                let mut other = empty();
                if other.restore(&mut &wrong[..]).is_ok() {
                    assert_eq!(encode(&other), wrong, "byte {at}");
                } else {
                    assert_eq!(other, empty());
                }
            }
        }
    }

    /// Offsets: 34 next incarnation, 59 number of sequences, 63 the sequence `b`, 81 `invoices`,
    /// 106 number of answers.
    #[test]
    fn a_state_beyond_the_limits_is_refused() {
        let bytes = encode(&filled());
        let put = |at: usize, field: &[u8]| {
            let mut wrong = bytes.clone();
            wrong[at..at + field.len()].copy_from_slice(field);
            wrong
        };
        let number = |number: u64| number.to_be_bytes();
        let wrong = [
            ("version", put(0, &[4])),
            ("switch", put(33, &[2])),
            ("no incarnation", put(34, &number(1))),
            ("flag", put(42, &[2])),
            ("evicted", put(43, &[0xff; 16])),
            ("too many sequences", put(59, &10_001_u32.to_be_bytes())),
            ("name too long", put(63, &[65])),
            ("no name", put(63, &[0])),
            ("no letter", put(64, b"/")),
            ("names fall", put(64, b"z")),
            ("same incarnation", put(65, &number(0))),
            ("beyond the last number", put(73, &number(SEQUENCE_NUMBER_MAX + 2))),
            ("number 0", put(98, &number(0))),
            ("numbers that were not taken", put(98, &number(12))),
            ("too many answers", put(106, &4_u32.to_be_bytes())),
            ("keys fall", put(110, &[0xff; 16])),
            ("answer of no sequence", put(126, &number(2))),
            ("answer with 0", put(134, &number(0))),
            ("answer of none", put(142, &[0; 4])),
            ("answer of too many", put(142, &65_537_u32.to_be_bytes())),
        ];
        for (what, wrong) in wrong {
            let refused = empty().restore(&mut &wrong[..]).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{what}");
        }
    }

    /// A node that is started with a later build than the one before.
    #[test]
    fn a_state_of_an_earlier_build_has_no_sequences() {
        let mut bytes = encode(&filled());
        bytes[0] = STATE_VERSION_WITHOUT_SEQUENCES;
        assert!(empty().restore(&mut &bytes[..]).is_err());
        bytes.truncate(1 + EPOCHS_BYTES);
        let mut restored = filled();
        restored.restore(&mut &bytes[..]).unwrap();
        assert_eq!(restored.epochs(), filled().epochs());
        assert_eq!(*restored.sequences(), Sequences::with_limit(3));
        bytes[0] = STATE_VERSION;
        assert!(restored.restore(&mut &bytes[..]).is_err());
    }

    /// A command of a later build, or a damaged one. A replica that skipped it would continue with
    /// another state than those that know it.
    #[test]
    fn a_command_that_is_not_understood_is_refused_and_changes_nothing() {
        let switches = [&[1, 2][..], &[1, 2, 2], &[0, 2, 1], &[1, 7], &[1], &[]];
        let mut unknown: Vec<_> = switches.map(Bytes::copy_from_slice).into();
        for valid in [advance(9), next("invoices", 1, 7)] {
            let bytes = &valid.0;
            unknown.extend((0..bytes.len()).map(|len| bytes.slice(..len)));
            unknown.push([&bytes[..], &[0]].concat().into());
            for at in 0..2 {
                let mut flipped = bytes.to_vec();
                flipped[at] ^= 8;
                unknown.push(flipped.into());
            }
        }
        let mut state = filled();
        for unknown in unknown {
            let refused = state.apply(Command(unknown)).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
            assert!(refused.to_string().contains("the build of the leader"), "{refused}");
            assert_eq!(state, filled());
        }
        state.apply(advance(2 * EPOCH)).unwrap();
        assert_eq!(state.epochs().last(), 2 * EPOCH);
    }
}

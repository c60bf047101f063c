//! The replicated sequences, and the rules by which commands change them.

use std::collections::BTreeMap;

use bytes::Bytes;
use esker_raft::Command;

use crate::sequence::{SEQUENCE_NUMBER_MAX, SequenceName};
use crate::sequences::recent_answers::{RecentAnswers, SequenceAnswer};
use crate::sequences::sequence_command::{
    CreateRefusal, CreateSequence, NextNumbers, NextOutcome, NextRefusal, NextRequest,
    RemoveSequence, SequenceCommand,
};

/// The most sequences.
pub(super) const SEQUENCES_MAX: usize = 10_000;

/// A sequence, and its next number.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SequenceStatus {
    /// The name of the sequence.
    pub name: SequenceName,
    /// The next number; [`SEQUENCE_NUMBER_MAX`] + 1 when none is left.
    pub next: u64,
}

/// A sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sequence {
    /// The incarnation: no other sequence has it, also not one of the same name.
    pub(super) id: u64,
    /// The next number; [`SEQUENCE_NUMBER_MAX`] + 1 when none is left.
    pub(super) next: u64,
}

/// The replicated sequences, and the answers of the last requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sequences {
    pub(super) by_name: BTreeMap<SequenceName, Sequence>,
    pub(super) answers: RecentAnswers,
    /// The incarnation of the next sequence that is created.
    pub(super) next_id: u64,
}

impl Sequences {
    /// Creates an empty set that keeps at most `limit` answers.
    pub(crate) fn with_limit(limit: usize) -> Self {
        Self { answers: RecentAnswers::with_limit(limit), ..Self::default() }
    }

    /// The most answers that are kept.
    pub(crate) fn limit(&self) -> usize {
        self.answers.limit()
    }

    /// All sequences, in the order of their names.
    pub(crate) fn list(&self) -> Vec<SequenceStatus> {
        let status = |(name, sequence): (&SequenceName, &Sequence)| SequenceStatus {
            name: name.clone(),
            next: sequence.next,
        };
        self.by_name.iter().map(status).collect()
    }

    /// Applies a command of sequences. Returns its answer, or `None` for any other command, which
    /// changes nothing. `last_epoch` is the last epoch before the command.
    pub(crate) fn apply(&mut self, command: &Command, last_epoch: u64) -> Option<Bytes> {
        Some(match SequenceCommand::decode(command)? {
            SequenceCommand::Next(requests) => NextNumbers::encode_answer(
                requests.into_iter().map(|request| self.take(&request, last_epoch)),
            ),
            SequenceCommand::Create(create) => CreateSequence::encode_answer(self.create(create)),
            SequenceCommand::Remove(RemoveSequence { name }) => {
                RemoveSequence::encode_answer(self.by_name.remove(&name).is_some())
            }
        })
    }

    /// Takes the next numbers, or finds those that an earlier try of the request took.
    fn take(&mut self, request: &NextRequest, last_epoch: u64) -> NextOutcome {
        let NextRequest { name, count, key } = request;
        let sequence = self.by_name.get_mut(name);
        if let Some(answer) = self.answers.get(*key) {
            let is_same = sequence.is_some_and(|own| own.id == answer.id) && *count == answer.count;
            return if is_same { Ok(answer.first) } else { Err(NextRefusal::KeyUsed) };
        }
        if self.answers.is_too_old(*key) {
            return Err(NextRefusal::KeyTooOld);
        }
        if key.epoch == 0 || key.index == 0 || key.epoch > last_epoch {
            return Err(NextRefusal::KeyNotIssued);
        }
        let sequence = sequence.ok_or(NextRefusal::NoSequence)?;
        let first = sequence.next;
        let next = first + u64::from(*count);
        if next > SEQUENCE_NUMBER_MAX + 1 {
            return Err(NextRefusal::UsedUp);
        }
        sequence.next = next;
        self.answers.insert(*key, SequenceAnswer { id: sequence.id, first, count: *count });
        Ok(first)
    }

    fn create(&mut self, create: CreateSequence) -> Result<(), CreateRefusal> {
        let CreateSequence { name, first } = create;
        if self.by_name.contains_key(&name) {
            return Err(CreateRefusal::Exists);
        }
        let next_id = self.next_id.checked_add(1);
        let next_id = next_id.filter(|_| self.by_name.len() < SEQUENCES_MAX);
        let next_id = next_id.ok_or(CreateRefusal::TooMany)?;
        self.by_name.insert(name, Sequence { id: self.next_id, next: first });
        self.next_id = next_id;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::collection::vec;

    use super::*;
    use crate::timestamp::Timestamp;

    fn name(name: &str) -> SequenceName {
        name.parse().unwrap()
    }

    fn key(epoch: u64, index: u64) -> Timestamp {
        Timestamp { epoch, index }
    }

    fn create(sequences: &mut Sequences, of: &str, first: u64) -> Result<(), CreateRefusal> {
        let command = CreateSequence { name: name(of), first }.encode();
        CreateSequence::answered(&sequences.apply(&command, 0).unwrap()).unwrap()
    }

    fn remove(sequences: &mut Sequences, of: &str) -> bool {
        let command = RemoveSequence { name: name(of) }.encode();
        RemoveSequence::answered(&sequences.apply(&command, 0).unwrap()).unwrap()
    }

    /// The next numbers, while the last epoch is 9.
    fn next(sequences: &mut Sequences, of: &str, count: u32, key: Timestamp) -> NextOutcome {
        let command = NextNumbers::encode(&[&NextRequest { name: name(of), count, key }]);
        let answer = sequences.apply(&command, 9).unwrap();
        NextNumbers::answered(&answer, 1).unwrap()[0]
    }

    fn decode(sequences: &Sequences) -> Sequences {
        let mut bytes = Vec::new();
        sequences.encode(&mut bytes);
        Sequences::decode(&mut &bytes[..], sequences.limit()).unwrap()
    }

    #[test]
    fn numbers_follow_each_other_and_a_retry_finds_them() {
        let mut sequences = Sequences::default();
        assert_eq!(next(&mut sequences, "a", 1, key(1, 1)), Err(NextRefusal::NoSequence));
        assert_eq!(create(&mut sequences, "a", 41), Ok(()));
        assert_eq!(create(&mut sequences, "b", 1), Ok(()));
        assert_eq!(create(&mut sequences, "a", 1), Err(CreateRefusal::Exists));
        // The request that was refused took nothing, so its key is open.
        for _ in 0..2 {
            assert_eq!(next(&mut sequences, "a", 3, key(1, 1)), Ok(41));
            assert_eq!(next(&mut sequences, "a", 1, key(1, 2)), Ok(44));
            assert_eq!(next(&mut sequences, "b", 65_536, key(1, 3)), Ok(1));
        }
        let listed = [("a", 45), ("b", 65_537)];
        let listed = listed.map(|(of, next)| SequenceStatus { name: name(of), next });
        assert_eq!(sequences.list(), listed);
    }

    #[test]
    fn a_key_is_for_one_request() {
        let mut sequences = Sequences::default();
        create(&mut sequences, "a", 1).unwrap();
        create(&mut sequences, "b", 1).unwrap();
        assert_eq!(next(&mut sequences, "a", 2, key(1, 1)), Ok(1));
        let before = sequences.clone();
        for (of, count) in [("a", 1), ("a", 3), ("b", 2), ("c", 2)] {
            let refused = next(&mut sequences, of, count, key(1, 1));
            assert_eq!(refused, Err(NextRefusal::KeyUsed), "{of} {count}");
        }
        assert_eq!(sequences, before);
    }

    /// A sequence that is created again begins again: a retry for the earlier one takes none of it.
    #[test]
    fn a_retry_takes_nothing_of_a_sequence_that_was_created_again() {
        let mut sequences = Sequences::default();
        create(&mut sequences, "a", 1).unwrap();
        assert_eq!(next(&mut sequences, "a", 2, key(1, 1)), Ok(1));
        assert!(remove(&mut sequences, "a") && !remove(&mut sequences, "a"));
        assert_eq!(next(&mut sequences, "a", 2, key(1, 1)), Err(NextRefusal::KeyUsed));
        assert_eq!(next(&mut sequences, "a", 2, key(1, 2)), Err(NextRefusal::NoSequence));
        create(&mut sequences, "a", 1).unwrap();
        assert_eq!(next(&mut sequences, "a", 2, key(1, 1)), Err(NextRefusal::KeyUsed));
        assert_eq!(next(&mut sequences, "a", 1, key(1, 2)), Ok(1));
        assert_eq!(decode(&sequences), sequences);
    }

    /// Such a key would stay among the answers, and push out those that are needed.
    #[test]
    fn a_key_that_was_not_issued_is_refused() {
        let mut sequences = Sequences::default();
        create(&mut sequences, "a", 1).unwrap();
        for made_up in [key(10, 1), key(u64::MAX, 1), key(0, 7), key(9, 0)] {
            let refused = next(&mut sequences, "a", 1, made_up);
            assert_eq!(refused, Err(NextRefusal::KeyNotIssued), "{made_up:?}");
        }
        assert_eq!(next(&mut sequences, "a", 1, key(9, u64::MAX)), Ok(1));
    }

    #[test]
    fn a_key_below_those_that_are_kept_is_refused() {
        let mut sequences = Sequences::with_limit(2);
        create(&mut sequences, "a", 1).unwrap();
        for (index, first) in [(4, 1), (2, 2), (6, 3)] {
            assert_eq!(next(&mut sequences, "a", 1, key(1, index)), Ok(first));
        }
        // The answer of 2 was evicted, whatever it was. A request with 3 would be evicted at once.
        let before = sequences.clone();
        for index in [1, 2, 3] {
            let refused = next(&mut sequences, "a", 1, key(1, index));
            assert_eq!(refused, Err(NextRefusal::KeyTooOld), "{index}");
        }
        assert_eq!(sequences, before);
        assert_eq!(next(&mut sequences, "a", 1, key(1, 4)), Ok(1));
        assert_eq!(next(&mut sequences, "a", 1, key(1, 5)), Ok(4));
        assert_eq!(next(&mut sequences, "a", 1, key(1, 4)), Err(NextRefusal::KeyTooOld));
        assert_eq!(decode(&sequences), sequences);
    }

    #[test]
    fn numbers_end_at_the_last_one_that_json_has() {
        let mut sequences = Sequences::default();
        create(&mut sequences, "a", SEQUENCE_NUMBER_MAX - 2).unwrap();
        assert_eq!(next(&mut sequences, "a", 4, key(1, 1)), Err(NextRefusal::UsedUp));
        assert_eq!(next(&mut sequences, "a", 3, key(1, 1)), Ok(SEQUENCE_NUMBER_MAX - 2));
        assert_eq!(next(&mut sequences, "a", 1, key(1, 2)), Err(NextRefusal::UsedUp));
        assert_eq!(sequences.list()[0].next, SEQUENCE_NUMBER_MAX + 1);
        assert_eq!(decode(&sequences), sequences);
    }

    #[test]
    fn sequences_are_bounded() {
        let mut sequences = Sequences::default();
        for at in 0..SEQUENCES_MAX {
            assert_eq!(create(&mut sequences, &format!("s{at}"), 1), Ok(()));
        }
        assert_eq!(create(&mut sequences, "more", 1), Err(CreateRefusal::TooMany));
        assert_eq!(create(&mut sequences, "s0", 1), Err(CreateRefusal::Exists));
        assert!(remove(&mut sequences, "s0"));
        assert_eq!(create(&mut sequences, "more", 1), Ok(()));
        assert_eq!(decode(&sequences), sequences);
    }

    /// The requests of one command are applied in their order, also two tries of one request.
    #[test]
    fn requests_of_one_command_are_applied_one_after_the_other() {
        let mut sequences = Sequences::default();
        create(&mut sequences, "a", 1).unwrap();
        let request = |of, count, index| NextRequest { name: name(of), count, key: key(1, index) };
        let requests = [request("a", 2, 1), request("b", 1, 2), request("a", 2, 1)];
        let requests = [&requests[0], &requests[1], &requests[2], &request("a", 1, 3)];
        let answer = sequences.apply(&NextNumbers::encode(&requests), 9).unwrap();
        let expected = vec![Ok(1), Err(NextRefusal::NoSequence), Ok(1), Ok(3)];
        assert_eq!(NextNumbers::answered(&answer, 4), Some(expected));
    }

    /// A request that took numbers: key, incarnation, first number and count.
    type TakenNumbers = (Timestamp, u64, u64, u32);

    /// The rules again, over lists of all that ever happened.
    #[derive(Debug, Default)]
    struct Model {
        limit: usize,
        /// The first number of each incarnation.
        created: Vec<u64>,
        /// Name, incarnation and next number.
        sequences: Vec<(String, u64, u64)>,
        taken: Vec<TakenNumbers>,
    }

    impl Model {
        fn find(&mut self, of: &str) -> Option<&mut (String, u64, u64)> {
            self.sequences.iter_mut().find(|(name, ..)| name == of)
        }

        fn create(&mut self, of: &str, first: u64) -> Result<(), CreateRefusal> {
            if self.find(of).is_some() {
                return Err(CreateRefusal::Exists);
            }
            self.sequences.push((of.to_owned(), self.created.len() as u64, first));
            self.created.push(first);
            Ok(())
        }

        fn remove(&mut self, of: &str) -> bool {
            let before = self.sequences.len();
            self.sequences.retain(|(name, ..)| name != of);
            self.sequences.len() < before
        }

        fn next(&mut self, of: &str, count: u32, key: Timestamp) -> NextOutcome {
            let mut kept = self.taken.clone();
            kept.sort_unstable_by(|one, other| other.cmp(one));
            kept.truncate(self.limit);
            let own = self.find(of).map(|(_, id, _)| *id);
            if let Some((_, id, first, taken)) = kept.iter().find(|(other, ..)| *other == key) {
                let is_same = own == Some(*id) && *taken == count;
                return if is_same { Ok(*first) } else { Err(NextRefusal::KeyUsed) };
            }
            if kept.len() == self.limit && kept.last().is_some_and(|(lowest, ..)| key < *lowest) {
                return Err(NextRefusal::KeyTooOld);
            }
            if key.epoch > 9 {
                return Err(NextRefusal::KeyNotIssued);
            }
            let Some((_, id, next)) = self.find(of) else { return Err(NextRefusal::NoSequence) };
            let (id, first) = (*id, *next);
            if first + u64::from(count) > 1 << 53 {
                return Err(NextRefusal::UsedUp);
            }
            *next += u64::from(count);
            self.taken.push((key, id, first, count));
            Ok(first)
        }

        /// The numbers of each incarnation, in the order in which they were taken, have no gap and
        /// no repeat.
        fn check(&self) {
            for (id, first) in self.created.iter().enumerate() {
                let mut next = *first;
                for (_, of, first, count) in &self.taken {
                    if *of == id as u64 {
                        assert_eq!(*first, next);
                        next += u64::from(*count);
                    }
                }
            }
        }
    }

    proptest::proptest! {
        /// Replicas give the answers of the model, one of them through a snapshot, and end equal.
        #[test]
        fn sequences_have_no_gap_and_no_repeat(
            steps in vec((0_u8..16, 0_usize..3, 1_u32..4, 8_u64..11, 1_u64..12), 1..120),
            limit in 1_usize..8,
            at in 0_usize..120,
        ) {
            let mut sequences = Sequences::with_limit(limit);
            let mut restored = Sequences::with_limit(limit);
            let mut model = Model { limit, ..Model::default() };
            let at = at % steps.len();
            for (number, (kind, of, count, epoch, index)) in steps.into_iter().enumerate() {
                if number == at {
                    restored = decode(&sequences);
                }
                let (of, key) = (["a", "b", "c"][of], key(epoch, index));
                let first = SEQUENCE_NUMBER_MAX - 20 * index;
                let expected = match kind {
                    0 | 1 => format!("{:?}", model.create(of, first)),
                    2 => format!("{:?}", model.remove(of)),
                    _ => format!("{:?}", model.next(of, count, key)),
                };
                for replica in [&mut sequences, &mut restored] {
                    let answer = match kind {
                        0 | 1 => format!("{:?}", create(replica, of, first)),
                        2 => format!("{:?}", remove(replica, of)),
                        _ => format!("{:?}", next(replica, of, count, key)),
                    };
                    proptest::prop_assert_eq!(&answer, &expected);
                }
            }
            proptest::prop_assert_eq!(&restored, &sequences);
            model.check();
        }
    }
}

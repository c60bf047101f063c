//! The sequences as a part of a state.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};

use crate::sequence::{SEQUENCE_COUNT_MAX, SEQUENCE_NUMBER_MAX, SequenceName};
use crate::sequences::recent_answers::{RecentAnswers, SequenceAnswer};
use crate::sequences::sequence_command::put_name;
use crate::sequences::sequence_set::{SEQUENCES_MAX, Sequence, Sequences};
use crate::state_fields::{damaged, read};
use crate::timestamp::Timestamp;

/// Bytes of an answer: key, incarnation, first number and count.
const ANSWER_BYTES: usize = Timestamp::BYTES + 8 + 8 + 4;
/// Bytes before the sequences, and the bytes of one without its name.
const HEADER_BYTES: usize = 8 + 1 + Timestamp::BYTES + 4;
const SEQUENCE_BYTES: usize = 1 + 8 + 8;

/// Checks a condition of a state.
fn check(holds: bool, why: &str) -> io::Result<()> {
    if holds { Ok(()) } else { Err(damaged(why)) }
}

impl Sequences {
    /// Appends the sequences, and the answers in the order of their keys.
    ///
    /// ```text
    /// 0 next incarnation u64 | 8 whether an answer was evicted (1) | 9 the highest key of one (16)
    /// 25 number of sequences u32 | 29 the sequences, by their names, each:
    ///     0 length of the name (1) | 1 name | incarnation u64 | next number u64
    /// number of answers u32 | the answers, by their keys, each:
    ///     0 key (16) | 16 incarnation u64 | 24 first number u64 | 32 count u32
    /// ```
    ///
    /// Numbers are big-endian.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        let name_bytes: usize = self.by_name.keys().map(|name| name.as_str().len()).sum();
        let (sequences, answers) = (self.by_name.len(), self.answers.len());
        let fixed = HEADER_BYTES + sequences * SEQUENCE_BYTES + 4 + answers * ANSWER_BYTES;
        bytes.reserve(fixed + name_bytes);
        let evicted = self.answers.evicted();
        bytes.extend(self.next_id.to_be_bytes());
        bytes.push(u8::from(evicted.is_some()));
        bytes.extend(evicted.map_or([0; Timestamp::BYTES], Timestamp::to_bytes));
        bytes.extend((sequences as u32).to_be_bytes());
        for (name, Sequence { id, next }) in &self.by_name {
            put_name(bytes, name);
            bytes.extend(id.to_be_bytes());
            bytes.extend(next.to_be_bytes());
        }
        bytes.extend((answers as u32).to_be_bytes());
        for (key, SequenceAnswer { id, first, count }) in self.answers.iter() {
            bytes.extend(key.to_bytes());
            bytes.extend(id.to_be_bytes());
            bytes.extend(first.to_be_bytes());
            bytes.extend(count.to_be_bytes());
        }
    }

    /// Reads what [`Sequences::encode`] wrote, with at most `limit` answers.
    ///
    /// # Errors
    /// `InvalidData` for bytes that no sequences have; errors of reading.
    pub(crate) fn decode(state: &mut dyn Read, limit: usize) -> io::Result<Self> {
        let next_id = u64::from_be_bytes(read(state)?);
        let [was_evicted] = read(state)?;
        let evicted = Timestamp::from_bytes(read(state)?);
        let evicted = match was_evicted {
            0 if evicted.to_bytes() == [0; Timestamp::BYTES] => None,
            1 => Some(evicted),
            _ => return Err(damaged("a flag is neither on nor off")),
        };
        let by_name = decode_sequences(state, next_id)?;
        let answers = decode_answers(state, next_id, limit)?;
        let next_by_id: BTreeMap<_, _> = by_name.values().map(|one| (one.id, one.next)).collect();
        let is_taken = |answer: &SequenceAnswer| {
            let next = next_by_id.get(&answer.id).copied().unwrap_or(SEQUENCE_NUMBER_MAX + 1);
            answer.first <= next && u64::from(answer.count) <= next - answer.first
        };
        check(answers.values().all(is_taken), "an answer has numbers that were not taken")?;
        let answers = RecentAnswers::restore(answers, evicted, limit);
        let answers = answers.ok_or_else(|| damaged("an answer that is kept was evicted"))?;
        Ok(Self { by_name, answers, next_id })
    }
}

fn decode_sequences(
    state: &mut dyn Read,
    next_id: u64,
) -> io::Result<BTreeMap<SequenceName, Sequence>> {
    let count = u32::from_be_bytes(read(state)?);
    check(count as usize <= SEQUENCES_MAX, "it has too many sequences")?;
    let (mut by_name, mut ids) = (BTreeMap::new(), BTreeSet::new());
    for _ in 0..count {
        let name = read_name(state)?;
        let id = u64::from_be_bytes(read(state)?);
        let next = u64::from_be_bytes(read(state)?);
        let is_next = (1..=SEQUENCE_NUMBER_MAX + 1).contains(&next);
        check(is_next, "a sequence has no such number")?;
        check(id < next_id && ids.insert(id), "a sequence has no such incarnation")?;
        let is_above = by_name.last_key_value().is_none_or(|(last, _)| *last < name);
        check(is_above, "its names do not rise")?;
        by_name.insert(name, Sequence { id, next });
    }
    Ok(by_name)
}

fn decode_answers(
    state: &mut dyn Read,
    next_id: u64,
    limit: usize,
) -> io::Result<BTreeMap<Timestamp, SequenceAnswer>> {
    let count = u32::from_be_bytes(read(state)?);
    check(count as usize <= limit, "it has too many answers")?;
    let mut answers = BTreeMap::new();
    for _ in 0..count {
        let key = Timestamp::from_bytes(read(state)?);
        let id = u64::from_be_bytes(read(state)?);
        let first = u64::from_be_bytes(read(state)?);
        let count = u32::from_be_bytes(read(state)?);
        let is_answer = id < next_id && first >= 1 && (1..=SEQUENCE_COUNT_MAX).contains(&count);
        check(is_answer, "an answer has no such numbers")?;
        let is_above = answers.last_key_value().is_none_or(|(last, _)| *last < key);
        check(is_above, "its keys do not rise")?;
        answers.insert(key, SequenceAnswer { id, first, count });
    }
    Ok(answers)
}

fn read_name(state: &mut dyn Read) -> io::Result<SequenceName> {
    let [length] = read(state)?;
    let mut name = [0; SequenceName::BYTES_MAX];
    let name = name.get_mut(..usize::from(length)).ok_or_else(|| damaged("a name is too long"))?;
    for byte in name.iter_mut() {
        [*byte] = read(state)?;
    }
    let name = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
    name.ok_or_else(|| damaged("a name is none of a sequence"))
}

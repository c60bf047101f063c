//! The commands of sequences, and the answers of the replicated state to them.

use bytes::Bytes;
use esker_raft::Command;

use crate::command::COMMAND_VERSION;
use crate::sequence::{SEQUENCE_COUNT_MAX, SEQUENCE_NUMBER_MAX, SequenceName};
use crate::timestamp::Timestamp;

const KIND_NEXT: u8 = 4;
const KIND_CREATE: u8 = 5;
const KIND_REMOVE: u8 = 6;

/// The most requests of one command that this build makes. The log keeps thousands of entries.
pub(crate) const NEXT_REQUESTS_MAX: usize = 64;

/// The longest request in a command: key, count, and the name with its length.
const REQUEST_BYTES_MAX: usize = Timestamp::BYTES + 4 + 1 + SequenceName::BYTES_MAX;
/// Bytes of the outcome of a request.
const OUTCOME_BYTES: usize = 9;
/// The first byte of an outcome that is no refusal.
const NO_REFUSAL_CODE: u8 = 0;

const _: () = assert!(SequenceName::BYTES_MAX <= u8::MAX as usize);
const _: () = assert!(NEXT_REQUESTS_MAX <= u16::MAX as usize);
const _: () = assert!(4 + NEXT_REQUESTS_MAX * REQUEST_BYTES_MAX <= Command::MAX);

/// A request for the next numbers of a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NextRequest {
    pub(crate) name: SequenceName,
    /// 1 to [`SEQUENCE_COUNT_MAX`].
    pub(crate) count: u32,
    /// The key: the same in each try of the request.
    pub(crate) key: Timestamp,
}

/// The reason why a request takes no numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum NextRefusal {
    KeyUsed = 1,
    KeyTooOld = 2,
    KeyNotIssued = 3,
    NoSequence = 4,
    UsedUp = 5,
}

impl NextRefusal {
    const ALL: [Self; 5] =
        [Self::KeyUsed, Self::KeyTooOld, Self::KeyNotIssued, Self::NoSequence, Self::UsedUp];
}

/// The first number of a request, or why it has none.
pub(crate) type NextOutcome = Result<u64, NextRefusal>;

/// The command for the next numbers of sequences, of one request or several.
///
/// ```text
/// 0 version (1) | 1 kind (4) | 2 number of requests u16 | 4 the requests, each:
///     0 key (16) | 16 count u32 | 20 length of the name (1) | 21 name
/// answer: for each request
///     0 refusal, 0 for none (1) | 1 first number u64, 0 with a refusal
/// ```
///
/// Numbers are big-endian. Requests are applied in their order, as if each had its own command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NextNumbers;

impl NextNumbers {
    /// Encodes a command of 1 to [`NEXT_REQUESTS_MAX`] requests.
    pub(crate) fn encode(requests: &[&NextRequest]) -> Command {
        debug_assert!((1..=NEXT_REQUESTS_MAX).contains(&requests.len()), "{}", requests.len());
        let mut bytes = vec![COMMAND_VERSION, KIND_NEXT];
        bytes.extend((requests.len() as u16).to_be_bytes());
        for NextRequest { name, count, key } in requests {
            bytes.extend(key.to_bytes());
            bytes.extend(count.to_be_bytes());
            put_name(&mut bytes, name);
        }
        Command(bytes.into())
    }

    fn decode(mut content: &[u8]) -> Option<Vec<NextRequest>> {
        let count = u16::from_be_bytes(take(&mut content)?);
        let mut requests = Vec::new();
        for _ in 0..count {
            let key = Timestamp::from_bytes(take(&mut content)?);
            let count = u32::from_be_bytes(take(&mut content)?);
            let name = take_name(&mut content)?;
            if !(1..=SEQUENCE_COUNT_MAX).contains(&count) {
                return None;
            }
            requests.push(NextRequest { name, count, key });
        }
        (content.is_empty() && !requests.is_empty()).then_some(requests)
    }

    pub(crate) fn encode_answer(outcomes: impl Iterator<Item = NextOutcome>) -> Bytes {
        let mut bytes = Vec::new();
        for outcome in outcomes {
            bytes.push(outcome.map_or_else(|refusal| refusal as u8, |_| NO_REFUSAL_CODE));
            bytes.extend(outcome.unwrap_or(0).to_be_bytes());
        }
        bytes.into()
    }

    /// The outcomes in the answer to a command of `count` requests. `None` if it is none.
    pub(crate) fn answered(answer: &Bytes, count: usize) -> Option<Vec<NextOutcome>> {
        if answer.len() != count * OUTCOME_BYTES {
            return None;
        }
        let outcome = |bytes: &[u8]| {
            let (first, number) = bytes.split_first()?;
            let number = u64::from_be_bytes(*number.first_chunk()?);
            match *first {
                NO_REFUSAL_CODE => Some(Ok(number)),
                code => NextRefusal::ALL.into_iter().find(|one| *one as u8 == code).map(Err),
            }
        };
        answer.chunks_exact(OUTCOME_BYTES).map(outcome).collect()
    }
}

/// The reason why a sequence is not created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum CreateRefusal {
    Exists = 1,
    TooMany = 2,
}

/// The command that creates a sequence.
///
/// ```text
/// 0 version (1) | 1 kind (5) | 2 first number u64 | 10 length of the name (1) | 11 name
/// answer: 0 refusal, 0 for none (1)
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CreateSequence {
    pub(crate) name: SequenceName,
    /// 1 to [`SEQUENCE_NUMBER_MAX`].
    pub(crate) first: u64,
}

impl CreateSequence {
    pub(crate) fn encode(&self) -> Command {
        let mut bytes = vec![COMMAND_VERSION, KIND_CREATE];
        bytes.extend(self.first.to_be_bytes());
        put_name(&mut bytes, &self.name);
        Command(bytes.into())
    }

    fn decode(mut content: &[u8]) -> Option<Self> {
        let first = u64::from_be_bytes(take(&mut content)?);
        let name = take_name(&mut content)?;
        let is_valid = content.is_empty() && (1..=SEQUENCE_NUMBER_MAX).contains(&first);
        is_valid.then_some(Self { name, first })
    }

    pub(crate) fn encode_answer(outcome: Result<(), CreateRefusal>) -> Bytes {
        Bytes::copy_from_slice(
            &[outcome.map_or_else(|refusal| refusal as u8, |()| NO_REFUSAL_CODE)],
        )
    }

    /// The outcome in the answer to this command. `None` if it is none.
    pub(crate) fn answered(answer: &Bytes) -> Option<Result<(), CreateRefusal>> {
        match answer[..] {
            [NO_REFUSAL_CODE] => Some(Ok(())),
            [code] if code == CreateRefusal::Exists as u8 => Some(Err(CreateRefusal::Exists)),
            [code] if code == CreateRefusal::TooMany as u8 => Some(Err(CreateRefusal::TooMany)),
            _ => None,
        }
    }
}

/// The command that removes a sequence.
///
/// ```text
/// 0 version (1) | 1 kind (6) | 2 length of the name (1) | 3 name
/// answer: 0 for a sequence that was removed, 1 where there is none (1)
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemoveSequence {
    pub(crate) name: SequenceName,
}

impl RemoveSequence {
    pub(crate) fn encode(&self) -> Command {
        let mut bytes = vec![COMMAND_VERSION, KIND_REMOVE];
        put_name(&mut bytes, &self.name);
        Command(bytes.into())
    }

    fn decode(mut content: &[u8]) -> Option<Self> {
        let name = take_name(&mut content)?;
        content.is_empty().then_some(Self { name })
    }

    pub(crate) fn encode_answer(was_there: bool) -> Bytes {
        Bytes::copy_from_slice(&[u8::from(!was_there)])
    }

    /// Returns whether there was such a sequence, from the answer. `None` if it is no answer.
    pub(crate) fn answered(answer: &Bytes) -> Option<bool> {
        match answer[..] {
            [0] => Some(true),
            [1] => Some(false),
            _ => None,
        }
    }
}

/// A command of sequences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SequenceCommand {
    Next(Vec<NextRequest>),
    Create(CreateSequence),
    Remove(RemoveSequence),
}

impl SequenceCommand {
    /// Decodes a command. `None` if it is none of sequences, or damaged.
    pub(crate) fn decode(command: &Command) -> Option<Self> {
        let ([version, kind], content) = command.0.split_first_chunk()?;
        match (*version, *kind) {
            (COMMAND_VERSION, KIND_NEXT) => NextNumbers::decode(content).map(Self::Next),
            (COMMAND_VERSION, KIND_CREATE) => CreateSequence::decode(content).map(Self::Create),
            (COMMAND_VERSION, KIND_REMOVE) => RemoveSequence::decode(content).map(Self::Remove),
            _ => None,
        }
    }
}

/// Appends a name after its length.
pub(super) fn put_name(bytes: &mut Vec<u8>, name: &SequenceName) {
    let name = name.as_str();
    debug_assert!(name.len() <= SequenceName::BYTES_MAX, "a name is short");
    bytes.push(name.len() as u8);
    bytes.extend(name.as_bytes());
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}

fn take_name(bytes: &mut &[u8]) -> Option<SequenceName> {
    let [length] = take(bytes)?;
    let (name, rest) = bytes.split_at_checked(length.into())?;
    *bytes = rest;
    std::str::from_utf8(name).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn request(name: &str, count: u32, index: u64) -> NextRequest {
        let key = Timestamp { epoch: 7, index };
        NextRequest { name: name.parse().unwrap(), count, key }
    }

    #[test]
    fn commands_come_back_and_no_damaged_one_does() {
        let name: SequenceName = "a-1".parse().unwrap();
        let requests = vec![request("invoices", 1, 1), request("x", SEQUENCE_COUNT_MAX, u64::MAX)];
        let next = NextNumbers::encode(&requests.iter().collect::<Vec<_>>());
        let create = CreateSequence { name: name.clone(), first: SEQUENCE_NUMBER_MAX };
        let remove = RemoveSequence { name };
        for (command, expected) in [
            (next, SequenceCommand::Next(requests)),
            (create.encode(), SequenceCommand::Create(create)),
            (remove.encode(), SequenceCommand::Remove(remove)),
        ] {
            assert_eq!(SequenceCommand::decode(&command), Some(expected));
            let bytes = &command.0;
            for len in 0..bytes.len() {
                assert_eq!(SequenceCommand::decode(&Command(bytes.slice(..len))), None, "{len}");
            }
            let longer = Command([&bytes[..], b"a"].concat().into());
            assert_eq!(SequenceCommand::decode(&longer), None);
        }
        let out_of_range = [
            CreateSequence { name: "a".parse().unwrap(), first: 0 }.encode(),
            CreateSequence { name: "a".parse().unwrap(), first: 1 << 53 }.encode(),
            NextNumbers::encode(&[&request("a", 0, 1)]),
            NextNumbers::encode(&[&request("a", SEQUENCE_COUNT_MAX + 1, 1)]),
            Command(vec![COMMAND_VERSION, KIND_NEXT, 0, 0].into()),
            Command(vec![COMMAND_VERSION, KIND_REMOVE, 1, b'/'].into()),
            Command(vec![COMMAND_VERSION, KIND_REMOVE, 0].into()),
            Command(vec![COMMAND_VERSION, 7, 1, b'a'].into()),
            Command(vec![2, KIND_REMOVE, 1, b'a'].into()),
        ];
        for command in out_of_range {
            assert_eq!(SequenceCommand::decode(&command), None, "{command:?}");
        }
    }

    #[test]
    fn answers_come_back_and_no_damaged_one_does() {
        let mut outcomes: Vec<NextOutcome> = NextRefusal::ALL.into_iter().map(Err).collect();
        outcomes.extend([Ok(1), Ok(SEQUENCE_NUMBER_MAX)]);
        let answer = NextNumbers::encode_answer(outcomes.iter().copied());
        assert_eq!(NextNumbers::answered(&answer, 7), Some(outcomes));
        assert_eq!(NextNumbers::answered(&answer, 6), None);
        assert_eq!(NextNumbers::answered(&Bytes::new(), 1), None);
        assert_eq!(NextNumbers::answered(&Bytes::from_static(&[6; OUTCOME_BYTES]), 1), None);
        for outcome in [Ok(()), Err(CreateRefusal::Exists), Err(CreateRefusal::TooMany)] {
            let answer = CreateSequence::encode_answer(outcome);
            assert_eq!(CreateSequence::answered(&answer), Some(outcome));
        }
        for was_there in [true, false] {
            let answer = RemoveSequence::encode_answer(was_there);
            assert_eq!(RemoveSequence::answered(&answer), Some(was_there));
        }
        for wrong in [&b""[..], b"\x03", b"\x00\x00"] {
            let wrong = Bytes::from_static(wrong);
            assert_eq!(CreateSequence::answered(&wrong), None);
            assert_eq!(RemoveSequence::answered(&wrong), None);
        }
    }
}

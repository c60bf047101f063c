//! Answers of `GET /timestamp`, and the step that follows from each; what answers of all requests
//! have in common. No I/O.

use std::time::Duration;

use esker_oracle::{Range, Timestamp, TimestampWidth};
use hyper::header::HeaderName;

use crate::address::Address;
use crate::error::AttemptErrorKind;

/// The header with the address of the leader.
pub(crate) const LEADER_HEADER: HeaderName = HeaderName::from_static("esker-leader");
/// The header with the reason of a 422.
pub(crate) const REFUSAL_HEADER: HeaderName = HeaderName::from_static("esker-refusal");
/// The length of the number of timestamps, which follows the first one.
const COUNT_BYTES: usize = size_of::<u64>();
/// The length of the longest range: the first timestamp and the number of timestamps.
pub(crate) const RANGE_BYTES_MAX: usize = Timestamp::BYTES + COUNT_BYTES;
/// The most characters of an error's text that are kept.
pub(crate) const ERROR_TEXT_CHARS_MAX: usize = 200;
/// The longest wait that a node may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(1);

const _: () = assert!(RANGE_BYTES_MAX == 24, "the length is part of the protocol");

/// The step that follows from an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NextStep<T> {
    /// Return this, and do not ask again.
    Return(T),
    /// Ask again.
    Retry(RetryStep),
}

/// The node to ask again, and when.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RetryStep {
    /// Ask this node at once: it leads.
    Leader(Address),
    /// Ask another node.
    AnotherNode(AttemptErrorKind),
    /// Ask the same node, after this time.
    SameNode(Duration),
}

/// The result of a request for timestamps; the error is that of a request which is refused again.
pub(crate) type TimestampResult = Result<Range, AttemptErrorKind>;

/// An answer as it was received.
#[derive(Debug, Default)]
pub(crate) struct RawAnswer<'a> {
    pub(crate) status: u16,
    /// The header `Esker-Leader`.
    pub(crate) leader: Option<&'a str>,
    /// The header `Esker-Refusal`.
    pub(crate) refusal: Option<&'a str>,
    /// The header `Retry-After`.
    pub(crate) retry_after: Option<&'a str>,
    pub(crate) body: &'a [u8],
}

/// Returns the path of a request for `count` timestamps.
pub(crate) fn request_path(count: u32, width: TimestampWidth) -> String {
    let format = match width {
        TimestampWidth::Bits64 => "u64-range",
        TimestampWidth::Bits128 => "range",
    };
    format!("/timestamp?n={count}&format={format}")
}

impl<T> NextStep<T> {
    /// Returns the step that follows from a malformed answer.
    pub(crate) fn malformed(what: &'static str) -> Self {
        Self::Retry(RetryStep::AnotherNode(AttemptErrorKind::Malformed(what)))
    }
}

impl RawAnswer<'_> {
    /// Returns the next step of a request for `count` timestamps.
    pub(crate) fn next_step(&self, count: u32, width: TimestampWidth) -> NextStep<TimestampResult> {
        match self.status {
            200 => match parse_range(self.body, count, width) {
                Ok(range) => NextStep::Return(Ok(range)),
                Err(what) => NextStep::malformed(what),
            },
            400 => NextStep::Return(Err(self.status_error())),
            _ => NextStep::Retry(self.retry_step()),
        }
    }

    /// Returns the step that follows from an answer which is no result.
    pub(crate) fn retry_step(&self) -> RetryStep {
        match (self.status, self.leader.and_then(Address::from_node)) {
            (409 | 307, Some(leader)) => RetryStep::Leader(leader),
            (409, None) => RetryStep::AnotherNode(AttemptErrorKind::NotLeader),
            (503, _) => {
                let seconds = self.retry_after.and_then(|text| text.parse().ok()).unwrap_or(0);
                RetryStep::SameNode(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
            }
            _ => RetryStep::AnotherNode(self.status_error()),
        }
    }

    /// Returns the status and the beginning of the body.
    pub(crate) fn status_error(&self) -> AttemptErrorKind {
        let text = excerpt(self.body, ERROR_TEXT_CHARS_MAX);
        AttemptErrorKind::Status { status: self.status, text }
    }
}

/// Returns the beginning of a body, for messages.
pub(crate) fn excerpt(body: &[u8], chars_max: usize) -> String {
    let text = String::from_utf8_lossy(body);
    let kept = text.trim().chars().take(chars_max);
    kept.map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Parses a range of `count` timestamps.
fn parse_range(body: &[u8], count: u32, width: TimestampWidth) -> Result<Range, &'static str> {
    debug_assert!(count > 0, "a request is for at least one timestamp");
    let (first, counted) = match width {
        TimestampWidth::Bits64 => parse_first_u64(body)?,
        TimestampWidth::Bits128 => parse_first(body)?,
    };
    let range = Range { first, count };
    if counted != u64::from(count).to_be_bytes() {
        return Err("the count is not that of the request");
    }
    if range.first.index == 0 {
        return Err("an index is at least 1");
    }
    let last = range.last().filter(|last| last.index <= width.index_max());
    last.map(|_| range).ok_or("the last index is too high")
}

/// Parses the first timestamp of a range, and returns the bytes of the number of timestamps.
fn parse_first(body: &[u8]) -> Result<(Timestamp, &[u8]), &'static str> {
    let (first, counted) = body
        .split_first_chunk::<{ Timestamp::BYTES }>()
        .filter(|(_, counted)| counted.len() == COUNT_BYTES)
        .ok_or("a range has 24 bytes")?;
    Ok((Timestamp::from_bytes(*first), counted))
}

/// Parses the first timestamp of a range of timestamps of 64 bits.
fn parse_first_u64(body: &[u8]) -> Result<(Timestamp, &[u8]), &'static str> {
    let (first, counted) = body
        .split_first_chunk::<{ size_of::<u64>() }>()
        .filter(|(_, counted)| counted.len() == COUNT_BYTES)
        .ok_or("a range of timestamps of 64 bits has 16 bytes")?;
    let first = Timestamp::from_u64(u64::from_be_bytes(*first));
    Ok((first.ok_or("its millisecond is after the last epoch")?, counted))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use serde_json::Value;

    use super::*;

    fn vectors() -> Value {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/client-vectors.json");
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    fn bytes(hex: &str) -> Vec<u8> {
        let pair = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(pair).collect()
    }

    fn number(value: &Value) -> u64 {
        // As text: not every reader of JSON has integers of 64 bits.
        value.as_str().unwrap().parse().unwrap()
    }

    fn list(vectors: &Value, name: &str) -> Vec<Value> {
        vectors[name].as_array().unwrap().clone()
    }

    /// The vectors of the guide, which clients in other languages check themselves against.
    #[test]
    fn timestamps_are_encoded_as_the_guide_has_it() {
        let timestamps = list(&vectors(), "timestamps");
        let mut last = None;
        for vector in &timestamps {
            let hex = vector["bytes"].as_str().unwrap();
            let timestamp = Timestamp::from_bytes(bytes(hex).try_into().unwrap());
            let (epoch, index) = (number(&vector["epoch"]), number(&vector["index"]));
            assert_eq!(timestamp, Timestamp { epoch, index }, "{vector}");
            assert_eq!(timestamp.to_string(), hex);
            assert!(last < Some(timestamp), "they are in the order of time: {vector}");
            last = Some(timestamp);
        }
        assert!(timestamps.len() > 5);
    }

    #[test]
    fn timestamps_of_64_bits_are_encoded_as_the_guide_has_it() {
        let timestamps = list(&vectors(), "u64_timestamps");
        let mut last = None;
        for vector in &timestamps {
            let bits = number(&vector["number"]);
            assert_eq!(bits.to_be_bytes()[..], bytes(vector["bytes"].as_str().unwrap()));
            let Timestamp { epoch, index } = Timestamp::from_u64(bits).unwrap();
            assert_eq!(epoch, number(&vector["milliseconds"]) * 1_000_000, "{vector}");
            assert_eq!(index, number(&vector["index"]), "{vector}");
            assert!(last < Some(bits), "they are in the order of time: {vector}");
            last = Some(bits);
        }
        assert!(timestamps.len() > 5);
    }

    #[test]
    fn answers_are_handled_as_the_guide_has_it() {
        let vectors = vectors();
        let (answers, of_64_bits) = (list(&vectors, "answers"), list(&vectors, "u64_answers"));
        for vector in &answers {
            check_answer(vector, TimestampWidth::Bits128);
        }
        for vector in &of_64_bits {
            check_answer(vector, TimestampWidth::Bits64);
        }
        assert!(answers.len() > 15 && of_64_bits.len() > 10);
    }

    fn check_answer(vector: &Value, width: TimestampWidth) {
        let body = match (&vector["body_hex"], &vector["body"]) {
            (Value::String(hex), _) => bytes(hex),
            (_, Value::String(text)) => text.clone().into_bytes(),
            _ => Vec::new(),
        };
        let received = RawAnswer {
            status: vector["status"].as_u64().unwrap().try_into().unwrap(),
            leader: vector["headers"]["esker-leader"].as_str(),
            refusal: None,
            retry_after: vector["headers"]["retry-after"].as_str(),
            body: &body,
        };
        let shown = |timestamp: Timestamp| match width {
            TimestampWidth::Bits64 => timestamp.to_u64().unwrap().to_string(),
            TimestampWidth::Bits128 => timestamp.to_string(),
        };
        let expected = &vector["then"];
        match received.next_step(vector["n"].as_u64().unwrap().try_into().unwrap(), width) {
            NextStep::Return(Ok(range)) => {
                assert_eq!(expected, "timestamps", "{vector}");
                assert_eq!(shown(range.first), vector["first"], "{vector}");
                assert_eq!(shown(range.last().unwrap()), vector["last"], "{vector}");
            }
            NextStep::Retry(RetryStep::Leader(leader)) => {
                assert_eq!(expected, "ask the leader", "{vector}");
                assert_eq!(leader.as_str(), vector["leader"], "{vector}");
            }
            NextStep::Retry(RetryStep::AnotherNode(_)) => {
                assert_eq!(expected, "ask another node", "{vector}");
            }
            NextStep::Retry(RetryStep::SameNode(after)) => {
                assert_eq!(expected, "ask again later", "{vector}");
                assert_eq!(after.as_secs(), vector["seconds"].as_u64().unwrap(), "{vector}");
            }
            NextStep::Return(Err(_)) => assert_eq!(expected, "fail", "{vector}"),
        }
    }

    #[test]
    fn the_text_of_an_error_is_short_and_on_one_line() {
        let long = format!("a\nb{}", "x".repeat(9999));
        let received = RawAnswer { status: 418, body: long.as_bytes(), ..RawAnswer::default() };
        let step = received.next_step(1, TimestampWidth::Bits128);
        let NextStep::Retry(RetryStep::AnotherNode(AttemptErrorKind::Status { status: 418, text })) =
            step
        else {
            panic!()
        };
        assert_eq!((text.len(), &text[..3]), (ERROR_TEXT_CHARS_MAX, "a b"));
    }
}

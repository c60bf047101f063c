//! Answers of `GET /timestamp`, and the step that follows from each. No I/O.

use std::time::Duration;

use esker_oracle::{Range, Timestamp};
use hyper::header::HeaderName;

use crate::address::Address;
use crate::error::AttemptErrorKind;

/// The header with the address of the leader.
pub(crate) const LEADER_HEADER: HeaderName = HeaderName::from_static("esker-leader");
/// The length of a range: the first timestamp and the number of timestamps.
pub(crate) const RANGE_BYTES: usize = Timestamp::BYTES + 8;
/// The most characters of an error's text that are kept.
pub(crate) const ERROR_TEXT_CHARS_MAX: usize = 200;
/// The longest wait that a node may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(1);

const _: () = assert!(RANGE_BYTES == 24, "the length is part of the protocol");

/// The step that follows from an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Return these timestamps.
    Return(Range),
    /// Ask this node at once: it leads.
    AskLeader(Address),
    /// Ask another node.
    AskAnother(AttemptErrorKind),
    /// Ask the same node, after this time.
    AskAgain(Duration),
    /// Do not ask again.
    Fail(AttemptErrorKind),
}

/// An answer as it was received.
#[derive(Debug, Default)]
pub(crate) struct RawAnswer<'a> {
    pub(crate) status: u16,
    /// The header `Esker-Leader`.
    pub(crate) leader: Option<&'a str>,
    /// The header `Retry-After`.
    pub(crate) retry_after: Option<&'a str>,
    pub(crate) body: &'a [u8],
}

impl RawAnswer<'_> {
    /// Returns the next step of a request for `count` timestamps.
    pub(crate) fn next_step(&self, count: u32) -> NextStep {
        match (self.status, self.leader.and_then(Address::from_node)) {
            (200, _) => match parse_range(self.body, count) {
                Ok(range) => NextStep::Return(range),
                Err(what) => NextStep::AskAnother(AttemptErrorKind::Malformed(what)),
            },
            (409 | 307, Some(leader)) => NextStep::AskLeader(leader),
            (409, None) => NextStep::AskAnother(AttemptErrorKind::NotLeader),
            (400, _) => NextStep::Fail(self.status_error()),
            (503, _) => {
                let seconds = self.retry_after.and_then(|text| text.parse().ok()).unwrap_or(0);
                NextStep::AskAgain(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
            }
            _ => NextStep::AskAnother(self.status_error()),
        }
    }

    fn status_error(&self) -> AttemptErrorKind {
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
fn parse_range(body: &[u8], count: u32) -> Result<Range, &'static str> {
    debug_assert!(count > 0, "a request is for at least one timestamp");
    if body.len() != RANGE_BYTES {
        return Err("a range has 24 bytes");
    }
    let Some((first, counted)) = body.split_first_chunk() else { return Err("it is too short") };
    let range = Range { first: Timestamp::from_bytes(*first), count };
    if counted != u64::from(count).to_be_bytes() {
        return Err("the count is not that of the request");
    }
    if range.first.index == 0 {
        return Err("an index is at least 1");
    }
    range.last().map(|_| range).ok_or("the last index is too high")
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

    /// The vectors of the guide, which clients in other languages check themselves against.
    #[test]
    fn timestamps_are_encoded_as_the_guide_has_it() {
        let vectors = vectors();
        let timestamps = vectors["timestamps"].as_array().unwrap();
        let mut last = None;
        for vector in timestamps {
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
    fn answers_are_handled_as_the_guide_has_it() {
        let vectors = vectors();
        let answers = vectors["answers"].as_array().unwrap();
        for vector in answers {
            let body = match (&vector["body_hex"], &vector["body"]) {
                (Value::String(hex), _) => bytes(hex),
                (_, Value::String(text)) => text.clone().into_bytes(),
                _ => Vec::new(),
            };
            let received = RawAnswer {
                status: vector["status"].as_u64().unwrap().try_into().unwrap(),
                leader: vector["headers"]["esker-leader"].as_str(),
                retry_after: vector["headers"]["retry-after"].as_str(),
                body: &body,
            };
            let expected = &vector["then"];
            match received.next_step(vector["n"].as_u64().unwrap().try_into().unwrap()) {
                NextStep::Return(range) => {
                    assert_eq!(expected, "timestamps", "{vector}");
                    assert_eq!(range.first.to_string(), vector["first"], "{vector}");
                    assert_eq!(range.last().unwrap().to_string(), vector["last"], "{vector}");
                }
                NextStep::AskLeader(leader) => {
                    assert_eq!(expected, "ask the leader", "{vector}");
                    assert_eq!(leader.as_str(), vector["leader"], "{vector}");
                }
                NextStep::AskAnother(_) => assert_eq!(expected, "ask another node", "{vector}"),
                NextStep::AskAgain(after) => {
                    assert_eq!(expected, "ask again later", "{vector}");
                    assert_eq!(after.as_secs(), vector["seconds"].as_u64().unwrap(), "{vector}");
                }
                NextStep::Fail(_) => assert_eq!(expected, "fail", "{vector}"),
            }
        }
        assert!(answers.len() > 15);
    }

    #[test]
    fn the_text_of_an_error_is_short_and_on_one_line() {
        let long = format!("a\nb{}", "x".repeat(9999));
        let received = RawAnswer { status: 418, body: long.as_bytes(), ..RawAnswer::default() };
        let step = received.next_step(1);
        let NextStep::AskAnother(AttemptErrorKind::Status { status: 418, text }) = step else {
            panic!()
        };
        assert_eq!((text.len(), &text[..3]), (ERROR_TEXT_CHARS_MAX, "a b"));
    }
}

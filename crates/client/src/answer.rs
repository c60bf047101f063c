//! What an answer of `GET /timestamp` says, and what follows from it. No I/O.

use std::time::Duration;

use esker_oracle::{Range, Timestamp};

use crate::address::Address;
use crate::error::CauseKind;

/// Bytes of a range: the first timestamp, and how many there are.
const LEN: usize = Timestamp::BYTES + 8;
/// The most characters of an error's text that are kept.
const TEXT_MAX: usize = 200;
/// The longest wait that a node may ask for.
const AFTER_MAX: Duration = Duration::from_secs(1);

/// What follows from an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Issued(Range),
    /// That node leads: ask it at once.
    Leader(Address),
    /// Ask another node.
    Elsewhere(CauseKind),
    /// Ask the same node, after so long.
    Later(Duration),
    /// Do not ask again.
    Refused(CauseKind),
}

/// An answer as it came.
#[derive(Debug, Default)]
pub(crate) struct Received<'a> {
    pub(crate) status: u16,
    /// The header `Esker-Leader`.
    pub(crate) leader: Option<&'a str>,
    /// The header `Retry-After`.
    pub(crate) retry_after: Option<&'a str>,
    pub(crate) body: &'a [u8],
}

impl Received<'_> {
    /// What follows, for a request of so many timestamps.
    pub(crate) fn classify(&self, count: u32) -> Answer {
        match (self.status, self.leader.and_then(Address::of_node)) {
            (200, _) => match range(self.body, count) {
                Ok(range) => Answer::Issued(range),
                Err(what) => Answer::Elsewhere(CauseKind::Malformed(what)),
            },
            (409 | 307, Some(leader)) => Answer::Leader(leader),
            (409, None) => Answer::Elsewhere(CauseKind::NotLeader),
            (400, _) => Answer::Refused(CauseKind::Status(400, self.text())),
            (503, _) => {
                let seconds = self.retry_after.and_then(|text| text.parse().ok()).unwrap_or(0);
                Answer::Later(Duration::from_secs(seconds).min(AFTER_MAX))
            }
            (status, _) => Answer::Elsewhere(CauseKind::Status(status, self.text())),
        }
    }

    fn text(&self) -> String {
        beginning_of(self.body)
    }
}

/// The beginning of a body, for messages.
pub(crate) fn beginning_of(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let kept = text.trim().chars().take(TEXT_MAX);
    kept.map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The range in this body, of so many timestamps.
fn range(body: &[u8], count: u32) -> Result<Range, &'static str> {
    if body.len() != LEN {
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
            let received = Received {
                status: vector["status"].as_u64().unwrap().try_into().unwrap(),
                leader: vector["headers"]["esker-leader"].as_str(),
                retry_after: vector["headers"]["retry-after"].as_str(),
                body: &body,
            };
            let expected = &vector["then"];
            match received.classify(vector["n"].as_u64().unwrap().try_into().unwrap()) {
                Answer::Issued(range) => {
                    assert_eq!(expected, "timestamps", "{vector}");
                    assert_eq!(range.first.to_string(), vector["first"], "{vector}");
                    assert_eq!(range.last().unwrap().to_string(), vector["last"], "{vector}");
                }
                Answer::Leader(leader) => {
                    assert_eq!(expected, "ask the leader", "{vector}");
                    assert_eq!(leader.as_str(), vector["leader"], "{vector}");
                }
                Answer::Elsewhere(_) => assert_eq!(expected, "ask another node", "{vector}"),
                Answer::Later(after) => {
                    assert_eq!(expected, "ask again later", "{vector}");
                    assert_eq!(after.as_secs(), vector["seconds"].as_u64().unwrap(), "{vector}");
                }
                Answer::Refused(_) => assert_eq!(expected, "fail", "{vector}"),
            }
        }
        assert!(answers.len() > 15);
    }

    #[test]
    fn the_text_of_an_error_is_short_and_on_one_line() {
        let long = format!("a\nb{}", "x".repeat(9999));
        let received = Received { status: 418, body: long.as_bytes(), ..Received::default() };
        let Answer::Elsewhere(CauseKind::Status(418, text)) = received.classify(1) else {
            panic!()
        };
        assert_eq!((text.len(), &text[..3]), (TEXT_MAX, "a b"));
    }
}

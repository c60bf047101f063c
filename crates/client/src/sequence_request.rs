//! Requests for numbers of a sequence, and the step that follows from each answer. No I/O.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use esker_oracle::{SEQUENCE_COUNT_MAX, SEQUENCE_NUMBER_MAX, SequenceName, Timestamp};
use serde_json::Value;

use crate::address::Address;
use crate::answer::{NextStep, RawAnswer, RetryStep};
use crate::error::AttemptError;
use crate::sequence_error::{SequenceError, SequenceErrorKind};

/// The result of a request that is not to be repeated.
pub(crate) type SequenceResult = Result<RangeInclusive<u64>, SequenceErrorKind>;

/// A request for the next numbers of a sequence. All attempts send the same.
#[derive(Debug, Clone)]
pub(crate) struct SequenceRequest {
    name: String,
    count: u32,
    key: Timestamp,
}

/// The step that follows from an answer.
#[derive(Debug)]
pub(crate) struct SequenceStep {
    pub(crate) step: NextStep<SequenceResult>,
    /// Whether the attempt may have taken numbers.
    pub(crate) may_have_taken: bool,
}

/// The progress of a call, which its deadline may interrupt. One task uses it.
#[derive(Debug, Default)]
pub(crate) struct CallProgress {
    is_over: AtomicBool,
    may_have_taken: AtomicBool,
}

impl CallProgress {
    /// Ends the call: no caller waits for its answer. No attempt is sent from here on.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    /// Returns whether the attempts up to now may have taken numbers.
    pub(crate) fn may_have_taken(&self) -> bool {
        self.may_have_taken.load(Relaxed)
    }

    /// Records that an attempt is sent, and returns whether those before may have taken numbers.
    /// `None` if the call has ended: then nothing may be sent.
    pub(crate) fn begin_attempt(&self) -> Option<bool> {
        (!self.is_over()).then(|| self.may_have_taken.swap(true, Relaxed))
    }

    /// Records that the attempt took nothing. `before` is the answer of
    /// [`CallProgress::begin_attempt`].
    pub(crate) fn take_back_attempt(&self, before: bool) {
        self.may_have_taken.store(before, Relaxed);
    }
}

/// Checks the name of a sequence, and the count of its numbers.
///
/// # Errors
/// [`SequenceErrorKind::Name`] and [`SequenceErrorKind::Count`].
pub(crate) fn check(name: &str, count: u32) -> Result<(), SequenceErrorKind> {
    if name.parse::<SequenceName>().is_err() {
        return Err(SequenceErrorKind::Name(name.to_owned()));
    }
    match (1..=SEQUENCE_COUNT_MAX).contains(&count) {
        true => Ok(()),
        false => Err(SequenceErrorKind::Count(count)),
    }
}

impl SequenceRequest {
    /// Creates a request. Name and count were checked.
    pub(crate) fn new(name: &str, count: u32, key: Timestamp) -> Self {
        debug_assert!(check(name, count).is_ok(), "{name} and {count} were checked");
        Self { name: name.to_owned(), count, key }
    }

    /// Returns the path, which is the same in each attempt.
    pub(crate) fn path(&self) -> String {
        let Self { name, count, key } = self;
        format!("/sequence/{name}?n={count}&key={key}")
    }

    /// Returns the error of a call for this request.
    pub(crate) fn error(&self, kind: SequenceErrorKind, may_have_taken: bool) -> SequenceError {
        SequenceError { kind, key: Some(self.key), may_have_taken }
    }

    /// Returns the step that follows from an answer of the node at this address.
    pub(crate) fn next_step(&self, answer: &RawAnswer<'_>, address: &Address) -> SequenceStep {
        let refused = |kind: fn(AttemptError) -> SequenceErrorKind| {
            let (address, cause) = (address.to_string(), answer.status_error());
            NextStep::Return(Err(kind(AttemptError { address, kind: cause })))
        };
        let step = match (answer.status, answer.refusal) {
            (200, _) => match self.parse(answer.body) {
                Ok(numbers) => NextStep::Return(Ok(numbers)),
                Err(what) => NextStep::malformed(what),
            },
            (404, _) => refused(SequenceErrorKind::NoSequence),
            (410, _) => refused(SequenceErrorKind::KeyTooOld),
            (422, Some("key-used")) => refused(SequenceErrorKind::KeyUsed),
            (422, Some("key-not-issued")) => refused(SequenceErrorKind::KeyNotIssued),
            (422, Some("used-up")) => refused(SequenceErrorKind::UsedUp),
            (400 | 422, _) => refused(SequenceErrorKind::Refused),
            // The node may know no leader, and another one may.
            (503, _) => NextStep::Retry(RetryStep::AnotherNode(answer.status_error())),
            _ => NextStep::Retry(answer.retry_step()),
        };
        let is_not_executed = matches!(answer.status, 307 | 400..500 | 503);
        SequenceStep { step, may_have_taken: !is_not_executed }
    }

    /// Parses the numbers of this request.
    fn parse(&self, body: &[u8]) -> Result<RangeInclusive<u64>, &'static str> {
        let answer: Value = serde_json::from_slice(body).map_err(|_| "it is no JSON")?;
        if answer["name"] != self.name.as_str() {
            return Err("the name is not that of the request");
        }
        if answer["n"].as_u64() != Some(self.count.into()) {
            return Err("the count is not that of the request");
        }
        let first = answer["first"].as_u64().filter(|first| *first > 0);
        let first = first.ok_or("the first number is not a number of at least 1")?;
        let last = first.checked_add(u64::from(self.count) - 1);
        let last = last.filter(|last| *last <= SEQUENCE_NUMBER_MAX);
        Ok(first..=last.ok_or("the last number is too high")?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;
    use crate::error::AttemptErrorKind;

    const KEY: Timestamp = Timestamp { epoch: 7, index: 1 };

    fn step(status: u16, refusal: Option<&str>, body: &str) -> SequenceStep {
        let answer = RawAnswer { status, refusal, body: body.as_bytes(), ..RawAnswer::default() };
        let address = Address::from_node("a:1").unwrap();
        SequenceRequest::new("invoices", 3, KEY).next_step(&answer, &address)
    }

    #[test]
    fn names_and_counts_have_bounds() {
        let long = "a".repeat(SequenceName::BYTES_MAX);
        for name in ["a", "invoices-2026_A.b", &long] {
            assert!(check(name, 1).is_ok() && check(name, SEQUENCE_COUNT_MAX).is_ok(), "{name}");
        }
        for name in ["", "a/b", "a b", "a?n=2", "a%20", "caf\u{e9}", "a\r\n", &(long + "a")] {
            assert!(matches!(check(name, 1), Err(SequenceErrorKind::Name(wrong)) if wrong == name));
        }
        for count in [0, SEQUENCE_COUNT_MAX + 1] {
            assert!(
                matches!(check("a", count), Err(SequenceErrorKind::Count(wrong)) if wrong == count)
            );
        }
    }

    #[test]
    fn path_names_sequence_count_and_key() {
        let path = SequenceRequest::new("invoices", 3, KEY).path();
        assert_eq!(path, "/sequence/invoices?n=3&key=00000000000000070000000000000001");
    }

    #[test]
    fn numbers_are_those_of_the_request() {
        let numbers = |body: &str| match step(200, None, body).step {
            NextStep::Return(Ok(numbers)) => Some(numbers),
            NextStep::Retry(RetryStep::AnotherNode(AttemptErrorKind::Malformed(_))) => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(numbers(r#"{"name":"invoices","first":41,"n":3,"more":[]}"#), Some(41..=43));
        let last = r#"{"name":"invoices","first":9007199254740989,"n":3}"#;
        assert_eq!(numbers(last), Some((1 << 53) - 3..=(1 << 53) - 1));
        for wrong in [
            "",
            "[]",
            "41",
            "{}",
            r#"{"name":"orders","first":41,"n":3}"#,
            r#"{"name":"invoices","first":41,"n":2}"#,
            r#"{"name":"invoices","first":41}"#,
            r#"{"name":"invoices","first":0,"n":3}"#,
            r#"{"name":"invoices","first":"41","n":3}"#,
            r#"{"name":"invoices","first":41.5,"n":3}"#,
            r#"{"name":"invoices","first":-41,"n":3}"#,
            r#"{"name":"invoices","first":9007199254740990,"n":3}"#,
            r#"{"name":"invoices","first":18446744073709551615,"n":3}"#,
            r#"{"name":"invoices","first":41,"n":3"#,
        ] {
            assert_eq!(numbers(wrong), None, "{wrong}");
        }
    }

    /// Whether an attempt may have taken numbers decides what a caller is asked to do.
    #[test]
    fn only_answers_that_prove_it_took_nothing() {
        for status in [307, 400, 404, 408, 409, 410, 422, 429, 503] {
            assert!(!step(status, None, "").may_have_taken, "{status}");
        }
        for status in [200, 204, 301, 500, 502, 504, 599] {
            assert!(step(status, None, "").may_have_taken, "{status}");
        }
    }

    #[test]
    fn refusals_have_their_kinds_and_others_are_asked_again() {
        let name = |status, refusal| match step(status, refusal, "why").step {
            NextStep::Return(Err(kind)) => {
                let shown = format!("{kind:?}");
                assert!(shown.contains("why") && shown.contains("a:1"), "{shown}");
                shown.split('(').next().unwrap().to_owned()
            }
            NextStep::Retry(RetryStep::AnotherNode(_)) => "again".into(),
            other => panic!("{other:?}"),
        };
        for (status, refusal, expected) in [
            (400, None, "Refused"),
            (404, None, "NoSequence"),
            (410, None, "KeyTooOld"),
            (422, Some("key-used"), "KeyUsed"),
            (422, Some("key-not-issued"), "KeyNotIssued"),
            (422, Some("used-up"), "UsedUp"),
            (422, Some("of a later version"), "Refused"),
            (422, None, "Refused"),
            (409, None, "again"),
            (405, None, "again"),
            (500, None, "again"),
            (502, Some("key-used"), "again"),
            (503, None, "again"),
        ] {
            assert_eq!(name(status, refusal), expected, "{status} {refusal:?}");
        }
    }
}

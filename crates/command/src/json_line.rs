//! A record as `esker log cat --json` prints it.

use std::borrow::Cow;

use esker_log::{Seq, SeqRange};
use serde::Deserialize;

use crate::output;

/// The longest line of a record of so many bytes: each may become six, and the fields around it.
pub fn limit(record_limit: u32) -> u32 {
    record_limit.saturating_mul(6).saturating_add(4096)
}

/// A record of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonLine {
    /// The payload.
    pub payload: Vec<u8>,
    /// The number of the record, where the line has it.
    pub seq: Option<Seq>,
    /// The number of the record before it, where the line has that.
    pub prev: Option<Seq>,
}

/// The place of a record that keeps its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeqPlace {
    /// The number.
    pub seq: Seq,
    /// The record that it is appended after.
    pub prev: Seq,
    /// The numbers between the two that the input lacks.
    pub missing: Option<SeqRange>,
}

#[derive(Deserialize)]
struct Fields<'a> {
    seq: Option<u64>,
    prev: Option<u64>,
    #[serde(borrow)]
    payload: Option<Cow<'a, str>>,
    #[serde(borrow)]
    payload_b64: Option<Cow<'a, str>>,
}

impl JsonLine {
    /// Parses a line; otherwise says what is wrong.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let wrong =
            |what: &str| format!("it is no record as `esker log cat --json` prints it: {what}");
        // An array would be taken for the fields in their order.
        if !line.trim_ascii_start().starts_with(b"{") {
            return Err(wrong("it is no JSON object"));
        }
        let fields: Fields<'_> = serde_json::from_slice(line)
            .map_err(|error| wrong(&output::json_error(&error).replace("u64", "a number")))?;
        let payload = match (fields.payload, fields.payload_b64) {
            (Some(text), None) => text.into_owned().into_bytes(),
            (None, Some(encoded)) => {
                output::from_base64(&encoded).ok_or("`payload_b64` is not base 64")?
            }
            (None, None) => return Err("it has neither `payload` nor `payload_b64`".into()),
            (Some(_), Some(_)) => return Err("it has both `payload` and `payload_b64`".into()),
        };
        Ok(Self { payload, seq: fields.seq.map(Seq), prev: fields.prev.map(Seq) })
    }

    /// The place of the record after the one with the number `last`; `None` in an empty log.
    /// Records that a repair quarantined, or that `cat --skip-corrupt` skipped, are missing in the
    /// input: numbers are allowed to be missing, and never to go back.
    pub fn place(&self, last: Option<Seq>) -> Result<SeqPlace, String> {
        let seq = self.seq.ok_or("it has no `seq` for --keep-seq")?;
        if seq == Seq::ZERO {
            return Err("numbers begin with 1".into());
        }
        if seq > Seq::MAX {
            return Err(format!("numbers end with {}", Seq::MAX));
        }
        if let Some(prev) = self.prev.filter(|prev| *prev >= seq) {
            return Err(format!("record {seq} cannot follow record {prev}"));
        }
        // Without the number before it, every number in between may have been a record.
        let prev = self.prev.unwrap_or(Seq(seq.0 - 1));
        let last = match last {
            Some(last) if seq <= last => {
                return Err(format!(
                    "record {seq} cannot follow record {last}, which comes before"
                ));
            }
            Some(last) => last,
            // The first record of an empty log may follow any number.
            None => prev,
        };
        if prev < last {
            return Err(format!(
                "record {seq} follows record {prev}, and record {last} comes before it"
            ));
        }
        let missing = (last < prev).then_some(SeqRange { from: last, to: prev });
        Ok(SeqPlace { seq, prev: last, missing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_payload() {
        let parsed = |line: &str| JsonLine::parse(line.as_bytes());
        let all = r#"{"seq":7,"prev":5,"position":4168,"time":"2026-01-01T00:00:00.000Z","payload":"a\n\"b"}"#;
        let payload = b"a\n\"b".to_vec();
        let record = JsonLine { payload, seq: Some(Seq(7)), prev: Some(Seq(5)) };
        assert_eq!(parsed(all), Ok(record));
        let encoded = JsonLine { payload: vec![0xff, 0], seq: Some(Seq(1)), prev: None };
        assert_eq!(parsed(r#"{"payload_b64":"/wA=","seq":1}"#), Ok(encoded));
        for wrong in [
            "",
            "1",
            r#"[1, 0, "a", null]"#,
            "{}",
            r#"{"payload":1}"#,
            r#"{"payload":"a","payload_b64":"YQ=="}"#,
            r#"{"payload_b64":"a"}"#,
            r#"{"payload":"a","seq":-1}"#,
            r#"{"payload":"a"} b"#,
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
    #[test]
    fn numbers_may_be_missing_and_never_go_back() {
        let place = |seq, prev: Option<u64>, last: Option<u64>| {
            let line = JsonLine { payload: vec![], seq: Some(Seq(seq)), prev: prev.map(Seq) };
            let place = line.place(last.map(Seq)).ok()?;
            Some((place.prev.0, place.missing.map(|range| (range.from.0, range.to.0))))
        };
        assert_eq!(place(7, Some(6), None), Some((6, None)));
        assert_eq!(place(7, None, None), Some((6, None)));
        assert_eq!(place(1, None, None), Some((0, None)));
        assert_eq!(place(9, Some(7), Some(7)), Some((7, None)));
        assert_eq!(place(21, Some(20), Some(10)), Some((10, Some((10, 20)))));
        assert_eq!(place(21, None, Some(10)), Some((10, Some((10, 20)))));
        assert_eq!(place(11, None, Some(10)), Some((10, None)));
        for (seq, prev, last) in
            [(10, None, Some(10)), (9, Some(8), Some(10)), (21, Some(9), Some(10)), (0, None, None)]
        {
            assert_eq!(place(seq, prev, last), None, "{seq} {prev:?} {last:?}");
        }
        assert_eq!(place(7, Some(7), None), None);
    }
}

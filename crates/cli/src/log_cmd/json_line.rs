//! A record as `esker log cat --json` prints it.

use std::borrow::Cow;

use esker_log::Seq;
use serde::Deserialize;

use crate::output;

/// The longest line of a record of so many bytes: each may become six, and the fields around it.
pub fn limit(record_limit: u32) -> u32 {
    record_limit.saturating_mul(6).saturating_add(4096)
}

/// A record of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonLine {
    pub payload: Vec<u8>,
    /// The number before it, and its own, where the line has both.
    pub seqs: Option<(Seq, Seq)>,
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
        let fields: Fields<'_> = serde_json::from_slice(line).map_err(|error| {
            format!("it is no record as `esker log cat --json` prints it: {error}")
        })?;
        let payload = match (fields.payload, fields.payload_b64) {
            (Some(text), None) => text.into_owned().into_bytes(),
            (None, Some(encoded)) => {
                output::from_base64(&encoded).ok_or("`payload_b64` is not base 64")?
            }
            (None, None) => return Err("it has neither `payload` nor `payload_b64`".into()),
            (Some(_), Some(_)) => return Err("it has both `payload` and `payload_b64`".into()),
        };
        let seqs = fields.prev.zip(fields.seq).map(|(prev, seq)| (Seq(prev), Seq(seq)));
        Ok(Self { payload, seqs })
    }

    /// The line, with its numbers only if it keeps them. Then it must have them, and follow the one
    /// before it.
    pub fn numbered(self, keep: bool, before: Option<Seq>) -> Result<Self, String> {
        if !keep {
            return Ok(Self { seqs: None, ..self });
        }
        match (self.seqs, before) {
            (None, _) => Err("it has no `seq` and `prev` for --keep-seq".into()),
            (Some((prev, seq)), _) if prev >= seq => {
                Err(format!("record {seq} cannot follow record {prev}"))
            }
            (Some((prev, seq)), Some(before)) if prev != before => {
                Err(format!("record {seq} follows record {prev}, and the line before has {before}"))
            }
            _ => Ok(self),
        }
    }

    /// Its number.
    pub fn seq(&self) -> Option<Seq> {
        self.seqs.map(|(_, seq)| seq)
    }

    /// The payload under its number.
    pub fn with_seq(&self) -> Option<(Seq, &[u8])> {
        Some((self.seq()?, &self.payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_payload() {
        let parsed = |line: &str| JsonLine::parse(line.as_bytes());
        let all = r#"{"seq":7,"prev":5,"position":4168,"time":"2026-01-01T00:00:00.000Z","payload":"a\n\"b"}"#;
        let record = JsonLine { payload: b"a\n\"b".to_vec(), seqs: Some((Seq(5), Seq(7))) };
        assert_eq!(parsed(all), Ok(record));
        let encoded = JsonLine { payload: vec![0xff, 0], seqs: None };
        assert_eq!(parsed(r#"{"payload_b64":"/wA=","seq":1}"#), Ok(encoded));
        for wrong in [
            "",
            "1",
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
}

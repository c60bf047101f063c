//! A record as it is printed, in one of the three framings.

use std::io::{self, Write};

use esker_log::{Position, Seq};

use crate::framing::Framing;
use crate::output;

/// A record, with what is known of it.
#[derive(Debug, Clone, Copy)]
pub struct RecordText<'a> {
    /// The number of the record.
    pub seq: Seq,
    /// The number of the record before it.
    pub prev: Option<Seq>,
    /// The place in the whole log.
    pub position: Option<Position>,
    /// The time of its commit as text; empty if it is not known.
    pub time: &'a str,
    /// The payload.
    pub payload: &'a [u8],
}

impl RecordText<'_> {
    /// Writes the record.
    pub fn write(&self, framing: Framing, out: &mut impl Write) -> io::Result<()> {
        match framing {
            Framing::Lines => {
                out.write_all(self.payload)?;
                out.write_all(b"\n")
            }
            Framing::Len32 => {
                // A record is far smaller.
                let length = u32::try_from(self.payload.len()).unwrap_or(u32::MAX);
                out.write_all(&length.to_le_bytes())?;
                out.write_all(self.payload)
            }
            Framing::Json => self.write_json(out),
        }
    }

    fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { seq, prev, position, time, payload } = self;
        write!(out, "{{\"seq\":{seq},")?;
        if let Some(prev) = prev {
            write!(out, "\"prev\":{prev},")?;
        }
        if let Some(position) = position {
            write!(out, "\"position\":{position},")?;
        }
        if !time.is_empty() {
            write!(out, "\"time\":\"{time}\",")?;
        }
        match std::str::from_utf8(payload) {
            Ok(text) => {
                out.write_all(b"\"payload\":")?;
                serde_json::to_writer(&mut *out, text)?;
            }
            Err(_) => write!(out, "\"payload_b64\":\"{}\"", output::base64(payload))?,
        }
        out.write_all(b"}\n")
    }
}

//! Splitting a stream of bytes into records.
//!
//! The buffer holds bytes that were read and not yet consumed. It grows to at most one record of
//! the maximum size plus one read, so that input without a newline cannot exhaust memory.

use std::fmt;
use std::io::BufRead;
use std::ops::Range;

use clap::ValueEnum;
use esker_log::RECORD_LIMIT_MAX;

/// How records are separated in a stream of bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Framing {
    /// One record a line, without its newline; an empty line is an empty record
    #[default]
    Lines,
    /// A length of 4 bytes, little-endian, before each record
    Len32,
    /// One JSON object a line, as `esker log cat --json` prints it
    Json,
}

/// The highest limit of a record.
const RECORD_BYTES_MAX: usize = RECORD_LIMIT_MAX as usize;
/// Bytes requested in one read.
const READ_BYTES: usize = 256 << 10;
/// Size of the length field before a record.
const LENGTH_BYTES: usize = 4;

/// Splits bytes into records.
#[derive(Debug)]
pub struct Framer {
    framing: Framing,
    limit: usize,
    buffer: Vec<u8>,
    /// Ends of the consumed and of the filled part of the buffer.
    consumed: usize,
    filled: usize,
    /// Bytes after `consumed` that are known to hold no newline.
    searched: usize,
    records: u64,
}

/// Why the bytes are not valid records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadFraming {
    /// A record exceeds the limit.
    TooLarge {
        /// The record's number, from 1.
        record: u64,
        /// The length of the record, where it is known.
        length: Option<usize>,
        /// The most bytes of a record.
        limit: usize,
    },
    /// The input ends inside a record.
    Unfinished {
        /// The record's number, from 1.
        record: u64,
        /// The bytes that were read of it.
        bytes: usize,
    },
}

impl fmt::Display for BadFraming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // What no limit takes is not to be raised for.
            BadFraming::TooLarge { record, length: None, limit } if *limit >= RECORD_BYTES_MAX => {
                write!(f, "record {record} of the input has more than {limit} bytes, the most")
            }
            BadFraming::TooLarge { record, length: None, limit } => write!(
                f,
                "record {record} of the input has more than {limit} bytes; the limit is {limit}: \
                 raise it with --record-limit"
            ),
            BadFraming::TooLarge { record, length: Some(length), .. }
                if *length > RECORD_BYTES_MAX =>
            {
                write!(
                    f,
                    "record {record} of the input has a length of {length} bytes, and the most is \
                     {RECORD_BYTES_MAX}: the input is not framed as len32"
                )
            }
            BadFraming::TooLarge { record, length: Some(length), limit } => write!(
                f,
                "record {record} of the input has a length of {length} bytes; the limit is \
                 {limit}: raise it with --record-limit, or the input is not framed as len32"
            ),
            BadFraming::Unfinished { record, bytes } => {
                write!(f, "the input ends inside record {record}, {bytes} bytes after its start")
            }
        }
    }
}

impl Framer {
    /// Creates an empty framer for records of at most `limit` bytes.
    pub fn new(framing: Framing, limit: u32) -> Self {
        let limit = limit as usize;
        let buffer = Vec::new();
        Self { framing, limit, buffer, consumed: 0, filled: 0, searched: 0, records: 0 }
    }

    /// Returns the buffer for the next read. Records returned before become invalid.
    pub fn room(&mut self) -> &mut [u8] {
        // Not while a long record is incomplete: it would be copied at each read.
        if self.consumed > 0 {
            self.buffer.copy_within(self.consumed..self.filled, 0);
            self.filled -= self.consumed;
            self.consumed = 0;
        }
        let wanted = self.filled + READ_BYTES;
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        &mut self.buffer[self.filled..]
    }

    /// Adds `count` bytes that were read into that buffer.
    pub fn filled(&mut self, count: usize) {
        self.filled += count;
    }

    /// Returns the next complete record, as a range for [`Framer::bytes`].
    pub fn next_record(&mut self) -> Result<Option<Range<usize>>, BadFraming> {
        let found = match self.framing {
            Framing::Lines | Framing::Json => self.next_line()?,
            Framing::Len32 => self.next_len32()?,
        };
        self.records += u64::from(found.is_some());
        Ok(found)
    }

    /// Returns the record at the end of the input: a last line without a newline.
    pub fn last(&mut self) -> Result<Option<Range<usize>>, BadFraming> {
        let rest = self.consumed..self.filled;
        if rest.is_empty() {
            return Ok(None);
        }
        if self.framing == Framing::Len32 {
            let (record, bytes) = (self.records + 1, rest.len());
            return Err(BadFraming::Unfinished { record, bytes });
        }
        self.consumed = self.filled;
        self.records += 1;
        Ok(Some(rest))
    }

    /// Returns the bytes of a record; valid until the next call of [`Framer::room`].
    pub fn bytes(&self, record: Range<usize>) -> &[u8] {
        &self.buffer[record]
    }

    /// Returns how many bytes were read that are no complete record.
    pub fn unfinished(&self) -> usize {
        self.filled - self.consumed
    }

    fn next_line(&mut self) -> Result<Option<Range<usize>>, BadFraming> {
        let start = self.consumed + self.searched;
        let mut rest = &self.buffer[start..self.filled];
        let skipped = rest.skip_until(b'\n').unwrap_or(0);
        let end = start + skipped;
        let complete = skipped > 0 && self.buffer[end - 1] == b'\n';
        let len = end - self.consumed - usize::from(complete);
        if len > self.limit {
            return Err(self.too_large(None));
        }
        if !complete {
            self.searched = len;
            return Ok(None);
        }
        let line = self.consumed..end - 1;
        self.consumed = end;
        self.searched = 0;
        Ok(Some(line))
    }

    fn next_len32(&mut self) -> Result<Option<Range<usize>>, BadFraming> {
        let unread = &self.buffer[self.consumed..self.filled];
        let Some((length, rest)) = unread.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > self.limit {
            return Err(self.too_large(Some(length)));
        }
        if rest.len() < length {
            return Ok(None);
        }
        let start = self.consumed + LENGTH_BYTES;
        self.consumed = start + length;
        Ok(Some(start..start + length))
    }

    fn too_large(&self, length: Option<usize>) -> BadFraming {
        BadFraming::TooLarge { record: self.records + 1, length, limit: self.limit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds the input in chunks of every size.
    fn records(
        framing: Framing,
        limit: u32,
        input: &[u8],
    ) -> Vec<Result<Vec<Vec<u8>>, BadFraming>> {
        (1..=input.len().max(1))
            .map(|chunk| {
                let mut framer = Framer::new(framing, limit);
                let mut all = Vec::new();
                for bytes in input.chunks(chunk) {
                    framer.room()[..bytes.len()].copy_from_slice(bytes);
                    framer.filled(bytes.len());
                    while let Some(record) = framer.next_record()? {
                        all.push(framer.bytes(record).to_vec());
                    }
                }
                if let Some(record) = framer.last()? {
                    all.push(framer.bytes(record).to_vec());
                }
                Ok(all)
            })
            .collect()
    }

    #[test]
    fn lines_may_be_empty_and_the_last_needs_no_newline() {
        for (input, expected) in [
            ("a\n\nbc\n", vec!["a", "", "bc"]),
            ("a\n\nbc", vec!["a", "", "bc"]),
            ("\n", vec![""]),
            ("", vec![]),
        ] {
            for found in records(Framing::Lines, 2, input.as_bytes()) {
                let expected: Vec<Vec<u8>> =
                    expected.iter().map(|s| s.as_bytes().to_vec()).collect();
                assert_eq!(found.unwrap(), expected, "{input:?}");
            }
        }
    }

    #[test]
    fn len32_records_may_hold_any_bytes() {
        let input = b"\x02\0\0\0\n\n\0\0\0\0\x01\0\0\0x";
        for found in records(Framing::Len32, 2, input) {
            assert_eq!(found.unwrap(), [b"\n\n".to_vec(), vec![], b"x".to_vec()]);
        }
    }

    #[test]
    fn an_oversized_record_is_reported_by_its_number() {
        for found in records(Framing::Lines, 2, b"a\nbcd\n") {
            assert!(found.unwrap_err().to_string().contains("record 2 "));
        }
        for found in records(Framing::Len32, 2, b"\x03\0\0\0abc") {
            assert!(found.unwrap_err().to_string().contains("record 1 "));
        }
    }

    /// The advice was to raise the limit, also for what no limit takes.
    #[test]
    fn a_limit_is_to_be_raised_only_as_far_as_it_can_be() {
        let said = |length, limit| {
            let text = BadFraming::TooLarge { record: 1, length, limit }.to_string();
            text.contains("raise it with --record-limit")
        };
        assert!(
            said(None, 8) && said(Some(9), 8) && said(Some(RECORD_BYTES_MAX), RECORD_BYTES_MAX - 1)
        );
        assert!(!said(None, RECORD_BYTES_MAX) && !said(Some(RECORD_BYTES_MAX + 1), 8));
    }

    #[test]
    fn an_incomplete_len32_record_is_an_error() {
        for found in records(Framing::Len32, 9, b"\x03\0\0\0ab") {
            assert!(found.unwrap_err().to_string().contains("inside record 1"));
        }
    }
}

//! The formats of an answer.

use std::ops::RangeInclusive;

use esker_oracle::{Range, Timestamp, TimestampWidth};

/// The format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerFormat {
    pub width: TimestampWidth,
    /// Whether an answer has the first timestamp and their number; otherwise it has all of them.
    pub is_range: bool,
}

impl AnswerFormat {
    /// Its name in a request.
    pub fn name(self) -> &'static str {
        match (self.width, self.is_range) {
            (TimestampWidth::Bits128, false) => "list",
            (TimestampWidth::Bits128, true) => "range",
            (TimestampWidth::Bits64, false) => "u64",
            (TimestampWidth::Bits64, true) => "u64-range",
        }
    }

    /// The path of a request for `n` timestamps.
    pub fn path(self, n: u32) -> String {
        match (n, self.name()) {
            (1, "list") => "/timestamp".into(),
            (n, "list") => format!("/timestamp?n={n}"),
            (n, name) => format!("/timestamp?n={n}&format={name}"),
        }
    }

    /// Bytes of an answer with `n` timestamps.
    pub fn bytes(self, n: u32) -> usize {
        match self.is_range {
            true => self.timestamp_bytes() + size_of::<u64>(),
            false => self.timestamp_bytes() * n as usize,
        }
    }

    /// Bytes of a timestamp.
    pub fn timestamp_bytes(self) -> usize {
        match self.width {
            TimestampWidth::Bits64 => size_of::<u64>(),
            TimestampWidth::Bits128 => Timestamp::BYTES,
        }
    }

    /// The timestamps of a body; `None` if it is not what was asked for.
    pub fn parse(self, body: &[u8], n: u32) -> Option<Range> {
        let first = match self.width {
            TimestampWidth::Bits64 => {
                Timestamp::from_u64(u64::from_be_bytes(*body.first_chunk()?))?
            }
            TimestampWidth::Bits128 => Timestamp::from_bytes(*body.first_chunk()?),
        };
        let range = Range { first, count: n };
        let has_indexes = range.last()?.index <= self.width.index_max();
        let is_whole = has_indexes && body.len() == self.bytes(n);
        (is_whole && self.follows(body, range)).then_some(range)
    }

    /// Whether what follows the first timestamp of a body is the rest of this range.
    fn follows(self, body: &[u8], range: Range) -> bool {
        if self.is_range {
            return body.last_chunk() == Some(&u64::from(range.count).to_be_bytes());
        }
        let mut listed = body.chunks(self.timestamp_bytes()).zip(range.timestamps());
        match self.width {
            TimestampWidth::Bits64 => listed.all(|(bytes, timestamp)| {
                timestamp.to_u64().is_some_and(|bits| bytes == bits.to_be_bytes())
            }),
            TimestampWidth::Bits128 => {
                listed.all(|(bytes, timestamp)| bytes == timestamp.to_bytes())
            }
        }
    }
}

/// The timestamps of these numbers of 64 bits; `None` if there are none.
pub fn range_of_numbers(numbers: &RangeInclusive<u64>) -> Option<Range> {
    let first = Timestamp::from_u64(*numbers.start())?;
    let more = numbers.end().checked_sub(*numbers.start())?;
    Some(Range { first, count: u32::try_from(more).ok()?.checked_add(1)? })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const COUNT: u32 = 3;

    fn format(width: TimestampWidth, is_range: bool) -> AnswerFormat {
        AnswerFormat { width, is_range }
    }

    /// Every format, with a body of three timestamps, and their range.
    fn bodies() -> [(AnswerFormat, Vec<u8>, Range); 4] {
        let first = Timestamp { epoch: 7_000_000, index: 1 };
        let all = Range { first, count: COUNT };
        let count = u64::from(COUNT).to_be_bytes();
        let numbers = all.timestamps().map(|timestamp| timestamp.to_u64().unwrap());
        let numbers: Vec<[u8; 8]> = numbers.map(u64::to_be_bytes).collect();
        let list = all.timestamps().flat_map(Timestamp::to_bytes).collect();
        let (narrow, wide) = (TimestampWidth::Bits64, TimestampWidth::Bits128);
        [
            (format(wide, false), list, all),
            (format(wide, true), [&first.to_bytes()[..], &count].concat(), all),
            (format(narrow, false), numbers.concat(), all),
            (format(narrow, true), [numbers[0], count].concat(), all),
        ]
    }

    #[test]
    fn a_body_is_what_was_asked_for_or_nothing() {
        for (format, body, all) in bodies() {
            let name = format.name();
            assert_eq!(format.parse(&body, COUNT), Some(all), "{name}");
            assert_eq!(body.len(), format.bytes(COUNT), "{name}");
            for other in [COUNT - 1, COUNT + 1] {
                assert_eq!(format.parse(&body, other), None, "{name}");
            }
            for end in 0..body.len() {
                assert_eq!(format.parse(&body[..end], COUNT), None, "{name}: {end}");
            }
            for at in format.timestamp_bytes()..body.len() {
                let mut wrong = body.clone();
                wrong[at] ^= 1;
                assert_eq!(format.parse(&wrong, COUNT), None, "{name}: {at}");
            }
        }
    }

    #[test]
    fn indexes_of_64_bits_have_18() {
        let last = Timestamp { epoch: 7_000_000, index: Timestamp::U64_INDEX_MAX };
        let bits = last.to_u64().unwrap();
        let format = format(TimestampWidth::Bits64, true);
        let body = |count: u64| [bits.to_be_bytes(), count.to_be_bytes()].concat();
        assert_eq!(format.parse(&body(1), 1), Some(Range { first: last, count: 1 }));
        assert_eq!(format.parse(&body(2), 2), None);
        let late = [[0xff; 8], 1_u64.to_be_bytes()].concat();
        assert_eq!(format.parse(&late, 1), None);
    }

    #[test]
    fn numbers_are_a_range() {
        let first = Timestamp { epoch: 7_000_000, index: 5 };
        let bits = first.to_u64().unwrap();
        assert_eq!(range_of_numbers(&(bits..=bits + 2)), Some(Range { first, count: 3 }));
        assert_eq!(range_of_numbers(&RangeInclusive::new(bits, bits - 1)), None);
        assert_eq!(range_of_numbers(&(0..=u64::MAX)), None);
    }

    #[test]
    fn paths_name_the_format() {
        let [(list, ..), (range, ..), (numbers, ..), (number_range, ..)] = bodies();
        let paths = [list.path(1), list.path(2), range.path(1)];
        assert_eq!(paths, ["/timestamp", "/timestamp?n=2", "/timestamp?n=1&format=range"]);
        let paths = [numbers.path(1), number_range.path(2)];
        assert_eq!(paths, ["/timestamp?n=1&format=u64", "/timestamp?n=2&format=u64-range"]);
    }
}

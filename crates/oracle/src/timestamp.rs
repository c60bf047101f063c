//! A timestamp: an epoch, and an index within it.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

/// The nanoseconds, the unit of epochs, in a millisecond, the unit of timestamps of 64 bits.
pub(crate) const NANOS_PER_MILLISECOND: u64 = 1_000_000;

/// A timestamp. They are ordered as their bytes are: by epoch, then by index.
///
/// ```text
/// 0 epoch u64 | 8 index u64      big-endian
/// ```
///
/// # Examples
/// ```
/// use esker_oracle::Timestamp;
///
/// let timestamp = Timestamp { epoch: 1_700_000_000_000_000_000, index: 1 };
/// assert_eq!(timestamp.to_string(), "17979cfe362a00000000000000000001");
/// assert_eq!("17979cfe362a00000000000000000001".parse(), Ok(timestamp));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Nanoseconds since the beginning of 1970. It follows the wall clock, and never falls.
    pub epoch: u64,
    /// The index within the epoch: from 1, without gaps within an answer.
    pub index: u64,
}

const _: () = assert!(Timestamp::BYTES == size_of::<u128>());
const _: () = assert!(
    u64::MAX / NANOS_PER_MILLISECOND < 1 << (u64::BITS - Timestamp::U64_INDEX_BITS),
    "the milliseconds of each epoch fit into 64 bits beside an index"
);

/// The width of the timestamps that a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimestampWidth {
    /// Timestamps of 64 bits: see [`Timestamp::to_u64`].
    Bits64,
    /// Timestamps of 16 bytes.
    Bits128,
}

impl TimestampWidth {
    /// The highest index of timestamps of this width.
    pub fn index_max(self) -> u64 {
        match self {
            Self::Bits64 => Timestamp::U64_INDEX_MAX,
            Self::Bits128 => u64::MAX,
        }
    }
}

impl Timestamp {
    /// Bytes of a timestamp.
    pub const BYTES: usize = 16;

    /// Encodes the timestamp. The bytes are ordered as timestamps are.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.epoch.to_be_bytes());
        bytes[8..].copy_from_slice(&self.index.to_be_bytes());
        bytes
    }

    /// Decodes a timestamp.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let both = u128::from_be_bytes(bytes);
        Self { epoch: (both >> 64) as u64, index: both as u64 }
    }

    /// Bits of the index in a timestamp of 64 bits.
    pub const U64_INDEX_BITS: u32 = 18;
    /// The highest index of a timestamp of 64 bits.
    pub const U64_INDEX_MAX: u64 = (1 << Self::U64_INDEX_BITS) - 1;

    /// The form of 64 bits: the epoch's millisecond of Unix time, and the index in the lowest 18
    /// bits. It is ordered as timestamps are, since each epoch has a millisecond of its own.
    ///
    /// `None` for an index of more bits. Those of [`TimestampWidth::Bits64`] have no more.
    ///
    /// # Examples
    /// ```
    /// use esker_oracle::Timestamp;
    ///
    /// let timestamp = Timestamp { epoch: 1_700_000_000_000_000_000, index: 7 };
    /// assert_eq!(timestamp.to_u64(), Some((1_700_000_000_000 << 18) + 7));
    /// ```
    pub fn to_u64(self) -> Option<u64> {
        let milliseconds = self.epoch / NANOS_PER_MILLISECOND;
        (self.index <= Self::U64_INDEX_MAX)
            .then_some(milliseconds << Self::U64_INDEX_BITS | self.index)
    }

    /// The timestamp of this form of 64 bits, at the beginning of the epoch's millisecond. `None`
    /// after the last epoch, in the year 2554.
    pub fn from_u64(bits: u64) -> Option<Self> {
        let epoch = (bits >> Self::U64_INDEX_BITS).checked_mul(NANOS_PER_MILLISECOND)?;
        Some(Self { epoch, index: bits & Self::U64_INDEX_MAX })
    }

    /// The timestamp as its form of 64 bits has it: with the millisecond of its epoch alone. For
    /// comparing timestamps of both forms.
    pub fn in_milliseconds(self) -> Self {
        Self { epoch: self.epoch - self.epoch % NANOS_PER_MILLISECOND, ..self }
    }

    /// The time when its epoch began, by the leader's clock.
    pub fn time(self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(self.epoch)
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.epoch, self.index)
    }
}

/// The text is not a timestamp: not 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseError;

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a timestamp has 32 hexadecimal digits")
    }
}

impl std::error::Error for ParseError {}

impl FromStr for Timestamp {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        // `from_str_radix` takes a sign, too.
        let is_hex = text.len() == 2 * Self::BYTES && text.bytes().all(|b| b.is_ascii_hexdigit());
        let both = u128::from_str_radix(text, 16).ok().filter(|_| is_hex).ok_or(ParseError)?;
        Ok(Self::from_bytes(both.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const CORNER_VALUES: [u64; 6] = [0, 1, 255, 256, u64::MAX - 1, u64::MAX];

    #[test]
    fn bytes_and_text_are_ordered_as_timestamps_are() {
        let all = CORNER_VALUES.map(|epoch| CORNER_VALUES.map(|index| Timestamp { epoch, index }));
        let all = all.concat();
        for one in &all {
            assert_eq!(Timestamp::from_bytes(one.to_bytes()), *one);
            assert_eq!(one.to_string().parse(), Ok(*one));
            assert_eq!(one.to_string().to_uppercase().parse(), Ok(*one));
            for other in &all {
                assert_eq!(one.cmp(other), one.to_bytes().cmp(&other.to_bytes()));
                assert_eq!(one.cmp(other), one.to_string().cmp(&other.to_string()));
            }
        }
    }

    #[test]
    fn forms_of_64_bits_are_ordered_as_timestamps_are() {
        let epochs = [1, 1_000_000, 2_999_999, 3_000_000, u64::MAX];
        let indexes = [1, 2, 255, Timestamp::U64_INDEX_MAX];
        let all = epochs.map(|epoch| indexes.map(|index| Timestamp { epoch, index })).concat();
        let bits: Vec<_> = all.iter().map(|timestamp| timestamp.to_u64().unwrap()).collect();
        assert!(bits.is_sorted_by(|one, other| one < other), "{bits:?}");
        for (timestamp, bits) in all.iter().zip(bits) {
            let floor = timestamp.epoch / 1_000_000 * 1_000_000;
            let decoded = Timestamp::from_u64(bits).unwrap();
            assert_eq!(decoded, Timestamp { epoch: floor, index: timestamp.index });
            assert_eq!(decoded, timestamp.in_milliseconds());
            assert_eq!(decoded.to_u64(), Some(bits));
        }
        let beyond = Timestamp { epoch: 1, index: Timestamp::U64_INDEX_MAX + 1 };
        assert_eq!(beyond.to_u64(), None);
        assert_eq!(Timestamp::from_u64(u64::MAX), None);
    }

    #[test]
    fn what_is_no_timestamp_is_refused() {
        let digits = "0".repeat(32);
        let wrong = [
            String::new(),
            digits[1..].into(),
            format!("{digits}0"),
            digits.replacen('0', "+", 1),
            digits.replacen('0', "g", 1),
            digits.replacen("00", "é", 1),
            format!("0x{}", &digits[2..]),
        ];
        for text in wrong {
            assert_eq!(text.parse::<Timestamp>(), Err(ParseError), "{text}");
        }
    }

    #[test]
    fn the_epoch_is_a_time() {
        let timestamp = Timestamp { epoch: 1_000_000_001, index: 7 };
        let since = timestamp.time().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(since, Duration::from_nanos(1_000_000_001));
    }
}

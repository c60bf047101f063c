//! The names of sequences, and the limits of their numbers.

use std::fmt;
use std::str::FromStr;

/// The highest number of a sequence: 2^53 - 1. It is exact in JSON, and in a signed column of 64
/// bits.
pub const SEQUENCE_NUMBER_MAX: u64 = (1 << 53) - 1;

/// The most numbers of one request.
pub const SEQUENCE_COUNT_MAX: u32 = 65_536;

/// The name of a sequence: 1 to 64 letters, digits, dots, underscores and hyphens, of ASCII. The
/// first is a letter or a digit: `..` in a path is another path.
///
/// # Examples
/// ```
/// use esker_oracle::SequenceName;
///
/// let name: SequenceName = "invoices-2026".parse().unwrap();
/// assert_eq!(name.as_str(), "invoices-2026");
/// assert!("invoices 2026".parse::<SequenceName>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceName(Box<str>);

impl SequenceName {
    /// The longest name, in bytes.
    pub const BYTES_MAX: usize = 64;

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SequenceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The text is not the name of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceNameError;

impl fmt::Display for SequenceNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the name of a sequence has 1 to 64 letters, digits, dots, hyphens and underscores, \
             and begins with a letter or a digit",
        )
    }
}

impl std::error::Error for SequenceNameError {}

impl FromStr for SequenceName {
    type Err = SequenceNameError;

    fn from_str(text: &str) -> Result<Self, SequenceNameError> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let has_begin = text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
        let is_name = has_begin && text.len() <= Self::BYTES_MAX && text.bytes().all(is_allowed);
        if is_name { Ok(Self(text.into())) } else { Err(SequenceNameError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_word_of_a_path() {
        let longest = "x".repeat(SequenceName::BYTES_MAX);
        for name in ["a", "Z-9", "invoices.2026_de", "0..", &longest] {
            let parsed: Result<SequenceName, _> = name.parse();
            assert_eq!(parsed.as_ref().map(SequenceName::as_str), Ok(name));
        }
        let too_long = format!("{longest}x");
        for name in ["", " ", "a b", "a/b", "a%20", "ä", "a\n", "a\0", "..", "-a", "_a", &too_long]
        {
            assert_eq!(name.parse::<SequenceName>(), Err(SequenceNameError), "{name:?}");
        }
    }
}

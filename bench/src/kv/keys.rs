//! Keys and values that can be computed again from the number of the caller and its count.

use anyhow::{Context, Result, ensure};
use esker_bench::records::payload::{Payload, header_of, mix};

use crate::job::Job;

/// A key.
pub type Key = [u8; 16];

/// Above the counts of one caller.
const COUNT_BITS: u32 = 40;

/// The key of a caller's entry: no two are the same. They ascend with the count, or are in a
/// random order.
pub fn key_of(random: bool, writer: u32, count: u64) -> Key {
    let number = u64::from(writer) << COUNT_BITS | count;
    let first = if random { mix(number) } else { 0 };
    (u128::from(first) << 64 | u128::from(number)).to_be_bytes()
}

/// The key of a value.
pub fn key_of_value(random: bool, value: &[u8]) -> Result<Key> {
    let (writer, count) = header_of(value).context("a value without a head")?;
    Ok(key_of(random, writer, count))
}

/// Compares values that are read with the expected ones, every byte.
pub struct ExpectedValues(Payload);

impl ExpectedValues {
    /// The values of the first caller.
    pub fn new(job: &Job) -> Self {
        Self(job.payload(0))
    }

    /// Takes the value that was read.
    #[inline]
    pub fn see(&mut self, count: u64, value: &[u8]) -> Result<()> {
        ensure!(self.0.record(count) == value, "the value of key {count} is not what was written");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_ascend_with_the_count_unless_they_are_random() {
        let ascending: Vec<_> = (0..100).map(|count| key_of(false, 3, count)).collect();
        assert!(ascending.is_sorted());
        let random: Vec<_> = (0..100).map(|count| key_of(true, 3, count)).collect();
        assert!(!random.is_sorted());
        assert_ne!(key_of(true, 0, 7), key_of(true, 1, 7));
    }
}

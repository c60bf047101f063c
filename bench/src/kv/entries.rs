//! The entries that callers put next.

use anyhow::Result;

use super::keys::{Key, key_of, key_of_value};
use crate::callers::{Member, Records};

/// The entries of a load. The time until the next one is asked for is that of a put.
pub struct Entries<'a> {
    records: Records<'a>,
    random: bool,
    next: u64,
}

impl<'a> Entries<'a> {
    /// The values of a caller that has put nothing.
    pub fn new(records: Records<'a>, random: bool) -> Self {
        Self { records, random, next: 0 }
    }

    /// Returns the next entry; `None` after the last.
    pub fn next(&mut self) -> Option<(Key, &[u8])> {
        let key = key_of(self.random, 0, self.next);
        self.next += 1;
        Some((key, self.records.next()?))
    }

    /// Whether the last entry was returned.
    #[cfg_attr(not(feature = "surrealkv"), allow(dead_code, reason = "only surrealkv asks"))]
    pub fn is_at_end(&self) -> bool {
        self.records.is_at_end()
    }
}

/// Fills a batch with what a caller puts next.
pub fn fill(batch: &mut [(Key, Vec<u8>)], member: &mut Member) -> Result<()> {
    for (key, value) in batch {
        let record = member.next();
        *key = key_of_value(true, record)?;
        value.clear();
        value.extend_from_slice(record);
    }
    Ok(())
}

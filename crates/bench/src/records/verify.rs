//! The check and the counts of a reader.
//!
//! The records of one writer are numbered from 1, so that the number determines the record. All
//! readers share the expected records, read-only.

use clap::ValueEnum;
use esker_log::Batch;

use crate::records::payload::{Payload, Recipe};
use esker_command::exit::{Failure, Outcome};

/// The records of which one is compared byte for byte with `header`.
const FULL_CHECK_INTERVAL: u64 = 64;

/// The check of each record that a reader reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Verify {
    /// Nothing: records and bytes are counted
    None,
    /// Number and length of every record, and every 64th byte for byte
    #[default]
    Header,
    /// Every byte
    Full,
}

impl Verify {
    /// Returns the value as typed on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Verify::None => "none",
            Verify::Header => "header",
            Verify::Full => "full",
        }
    }
}

/// The totals of a reader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub records: u64,
    pub bytes: u64,
    /// Payload bytes that were compared.
    pub touched: u64,
}

impl Tally {
    /// Returns the sum.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            records: self.records + other.records,
            bytes: self.bytes + other.bytes,
            touched: self.touched + other.touched,
        }
    }
}

/// The expected records.
#[derive(Debug)]
pub struct ExpectedRecords {
    how: Verify,
    recipe: Recipe,
    payload: Payload,
}

impl ExpectedRecords {
    /// Creates the expected records of the first writer.
    pub fn new(recipe: &Recipe, how: Verify) -> Self {
        Self { how, recipe: recipe.clone(), payload: recipe.payload(0) }
    }

    /// Checks and counts the records of a batch that follows record `seen`, and advances `seen`.
    /// Readers with a different `offset` compare different records byte for byte.
    ///
    /// Fails at the first record that is not the expected one.
    pub fn check(&self, offset: u64, seen: &mut u64, batch: &Batch) -> Outcome<Tally> {
        let mut tally = Tally::default();
        for record in batch {
            let (seq, len) = (record.seq.0, record.payload.len());
            if self.how != Verify::None {
                let count = *seen;
                let follows = seq == count + 1 && record.prev.0 == count;
                if !follows || len != self.recipe.len(0, count) {
                    return Err(Failure::failed(format!(
                        "read record {seq} of {len} bytes instead of record {} of {} bytes",
                        count + 1,
                        self.recipe.len(0, count)
                    )));
                }
                if self.how == Verify::Full
                    || seq.wrapping_add(offset).is_multiple_of(FULL_CHECK_INTERVAL)
                {
                    if !self.payload.is(count, record.payload) {
                        return Err(Failure::failed(format!(
                            "record {seq} was read and is not what was written there"
                        )));
                    }
                    tally.touched += len as u64;
                }
            }
            *seen = seq;
            tally.records += 1;
            tally.bytes += len as u64;
        }
        Ok(tally)
    }
}

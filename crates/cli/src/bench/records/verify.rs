//! What a reader checks of the records that it is given, and what it counts.
//!
//! One writer's records are numbered from 1, so that everything about a record follows from its
//! number. What is expected is shared by all readers and never written to.

use clap::ValueEnum;
use esker_log::Batch;

use crate::bench::records::payload::{Payload, Recipe};
use crate::exit::{Failure, Outcome};

/// `header` compares every so many-th record byte for byte.
const EVERY: u64 = 64;

/// How much a reader checks.
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
    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Verify::None => "none",
            Verify::Header => "header",
            Verify::Full => "full",
        }
    }
}

/// What was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub records: u64,
    pub bytes: u64,
    /// Payload bytes that were looked at.
    pub touched: u64,
}

impl Tally {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            records: self.records + other.records,
            bytes: self.bytes + other.bytes,
            touched: self.touched + other.touched,
        }
    }
}

/// What the records have to be.
#[derive(Debug)]
pub struct Expected {
    how: Verify,
    recipe: Recipe,
    payload: Payload,
}

impl Expected {
    /// The records of the first writer.
    pub fn new(recipe: &Recipe, how: Verify) -> Self {
        Self { how, recipe: recipe.clone(), payload: recipe.of(0) }
    }

    /// Checks and counts the records of a batch, which follows the record `seen`, and moves that
    /// on. Readers compare different records byte for byte: `offset` is a reader's own.
    ///
    /// Fails at the first record that is not the one that had to come.
    pub fn check(&self, offset: u64, seen: &mut u64, batch: &Batch) -> Outcome<Tally> {
        let mut tally = Tally::default();
        for record in batch {
            let (seq, len) = (record.seq.0, record.payload.len());
            if self.how != Verify::None {
                let count = *seen;
                let follows = seq == count + 1 && record.prev.0 == count;
                if !follows || len != self.recipe.len(0, count) {
                    return Err(Failure::failed(format!(
                        "record {seq} of {len} bytes was read where record {} of {} bytes had to come",
                        count + 1,
                        self.recipe.len(0, count)
                    )));
                }
                if self.how == Verify::Full || seq.wrapping_add(offset).is_multiple_of(EVERY) {
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

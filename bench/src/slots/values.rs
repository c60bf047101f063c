//! Compares the values of slots with the expected ones.

use anyhow::{Result, ensure};
use esker_bench::records::payload::{Payload, header_of};

use crate::job::Job;

/// Within the timed part, every byte of every so many-th value is compared, and slot and length of
/// the others.
pub const FULL_IN_TIME: u64 = 64;

/// The values that must be read.
#[derive(Debug)]
pub struct Values {
    payload: Payload,
    len: usize,
    full: u64,
    pub seen: u64,
}

impl Values {
    /// Compares every byte of every so many-th value.
    pub fn new(job: &Job, full: u64) -> Self {
        Self { payload: job.payload(0), len: job.most as usize, full, seen: 0 }
    }

    /// Takes the value that was read from a slot.
    pub fn see(&mut self, slot: u64, value: &[u8]) -> Result<()> {
        self.seen += 1;
        ensure!(
            value.len() == self.len
                && header_of(value) == Some((0, slot))
                && (!self.seen.is_multiple_of(self.full) || self.payload.record(slot) == value),
            "slot {slot} has not the value that was written"
        );
        Ok(())
    }
}

//! Comparing what is read back with what the writers must have written, in each writer's order.

use anyhow::{Context, Result, bail, ensure};
use esker_bench::records::payload::{Payload, header_of};

use crate::job::Job;

/// The record that must come next from each writer.
#[derive(Debug)]
pub struct Check {
    writers: Vec<(Payload, u64)>,
    full: u64,
}

impl Check {
    /// Compares every byte of every so many-th record, and the head and length of the others.
    pub fn new(job: &Job, full: u64) -> Self {
        Self { writers: (0..job.writers).map(|w| (job.payload(w), 0)).collect(), full }
    }

    /// Takes the next record that was read back.
    pub fn see(&mut self, record: &[u8]) -> Result<()> {
        let (writer, count) = header_of(record).context("a record without a head was read back")?;
        let Some((payload, next)) = self.writers.get_mut(writer as usize) else {
            bail!("a record of writer {writer} was read back, and there is none");
        };
        ensure!(
            *next == count,
            "record {count} of writer {writer} was read back in the place of {next}"
        );
        *next += 1;
        let wanted = payload.record(count);
        ensure!(
            wanted.len() == record.len() && (!count.is_multiple_of(self.full) || wanted == record),
            "record {count} of writer {writer} is not what was written"
        );
        Ok(())
    }

    /// How many records were seen.
    pub fn seen(&self) -> u64 {
        self.writers.iter().map(|(_, next)| next).sum()
    }

    /// Checks that everything that was written was read.
    pub fn done(&self, counts: &[u64]) -> Result<()> {
        for (writer, (count, (_, next))) in counts.iter().zip(&self.writers).enumerate() {
            ensure!(
                count == next,
                "writer {writer} wrote {count} records, and {next} were read back"
            );
        }
        Ok(())
    }
}

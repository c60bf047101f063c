//! The expected value of each slot, and the comparison with what was read.

use std::ops::ControlFlow;
use std::path::Path;

use esker_consensus::{ConsensusLog, IterateOptions, Slot};

use super::timed::Bench;
use esker_command::exit::{Failure, Outcome};

/// Stamps both ends of a value with its slot and leaves the rest unchanged: cheap enough to run
/// inside the timed part.
pub fn stamp_value(slot: u64, value: &mut [u8]) {
    let stamp = slot.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
    let len = value.len();
    let stamped = len.min(stamp.len());
    value[..stamped].copy_from_slice(&stamp[..stamped]);
    value[len - stamped..].copy_from_slice(&stamp[..stamped]);
}

impl Bench<'_> {
    pub fn compare_uncommitted(&self, log: &ConsensusLog, count: u64) -> Outcome {
        let guard = log.pin();
        let entries = log
            .maintenance()
            .scan_uncommitted(&guard)
            .map_err(|error| Failure::from_consensus(error, &self.dir))?;
        let mut value = vec![0; self.arguments.size as usize];
        for (entry, slot) in entries.iter().zip(0..) {
            stamp_value(slot, &mut value);
            if entry.slot() != Slot(slot) || entry.value() != value {
                return Err(Failure::failed(format!(
                    "slot {slot} was read and differs from what was written"
                )));
            }
        }
        if entries.len() as u64 == count {
            return Ok(());
        }
        Err(Failure::failed(format!("read {} of {count} entries", entries.len())))
    }

    pub fn compare_committed(&self, log: &ConsensusLog, count: u64) -> Outcome {
        let seen = self.compare_all(log)?;
        if seen == count {
            return Ok(());
        }
        Err(Failure::failed(format!("read {seen} of {count} commits")))
    }

    /// Compares every committed value. Returns their number.
    pub fn compare_all(&self, log: &ConsensusLog) -> Outcome<u64> {
        compare(log, self.arguments.size as usize, &self.dir)
    }
}

/// Compares every committed value with the expected one. Returns their number.
pub fn compare(log: &ConsensusLog, size: usize, dir: &Path) -> Outcome<u64> {
    let mut value = vec![0; size];
    let (mut seen, mut wrong) = (0, None);
    log.iterate(Slot(0).., IterateOptions::default(), |entry| {
        stamp_value(entry.slot().0, &mut value);
        seen += 1;
        if entry.value() == value {
            return ControlFlow::Continue(());
        }
        wrong = Some(entry.slot());
        ControlFlow::Break(())
    })
    .map_err(|error| Failure::from_consensus(error, dir))?;
    match wrong {
        Some(slot) => {
            Err(Failure::failed(format!("slot {slot} was read and differs from what was written")))
        }
        None => Ok(seen),
    }
}

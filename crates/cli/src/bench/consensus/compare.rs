//! What a slot's value is, and whether it is that.

use std::ops::ControlFlow;
use std::path::Path;

use esker_consensus::ConsensusLog;

use super::timed::Bench;
use crate::exit::{Failure, Outcome};

/// Makes a value that of a slot: its number at both ends, so that making it takes nothing of what
/// is timed. The rest is as it was.
pub fn value_of(slot: u64, value: &mut [u8]) {
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
            .scan_uncommitted(&guard)
            .map_err(|error| Failure::of_consensus(&error, &self.dir))?;
        let mut value = vec![0; self.arguments.size as usize];
        for (entry, slot) in entries.iter().zip(0..) {
            value_of(slot, &mut value);
            if entry.slot() != slot || entry.value() != value {
                return Err(Failure::failed(format!("slot {slot} is not as it was written")));
            }
        }
        if entries.len() as u64 == count {
            return Ok(());
        }
        Err(Failure::failed(format!("{} of {count} entries are there", entries.len())))
    }

    pub fn compare_committed(&self, log: &ConsensusLog, count: u64) -> Outcome {
        let seen = self.compare_all(log)?;
        if seen == count {
            return Ok(());
        }
        Err(Failure::failed(format!("{seen} of {count} commits are there")))
    }

    /// Compares every committed value; how many there are.
    pub fn compare_all(&self, log: &ConsensusLog) -> Outcome<u64> {
        compare(log, self.arguments.size as usize, &self.dir)
    }
}

/// Compares every committed value with what it should be; how many there are.
pub fn compare(log: &ConsensusLog, size: usize, dir: &Path) -> Outcome<u64> {
    let mut value = vec![0; size];
    let (mut seen, mut wrong) = (0, None);
    log.replay_from(0, |entry| {
        value_of(entry.slot(), &mut value);
        seen += 1;
        if entry.value() == value {
            return ControlFlow::Continue(());
        }
        wrong = Some(entry.slot());
        ControlFlow::Break(())
    })
    .map_err(|error| Failure::of_consensus(&error, dir))?;
    match wrong {
        Some(slot) => Err(Failure::failed(format!("slot {slot} is not as it was written"))),
        None => Ok(seen),
    }
}

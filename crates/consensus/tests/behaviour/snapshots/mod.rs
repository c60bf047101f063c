//! Snapshots of a state machine: what may be created, what is found, what they let go of, and what
//! a crash or damage leaves of them.

#![allow(clippy::unwrap_used)]

mod finding;
mod keep_and_truncate;
mod power_cuts;
mod restoring;
mod transfer;

use std::io::Read;
use std::path::{Path, PathBuf};

use esker_consensus::{
    ConsensusLog, CreateSnapshotError, Error, RestoreSummary, Slot, SnapshotError,
};

use crate::fixture::{DIR, LOW, Setting, value};

/// A state machine that keeps the slot, the length and the sum of every value it applied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Machine(Vec<u8>);

impl Machine {
    /// As it is after these slots.
    fn after(slots: u64) -> Self {
        let mut machine = Self::default();
        for slot in 0..slots {
            machine.apply(slot, &value(slot));
        }
        machine
    }

    fn apply(&mut self, slot: u64, value: &[u8]) {
        let sum = value.iter().fold(7u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
        for number in [slot, value.len() as u64, sum] {
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// As a restart finds it.
    fn restore(log: &ConsensusLog) -> Result<(Self, RestoreSummary), SnapshotError> {
        let (mut bytes, mut entries) = (Vec::new(), Vec::new());
        let restored = log.snapshots().restore::<SnapshotError>(
            |snapshot| {
                snapshot.read_to_end(&mut bytes).map(drop).unwrap();
                Ok(())
            },
            |entry| {
                entries.push((entry.slot().0, entry.value().to_vec()));
                Ok(())
            },
        )?;
        let mut machine = Self(bytes);
        entries.iter().for_each(|(slot, value)| machine.apply(*slot, value));
        Ok((machine, restored))
    }
}

/// Commits the values of these slots.
fn commit(setting: &Setting, slots: std::ops::Range<u64>) {
    commit_on(&setting.log, slots).unwrap();
}

fn commit_on(log: &ConsensusLog, slots: std::ops::Range<u64>) -> Result<(), Error> {
    let learned: Result<Vec<_>, _> =
        slots.map(|slot| log.learn(Slot(slot), LOW, &value(slot))).collect();
    Ok(learned?.into_iter().try_for_each(esker_consensus::Ticket::blocking_wait)?)
}

/// A snapshot after slot `at`.
fn create(log: &ConsensusLog, at: u64) -> Result<(), CreateSnapshotError> {
    log.snapshots().create(Slot(at), &*Machine::after(at + 1).0).map(drop)
}

fn slots_of(log: &ConsensusLog) -> Vec<u64> {
    log.snapshots().list().unwrap().iter().map(|slot| slot.0).collect()
}

fn file(at: u64) -> PathBuf {
    Path::new(DIR).join(format!("snapshot-{at:020}"))
}

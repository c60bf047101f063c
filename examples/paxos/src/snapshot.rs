//! The snapshot that truncation and `install` depend on: the values of the first slots, in order,
//! as a state machine would have applied them. It is verified against what was chosen before it is
//! used.

use std::collections::BTreeMap;

use esker::consensus::Slot;

use crate::message::AcceptedEntry;

/// The values of the slots from 0 on.
#[derive(Debug, Default)]
pub struct Snapshot {
    values: Vec<Vec<u8>>,
}

impl Snapshot {
    /// The first slot that it lacks.
    pub fn next(&self) -> Slot {
        Slot(self.values.len() as u64)
    }

    /// Applies what is committed in a log, as far as it follows without a gap.
    ///
    /// # Errors
    /// The text names an entry that was committed there and not chosen, which is not applied.
    pub fn apply(
        &mut self,
        committed: Vec<AcceptedEntry>,
        chosen: &BTreeMap<Slot, Vec<u8>>,
    ) -> Result<(), String> {
        for entry in committed {
            if entry.slot != self.next() {
                break;
            }
            if chosen.get(&entry.slot) != Some(&entry.value) {
                return Err(format!("slot {} is committed and was not chosen", entry.slot));
            }
            self.values.push(entry.value);
        }
        Ok(())
    }
}

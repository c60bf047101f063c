//! Backups that were made, and the moments that they may have.

use std::collections::BTreeMap;

use esker_consensus::{Ballot, Mode};

use super::stored::SnapshotModel;
use crate::consensus::slot_model::Model;

/// A backup, and the moments that it may have.
pub(super) struct BackupCopy {
    pub(super) dir: String,
    /// All logs before it began.
    pub(super) base: BTreeMap<Vec<u8>, (Model, SnapshotModel)>,
    /// Accepts while it ran, in order. After each of them is another moment.
    pub(super) accepted: Vec<Accept>,
    pub(super) acknowledged: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Accept {
    pub(super) key: Vec<u8>,
    pub(super) slot: u64,
    pub(super) ballot: Ballot,
    pub(super) value: Vec<u8>,
}

impl BackupCopy {
    /// All logs before the backup, and after each accept while it ran.
    pub(super) fn moments(&self, mode: Mode) -> Vec<BTreeMap<Vec<u8>, Model>> {
        let base = self.base.iter().map(|(key, (model, _))| (key.clone(), model.clone()));
        let mut moments: Vec<BTreeMap<_, _>> = vec![base.collect()];
        for Accept { key, slot, ballot, value } in &self.accepted {
            let mut next = moments[moments.len() - 1].clone();
            if let Some(model) = next.get_mut(key) {
                model.accepted(*slot, *ballot, value.clone(), mode);
            }
            moments.push(next);
        }
        moments
    }
}

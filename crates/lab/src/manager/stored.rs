//! The snapshots that a log must have, and may have.

use std::collections::BTreeMap;
use std::fmt::Debug;

use esker_consensus::{ConsensusLog, Slot, SnapshotError};
use esker_testkit::SplitMix64;

use crate::plan::{LifeResult, ensure};

/// The content of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Content {
    /// All bytes follow from it.
    pub(super) tag: u64,
    pub(super) len: usize,
    /// Whether a bit of its file was flipped.
    pub(super) corrupt: bool,
}

impl Content {
    pub(super) fn bytes(self) -> Vec<u8> {
        let mut rng = SplitMix64::new(self.tag);
        let mut bytes = Vec::with_capacity(self.len + 8);
        while bytes.len() < self.len {
            bytes.extend_from_slice(&rng.next().to_le_bytes());
        }
        bytes.truncate(self.len);
        bytes
    }

    /// The note that goes with it.
    pub(super) fn note(self) -> [u8; 8] {
        self.tag.to_le_bytes()
    }
}

/// The snapshot of a slot.
#[derive(Debug, Clone)]
struct Snapshot {
    /// The contents that it may have: the last is the newest.
    contents: Vec<Content>,
    /// Whether it has to be there.
    must: bool,
}

/// The snapshots of a log by slot.
#[derive(Debug, Clone, Default)]
pub(super) struct SnapshotModel(BTreeMap<u64, Snapshot>);

impl SnapshotModel {
    /// A snapshot may be there from now on, in place of the one of its slot.
    pub(super) fn publishing(&mut self, at: u64, content: Content) {
        let snapshot = self.0.entry(at).or_insert(Snapshot { contents: Vec::new(), must: false });
        snapshot.contents.push(content);
    }

    /// The last one that was begun is there.
    pub(super) fn published(&mut self, at: u64) {
        if let Some(snapshot) = self.0.get_mut(&at) {
            snapshot.contents.drain(..snapshot.contents.len() - 1);
            snapshot.must = true;
        }
    }

    /// Marks these as snapshots of which one may be removed from now on.
    pub(super) fn removing(&mut self, slots: &[u64]) {
        for at in slots {
            if let Some(snapshot) = self.0.get_mut(at) {
                snapshot.must = false;
            }
        }
    }

    pub(super) fn removed(&mut self, slots: &[u64]) {
        self.0.retain(|at, _| !slots.contains(at));
    }

    /// The whole ones, from the newest on. Exact between two calls.
    pub(super) fn whole(&self) -> impl Iterator<Item = (u64, Content)> {
        let all = self.0.iter().rev();
        let all = all.filter_map(|(at, snapshot)| Some((*at, *snapshot.contents.last()?)));
        all.filter(|(_, content)| !content.corrupt)
    }

    /// The newest whole one at a slot of these.
    pub(super) fn newest(&self, wanted: impl Fn(u64) -> bool) -> Option<(u64, Content)> {
        self.whole().find(|(at, _)| wanted(*at))
    }

    /// The slots that are removed to keep this many whole ones.
    pub(super) fn superfluous(&self, count: usize) -> Vec<u64> {
        let Some((oldest_kept, _)) = self.whole().nth(count - 1) else { return Vec::new() };
        self.0.range(..oldest_kept).map(|(at, _)| *at).collect()
    }

    pub(super) fn corrupted(&mut self, at: u64) {
        if let Some(content) = self.0.get_mut(&at).and_then(|found| found.contents.last_mut()) {
            content.corrupt = true;
        }
    }

    /// The snapshots without those that are not whole, as a backup has them.
    pub(super) fn without_corrupt(&self) -> Self {
        let whole: BTreeMap<_, _> = self.whole().collect();
        let all = self.0.iter().filter(|(at, _)| whole.contains_key(at));
        Self(all.map(|(at, snapshot)| (*at, snapshot.clone())).collect())
    }

    /// Reads all snapshots of a log, holds them against what must be there, and learns what is.
    pub(super) fn look(&mut self, log: &ConsensusLog, is_on: impl Fn() -> bool) -> LifeResult {
        let stop = |error: &dyn Debug, what: String| match is_on() {
            true => crate::plan::Stop::Broken(format!("{what}: {error:?}")),
            false => crate::plan::Stop::Ended,
        };
        let snapshots = log.snapshots();
        let listed: Vec<u64> = match snapshots.list() {
            Ok(listed) => listed.iter().map(|slot| slot.0).collect(),
            Err(error) => return Err(stop(&error, "listing snapshots".into())),
        };
        let lost = self.0.iter().find(|(at, found)| found.must && !listed.contains(at));
        ensure!(lost.is_none(), "the snapshot of a slot is lost: {lost:?}");
        let unknown = listed.iter().find(|at| !self.0.contains_key(at));
        ensure!(unknown.is_none(), "slot {unknown:?} has a snapshot that was never made");
        self.0.retain(|at, _| listed.contains(at));
        for (at, known) in &mut self.0 {
            let mut snapshot = match snapshots.verify(Slot(*at)) {
                Ok(snapshot) => snapshot,
                Err(error @ SnapshotError::CorruptedSnapshot { .. }) => {
                    let Some(corrupt) = known.contents.iter().find(|content| content.corrupt)
                    else {
                        return Err(stop(
                            &error,
                            format!("the snapshot of slot {at} is not whole"),
                        ));
                    };
                    (known.contents, known.must) = (vec![*corrupt], true);
                    continue;
                }
                Err(error) => return Err(stop(&error, format!("the snapshot of slot {at}"))),
            };
            let note = snapshot.info().note.clone();
            let whole = known.contents.iter().find(|content| content.note() == *note);
            let whole = whole.copied().filter(|content| !content.corrupt);
            let Some(content) = whole else {
                crate::plan::broken!("the snapshot of slot {at} has note {note:?}: {known:?}")
            };
            let mut found = Vec::new();
            if std::io::Read::read_to_end(&mut snapshot, &mut found).is_err() && !is_on() {
                return Err(crate::plan::Stop::Ended);
            }
            ensure!(found == content.bytes(), "the snapshot of slot {at} has other bytes");
            (known.contents, known.must) = (vec![content], true);
        }
        Ok(())
    }
}

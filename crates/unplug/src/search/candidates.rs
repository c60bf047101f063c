//! The states to check: the classes of all cuts, then losses from the seed.

use std::collections::{BTreeSet, HashSet};

use crate::model::directory::DirectoryState;
use crate::model::disk::Disk;
use crate::model::ext4::allowed;
use crate::model::loss::Loss;
use crate::record::recording::{Event, FileSystemModel, Recording};
use crate::rng::Rng;
use crate::search::classes::{self, Class};
use crate::search::random::{self, SectorWrites};

/// A directory that a power cut may leave: after the event `cut`, without `loss`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The number of events before the cut.
    pub cut: usize,
    pub loss: Loss,
}

/// The search for states that were not checked before.
#[derive(Debug, Default)]
pub struct Candidates {
    /// Fingerprints of the states that were found, with the size of their output.
    known: HashSet<(u64, usize)>,
}

/// The cuts of a recording: after each request and each output from the end of the setup on.
pub fn cuts(recording: &Recording) -> impl Iterator<Item = usize> + '_ {
    let setup = recording.events.iter().position(|event| *event == Event::SetupEnd);
    let start = setup.map_or(0, |index| index + 1);
    let is_cut =
        move |index: &usize| *index == start || is_cut_after(&recording.events[*index - 1]);
    (start..=recording.events.len()).filter(is_cut)
}

/// The cuts that a test asked for.
pub fn marked_cuts(recording: &Recording) -> BTreeSet<usize> {
    let mut last = None;
    let mut marked = BTreeSet::new();
    let mut cuts = cuts(recording).peekable();
    for (index, event) in recording.events.iter().enumerate() {
        while let Some(cut) = cuts.next_if(|cut| *cut <= index) {
            last = Some(cut);
        }
        if matches!(event, Event::Mark(_)) {
            marked.extend(last);
        }
    }
    marked
}

fn is_cut_after(event: &Event) -> bool {
    matches!(event, Event::Request(_) | Event::Output(_))
}

/// Calls `visit` with the disk at each cut, in order, until it returns `false`.
pub fn visit_cuts(recording: &Recording, mut visit: impl FnMut(usize, &Disk) -> bool) {
    let mut disk = Disk::new(recording.model);
    let mut applied = 0;
    for cut in cuts(recording) {
        recording.events[applied..cut].iter().for_each(|event| disk.apply(event));
        applied = cut;
        if !visit(cut, &disk) {
            return;
        }
    }
}

/// The disk at a cut.
pub fn disk_at(recording: &Recording, cut: usize) -> Disk {
    let mut disk = Disk::new(recording.model);
    recording.events[..cut].iter().for_each(|event| disk.apply(event));
    disk
}

/// Whether a state is one that a file system with the promises of ext4 may leave, too.
pub fn is_allowed_by_ext4(recording: &Recording, state: &Candidate) -> bool {
    let mut ext4 = Disk::new(FileSystemModel::Ext4);
    recording.events[..state.cut].iter().for_each(|event| ext4.apply(event));
    let nearest = allowed(&ext4, state.loss.clone());
    let built = DirectoryState::new(&disk_at(recording, state.cut), &state.loss);
    DirectoryState::new(&ext4, &nearest).fingerprint() == built.fingerprint()
}

impl Candidates {
    /// At most `limit` states of the classes, class by class, and whether these are all.
    pub fn find_in_classes(
        &mut self,
        recording: &Recording,
        limit: usize,
    ) -> (Vec<Candidate>, bool) {
        let mut found: Vec<(Class, Candidate)> = Vec::new();
        let marked = marked_cuts(recording);
        let mut find = |is_marked| {
            visit_cuts(recording, |cut, disk| {
                if marked.contains(&cut) == is_marked {
                    for (class, loss) in classes::losses(disk, &disk.undecided()) {
                        let loss = allowed(disk, loss);
                        if self.is_new(disk, &loss) {
                            found.push((class, Candidate { cut, loss }));
                        }
                    }
                }
                true
            });
        };
        // Of equal states that at a marked cut is the first.
        if !marked.is_empty() {
            find(true);
        }
        find(false);
        let complete = found.len() <= limit;
        // Stable: within a class in the order of the cuts.
        found.sort_by_key(|(class, state)| (!marked.contains(&state.cut), *class));
        found.truncate(limit);
        (found.into_iter().map(|(_, candidate)| candidate).collect(), complete)
    }

    /// At most `number` states from the seed, at cuts from the seed.
    pub fn draw(
        &mut self,
        recording: &Recording,
        rng: &mut Rng,
        number: usize,
        writes: SectorWrites,
    ) -> Vec<Candidate> {
        let cuts: Vec<usize> = cuts(recording).collect();
        let mut draw = || cuts[rng.below(cuts.len() as u64) as usize];
        let mut drawn: Vec<usize> = (0..number).map(|_| draw()).collect();
        drawn.sort_unstable();
        let mut states = Vec::new();
        let mut drawn = drawn.into_iter().peekable();
        visit_cuts(recording, |cut, disk| {
            let undecided = disk.undecided();
            while drawn.next_if(|drawn| *drawn == cut).is_some() {
                let loss = allowed(disk, random::loss(rng, &undecided, writes));
                if self.is_new(disk, &loss) {
                    states.push(Candidate { cut, loss });
                }
            }
            drawn.peek().is_some()
        });
        states
    }

    fn is_new(&mut self, disk: &Disk, loss: &Loss) -> bool {
        let state = DirectoryState::new(disk, loss);
        self.known.insert((state.fingerprint(), disk.output.len()))
    }
}

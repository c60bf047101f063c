//! The model against Esker's simulated disk, a model of the same promises that was written for
//! other tests: equal states after the same calls, those of a small log.
//!
//! Where the two differ, and what is compared there:
//!
//! - The simulated disk also tears a sector into garbage. None is torn here.
//! - Its sectors may have 4096 bytes. Then its states are some of the model's.
//! - A write with O_DSYNC leaves a size undecided that its bytes do not need. The disk has none
//!   here.
//! - A truncation that survives keeps what was written before it to the page in which it ends, and
//!   a later size needs it. Where one is undecided its states are some of the model's.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use esker_disk::sim::{Persist, Sector, SimDisk, SimOptions};
use esker_disk::{Disk as _, OpenMode};

use super::membership::{self, Tree, allows};
use super::traced_log::Trace;
use super::{losses, no_torn};
use crate::model::directory::DirectoryState;
use crate::model::disk::Disk;
use crate::model::loss::{Loss, LostParts};
use crate::model::sector::{Cause, SECTOR_BYTES};
use crate::record::operation::{Ino, Operation, Request, SyncCall};
use crate::record::recording::Event;
use crate::search::candidates;

/// Power cuts after each call that are not exhaustive.
const RANDOM_CUT_COUNT: u64 = 4;
const UNDECIDED_SECTORS_MAX: usize = 8;
/// Undecided sizes and names beside these sectors.
const UNDECIDED_OTHERS_MAX: usize = 3;
/// The most calls with as many undecided sectors and others after which all states are compared.
const EQUAL_CUTS_MAX: usize = 20;
/// The most power cuts until all states were seen.
const EXHAUSTIVE_SAMPLES_MAX: u64 = 60_000;

fn options(sector: Sector, direct: bool) -> SimOptions {
    SimOptions::new(1).sector(sector).torn_percent(0).direct(direct).dsync(false)
}

/// The directory that a power cut leaves on the simulated disk.
fn cut(disk: &SimDisk, seed: u64, persist: Persist) -> Tree {
    let disk = disk.fork(seed);
    disk.power_cut(persist);
    let mut tree = Tree::new();
    let mut directories = vec![String::new()];
    while let Some(above) = directories.pop() {
        for name in disk.files(Path::new(&format!("/{above}"))).unwrap() {
            let path = format!("{above}/{name}");
            let bytes = disk.contents(Path::new(&path)).ok();
            if bytes.is_none() {
                directories.push(path.clone());
            }
            tree.insert(path, bytes);
        }
    }
    tree
}

fn last_call(trace: &Trace, events: usize) -> String {
    match &trace.recording.events[events - 1] {
        Event::Request(request) => request.to_string(),
        event => format!("{event:?}"),
    }
}

/// The directory of a state of the model.
fn built(trace: &Trace, disk: &Disk, loss: &Loss) -> Tree {
    let state = DirectoryState::new(disk, loss);
    let paths = membership::paths(state.names(), &|ino| trace.directories.contains(&ino));
    paths.into_iter().map(|(path, file)| (path, file.map(|file| state.content(file)))).collect()
}

/// The size of a file, and the bytes of some sectors; `None` is a directory.
type FileParts = Option<(usize, Vec<u8>)>;

/// The size of each file, and the bytes of these sectors.
fn parts(tree: &Tree, sectors: &BTreeSet<u64>) -> Vec<(String, FileParts)> {
    let parts = tree.iter().map(|(path, bytes)| {
        let parts = bytes.as_ref().map(|bytes| {
            let part = |number: &u64| {
                let start = bytes.len().min((number * SECTOR_BYTES) as usize);
                &bytes[start..bytes.len().min(start + SECTOR_BYTES as usize)]
            };
            (bytes.len(), sectors.iter().flat_map(part).copied().collect())
        });
        (path.clone(), parts)
    });
    parts.collect()
}

/// Syncs all files but the one that was written last, on a copy of the simulated disk and in the
/// model: some files of a log are never synced.
fn sync_others(trace: &Trace, events: usize, simulated: &SimDisk) -> (SimDisk, Disk) {
    let (simulated, mut disk) = (simulated.fork(0), candidates::disk_at(&trace.recording, events));
    let written = trace.recording.events[..events].iter().rev().find_map(|event| match event {
        Event::Request(Request { operation: Operation::Write { file, .. }, .. }) => Some(*file),
        _ => None,
    });
    let is_directory = |ino: Ino| trace.directories.contains(&ino);
    for (path, file) in membership::paths(&disk.names.live(), &is_directory) {
        let Some(inode) = file.filter(|_| file != written) else { continue };
        let (dir, name) = path.rsplit_once('/').unwrap();
        let dir = simulated.open_dir(Path::new(&format!("/{dir}"))).unwrap();
        dir.open(name, OpenMode::write()).unwrap().sync_data().unwrap();
        let (number, call) = (u64::MAX, SyncCall::Fdatasync);
        let operation = Operation::Sync { inode, call };
        disk.apply(&Event::Request(Request { number, path, operation }));
    }
    (simulated, disk)
}

#[test]
fn states_of_the_simulated_disk_are_allowed() {
    for (sector, direct) in [(Sector::B512, true), (Sector::B512, false), (Sector::B4096, true)] {
        let trace = Trace::of_a_log(options(sector, direct));
        assert!(trace.disks.len() > 100, "{}", trace.disks.len());
        let is_directory = |ino: Ino| trace.directories.contains(&ino);
        let mut partial = 0;
        for (events, simulated) in &trace.disks {
            let context = format!("{sector:?}: after {}", last_call(&trace, *events));
            let disk = candidates::disk_at(&trace.recording, *events);
            let lost = disk.undecided().iter().map(|it| (it.request, LostParts::all())).collect();
            let nothing = cut(simulated, 0, Persist::Nothing);
            assert!(nothing == built(&trace, &disk, &Loss { requests: lost }), "{context}");
            let everything = cut(simulated, 0, Persist::Everything);
            assert!(everything == built(&trace, &disk, &Loss::default()), "{context}");
            for seed in 0..RANDOM_CUT_COUNT {
                let tree = cut(simulated, seed, Persist::Random);
                assert!(allows(&disk, &is_directory, &tree), "{context}, seed {seed}");
                partial += usize::from(tree != nothing && tree != everything);
            }
        }
        assert!(partial > 20, "{partial}");
    }
}

#[test]
fn simulated_disk_and_model_have_equal_states() {
    for direct in [true, false] {
        let trace = Trace::of_a_log(options(Sector::B512, direct));
        let (mut compared, mut largest) = (BTreeMap::new(), 0);
        for (events, simulated) in &trace.disks {
            let (simulated, disk) = sync_others(&trace, *events, simulated);
            let undecided = disk.undecided();
            let number = undecided.iter().map(|it| it.sectors.len()).sum::<usize>();
            let others = undecided.iter().map(|it| usize::from(it.size) + usize::from(it.names));
            let others = others.sum::<usize>();
            let is_small =
                (1..=UNDECIDED_SECTORS_MAX).contains(&number) && others <= UNDECIDED_OTHERS_MAX;
            let mut versions = disk.files.values().flat_map(|file| file.undecided.values());
            let is_shortened = versions.any(|it| it.iter().any(|it| it.cause == Cause::Size));
            let equal_cuts = compared.entry((number, others)).or_insert(0);
            if !is_small || is_shortened || *equal_cuts == EQUAL_CUTS_MAX {
                continue;
            }
            *equal_cuts += 1;
            let sectors = undecided.iter().flat_map(|it| &it.sectors).copied().collect();
            let losses = losses(&undecided, &no_torn);
            let states = losses.iter().map(|loss| parts(&built(&trace, &disk, loss), &sectors));
            let states: BTreeSet<_> = states.collect();
            let mut seen = BTreeSet::new();
            for seed in 0..EXHAUSTIVE_SAMPLES_MAX {
                if seen.len() == states.len() {
                    break;
                }
                seen.insert(parts(&cut(&simulated, seed, Persist::Random), &sectors));
            }
            let last = last_call(&trace, *events);
            let (all, seen_of) = (states.len(), seen.intersection(&states).count());
            assert!(seen == states, "after {last}: {seen_of} of {all}, {} seen", seen.len());
            largest = largest.max(all);
        }
        let cuts = compared.values().sum::<usize>();
        assert!(cuts >= 8 && largest >= 64, "{compared:?}, {largest} states at most");
    }
}

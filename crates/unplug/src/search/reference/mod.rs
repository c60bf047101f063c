//! The model against a second, naive one: equal sets of states at every cut of random programs. And
//! against Esker's simulated disk.

mod membership;
mod naive_model;
mod random_program;
mod simulated_disk;
mod traced_log;

use std::collections::{BTreeMap, BTreeSet};

use self::membership::Tree;
use self::naive_model::{DIRECTORIES, Effect, Image, Reference, add_paths, product};
use self::random_program::{RandomProgram, UNDECIDED_MAX};
use super::candidates::{self, Candidates};
use crate::model::directory::DirectoryState;
use crate::model::disk::{Disk, UndecidedRequest};
use crate::model::ext4::allowed;
use crate::model::loss::{Loss, LostParts, LostSectors, TornSector};
use crate::record::operation::{Ino, RequestNumber};
use crate::record::payload::PayloadStore;
use crate::record::recording::{FileSystemModel, Recording};
use crate::rng::Rng;
use crate::search::random::SectorWrites;

/// The image of a state of the model.
fn image_of(disk: &Disk, loss: &Loss) -> Image {
    let state = DirectoryState::new(disk, loss);
    let mut image = Image::new();
    let names = state.names().iter().flat_map(|(dir, names)| {
        let named = |name: &std::ffi::OsString| name.to_string_lossy().into_owned();
        names.iter().map(move |(name, it)| ((*dir, named(name)), it.ino))
    });
    add_paths(&names.collect(), Ino::ROOT, "", &mut image, &|file| state.content(file));
    image
}

/// Every loss that can be expressed.
fn losses(
    undecided: &[UndecidedRequest],
    torn: &dyn Fn(RequestNumber) -> Vec<TornSector>,
) -> Vec<Loss> {
    let flags = |may: bool| if may { vec![false, true] } else { vec![false] };
    let options: Vec<Vec<(RequestNumber, LostParts)>> = undecided
        .iter()
        .map(|request| {
            let mut options = Vec::new();
            for subset in 0..1_u32 << request.sectors.len() {
                let lost = (0..request.sectors.len()).filter(|bit| subset >> bit & 1 == 1);
                let lost: BTreeSet<u64> = lost.map(|bit| request.sectors[bit]).collect();
                let sectors =
                    if lost.is_empty() { LostSectors::None } else { LostSectors::Some(lost) };
                for (size, names) in flags(request.size).into_iter().flat_map(|size| {
                    flags(request.names).into_iter().map(move |names| (size, names))
                }) {
                    for torn in torn(request.request).into_iter().map(Some).chain([None]) {
                        let sectors = sectors.clone();
                        let parts = LostParts { sectors, size, names, torn };
                        options.push((request.request, parts));
                    }
                }
            }
            options
        })
        .collect();
    product(&options)
        .into_iter()
        .map(|lost| Loss { requests: lost.into_iter().collect() })
        .collect()
}

fn no_torn(_: RequestNumber) -> Vec<TornSector> {
    Vec::new()
}

#[test]
fn model_and_reference_have_equal_states() {
    let mut cuts = [0; UNDECIDED_MAX + 1];
    for seed in 0..250 {
        let recording = RandomProgram::recording(seed, 16);
        for cut in candidates::cuts(&recording) {
            let reference = Reference::new(&recording.events[..cut]);
            cuts[reference.undecided().len()] += 1;
            let disk = candidates::disk_at(&recording, cut);
            let losses = losses(&disk.undecided(), &no_torn);
            let states: BTreeSet<Image> = losses.iter().map(|loss| image_of(&disk, loss)).collect();
            let expected = reference.images(&no_torn);
            let surplus: Vec<_> = states.difference(&expected).take(1).collect();
            let missing: Vec<_> = expected.difference(&states).take(1).collect();
            let events = &recording.events[..cut];
            assert!(
                surplus.is_empty() && missing.is_empty(),
                "seed {seed}: surplus {surplus:?}, missing {missing:?} after {events:#?}"
            );
        }
    }
    assert!(cuts.iter().all(|number| *number > 20), "{cuts:?}");
}

#[test]
fn model_and_reference_have_equal_torn_sectors() {
    let mut torn_states = 0;
    for seed in 0..150 {
        let recording = RandomProgram::recording(seed, 9);
        for cut in candidates::cuts(&recording) {
            let reference = Reference::new(&recording.events[..cut]);
            if reference.undecided().len() > 4 {
                continue;
            }
            let torn = |request: RequestNumber| {
                let sectors = reference.effects.iter().filter_map(|it| match it.effect {
                    Effect::Data { sector, .. } if it.request == request && !it.durable => {
                        Some(sector as u64)
                    }
                    _ => None,
                });
                let position = 300;
                let torn = |sector| {
                    [true, false].map(|new_first| TornSector { sector, position, new_first })
                };
                sectors.flat_map(torn).collect()
            };
            let disk = candidates::disk_at(&recording, cut);
            let losses = losses(&disk.undecided(), &torn);
            torn_states +=
                losses.iter().filter(|it| it.requests.values().any(|it| it.torn.is_some())).count();
            let states: BTreeSet<Image> = losses.iter().map(|loss| image_of(&disk, loss)).collect();
            let events = &recording.events[..cut];
            assert!(states == reference.images(&torn), "seed {seed}: {events:#?}");
        }
    }
    assert!(torn_states > 1_000, "{torn_states}");
}

/// The membership test on the states of all cuts of a program: it has those of its own cut alone.
#[test]
fn membership_is_that_of_the_states() {
    let (mut members, mut others) = (0, 0);
    for seed in 0..30 {
        let recording = RandomProgram::recording(seed, 12);
        let trees = |cut: usize| -> BTreeSet<Tree> {
            let images = Reference::new(&recording.events[..cut]).images(&no_torn);
            let tree = |image: Image| -> Tree {
                image.into_iter().map(|(path, file)| (path, file.map(|(_, bytes)| bytes))).collect()
            };
            images.into_iter().map(tree).collect()
        };
        let cuts: Vec<usize> = candidates::cuts(&recording).collect();
        let all: BTreeSet<Tree> = cuts.iter().flat_map(|cut| trees(*cut)).collect();
        for cut in cuts {
            let (disk, own) = (candidates::disk_at(&recording, cut), trees(cut));
            for tree in all.iter().step_by(1 + all.len() / 80) {
                let is_member = membership::allows(&disk, &|ino| DIRECTORIES.contains(&ino), tree);
                assert_eq!(is_member, own.contains(tree), "seed {seed}, cut {cut}: {tree:?}");
                *(if is_member { &mut members } else { &mut others }) += 1;
            }
        }
    }
    assert!(members > 500 && others > 500, "{members}, {others}");
}

#[test]
fn states_of_the_search_are_allowed() {
    let mut states = 0;
    for seed in 0..150 {
        let recording = RandomProgram::recording(seed, 14);
        let mut candidates = Candidates::default();
        let (mut found, complete) = candidates.find_in_classes(&recording, 10_000);
        assert!(complete, "seed {seed}");
        found.extend(candidates.draw(&recording, &mut Rng::new(seed), 40, SectorWrites::Torn));
        let mut allowed = BTreeMap::new();
        for candidate in found {
            states += 1;
            let reference = Reference::new(&recording.events[..candidate.cut]);
            let disk = candidates::disk_at(&recording, candidate.cut);
            let image = image_of(&disk, &candidate.loss);
            let torn = |request| {
                let parts = candidate.loss.lost_parts(request);
                parts.and_then(|parts| parts.torn).into_iter().collect()
            };
            let is_torn = candidate.loss.requests.values().any(|parts| parts.torn.is_some());
            let is_allowed = if is_torn {
                reference.images(&torn).contains(&image)
            } else {
                let images = || reference.images(&no_torn);
                allowed.entry(candidate.cut).or_insert_with(images).contains(&image)
            };
            assert!(
                is_allowed,
                "seed {seed}, {candidate}: {image:?} after {:#?}",
                recording.events
            );
        }
    }
    assert!(states > 3_000, "{states}");
}

#[test]
fn states_of_a_spilled_recording_are_the_same() {
    let mut spilled_bytes = 0;
    for seed in 0..60 {
        let recording = RandomProgram::recording(seed, 16);
        let mut spilled = Recording::with_payloads(PayloadStore::new(500));
        for event in &recording.events {
            spilled.add_loaded(event.clone()).unwrap();
        }
        spilled_bytes += spilled.payloads().spilled();
        let search = |recording: &Recording| {
            let mut candidates = Candidates::default();
            let (mut found, _) = candidates.find_in_classes(recording, 10_000);
            found.extend(candidates.draw(recording, &mut Rng::new(seed), 40, SectorWrites::Torn));
            found
        };
        let found = search(&recording);
        assert!(search(&spilled) == found, "seed {seed}");
        for state in found {
            let image = |recording: &Recording| {
                image_of(&candidates::disk_at(recording, state.cut), &state.loss)
            };
            assert!(image(&spilled) == image(&recording), "seed {seed}, {state}");
        }
        assert_eq!(spilled.unreadable(), None);
    }
    assert!(spilled_bytes > 20_000, "{spilled_bytes}");
}

#[test]
fn states_of_ext4_are_those_of_posix_too() {
    let mut fewer = 0;
    for seed in 0..100 {
        let mut recording = RandomProgram::recording(seed, 14);
        recording.model = FileSystemModel::Ext4;
        for cut in candidates::cuts(&recording) {
            let disk = candidates::disk_at(&recording, cut);
            let posix = Reference::new(&recording.events[..cut]).images(&no_torn);
            let mut states = BTreeSet::new();
            for loss in losses(&disk.undecided(), &no_torn) {
                let loss = allowed(&disk, loss);
                assert_eq!(allowed(&disk, loss.clone()), loss, "seed {seed}, cut {cut}");
                states.insert(image_of(&disk, &loss));
            }
            let surplus = states.difference(&posix).next();
            assert_eq!(surplus, None, "seed {seed}: {:#?}", &recording.events[..cut]);
            fewer += usize::from(states.len() < posix.len());
        }
    }
    assert!(fewer > 100, "{fewer}");
}

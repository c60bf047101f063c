//! Power cuts while keys are added and removed, the registry is compacted, and logs make room.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use esker_consensus::{COMPONENT, Error, LogManager, Slot, logs_on};
use esker_disk::Disk;
use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_log::ReadOptions;

use crate::fixture::LOW;
use crate::manager::{DIR, Managed, accept, key, open, try_open, value_of};

const KEYS: u64 = 6;

/// The acknowledged operations of the program.
#[derive(Debug, Clone, Default)]
struct Model {
    /// The slots accepted in the log of each key.
    keys: BTreeMap<Vec<u8>, u64>,
    /// A call that did not return: the key may be there or not.
    uncertain: BTreeSet<Vec<u8>>,
}

fn program(manager: &LogManager, model: &mut Model) -> Result<(), Error> {
    for round in 0..3 {
        for number in 0..KEYS {
            let key = key(number);
            model.uncertain.insert(key.clone());
            let log = manager.get(&key)?;
            let next = *model.keys.entry(key.clone()).or_insert(0);
            model.uncertain.remove(&key);
            accept(&log, next)?;
            model.keys.insert(key, next + 1);
        }
        let removed = key(round);
        model.uncertain.insert(removed.clone());
        manager.remove(&removed)?;
        model.keys.remove(&removed);
        model.uncertain.remove(&removed);
        if round == 1 {
            manager.compact_registry()?;
        }
    }
    Ok(())
}

/// The directories that hold a log of no key. A log that was only just created has no label yet, so
/// that the directories are compared.
fn logs_of_no_key(disk: &SimDisk) -> Vec<String> {
    let base = disk.open_dir(DIR.as_ref()).unwrap();
    let kept = logs_on(Arc::new(disk.clone()), DIR).unwrap().unwrap_or_default();
    let mut names = base.list().unwrap();
    names.retain(|name| {
        let options = ReadOptions::on(Arc::new(disk.clone()));
        let metadata =
            esker_log::component::app_metadata(Path::new(DIR).join(name), COMPONENT, options);
        name != "registry"
            && metadata.unwrap().is_some()
            && !kept.iter().any(|log| log.dir.ends_with(name))
    });
    names
}

/// Checks what a crash left against what was acknowledged, and returns it.
fn check(managed: &Managed, model: &Model, cut: u64) -> Model {
    let manager = &managed.manager;
    let found: BTreeSet<_> = manager.keys().unwrap().into_iter().collect();
    let unlisted = logs_of_no_key(&managed.disk);
    assert!(unlisted.is_empty(), "cut {cut}: logs of no key: {unlisted:?}");
    for key in model.keys.keys().filter(|key| !model.uncertain.contains(*key)) {
        assert!(found.contains(key), "cut {cut}: {} is lost", key.escape_ascii());
    }
    let mut now = Model::default();
    for key in found {
        let known = model.keys.get(&key).copied();
        assert!(known.is_some() || model.uncertain.contains(&key), "cut {cut}: {key:?} came back");
        let log = manager.get(&key).unwrap();
        let uncommitted = log.maintenance().scan_uncommitted(&log.pin()).unwrap().len() as u64;
        for slot in 0..uncommitted {
            let guard = log.pin();
            let entry = log.read(Slot(slot), &guard).unwrap();
            assert_eq!((entry.value(), entry.ballot()), (&*value_of(&key, slot), LOW));
        }
        let at_least = if model.uncertain.contains(&key) { 0 } else { known.unwrap_or(0) };
        let at_most = known.unwrap_or(0) + 1;
        assert!((at_least..=at_most).contains(&uncommitted), "cut {cut}: {uncommitted} slots");
        now.keys.insert(key, uncommitted);
    }
    now
}

#[test]
fn a_cut_at_any_call_loses_no_key_and_no_vote() {
    let all = [Persist::Random, Persist::Nothing, Persist::Torn, Persist::Everything];
    let base = SimDisk::new(1);
    let mut calls = 0;
    // Every third call: a run is long.
    for cut in (0..).step_by(3) {
        let disk = base.fork(cut);
        let mut model = Model::default();
        let how = |shift: u64| all[((cut >> shift) % 4) as usize];
        disk.cut_power_at(CutPoint::During(disk.operations() + cut), how(0));
        let managed = try_open(&disk, 2).map_err(Error::from);
        let outcome = managed.and_then(|managed| program(&managed.manager, &mut model));
        if outcome.is_ok() && disk.is_on() {
            calls = cut;
            break;
        }
        disk.cancel_cut();
        disk.power_on();
        // A second cut, in the opening that recovers or shortly after it.
        disk.cut_power_at(CutPoint::During(disk.operations() + cut % 41), how(2));
        drop(try_open(&disk, 2));
        disk.cancel_cut();
        if !disk.is_on() {
            disk.power_on();
        }
        let managed = open(&disk, 2);
        let mut now = check(&managed, &model, cut);
        program(&managed.manager, &mut now).unwrap();
        managed.manager.close_all().unwrap();
        drop(managed);
        check(&open(&disk, 2), &now, cut);
    }
    assert!(calls > 300, "{calls}");
}

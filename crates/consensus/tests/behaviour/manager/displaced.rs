//! Directories in the place of others, an old registry, and guards that outlive their manager.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use esker_consensus::{
    BackupError, Error, LogState, ManagerError, OpenError, Slot, StorageError, logs_on,
};
use esker_disk::sim::{CutPoint, Effect, Fault, Persist, SimDisk};
use esker_disk::{Disk, Op};
use esker_testkit::{Call, HookedDisk};

use crate::manager::{
    DIR, accept, commit, committed, dir_of_abc, manager, open, try_open, value_of,
};

const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a3";
const DEF: &str = "cb8379ac2098aa165029e3938a51da0bcecfc008";

/// Bug: a backup gave each log the other's key, and a removal removed the log of another key.
#[test]
fn a_log_in_the_place_of_another_is_neither_copied_nor_removed() {
    for exchanged in [false, true] {
        let managed = manager(4);
        for (key, slot) in [("abc", 1), ("def", 2)] {
            accept(&managed.manager.get(key).unwrap(), slot).unwrap();
        }
        managed.manager.close_all().unwrap();
        let disk = managed.disk.clone();
        let dir = disk.process().open_dir(Path::new(DIR)).unwrap();
        dir.rename(DEF, "aside").unwrap();
        dir.rename(ABC, DEF).unwrap();
        let (key, place) = if exchanged { ("abc", ABC) } else { ("ghi", "other") };
        dir.rename("aside", place).unwrap();
        if !exchanged {
            // Out of the way.
            let aside = dir.open_dir(place).unwrap();
            aside.list().unwrap().iter().for_each(|name| aside.unlink(name).unwrap());
            dir.remove_dir(place).unwrap();
        }
        let before = disk.files(&Path::new(DIR).join(DEF)).unwrap();
        let managed = open(&disk, 4);
        for _ in 0..2 {
            let refused = [
                managed.manager.get("def").map(drop).map_err(Error::from),
                managed.manager.remove("def").map(drop).map_err(Error::from),
            ];
            for refused in refused {
                assert!(
                    matches!(&refused, Err(Error::WrongLabel { found, .. }) if found == b"abc"),
                    "{refused:?}"
                );
            }
        }
        let copied = managed.manager.backup("/copy").map(drop);
        // That of "abc" comes first, and is missing or the other one.
        let is_named = match &copied {
            Err(BackupError::Open(OpenError::WrongLabel { found, .. })) => {
                exchanged && found == b"def"
            }
            Err(BackupError::Open(OpenError::MissingLog { key, .. })) => {
                !exchanged && key == b"abc"
            }
            _ => false,
        };
        assert!(is_named, "{copied:?}");
        assert_eq!(disk.files(&Path::new(DIR).join(DEF)).unwrap(), before);
        let listed = logs_on(Arc::new(disk.clone()), DIR).unwrap().unwrap();
        let of_def = listed.iter().find(|log| log.key == b"def").unwrap();
        assert_eq!(of_def.state, LogState::Another { label: b"abc".to_vec() });
        assert!(matches!(of_def.check(), Err(OpenError::WrongLabel { .. })));
        assert!(!managed.manager.has(key).unwrap() || exchanged);
    }
}

/// Without a registry the labels say which keys there are. Bug: exchanged logs were passed over,
/// and a use of their keys created empty ones.
#[test]
fn logs_in_each_others_place_are_named_without_a_registry() {
    for moved in [false, true] {
        let managed = manager(4);
        for (key, slot) in [("", 3), ("abc", 1), ("def", 2)] {
            accept(&managed.manager.get(key).unwrap(), slot).unwrap();
        }
        managed.manager.close_all().unwrap();
        let disk = managed.disk.clone();
        let dir = disk.process().open_dir(Path::new(DIR)).unwrap();
        let registry = dir.open_dir("registry").unwrap();
        registry.list().unwrap().iter().for_each(|name| registry.unlink(name).unwrap());
        dir.remove_dir("registry").unwrap();
        dir.rename(DEF, "spare").unwrap();
        // That of no key in use.
        let place = if moved { ABC.replace('b', "c") } else { DEF.into() };
        dir.rename(ABC, &place).unwrap();
        dir.rename("spare", if moved { DEF } else { ABC }).unwrap();

        let listed = || {
            let logs = logs_on(Arc::new(disk.clone()), DIR).unwrap().unwrap();
            let states =
                logs.into_iter().map(|log| (String::from_utf8(log.key).unwrap(), log.state));
            states.collect::<Vec<_>>()
        };
        let another = |label: &[u8]| LogState::Another { label: label.to_vec() };
        let (abc, def) = match moved {
            true => (LogState::Missing, LogState::Present),
            false => (another(b"def"), another(b"abc")),
        };
        let expected =
            [(String::new(), LogState::Present), ("abc".into(), abc), ("def".into(), def)];
        assert_eq!(listed(), expected);
        let managed = open(&disk, 4);
        let refused = managed.manager.get("abc").map(drop);
        assert!(
            matches!(refused, Err(OpenError::MissingLog { .. } | OpenError::WrongLabel { .. })),
            "{refused:?}"
        );
        assert_eq!(managed.manager.get("").unwrap().last_slot().map(|slot| slot.0), Some(3));
        managed.manager.close_all().unwrap();
        assert_eq!(listed(), expected);
    }
}

/// A removal that was announced, and the directory replaced by that of another key. Bug: opening
/// the manager removed the other log.
#[test]
fn a_removal_is_not_completed_on_the_log_of_another_key() {
    let managed = manager(4);
    for key in ["abc", "def"] {
        accept(&managed.manager.get(key).unwrap(), 0).unwrap();
    }
    managed.disk.inject(Fault::on(Op::Unlink, Effect::Io).path(ABC));
    assert!(managed.manager.remove("abc").is_err());
    managed.disk.clear_faults();
    let _ = managed.manager.close_all();
    let disk = managed.disk.clone();
    let dir = disk.process().open_dir(Path::new(DIR)).unwrap();
    let rest = dir.open_dir(ABC).unwrap();
    rest.list().unwrap().iter().for_each(|name| rest.unlink(name).unwrap());
    dir.remove_dir(ABC).unwrap();
    dir.rename(DEF, ABC).unwrap();
    for _ in 0..2 {
        let managed = open(&disk, 4);
        let refused = managed.manager.get("abc").map(drop);
        assert!(matches!(&refused, Err(OpenError::WrongLabel { .. })), "{refused:?}");
        managed.manager.close_all().unwrap();
    }
    dir.rename(ABC, DEF).unwrap();
    let managed = open(&disk, 4);
    commit(&managed.manager.get("def").unwrap(), 0).unwrap();
    assert_eq!(managed.manager.get("abc").unwrap().last_slot(), None::<Slot>);
}

/// Bug: a key that an old copy of the registry does not have was in no list and in no backup.
#[test]
fn a_log_that_an_old_registry_does_not_have_is_found() {
    let managed = manager(4);
    accept(&managed.manager.get("old").unwrap(), 0).unwrap();
    managed.manager.close_all().unwrap();
    let disk = managed.disk.clone();
    let registry = Path::new(DIR).join("registry");
    let names = disk.files(&registry).unwrap();
    let files: Vec<_> =
        names.iter().map(|name| disk.contents(&registry.join(name)).unwrap()).collect();
    let managed = open(&disk, 4);
    accept(&managed.manager.get("abc").unwrap(), 0).unwrap();
    managed.manager.close_all().unwrap();
    for name in disk.files(&registry).unwrap() {
        disk.remove(&registry.join(name)).unwrap();
    }
    for (name, bytes) in names.iter().zip(&files) {
        disk.put(&registry.join(name), bytes).unwrap();
    }
    for _ in 0..2 {
        let managed = open(&disk, 4);
        assert_eq!(managed.manager.keys().unwrap(), [&b"abc"[..], b"old"]);
        managed.manager.close_all().unwrap();
    }
    let managed = open(&disk, 4);
    assert_eq!(managed.manager.backup("/copy").unwrap().logs, 2);
    commit(&managed.manager.get("abc").unwrap(), 0).unwrap();
}

/// A registry that was lost, and power cuts while it is made again.
#[test]
fn a_registry_that_is_made_again_has_every_key_after_a_cut() {
    let managed = manager(4);
    let names: Vec<_> = (0..5).map(crate::manager::key).collect();
    for key in &names {
        accept(&managed.manager.get(key).unwrap(), 0).unwrap();
    }
    managed.manager.close_all().unwrap();
    let dir = managed.disk.process().open_dir(Path::new(DIR)).unwrap();
    let registry = dir.open_dir("registry").unwrap();
    registry.list().unwrap().iter().for_each(|name| registry.unlink(name).unwrap());
    dir.remove_dir("registry").unwrap();
    for cut in 1.. {
        let disk = managed.disk.fork(cut);
        let how = [Persist::Random, Persist::Everything][(cut % 2) as usize];
        disk.cut_power_at(CutPoint::During(disk.operations() + cut), how);
        let is_over = try_open(&disk, 4).is_ok() && disk.is_on();
        disk.cancel_cut();
        disk.power_on();
        assert_eq!(open(&disk, 4).manager.keys().unwrap(), names, "cut {cut}");
        if is_over {
            assert!(cut > 50, "{cut}");
            break;
        }
    }
}

/// Keys that are created and removed while they are listed. Bug: where the directory was listed
/// before the registry was read, a key that came in between was reported as missing.
#[test]
fn keys_that_come_and_go_while_they_are_listed_are_not_missing() {
    for before_the_registry in [false, true] {
        for again in [false, true] {
            let managed = Arc::new(manager(4));
            accept(&managed.manager.get("abc").unwrap(), 0).unwrap();
            accept(&managed.manager.get("def").unwrap(), 0).unwrap();
            let (changed, times) = (Arc::clone(&managed), AtomicU64::new(0));
            let hook = move |call: &Call<'_>| {
                let lists = call.op == Op::List && call.path == Path::new(DIR);
                let reads = call.op == Op::OpenDir && call.path.ends_with("registry");
                let hit = if before_the_registry { reads } else { lists };
                let first = u64::from(!before_the_registry);
                if hit && times.fetch_add(1, SeqCst) == first {
                    assert!(changed.manager.remove("abc").unwrap());
                    drop(changed.manager.get("ghi").unwrap());
                    if again {
                        drop(changed.manager.get("abc").unwrap());
                    }
                }
                Ok(())
            };
            let disk = HookedDisk::new(Arc::new(managed.disk.process()), hook);
            let found = logs_on(Arc::new(disk), DIR).unwrap().unwrap();
            let states: Vec<_> = found.iter().map(|log| &log.state).collect();
            assert!(states.iter().all(|state| **state == LogState::Present), "{found:?}");
            let has = |key: &[u8]| found.iter().any(|log| log.key == key);
            assert!(has(b"def") && (again || !has(b"abc")), "{found:?}");
        }
    }
}

/// Bug: a registry without a manifest was reported as corrupt, with the advice to move it away.
#[test]
fn a_manager_that_is_being_created_is_not_corrupt() {
    let disk = SimDisk::new(1);
    disk.create_dir(Path::new(DIR)).unwrap().create_dir("registry").unwrap();
    let (created, looks, own) = (Mutex::new(None), AtomicU64::new(0), disk.clone());
    let hook = move |call: &Call<'_>| {
        let looks_at_it = call.op == Op::OpenDir && call.path.ends_with("registry");
        if looks_at_it && looks.fetch_add(1, SeqCst) == 3 {
            let managed = open(&own, 4);
            drop(managed.manager.get("abc").unwrap());
            *created.lock().unwrap() = Some(managed);
        }
        Ok(())
    };
    let hooked = HookedDisk::new(Arc::new(disk.process()), hook);
    let found = logs_on(Arc::new(hooked), DIR).unwrap().unwrap();
    assert!(found.iter().all(|log| log.state == LogState::Present), "{found:?}");
    // One that stays like that is.
    let disk = SimDisk::new(1);
    disk.create_dir(Path::new(DIR)).unwrap().create_dir("registry").unwrap();
    let error = logs_on(Arc::new(disk), DIR).unwrap_err();
    assert!(matches!(error, OpenError::CorruptedRegistry { .. }), "{error}");
}

/// Bug: its accepts were acknowledged, and the next use of the key removed them: the removal that
/// failed had been announced.
#[test]
fn a_log_that_a_guard_has_open_is_not_removed() {
    let first = manager(4);
    let guard = first.manager.get("abc").unwrap();
    let leaked = first.manager.close_all_timeout(Duration::ZERO);
    assert!(matches!(leaked, Err(ManagerError::LeakedReferences { .. })), "{leaked:?}");
    let second = open(&first.disk, 4);
    for _ in 0..2 {
        let refused = second.manager.remove("abc");
        assert!(
            matches!(
                &refused,
                Err(ManagerError::Storage(StorageError::Log(esker_log::Error::Locked { .. })))
            ),
            "{refused:?}"
        );
        assert!(second.manager.has("abc").unwrap());
    }
    accept(&guard, 7).unwrap();
    commit(&guard, 7).unwrap();
    drop(guard);
    let log = second.manager.get("abc").unwrap();
    assert_eq!(committed(&log, 7), value_of(b"abc", 7));
    drop(log);
    assert!(second.manager.remove("abc").unwrap());
    assert!(second.disk.files(&dir_of_abc()).is_err());
    assert_eq!(second.manager.get("abc").unwrap().last_slot(), None::<Slot>);
}

/// Bug: after a kill the next process got `Locked` for a log, because the lock of the registry was
/// released a moment earlier.
#[test]
fn a_lock_that_is_released_late_is_awaited() {
    let first = manager(4);
    let guard = first.manager.get("abc").unwrap();
    let leaked = first.manager.close_all_timeout(Duration::ZERO);
    assert!(matches!(leaked, Err(ManagerError::LeakedReferences { .. })), "{leaked:?}");
    let second = open(&first.disk, 4);
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        drop(guard);
    });
    accept(&second.manager.get("abc").unwrap(), 1).unwrap();
    release.join().unwrap();
}

//! Power fails in the middle of a backup: the copy is complete, or no store opens it.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_kv::{Batch, OpenError, Options, Store, StoreError, UNFINISHED_BACKUP};
use esker_log::Engine;
use esker_log::Error as LogError;

const DIR: &str = "/store";
const COPY: &str = "/copy";

fn open(disk: &SimDisk, engine: &Engine, dir: &str) -> Result<Store, OpenError> {
    let mut options = Options::on(Arc::new(disk.process()));
    options.log.segment_size = 64 << 10;
    options.clean = false;
    options.log.must_exist = dir == COPY;
    options.log.engine = Some(engine.clone());
    Store::builder(dir).options(options).open()
}

fn content(store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let entries = store.keyspace().scan(..).unwrap().map(|entry| entry.unwrap());
    entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// A store on a disk, closed, and what is in it.
fn prepare(seed: u64) -> (SimDisk, BTreeMap<Vec<u8>, Vec<u8>>) {
    let (disk, engine) = (SimDisk::new(seed), Engine::manual());
    let store = open(&disk, &engine, DIR).unwrap();
    let keys = store.keyspace();
    for n in 0..90u32 {
        drop(keys.put(format!("{}", n % 30), vec![n as u8; 3000]).unwrap());
    }
    let mut batch = Batch::new();
    (0..9).for_each(|n| batch.put(&keys, format!("batch-{n}"), [n]).unwrap());
    drop(store.write(&batch).unwrap());
    let content = content(&store);
    store.close().unwrap();
    engine.stop();
    (disk, content)
}

/// Backs up, cuts power at an operation, and opens both. Returns whether the backup had ended, and
/// whether the copy opens.
fn cut(disk: &SimDisk, at: u64, how: Persist, expected: &BTreeMap<Vec<u8>, Vec<u8>>) -> [bool; 2] {
    let engine = Engine::manual();
    let Ok(store) = open(disk, &engine, DIR) else { panic!("the source opens") };
    disk.cut_power_at(CutPoint::During(disk.operations() + at), how);
    let ended = store.backup(COPY).is_ok();
    if disk.is_on() {
        disk.cancel_cut();
        disk.power_cut(how);
    }
    engine.stop();
    drop(store);
    disk.power_on();
    let engine = Engine::manual();
    let opens = match open(disk, &engine, COPY) {
        Ok(copy) => {
            assert!(content(&copy) == *expected, "cut at {at}, {how:?}");
            copy.close().unwrap();
            true
        }
        Err(OpenError::Store(StoreError::Log(LogError::WrongComponent { found, .. }))) => {
            assert!(matches!(found, Some(UNFINISHED_BACKUP)), "cut at {at}: {found:?}");
            false
        }
        // There is no log at all yet, or not any more.
        Err(OpenError::Store(StoreError::Log(LogError::NotALog { .. }))) => false,
        Err(error) => panic!("cut at {at}, {how:?}: {error:?}"),
    };
    assert!(opens || !ended, "cut at {at}, {how:?}: the backup had ended");
    let store = open(disk, &engine, DIR).unwrap();
    assert!(content(&store) == *expected, "cut at {at}, {how:?}: the source");
    store.close().unwrap();
    engine.stop();
    [ended, opens]
}

#[test]
fn a_backup_that_power_interrupts_is_no_store() {
    let (disk, expected) = prepare(1);
    let (mut opened, mut refused) = (0, 0);
    for at in 0.. {
        let mut all_ended = true;
        for how in [Persist::Nothing, Persist::Everything, Persist::Random, Persist::Torn] {
            let [ended, opens] = cut(&disk.fork(at), at, how, &expected);
            opened += u32::from(opens && !ended);
            refused += u32::from(!opens);
            all_ended &= ended;
        }
        if all_ended {
            break;
        }
    }
    assert!(opened > 0 && refused > 100, "{opened} opened, {refused} refused");
}

/// As above, on a disk without room for the copy: power fails while it is removed, too.
#[test]
fn a_backup_without_room_is_no_store_after_a_power_cut() {
    let (disk, expected) = prepare(2);
    disk.set_capacity(Some(disk.used() + (300 << 10)));
    for at in 0..150 {
        let how = [Persist::Nothing, Persist::Random, Persist::Torn][at as usize % 3];
        let [ended, opens] = cut(&disk.fork(at), at, how, &expected);
        assert!(!ended && !opens);
    }
}

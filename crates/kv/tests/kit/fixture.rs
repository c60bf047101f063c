//! A store on a simulated disk, a model of its content, and the comparison of the two.
#![allow(dead_code)] // Each test binary uses its own part.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use esker_disk::Disk;
use esker_disk::sim::{Persist, SimDisk};
use esker_kv::{Keyspace, OpenError, Options, Policy, Store};
use esker_log::Engine;

/// Where the store lives on a simulated disk.
pub const DIR: &str = "/store";
/// The file of a checkpoint.
pub const CHECKPOINT: &str = "checkpoint";

/// Keys with their values.
pub type Keys = BTreeMap<Vec<u8>, Vec<u8>>;
/// The keys of each keyspace.
pub type Content = BTreeMap<String, Keys>;

/// Small segments, no caches, and nothing in the background: the test drives the engine.
pub fn options(disk: Arc<dyn Disk>, engine: &Engine) -> Options {
    let mut options = Options::on(disk);
    options.log.policy = Policy::Periodic(Duration::from_secs(60));
    options.log.segment_size = 64 << 10;
    (options.cache_bytes, options.log.read_cache) = (0, 0);
    options.clean = false;
    options.log.engine = Some(engine.clone());
    options
}

/// A simulated disk, with a store that the test's thread drives.
pub struct SimEnv {
    pub disk: SimDisk,
    pub engine: Engine,
}

impl SimEnv {
    pub fn new() -> Self {
        Self::on(SimDisk::new(1))
    }

    pub fn on(disk: SimDisk) -> Self {
        Self { disk, engine: Engine::manual() }
    }

    pub fn options(&self) -> Options {
        options(Arc::new(self.disk.process()), &self.engine)
    }

    pub fn try_open(&self) -> Result<Store, OpenError> {
        Store::builder(DIR).options(self.options()).open()
    }

    pub fn open(&self) -> Store {
        self.try_open().unwrap()
    }

    /// Ends the process of the store, or the power, and returns the disk for the next one.
    pub fn end(self, store: Store, persist: Option<Persist>) -> Self {
        match persist {
            Some(persist) => self.disk.power_cut(persist),
            None => self.disk.kill(),
        }
        self.engine.stop();
        drop(store);
        self.disk.power_on();
        Self::on(self.disk)
    }

    /// The same disk once more, with other random decisions.
    pub fn fork(&self, seed: u64) -> Self {
        Self::on(self.disk.fork(seed))
    }
}

pub fn file(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

/// All files of a store with their bytes, but the checkpoint.
pub fn log_files(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    let names = disk.files(Path::new(DIR)).unwrap().into_iter();
    let names = names.filter(|name| name != CHECKPOINT && name != "lock");
    names.map(|name| (name.clone(), disk.contents(&file(&name)).unwrap())).collect()
}

/// Puts some keys, with values that tell the round.
pub fn put(keys: &Keyspace, numbers: impl IntoIterator<Item = u32>, round: u32, len: usize) {
    for n in numbers {
        drop(keys.put(n.to_be_bytes(), value(n, round, len)).unwrap());
    }
}

pub fn value(n: u32, round: u32, len: usize) -> Vec<u8> {
    let mut value = [n.to_be_bytes(), round.to_be_bytes()].concat();
    value.resize(8 + len, n as u8);
    value
}

/// The keys and values that [`put`] puts.
pub fn model(numbers: impl IntoIterator<Item = u32>, round: u32, len: usize) -> Keys {
    numbers.into_iter().map(|n| (n.to_be_bytes().to_vec(), value(n, round, len))).collect()
}

/// Everything in a keyspace.
pub fn keys_of(keyspace: &Keyspace) -> Keys {
    let scan = keyspace.scan(..).unwrap().map(Result::unwrap);
    scan.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// Compares everything that can be read with a model: counts, scans both ways, single reads.
pub fn check_keys(keyspace: &Keyspace, model: &Keys, case: &str) {
    let name = keyspace.name();
    assert_eq!(keyspace.len(), model.len() as u64, "{case}: the number of keys in {name}");
    let mut found = 0;
    let scan = keyspace.scan(..).unwrap().map(Result::unwrap);
    for ((key, value), (expected, expected_value)) in scan.zip(model) {
        assert!(key == *expected, "{case}: key {found} of {name} differs");
        assert!(*value == **expected_value, "{case}: value {found} of {name} differs");
        found += 1;
    }
    assert_eq!(found, model.len(), "{case}: a scan of {name}");
    let reverse = keyspace.scan(..).unwrap().rev().map(|entry| entry.unwrap().0);
    assert!(reverse.eq(model.keys().rev()), "{case}: a reverse scan of {name} differs");
    for (key, value) in model {
        assert!(keyspace.contains_key(key).unwrap(), "{case}: a key of {name} is missing");
        let found = keyspace.get(key).unwrap();
        assert!(found.as_deref() == Some(&**value), "{case}: a value of {name} differs");
    }
}

/// Compares all keyspaces with a model.
pub fn check(store: &Store, model: &Content, case: &str) {
    let names: Vec<_> = model.keys().cloned().collect();
    assert_eq!(store.keyspaces(), names, "{case}");
    for (name, keys) in model {
        check_keys(&store.find_keyspace(name).unwrap(), keys, case);
    }
}

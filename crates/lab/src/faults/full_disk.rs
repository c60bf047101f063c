//! A store that fills its disk: what frees space works, and so does opening after a crash.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use esker_disk::sim::SimDisk;
use esker_kv::{Options, Store, WriteError};
use esker_log::{Engine, Policy};
use esker_testkit::{SplitMix64, mix};

use super::trial::Trial;
use crate::outcome::Run;
use crate::plan::PERSISTS;
use crate::survival::Survival;

const DIR: &str = "/store";
/// The most keys of a run.
const KEYS_MAX: u64 = 20_000;

type Keys = BTreeMap<Vec<u8>, Vec<u8>>;

pub(super) struct FullDisk;

impl Trial for FullDisk {
    fn lives(policy: Policy, run: &mut Run) -> Result<(), String> {
        let mut rng = SplitMix64::new(mix(run.seed, 80));
        let disk = SimDisk::new(run.seed);
        disk.set_capacity(Some((2 << 20) + rng.below(2 << 20)));
        let len = rng.pick(&[2000, 4000, 9000]);
        let mut expected = Keys::new();

        let (store, engine) = open(&disk, policy)?;
        let keys = store.keyspace();
        for n in 0..KEYS_MAX {
            let key = mix(run.seed, n).to_be_bytes().to_vec();
            let value = vec![n as u8; len];
            match keys.put(&key, &value) {
                Ok(_) => drop(expected.insert(key, value)),
                Err(error) if error.is_no_space() => break,
                Err(error) => return Err(text("a put", &error)),
            }
            if n % 8 == 0 {
                store.sync().map_err(|error| text("a sync", &error))?;
            }
        }
        store.sync().map_err(|error| text("a sync on the full disk", &error))?;
        drop(keys);
        end(run, &disk, (store, engine), rng.percent(60), &mut rng)?;

        let (store, engine) = open(&disk, policy)?;
        compare(run, &store, &expected)?;
        let keys = store.keyspace();
        let deleted: Vec<_> = expected.keys().filter(|_| rng.percent(80)).cloned().collect();
        for key in &deleted {
            let mut outcome = keys.delete(key);
            if outcome.as_ref().is_err_and(WriteError::is_no_space) {
                // The share of the reserve that is lent to deletes is used up.
                store.compact().map_err(|error| text("compacting amid deletes", &error))?;
                outcome = keys.delete(key);
            }
            drop(outcome.map_err(|error| text("a delete on the full disk", &error))?);
            expected.remove(key);
        }
        store.sync().map_err(|error| text("a sync of deletes", &error))?;
        let freed = store.compact().map_err(|error| text("compacting", &error))?;
        let all = store.stats().reclaimed;
        if all.gained() == 0 {
            return Err(format!("{} deletes, and {freed:?}", deleted.len()));
        }
        for (n, key) in (0..20).zip(&deleted) {
            let value = vec![n; len];
            drop(keys.put(key, &value).map_err(|error| text("a put after cleaning", &error))?);
            expected.insert(key.clone(), value);
        }
        store.sync().map_err(|error| text("a sync after cleaning", &error))?;
        drop(keys);
        end(run, &disk, (store, engine), rng.percent(60), &mut rng)?;

        let (store, engine) = open(&disk, policy)?;
        compare(run, &store, &expected)?;
        end(run, &disk, (store, engine), false, &mut rng)
    }
}

fn open(disk: &SimDisk, policy: Policy) -> Result<(Store, Engine), String> {
    let engine = Engine::manual();
    let mut options = Options::on(Arc::new(disk.process()));
    options.log.policy = policy;
    options.log.segment_size = 64 << 10;
    (options.cache_bytes, options.log.read_cache) = (0, 0);
    options.clean = false;
    options.log.engine = Some(engine.clone());
    match Store::builder(Path::new(DIR)).options(options).open() {
        Ok(store) => Ok((store, engine)),
        Err(error) => {
            engine.stop();
            Err(text("opening", &error))
        }
    }
}

/// Ends a life with a crash, or with a close.
fn end(
    run: &mut Run,
    disk: &SimDisk,
    (store, engine): (Store, Engine),
    crashes: bool,
    rng: &mut SplitMix64,
) -> Result<(), String> {
    let closed = match crashes {
        true => {
            disk.power_cut(rng.pick(&PERSISTS));
            run.cuts += 1;
            Ok(())
        }
        false => store.close().map_err(|error| text("closing", &error)),
    };
    engine.stop();
    drop(store);
    disk.power_on();
    closed
}

/// All keys have their values. Each of them was durable.
fn compare(run: &mut Run, store: &Store, expected: &Keys) -> Result<(), String> {
    let mut found = Keys::new();
    for entry in store.keyspace().scan(..).map_err(|error| text("a scan", &error))? {
        let (key, value) = entry.map_err(|error| text("a scan", &error))?;
        found.insert(key.to_vec(), value.to_vec());
    }
    let same = expected.iter().filter(|(key, value)| found.get(*key) == Some(value)).count() as u64;
    let accepted = expected.len() as u64;
    run.survivals.push(Survival {
        accepted,
        durable: accepted,
        recovered: same,
        lost_calls: accepted - same,
        ..Survival::default()
    });
    if found != *expected {
        return Err(format!("{} keys, of which {same} of {accepted} as they were", found.len()));
    }
    Ok(())
}

fn text(what: &str, error: &impl std::fmt::Debug) -> String {
    format!("{what}: {error:?}")
}

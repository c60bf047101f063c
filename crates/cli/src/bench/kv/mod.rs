//! `esker kv bench`: one figure for each kind of work, with the hardware floor of the same run.

mod arguments;
mod callers;
mod entry;

use std::path::Path;
use std::time::{Duration, Instant};

use esker_kv::{Options, Store};
use serde_json::{Value, json};

pub use self::arguments::KvBenchArguments;
use self::arguments::What;
use self::callers::Timed;
use self::entry::Entries;
use crate::bench::machine::floor::Floor;
use crate::bench::measure::figure::{Figure, Shape};
use crate::bench::measure::latency::Latencies;
use crate::bench::measure::resources::{self, Snapshot, Used};
use crate::bench::workdir::Workdir;
use crate::exit::{Failure, Outcome};

/// Runs the requested works, compares, prints.
pub fn run(arguments: &KvBenchArguments) -> Outcome {
    arguments.check()?;
    let workdir = Workdir::make(arguments.dir.as_deref(), arguments.keep)?;
    let dir = workdir.log();
    let mut floor = Floor::prepare(&workdir.floor())?;
    floor.sample()?;
    let options = arguments.options();
    let mut store = open(&dir, &options)?;
    let mut loaded = false;
    for what in &arguments.what {
        if *what != What::Put && !loaded {
            load(arguments, &store).map_err(|error| Failure::of_kv(&error, &dir))?;
            loaded = true;
        }
        let mut open_ms = None;
        let mut more = serde_json::Map::new();
        let (bench, timed) = match what {
            What::Put => ("kv/put", callers::run(arguments, &store, *what)?),
            What::Get => ("kv/get", callers::run(arguments, &store, *what)?),
            What::Mixed => ("kv/mixed", callers::run(arguments, &store, *what)?),
            What::Scan => ("kv/scan", scan(arguments, &store, &dir)?),
            What::Open => {
                let begin = Instant::now();
                store.close().map_err(|error| Failure::of_kv(&error, &dir))?;
                let closed = begin.elapsed();
                let snapshot = Snapshot::now();
                let begin = Instant::now();
                store = open(&dir, &options)?;
                let opened = begin.elapsed();
                more.insert("close_ms".into(), json!(closed.as_secs_f64() * 1e3));
                open_ms = Some(opened.as_secs_f64() * 1e3);
                let mut latencies = Latencies::new();
                latencies.add(opened);
                let used = Used { resident: resources::peak(), ..snapshot.used() };
                ("kv/open", Timed { ops: 1, time: opened, latencies, used })
            }
        };
        floor.sample()?;
        compare(arguments, &store, &dir)?;
        let stats = store.stats();
        let mut params = arguments.params(&options);
        params.insert("index_bytes_per_key".into(), json!(stats.index_bytes / stats.keys.max(1)));
        params.insert("keys_stored".into(), json!(stats.keys));
        params.insert("disk".into(), json!(stats.log.disk));
        params.insert("direct".into(), json!(stats.log.direct));
        params.insert("dsync".into(), json!(stats.log.dsync));
        params.insert("syncs".into(), json!(stats.log.syncs));
        params.insert("disk_bytes".into(), json!(stats.disk_bytes));
        let Timed { ops, time, latencies, used } = timed;
        let bytes = ops * Entries::new(arguments).bytes();
        Figure {
            params: Value::Object(params),
            latencies,
            used,
            floor: floor.medians(),
            verified: true,
            open_ms,
            more,
            ..Figure::of(bench, ops, bytes, time)
        }
        .print(arguments.json, if open_ms.is_some() { Shape::Opening } else { Shape::Rate })?;
    }
    store.close().map_err(|error| Failure::of_kv(&error, &dir))
}

fn open(dir: &Path, options: &Options) -> Outcome<Store> {
    let store = Store::builder(dir).options(options.clone()).open();
    store.map_err(|error| Failure::of_kv(&error, dir))
}

/// Puts every key once. Not timed.
fn load(arguments: &KvBenchArguments, store: &Store) -> esker_kv::Result<()> {
    let entries = Entries::new(arguments);
    let keyspace = store.keyspace();
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let mut batch = esker_kv::Batch::new();
    for n in 0..arguments.keys {
        batch.put(&keyspace, entries.key(n, &mut key), entries.value(n, &mut value))?;
        if batch.len() == 256 {
            drop(store.write(&batch)?);
            batch.clear();
        }
    }
    drop(store.write(&batch)?);
    store.sync()
}

/// Scans all keys again and again.
fn scan(arguments: &KvBenchArguments, store: &Store, dir: &Path) -> Outcome<Timed> {
    let failure = |error| Failure::of_kv(&error, dir);
    let most = Duration::from_secs_f64(arguments.seconds.unwrap_or(3.0));
    let keyspace = store.keyspace();
    resources::reset_peak();
    let snapshot = Snapshot::now();
    let (mut ops, mut latencies) = (0u64, Latencies::new());
    let begin = Instant::now();
    while ops < arguments.count.unwrap_or(u64::MAX)
        && (arguments.count.is_some() || begin.elapsed() < most)
    {
        let start = Instant::now();
        let mut keys = 0;
        for entry in keyspace.scan::<[u8]>(..).map_err(failure)? {
            entry.map_err(failure)?;
            keys += 1;
        }
        if keys != arguments.keys {
            return Err(Failure::failed(format!("scanned {keys} of {} keys", arguments.keys)));
        }
        ops += keys;
        latencies.add(start.elapsed());
    }
    let time = begin.elapsed();
    let used = Used { resident: resources::peak(), ..snapshot.used() };
    Ok(Timed { ops, time, latencies, used })
}

/// Compares every value in the store with what was put.
fn compare(arguments: &KvBenchArguments, store: &Store, dir: &Path) -> Outcome {
    let entries = Entries::new(arguments);
    let scan = store.keyspace().scan::<[u8]>(..);
    for entry in scan.map_err(|error| Failure::of_kv(&error, dir))? {
        let (key, value) = entry.map_err(|error| Failure::of_kv(&error, dir))?;
        if !entries.matches(&key, &value) {
            return Err(Failure::corrupt(format!("the value of key {key:?} is not the one put")));
        }
    }
    Ok(())
}

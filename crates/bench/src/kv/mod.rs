//! `esker-bench kv`: one figure for each kind of work, with the hardware floor of the same run.
//!
//! Each policy has a store of its own. Its figures are printed once everything in the store was
//! read back. Where policies are compared, the model of the experiment follows.

mod compare_store;
mod csv;
mod entry;
mod model;
mod run_length;
mod scan;
mod store_arguments;
mod store_callers;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use esker_kv::{Options, Policy, Store};
use serde_json::{Map, Value, json};

use self::entry::Entries;
use self::model::{Mode, Model};
pub use self::store_arguments::KvBenchArguments;
use self::store_arguments::Operation;
use self::store_callers::TimedPart;
use crate::machine::environment::Environment;
use crate::machine::floor::Floor;
use crate::machine::random_read;
use crate::measure::figure::{Figure, Shape, Verdict, rounded};
use crate::measure::latency::Latencies;
use crate::measure::resources::{self, ResourceUse, Snapshot};
use crate::page_cache::drop_cached_pages;
use crate::workdir::Workdir;
use esker_command::exit::{Failure, Outcome, complain};
use esker_command::library_errors::with_causes;
use esker_command::output;
use esker_command::quantity;

/// The length of one sample of random reads.
const RANDOM_READS: Duration = Duration::from_millis(500);

/// Runs the requested works under each policy, compares, prints.
pub fn run(arguments: &KvBenchArguments) -> Outcome {
    arguments.check()?;
    let workdir = Workdir::make(arguments.dir.as_deref(), arguments.keep)?;
    let options = arguments.options(Policy::Always);
    let mut floor = Floor::prepare_on(&*options.log.disk, &workdir.floor())?;
    let mut environment = Environment::describe(&workdir.floor());
    environment.disk.emulated = arguments.slow_disk.map(store_arguments::DiskModel::name);
    if arguments.csv {
        output::print(&format!("{}\n", csv::HEADER))?;
    } else if !arguments.json {
        output::print(&environment.to_string())?;
    }
    let environment = json!(environment);
    let policies = arguments.policies();
    let mut puts = Vec::new();
    for policy in &policies {
        let several = policies.len() > 1;
        let mut options = options.clone();
        options.log.policy = *policy;
        let log = workdir.log();
        let dir = if several { log.join(csv::mode(*policy)) } else { log };
        let mut bench =
            Bench { arguments, options, dir, floor: &mut floor, environment: &environment };
        puts.extend(bench.run()?);
        if several {
            std::fs::remove_dir_all(&bench.dir).map_err(|error| {
                Failure::from_io(format_args!("remove {}", bench.dir.display()), &error)
            })?;
        }
    }
    // The model knows one caller that writes one key at a time.
    if policies.len() > 1 && arguments.writers == 1 && arguments.batch == 1 {
        print_model(arguments, puts)?;
    }
    Ok(())
}

/// Prints the model beside the measurement, unless that was too short; with `--csv` on standard
/// error.
fn print_model(arguments: &KvBenchArguments, puts: Vec<(Mode, Figure)>) -> Outcome {
    let (modes, figures): (Vec<_>, Vec<_>) = puts.into_iter().unzip();
    if let Some(why) = model::too_short(&modes) {
        complain(&why);
        return Ok(());
    }
    let Some(model) = Model::fit(&modes) else { return Ok(()) };
    if arguments.csv {
        model.table(&modes).lines().for_each(complain);
        return Ok(());
    }
    if !arguments.json {
        return output::print(&model.table(&modes));
    }
    for (mode, figure) in modes.iter().zip(figures) {
        let mut more = model.keys(mode);
        more.extend(figure.more);
        Figure { bench: "kv/model", more, ..figure }.print(true, Shape::Rate)?;
    }
    Ok(())
}

/// The works under one policy.
struct Bench<'a> {
    arguments: &'a KvBenchArguments,
    options: Options,
    dir: PathBuf,
    floor: &'a mut Floor,
    environment: &'a Value,
}

impl Bench<'_> {
    /// Measures, compares, and prints. Returns the puts, for the model.
    fn run(&mut self) -> Outcome<Vec<(Mode, Figure)>> {
        let arguments = self.arguments;
        let policy = self.options.log.policy;
        let dir = self.dir.clone();
        let failure = |error: esker_kv::Error| Failure::from_kv(error, &dir);
        self.floor.restart();
        self.floor.sample()?;
        let mut store = open(&dir, &self.options)?;
        let mut loaded = false;
        let mut measured = Vec::new();
        for what in &arguments.what {
            if *what != Operation::Put && !loaded {
                complain(&format!("loading {} keys", arguments.keys));
                load(arguments, &store).map_err(failure)?;
                loaded = true;
            }
            let reads = arguments.cold
                && matches!(what, Operation::Get | Operation::Mixed | Operation::Scan);
            let mut random = Vec::new();
            if reads {
                drop_cached_pages(&dir);
                random.push(self.random_reads(*what)?);
            }
            let mut open_ms = None;
            let mut more = Map::new();
            let (bench, timed) = match what {
                Operation::Put => ("kv/put", store_callers::run(arguments, policy, &store, *what)?),
                Operation::Get => ("kv/get", store_callers::run(arguments, policy, &store, *what)?),
                Operation::Mixed => {
                    ("kv/mixed", store_callers::run(arguments, policy, &store, *what)?)
                }
                Operation::Scan => ("kv/scan", scan::run(arguments, &store).map_err(failure)??),
                Operation::Open => {
                    let (opened, closed, timed);
                    (store, opened, closed, timed) = self.reopen(store)?;
                    more.insert("close_ms".into(), json!(closed.as_secs_f64() * 1e3));
                    open_ms = Some(opened.as_secs_f64() * 1e3);
                    ("kv/open", timed)
                }
            };
            if reads {
                random.push(self.random_reads(*what)?);
            }
            self.floor.sample()?;
            let figure = self.figure(bench, *what, &store, &timed, more, &random);
            let per_s = timed.ops as f64 / timed.time.as_secs_f64().max(1e-9);
            let name = quantity::policy_name(policy);
            complain(&format!("{bench} {name}: {per_s:.0}/s; read back at the end"));
            let shape = if open_ms.is_some() { Shape::Opening } else { Shape::Rate };
            measured.push((*what, timed, Figure { open_ms, ..figure }, shape));
        }
        let keys = store.keyspace().len();
        store.close().map_err(|error| failure(error.into()))?;
        compare_store::compare(&Entries::new(arguments), &dir, &self.options, keys)?;
        let mut puts = Vec::new();
        for (what, timed, figure, shape) in measured {
            if arguments.csv {
                output::print(&format!("{}\n", csv::row(policy, arguments.size, &timed)))?;
            } else {
                figure.print(arguments.json, shape)?;
            }
            if what == Operation::Put {
                puts.push((Mode::new(policy, &timed), figure));
            }
        }
        Ok(puts)
    }

    fn figure(
        &self,
        bench: &'static str,
        what: Operation,
        store: &Store,
        timed: &TimedPart,
        mut more: Map<String, Value>,
        random: &[f64],
    ) -> Figure {
        let arguments = self.arguments;
        let stats = store.stats();
        let mut params = arguments.params(&self.options, what);
        let mut put = |name: &str, value: Value| {
            params.insert(name.into(), value);
        };
        put("index_bytes_per_key", json!(stats.index_bytes / stats.keys.max(1)));
        put("keys_stored", json!(stats.keys));
        put("disk", json!(stats.log.disk));
        put("direct", json!(stats.log.direct));
        put("dsync", json!(stats.log.dsync));
        put("syncs", json!(timed.syncs));
        put("disk_bytes", json!(stats.disk_bytes));
        put("latency_of_every", json!(timed.timed_every));
        let mut floor = self.floor.medians();
        if !random.is_empty() {
            put("random_read_bytes", json!(Entries::new(arguments).read_bytes()));
            floor.random_read_per_s =
                Some(rounded(random.iter().sum::<f64>() / random.len() as f64, 1));
        }
        let seconds = timed.before_last_sync.as_secs_f64();
        more.insert("seconds_before_last_sync".into(), json!(rounded(seconds, 6)));
        more.insert("floor_sync_us".into(), json!(self.floor.sync_us()));
        more.insert("environment".into(), self.environment.clone());
        more.insert("latency_histogram".into(), json!(timed.latencies.bars()));
        Figure {
            params: Value::Object(params),
            latencies: timed.latencies.clone(),
            used: timed.used,
            floor,
            verdict: Verdict::Right,
            more,
            ..Figure::new(bench, timed.ops, timed.ops * Entries::new(arguments).bytes(), timed.time)
        }
    }

    /// The device's reads of the blocks of a record, with as many in flight as there are callers.
    fn random_reads(&self, what: Operation) -> Outcome<f64> {
        let threads = if what == Operation::Scan { 1 } else { self.arguments.writers };
        let size = Entries::new(self.arguments).read_bytes();
        random_read::per_second(&*self.options.log.disk, &self.dir, threads, size, RANDOM_READS)
            .map_err(|error| Failure::failed(format!("measure the floor: {}", with_causes(&error))))
    }

    /// Closes and opens. Returns the time of opening and of closing.
    fn reopen(&self, store: Store) -> Outcome<(Store, Duration, Duration, TimedPart)> {
        let begin = Instant::now();
        store.close().map_err(|error| Failure::from_kv(error, &self.dir))?;
        let closed = begin.elapsed();
        // Its memory is free before the other one needs as much.
        drop(store);
        let snapshot = Snapshot::now();
        let begin = Instant::now();
        let store = open(&self.dir, &self.options)?;
        let time = begin.elapsed();
        let mut latencies = Latencies::new();
        latencies.add(time);
        let used = ResourceUse { resident: resources::peak(), ..snapshot.used() };
        let syncs = store.stats().log.syncs;
        let before_last_sync = time;
        let timed =
            TimedPart { ops: 1, time, before_last_sync, syncs, timed_every: 1, latencies, used };
        Ok((store, time, closed, timed))
    }
}

fn open(dir: &Path, options: &Options) -> Outcome<Store> {
    let store = Store::builder(dir).options(options.clone()).open();
    store.map_err(|error| Failure::from_kv(error, dir))
}

/// Loading writes batches of this many puts, or of so many bytes.
const LOAD_PUTS: usize = 256;
const LOAD_BYTES: u64 = 1 << 20;

/// Puts every key once. Not timed.
fn load(arguments: &KvBenchArguments, store: &Store) -> esker_kv::Result<()> {
    let entries = Entries::new(arguments);
    let keyspace = store.keyspace();
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let mut batch = esker_kv::Batch::new();
    for n in 0..arguments.keys {
        batch.put(&keyspace, entries.key(n, &mut key), entries.value(n, &mut value))?;
        if batch.len() == LOAD_PUTS || batch.len() as u64 * entries.bytes() >= LOAD_BYTES {
            drop(store.write(&batch)?);
            batch.clear();
        }
    }
    drop(store.write(&batch)?);
    Ok(store.sync()?)
}

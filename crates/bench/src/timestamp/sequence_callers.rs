//! Callers that take numbers of one sequence, each with one call at a time.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use esker_client::{Client, SequenceError, SequenceName};
use parking_lot::Mutex;
use serde_json::json;

use crate::measure::figure::{Figure, Shape};
use crate::measure::per_thread::PerThread;
use crate::measure::resources::{self, Snapshot};
use crate::timestamp::client_callers::{on_threads, print_calls, run_callers};
use crate::timestamp::number_set::NumberSet;
use crate::timestamp::timestamp_arguments::TsBenchArguments;
use esker_command::endpoints::{client_failure, members, sequence_failure};
use esker_command::exit::Outcome;
use esker_command::output::print;
use esker_command::sequences;

const CALLERS_DEFAULT: u32 = 64;
/// The most calls under one key: one whose outcome is unknown is repeated.
const CALLS_PER_KEY_MAX: u32 = 10;

/// Runs the benchmark.
pub fn run(arguments: &TsBenchArguments, sequence: &SequenceName) -> Outcome {
    on_threads(async |latencies| measure(arguments, sequence, latencies).await)
}

async fn measure(
    arguments: &TsBenchArguments,
    sequence: &SequenceName,
    latencies: PerThread,
) -> Outcome {
    create(arguments, sequence).await?;
    let callers = arguments.callers.unwrap_or(CALLERS_DEFAULT);
    let builder = arguments.client()?.timeout(arguments.timeout).queue(callers as usize);
    let client = builder.build().map_err(|error| client_failure(&error))?;
    let numbers = Arc::new(Mutex::new(NumberSet::default()));
    // With a connection, before the measurement.
    let first = client.sequence_next(sequence.as_str(), arguments.n, None).await;
    numbers.lock().add(&first.map_err(|error| sequence_failure(&error))?);
    resources::reset_peak();
    let (before, snapshot, begun) = (client.stats(), Snapshot::now(), Instant::now());
    let caller = |stop| Caller {
        client: client.clone(),
        sequence: sequence.clone(),
        n: arguments.n,
        stop,
        latencies: latencies.clone(),
        numbers: Arc::clone(&numbers),
        failed: BTreeMap::new(),
    };
    let ended = run_callers(arguments.seconds, callers, |stop| caller(stop).run()).await?;
    let time = begun.elapsed();
    let mut used = snapshot.used();
    used.resident = resources::peak();
    let stats = client.stats();
    let mut failed = BTreeMap::<String, u64>::new();
    for (class, count) in ended.into_iter().flatten() {
        *failed.entry(class).or_default() += count;
    }
    let latencies = latencies.take();
    let ops = latencies.count();
    let count = ops * u64::from(arguments.n);
    let mut figure = Figure::new("oracle/sequence", ops, count * size_of::<u64>() as u64, time);
    let checked = numbers.lock().check();
    figure.verdict = checked.verdict;
    figure.params = json!({
        "callers": callers,
        "n": arguments.n,
        "sequence": sequence.as_str(),
        "tls": arguments.uses_tls(),
    });
    let per_s = count as f64 / time.as_secs_f64().max(1e-9);
    let requests = stats.sequence_requests - before.sequence_requests;
    figure.used = used;
    figure.more.insert("numbers_per_s".into(), json!(per_s.round()));
    figure.more.insert("requests".into(), json!(requests));
    figure.more.insert("retries".into(), json!(stats.retries - before.retries));
    figure.more.insert("failed".into(), json!(failed));
    figure.more.insert("unknown".into(), json!(checked.unknown));
    // Each call that returned numbers is checked.
    figure.more.insert("unrecorded".into(), json!(0));
    figure.latencies = latencies;
    if arguments.json {
        return figure.print(true, Shape::Rate).and(checked.outcome());
    }
    print_calls(&figure, ("numbers", per_s), requests, &failed)?;
    print(&checked.text()).and(checked.outcome())
}

/// Creates the sequence, if there is none of its name.
async fn create(arguments: &TsBenchArguments, sequence: &SequenceName) -> Outcome {
    let caller = arguments.admin_caller()?;
    let members = members(&caller).await?;
    let listed = sequences::list(&caller, &members).await?;
    match listed.iter().any(|known| known.name == sequence.as_str()) {
        true => Ok(()),
        false => sequences::create(&caller, &members, sequence, 1).await,
    }
}

/// A task that takes numbers again and again.
struct Caller {
    client: Client,
    sequence: SequenceName,
    n: u32,
    stop: Arc<AtomicBool>,
    latencies: PerThread,
    numbers: Arc<Mutex<NumberSet>>,
    /// The calls that failed, by the class of failure.
    failed: BTreeMap<String, u64>,
}

impl Caller {
    /// Takes numbers until it is stopped, and returns the calls that failed.
    async fn run(mut self) -> BTreeMap<String, u64> {
        while !self.stop.load(Relaxed) {
            let called = Instant::now();
            match self.take().await {
                Ok(numbers) => {
                    self.latencies.add(called.elapsed());
                    self.numbers.lock().add(&numbers);
                }
                Err(error) if error.may_have_taken => self.numbers.lock().add_unknown(),
                Err(_) => {}
            }
        }
        self.failed
    }

    /// Takes numbers. A call whose outcome is unknown is repeated under its key.
    async fn take(&mut self) -> Result<RangeInclusive<u64>, SequenceError> {
        let (mut key, mut may_have_taken, mut calls) = (None, false, 0);
        loop {
            let called = self.client.sequence_next(self.sequence.as_str(), self.n, key).await;
            let Err(mut error) = called else { return called };
            *self.failed.entry(error.kind.to_string()).or_default() += 1;
            calls += 1;
            may_have_taken |= error.may_have_taken;
            if !may_have_taken || calls == CALLS_PER_KEY_MAX {
                error.may_have_taken = may_have_taken;
                return Err(error);
            }
            key = error.key;
        }
    }
}

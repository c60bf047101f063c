//! Callers that share one client of the Rust crate, each with one call at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use esker_client::Client;
use esker_oracle::history::Call;
use esker_oracle::{Range, TimestampWidth};
use serde_json::json;

use crate::measure::figure::{Figure, Shape};
use crate::measure::per_thread::PerThread;
use crate::measure::resources::{self, Snapshot};
use crate::timestamp::answer_format::range_of_numbers;
use crate::timestamp::tally::{CallBudget, Recorder, Tally};
use crate::timestamp::timestamp_arguments::TsBenchArguments;
use esker_command::endpoints::client_failure;
use esker_command::exit::{Failure, Outcome};
use esker_command::output::print;

/// Runs the benchmark.
pub fn run(arguments: &TsBenchArguments, callers: u32) -> Outcome {
    on_threads(async |latencies| measure(arguments, callers, latencies).await)
}

/// Runs callers on threads of their own, which record their latencies.
pub fn on_threads(measure: impl AsyncFnOnce(PerThread) -> Outcome) -> Outcome {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let latencies = PerThread::new(threads);
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.enable_all().worker_threads(threads).build();
    let runtime = runtime.map_err(|error| Failure::from_io("start threads", &error))?;
    runtime.block_on(measure(latencies))
}

async fn measure(arguments: &TsBenchArguments, callers: u32, latencies: PerThread) -> Outcome {
    let failed = |error: esker_client::Error| client_failure(&error);
    let builder = arguments.client()?.timeout(arguments.timeout).queue(callers as usize);
    let client = builder.build().map_err(failed)?;
    client.timestamps(arguments.n).await.map_err(failed)?;
    resources::reset_peak();
    let (before, snapshot, begun) = (client.stats(), Snapshot::now(), Instant::now());
    let budget = CallBudget::of_memory();
    let caller = |stop| Caller {
        client: client.clone(),
        n: arguments.n,
        width: arguments.format().width,
        begun,
        stop,
        latencies: latencies.clone(),
        calls: Recorder::new(&budget),
        failed: BTreeMap::new(),
    };
    let ended = run_callers(arguments.seconds, callers, |stop| caller(stop).run()).await?;
    let time = begun.elapsed();
    let mut used = snapshot.used();
    used.resident = resources::peak();
    let stats = client.stats();
    let mut tally = Tally::new(&budget);
    for caller in ended {
        tally.calls.merge(caller.calls);
        for (class, count) in caller.failed {
            *tally.failed.entry(class).or_default() += count;
        }
    }
    let latencies = latencies.take();
    let ops = latencies.count();
    let format = arguments.format();
    let bytes = format.timestamp_bytes() as u64 * ops * u64::from(arguments.n);
    let mut figure = Figure::new("oracle/client", ops, bytes, time);
    let checked = tally.calls.check();
    figure.verdict = checked.verdict;
    figure.params = json!({
        "callers": callers,
        "n": arguments.n,
        "format": format.name(),
        "tls": arguments.uses_tls(),
    });
    let per_s = ops as f64 * f64::from(arguments.n) / time.as_secs_f64().max(1e-9);
    let requests = stats.requests - before.requests;
    figure.used = used;
    figure.more.insert("timestamps_per_s".into(), json!(per_s.round()));
    figure.more.insert("requests".into(), json!(requests));
    figure.more.insert("retries".into(), json!(stats.retries - before.retries));
    figure.more.insert("failed".into(), json!(tally.failed));
    figure.more.insert("unrecorded".into(), json!(checked.unrecorded));
    figure.latencies = latencies;
    if arguments.json {
        return figure.print(true, Shape::Rate).and(checked.outcome());
    }
    print_calls(&figure, ("timestamps", per_s), requests, &tally.failed)?;
    print(&checked.text()).and(checked.outcome())
}

/// Prints the calls of a figure for people, with the rate of what they returned.
pub fn print_calls(
    figure: &Figure,
    (returned, per_s): (&str, f64),
    requests: u64,
    failed: &BTreeMap<String, u64>,
) -> Outcome {
    print(&format!(
        "{} calls in {:.2} s: {per_s:.0} {returned}/s over {requests} requests; p50 {} us, p99 {} us, \
         max {} us\n",
        figure.ops,
        figure.time.as_secs_f64(),
        figure.latencies.quantile_us(0.5),
        figure.latencies.quantile_us(0.99),
        figure.latencies.max_us(),
    ))?;
    for (class, count) in failed {
        print(&format!("{count} failed: {class}\n"))?;
    }
    Ok(())
}

/// Runs callers until they have made calls for the given time, and returns what each returned.
pub async fn run_callers<F>(
    seconds: f64,
    count: u32,
    caller: impl Fn(Arc<AtomicBool>) -> F,
) -> Outcome<Vec<F::Output>>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..count).map(|_| tokio::spawn(caller(Arc::clone(&stop)))).collect();
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    stop.store(true, Relaxed);
    let mut ended = Vec::with_capacity(tasks.len());
    for task in tasks {
        ended.push(task.await.map_err(|error| Failure::failed(error.to_string()))?);
    }
    Ok(ended)
}

/// A task that calls the client again and again.
struct Caller {
    client: Client,
    n: u32,
    width: TimestampWidth,
    begun: Instant,
    stop: Arc<AtomicBool>,
    latencies: PerThread,
    calls: Recorder,
    failed: BTreeMap<String, u64>,
}

impl Caller {
    async fn run(mut self) -> Self {
        let since = |at: Instant| at.saturating_duration_since(self.begun).as_nanos() as u64;
        let mut called = Instant::now();
        while !self.stop.load(Relaxed) {
            let issued = self.call().await;
            // The next call begins with the end of this one: one look at the clock for both.
            let returned = Instant::now();
            match issued {
                Ok(range) => {
                    self.latencies.add(returned - called);
                    let (called, returned) = (since(called), since(returned));
                    self.calls.record(Call { called, returned, range });
                }
                Err(class) => *self.failed.entry(class).or_default() += 1,
            }
            called = returned;
        }
        self
    }

    /// Makes a call. The error is the class of its failure.
    async fn call(&self) -> Result<Range, String> {
        let class = |error: esker_client::Error| error.to_string();
        if self.width == TimestampWidth::Bits128 {
            return self.client.timestamps(self.n).await.map_err(class);
        }
        let numbers = self.client.timestamps_u64(self.n).await.map_err(class)?;
        range_of_numbers(&numbers).ok_or_else(|| "bad_body".into())
    }
}

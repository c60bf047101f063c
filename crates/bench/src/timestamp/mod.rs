//! Benchmarks of the timestamp service.
//!
//! `load` has the connections, of which `http1`, `http2` and `http3` are the protocols,
//! `answer_format` is what they ask for, and `tally` is what each of them saw. `floor` is the same
//! HTTP server without a cluster behind it. `client_callers` share one client of the Rust crate;
//! `sequence_callers` take numbers of a sequence with it. `failover` kills leaders.

mod answer_format;
mod client_callers;
mod failover;
mod http1;
mod http2;
mod http3;
mod http_floor;
mod load;
mod multiplexed;
mod number_set;
mod sequence_callers;
mod tally;
mod timestamp_arguments;

use std::time::Duration;

use serde_json::{Value, json};

use crate::measure::figure::{Figure, Shape};
use crate::measure::resources::{self, Snapshot};
use esker_command::exit::{Failure, Outcome};
use esker_command::output::print;

pub use http_floor::{TsFloorArguments, run as run_floor};
pub use timestamp_arguments::TsBenchArguments;

use load::{Load, find_leader};
use multiplexed::Dialer;

/// The longest time for which the floor is measured, before the run and after it.
const FLOOR_SECONDS_MAX: f64 = 2.0;

/// Runs `esker-bench ts`.
pub fn run(arguments: &TsBenchArguments) -> Outcome {
    arguments.check()?;
    if let Some(sequence) = &arguments.sequence {
        return sequence_callers::run(arguments, sequence);
    }
    if let Some(callers) = arguments.callers {
        return client_callers::run(arguments, callers);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::from_io("start threads", &error))?;
    runtime.block_on(async {
        match arguments.failover {
            Some(rounds) => failover::run(arguments, rounds).await,
            None => measure(arguments).await,
        }
    })
}

async fn measure(arguments: &TsBenchArguments) -> Outcome {
    let members = arguments.caller()?;
    let leader = find_leader(&members, arguments.timeout).await?;
    let (ca, certificate) =
        (arguments.tls_flags().ca(), arguments.tls_flags().client_certificate()?);
    let dialer = || Dialer::new(arguments.protocol, ca, certificate);
    let load = Load::new(arguments, dialer()?, members.clone(), leader.clone());
    load.probe(arguments.timeout).await?;
    let before = floor(arguments).await?;
    resources::reset_peak();
    let load = Load::new(arguments, dialer()?, members, leader);
    let snapshot = Snapshot::now();
    let (tally, time) = load.run(Duration::from_secs_f64(arguments.seconds)).await?;
    let mut used = snapshot.used();
    used.resident = resources::peak();
    let after = floor(arguments).await?;
    let http_rps = before.zip(after).map(|(before, after)| f64::midpoint(before, after));
    let ops = tally.latencies.count();
    let bytes = ops * arguments.format().bytes(arguments.n) as u64;
    let mut figure = Figure::new("oracle/timestamp", ops, bytes, time);
    let checked = tally.calls.check();
    figure.verdict = checked.verdict;
    figure.params = params(arguments);
    let rate = ops as f64 / time.as_secs_f64().max(1e-9);
    figure.used = used;
    figure.more.insert("timestamps_per_s".into(), json!((rate * f64::from(arguments.n)).round()));
    if let Some(http_rps) = http_rps {
        figure.floor.http_rps = Some(http_rps.round());
        figure.more.insert("ratio_to_http".into(), json!((rate / http_rps * 1e3).round() / 1e3));
    }
    figure.more.insert("failed".into(), json!(tally.failed));
    figure.more.insert("unrecorded".into(), json!(checked.unrecorded));
    figure.latencies = tally.latencies;
    let outcome = match ops {
        0 => Err(Failure::failed("no request was answered")),
        _ => Ok(()),
    };
    if arguments.json {
        return figure.print(true, Shape::Rate).and(outcome).and(checked.outcome());
    }
    print(&format!(
        "{ops} requests in {:.2} s: {rate:.0}/s, {:.0} timestamps/s; p50 {} us, p99 {} us, max {} us\n",
        time.as_secs_f64(),
        rate * f64::from(arguments.n),
        figure.latencies.quantile_us(0.5),
        figure.latencies.quantile_us(0.99),
        figure.latencies.max_us(),
    ))?;
    if let Some(http_rps) = http_rps {
        print(&format!(
            "the same server without a cluster: {http_rps:.0}/s; ratio {:.2}\n",
            rate / http_rps
        ))?;
    }
    for (class, count) in &tally.failed {
        print(&format!("{count} failed: {class}\n"))?;
    }
    print(&checked.text())?;
    outcome.and(checked.outcome())
}

/// Requests a second of the floor, if it is comparable.
async fn floor(arguments: &TsBenchArguments) -> Outcome<Option<f64>> {
    let time = Duration::from_secs_f64(arguments.seconds.min(FLOOR_SECONDS_MAX));
    match arguments.has_floor() {
        true => http_floor::rate(arguments, time).await.map(Some),
        false => Ok(None),
    }
}

fn params(arguments: &TsBenchArguments) -> Value {
    json!({
        "protocol": arguments.protocol.name(),
        "tls": arguments.uses_tls(),
        "connections": arguments.connections,
        "streams": arguments.streams(),
        "n": arguments.n,
        "format": arguments.format().name(),
        "rate": arguments.rate,
    })
}

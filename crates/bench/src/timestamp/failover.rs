//! How long a cluster is without timestamps after its leader was killed, or gave its leadership
//! away.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esker_client::{NodeCaller, TlsOptions};
use esker_server::NodeStatus;
use serde_json::json;

use crate::measure::latency::Latencies;
use crate::timestamp::load::{Load, find_leader};
use crate::timestamp::tally::{CallBudget, Tally};
use crate::timestamp::timestamp_arguments::{Protocol, TsBenchArguments};
use crate::workdir::Workdir;
use esker_command::endpoints::{call_failure, client_failure, members};
use esker_command::exit::{Failure, Outcome};
use esker_command::local_nodes::LocalNodes;
use esker_command::output::{print, print_json};

const NODE_COUNT: u16 = 3;
/// Requests a second.
const REQUESTS_PER_SECOND: u32 = 1000;
/// A cluster that has not answered after so long has failed.
const ROUND_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after a round, in which the node that comes back catches up.
const ROUND_PAUSE: Duration = Duration::from_millis(300);

/// The command `esker` beside this one.
fn esker() -> Outcome<PathBuf> {
    let own = std::env::current_exe().map_err(|error| Failure::from_io("find esker", &error))?;
    let esker = own.with_file_name("esker");
    match esker.exists() {
        true => Ok(esker),
        false => Err(Failure::failed(format!(
            "{} is missing: build both, `cargo build --profile dist -p esker-cli -p esker-bench`",
            esker.display()
        ))),
    }
}

pub async fn run(arguments: &TsBenchArguments, rounds: u32) -> Outcome {
    if arguments.protocol != Protocol::H1 {
        return Err(Failure::usage("--failover asks over HTTP/1.1: leave --protocol out"));
    }
    let workdir = Workdir::make(arguments.dir.as_deref(), arguments.keep)?;
    let (dir, uses_tls) = (workdir.log(), arguments.tls);
    let nodes = LocalNodes::start(esker()?, &dir, arguments.port, NODE_COUNT, uses_tls, Err);
    let mut nodes = nodes.await?;
    let scheme = if uses_tls { "https" } else { "http" };
    let endpoints = (1..=NODE_COUNT).map(|number| format!("{scheme}://{}", nodes.address(number)));
    let tls = uses_tls.then(|| TlsOptions::new().ca_file(nodes.authority()));
    let caller = NodeCaller::new(endpoints, tls).map_err(|error| client_failure(&error))?;
    let begun = Instant::now();
    let (mut times, mut failed) = (Latencies::new(), 0_u32);
    let budget = CallBudget::of_memory();
    let mut all = Tally::new(&budget);
    for _ in 0..rounds {
        let leader = agreed_leader(&mut nodes, &caller).await?;
        let rate = arguments.rate.unwrap_or(REQUESTS_PER_SECOND);
        let (address, format) = (nodes.address(leader), arguments.format());
        let load = Load::paced(caller.clone(), address, format, rate, begun, &budget);
        let (time, tally) = match arguments.planned {
            true => transfer(&caller, load, begun).await?,
            false => kill(&mut nodes, leader, load, begun).await?,
        };
        match time {
            Some(time) => times.add(time),
            None => failed += 1,
        }
        all.merge(tally);
        if !arguments.planned {
            nodes.run(leader)?;
            nodes.wait_until_member(leader).await?;
        }
        tokio::time::sleep(ROUND_PAUSE).await;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let checked = all.calls.check();
    nodes.stop().await;
    let figure = json!({
            "bench": "oracle/failover",
            "params": {
                "rounds": rounds,
                "nodes": NODE_COUNT,
                "rate": arguments.rate.unwrap_or(REQUESTS_PER_SECOND),
                "planned": arguments.planned,
                "tls": uses_tls,
                "format": arguments.format().name(),
            },
            "ops": rounds,
            "seconds": (seconds * 1e3).round() / 1e3,
            "p50_us": times.quantile_us(0.5),
            "p99_us": times.quantile_us(0.99),
            "p999_us": times.quantile_us(0.999),
            "max_us": times.max_us(),
            "failed_rounds": failed,
            "requests": all.latencies.count(),
            "failed": all.failed,
            "unrecorded": checked.unrecorded,
            "checked": checked.verdict.is_checked(),
            "verified": checked.verdict.is_right(),
    });
    match arguments.json {
        true => print_json(&figure)?,
        false => print(&(text(&times, &all, rounds, failed, arguments.planned) + &checked.text()))?,
    }
    checked.outcome()
}

/// The figure for people.
fn text(times: &Latencies, all: &Tally, rounds: u32, failed: u32, planned: bool) -> String {
    let what = if planned { "leadership given away" } else { "leader killed" };
    let ms = |us: f64| format!("{:.1} ms", us / 1e3);
    let [p50, p99] = [0.5, 0.99].map(|quantile| ms(times.quantile_us(quantile)));
    let max = ms(times.max_us());
    let unanswered = match failed {
        0 => String::new(),
        failed => format!("{failed} rounds had no timestamp in time\n"),
    };
    format!(
        "{what} {rounds} times: the next timestamp after p50 {p50}, p99 {p99}, at most {max}\n\
         {unanswered}{} requests answered, {} not\n",
        all.latencies.count(),
        all.failed.values().sum::<u64>()
    )
}

/// Kills the leader under load, and returns how long it took until the next timestamp.
async fn kill(
    nodes: &mut LocalNodes,
    leader: u16,
    load: Load,
    begun: Instant,
) -> Outcome<(Option<Duration>, Tally)> {
    let load = Arc::new(load);
    let tasks = Load::start(&load);
    tokio::time::sleep(ROUND_PAUSE).await;
    let killed = Instant::now();
    nodes.kill(leader);
    let answered = load.answered_since(killed, ROUND_TIMEOUT).await;
    // What clients get after it is checked, too.
    tokio::time::sleep(ROUND_PAUSE).await;
    let tally = load.end(tasks).await?;
    let time = answered.then(|| tally.first_after(begun, killed)).flatten();
    Ok((time, tally))
}

/// Has the leader give its leadership away under load, and returns the longest time without a
/// timestamp from then on.
async fn transfer(
    caller: &NodeCaller,
    load: Load,
    begun: Instant,
) -> Outcome<(Option<Duration>, Tally)> {
    let members = members(caller).await?;
    let body = json!({ "cluster": members.cluster }).to_string();
    let load = Arc::new(load);
    let tasks = Load::start(&load);
    tokio::time::sleep(ROUND_PAUSE).await;
    let from = Instant::now();
    let answer = caller.change(&[], "/cluster/transfer", body.as_bytes(), ROUND_TIMEOUT).await;
    let answer = answer.map_err(|error| call_failure(&error))?;
    let answered = load.answered_since(Instant::now(), ROUND_TIMEOUT).await;
    tokio::time::sleep(ROUND_PAUSE).await;
    let tally = load.end(tasks).await?;
    let is_done = answered && answer.status == 200;
    Ok((is_done.then(|| tally.longest_gap(begun, from)).flatten(), tally))
}

/// Waits until all nodes follow one leader and have what it has; its number.
async fn agreed_leader(nodes: &mut LocalNodes, caller: &NodeCaller) -> Outcome<u16> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        nodes.check()?;
        find_leader(caller, ROUND_TIMEOUT).await?;
        let mut all = Vec::new();
        for member in caller.endpoints() {
            if let Ok(answer) = caller.get(member, "/status", ROUND_TIMEOUT).await
                && let Ok(status) = serde_json::from_slice::<NodeStatus>(&answer.body)
            {
                all.push((status.leader, status.term, status.last));
            }
        }
        all.dedup();
        if let [(Some(leader), ..)] = all[..]
            && let Ok(leader) = u16::try_from(leader)
        {
            return Ok(leader);
        }
        if Instant::now() >= deadline {
            return Err(Failure::failed(format!("the nodes do not agree: {all:?}")));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

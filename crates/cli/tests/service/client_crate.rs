//! The client of the Rust crate, with real nodes.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use esker_client::{Client, Range, Timestamp};
use esker_oracle::history::{Call, check, in_milliseconds};
use rustix::process::Signal;

use crate::esker::{command, program, run};
use crate::nodes::{LONG, Nodes};

/// A transfer of leadership, a kill of the leader, and a leader that is stopped: no call fails, and
/// what all callers got is unique and in order. Every other caller gets timestamps of 64 bits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_follows_the_leader_without_an_error() {
    let mut nodes = Nodes::start_all(3).await;
    let client = Client::builder().endpoint(nodes.address(1)).timeout(LONG).build().unwrap();
    let (begun, stop) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    let now = move || begun.elapsed().as_nanos() as u64;
    let callers: Vec<_> = (1..=20)
        .map(|count| {
            let (client, stop) = (client.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut calls = Vec::new();
                while !stop.load(Relaxed) {
                    let called = now();
                    let range = match gets_64_bits(count) {
                        true => of_64_bits(&client, count).await,
                        false => client.timestamps(count).await.unwrap(),
                    };
                    calls.push(Call { called, returned: now(), range });
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                calls
            })
        })
        .collect();
    let issues = async |client: &Client| {
        for _ in 0..20 {
            client.timestamp().await.unwrap();
        }
    };
    issues(&client).await;
    let leader = nodes.agreed().await;
    let endpoint = format!("http://{}", nodes.address(leader));
    run(command(&["cluster", "transfer", "--endpoint", &endpoint]), b"").ok();
    issues(&client).await;
    let leader = nodes.agreed().await;
    nodes.kill(leader);
    issues(&client).await;
    nodes.start(leader);
    nodes.ready(leader).await;
    let leader = nodes.agreed().await;
    nodes.signal(leader, Signal::STOP);
    issues(&client).await;
    nodes.signal(leader, Signal::CONT);
    stop.store(true, Relaxed);
    let (mut calls, mut wide) = (Vec::new(), Vec::new());
    for (caller, count) in callers.into_iter().zip(1..) {
        let own = caller.await.unwrap();
        if !gets_64_bits(count) {
            wide.extend_from_slice(&own);
        }
        calls.extend(own);
    }
    check(&wide).unwrap();
    check(&in_milliseconds(&calls)).unwrap();
    let stats = client.stats();
    assert_eq!(stats.failures, 0, "{stats:?}");
    assert!(stats.leader_changes >= 3 && stats.requests < stats.timestamps, "{stats:?}");
}

/// Whether the caller of `count` timestamps gets those of 64 bits.
fn gets_64_bits(count: u32) -> bool {
    count.is_multiple_of(2)
}

async fn of_64_bits(client: &Client, count: u32) -> Range {
    let numbers = client.timestamps_u64(count).await.unwrap();
    let first = Timestamp::from_u64(*numbers.start()).unwrap();
    assert_eq!(numbers.count(), count as usize);
    Range { first, count }
}

/// Every figure that a script reads, and the check of the whole history.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_benchmark_of_callers_checks_what_it_got() {
    let nodes = Nodes::start_all(1).await;
    let endpoint = format!("http://{}", nodes.address(1));
    let words = ["ts", "--json", "--seconds", "0.2", "--callers", "50"];
    for (flag, format) in [(None, "range"), (Some("--u64"), "u64-range")] {
        let mut bench = program("esker-bench", &words);
        bench.args(["--endpoint", &endpoint]).args(flag);
        let figure = tokio::task::spawn_blocking(|| run(bench, b"").ok().json()).await.unwrap();
        let right = (&"oracle/client".into(), &true.into());
        assert_eq!((&figure["bench"], &figure["verified"]), right);
        assert_eq!((&figure["checked"], &figure["unrecorded"]), (&true.into(), &0.into()));
        let keys = ["ops", "ops_per_s", "p50_us", "p999_us", "max_us", "timestamps_per_s"];
        for key in keys.into_iter().chain(["requests"]) {
            assert!(figure[key].as_f64().unwrap() > 0.0, "{key}: {figure}");
        }
        assert!(figure["requests"].as_u64() < figure["ops"].as_u64(), "{figure}");
        let params = &figure["params"];
        assert_eq!((&params["callers"], &params["format"]), (&50.into(), &format.into()));
        assert_eq!(figure["retries"], 0, "{figure}");
    }
}

//! The client of the Rust crate, with real nodes.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use esker_client::Client;
use esker_oracle::history::{Call, check};
use rustix::process::Signal;

use crate::esker::{command, program, run};
use crate::nodes::{LONG, Nodes};

/// A transfer of leadership, a kill of the leader, and a leader that is stopped: no call fails, and
/// what all callers got is unique and in order.
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
                    let range = client.timestamps(count).await.unwrap();
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
    let mut calls = Vec::new();
    for caller in callers {
        calls.extend(caller.await.unwrap());
    }
    check(&calls).unwrap();
    let stats = client.stats();
    assert_eq!(stats.failures, 0, "{stats:?}");
    assert!(stats.leader_changes >= 3 && stats.requests < stats.timestamps, "{stats:?}");
}

/// Every figure that a script reads, and the check of the whole history.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_benchmark_of_callers_checks_what_it_got() {
    let nodes = Nodes::start_all(1).await;
    let endpoint = format!("http://{}", nodes.address(1));
    let words = ["ts", "--json", "--seconds", "0.2", "--callers", "50"];
    let mut bench = program("esker-bench", &words);
    bench.args(["--endpoint", &endpoint]);
    let figure = tokio::task::spawn_blocking(|| run(bench, b"").ok().json()).await.unwrap();
    assert_eq!((&figure["bench"], &figure["verified"]), (&"oracle/client".into(), &true.into()));
    assert_eq!((&figure["checked"], &figure["unrecorded"]), (&true.into(), &0.into()));
    for key in ["ops", "ops_per_s", "p50_us", "p999_us", "max_us", "timestamps_per_s", "requests"] {
        assert!(figure[key].as_f64().unwrap() > 0.0, "{key}: {figure}");
    }
    assert!(figure["requests"].as_u64() < figure["ops"].as_u64(), "{figure}");
    assert_eq!((&figure["params"]["callers"], &figure["retries"]), (&50.into(), &0.into()));
}

//! Sequences with real nodes: the commands, the client, and the benchmark.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use esker_client::{Client, SequenceErrorKind};

use crate::esker::{CommandOutput, command, program, run};
use crate::nodes::{LONG, Nodes};

/// Runs `esker sequence` with any node.
fn sequence(words: &[&str], endpoint: &str) -> CommandOutput {
    let mut sequence = command(&[&["sequence"][..], words].concat());
    if words[0] == "next" {
        sequence.args(["--timeout", "100s"]);
    }
    sequence.args(["--endpoint", endpoint]);
    run(sequence, b"")
}

/// The lines of numbers.
fn numbers(printed: &CommandOutput) -> Vec<u64> {
    printed.text().lines().map(|line| line.parse().unwrap()).collect()
}

/// Whichever node is asked, numbers follow one another, and those of a key stay when the leader is
/// killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_take_numbers_from_any_node() {
    let mut nodes = Nodes::start_all(3).await;
    let endpoint = |node: usize| format!("http://{}", nodes.address(node));
    let endpoints = [endpoint(1), endpoint(2), endpoint(3)];
    let [one, two, three] = endpoints.each_ref();
    sequence(&["next", "invoices"], one).exits(1).says(&["no such sequence", "create"]);
    sequence(&["create", "invoices", "--first", "41"], two).ok();
    sequence(&["create", "invoices"], one).exits(1);
    assert_eq!(numbers(&sequence(&["next", "invoices"], one).ok()), [41]);
    assert_eq!(numbers(&sequence(&["next", "invoices", "-n", "2"], two).ok()), [42, 43]);
    let taken = run(command(&["ts", "--endpoint", three]), b"").ok();
    let key = taken.text().split(' ').next().unwrap().to_owned();
    let with_key = ["next", "invoices", "-n", "3", "--key", &key];
    assert_eq!(numbers(&sequence(&with_key, three).ok()), [44, 45, 46]);
    let leader = nodes.agreed().await;
    nodes.kill(leader);
    let alive = &endpoints[leader % 3];
    assert_eq!(numbers(&sequence(&with_key, alive).ok()), [44, 45, 46]);
    assert_eq!(numbers(&sequence(&["next", "invoices"], alive).ok()), [47]);
    sequence(&["next", "invoices", "--key", &key], alive).exits(1).says(&["another request"]);
    let made_up = "ffffffffffffff000000000000000001";
    sequence(&["next", "invoices", "--key", made_up], alive).exits(1).says(&["issued"]);
    let listed = sequence(&["list"], alive).ok();
    assert_eq!(listed.text(), "name      next\ninvoices  48\n");
    sequence(&["remove", "invoices"], alive).ok();
    sequence(&["remove", "invoices"], alive).exits(1);
    sequence(&["next", "invoices"], alive).exits(1).says(&["no such sequence"]);
    assert_eq!(sequence(&["list", "--json"], alive).ok().text(), "");
}

/// Leaders are killed while callers take numbers: none comes twice, and none is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_takes_numbers_without_gap_or_repeat_through_kills() {
    let mut nodes = Nodes::start_all(3).await;
    let client = Client::builder().endpoint(nodes.address(1)).timeout(LONG).build().unwrap();
    let error = client.sequence_next("invoices", 1, None).await.unwrap_err();
    assert!(matches!(error.kind, SequenceErrorKind::NoSequence(_)), "{error:?}");
    sequence(&["create", "invoices"], &format!("http://{}", nodes.address(1))).ok();
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (1..=8)
        .map(|count| {
            let (client, stop) = (client.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut taken = Vec::new();
                while !stop.load(Relaxed) {
                    taken.extend(client.sequence_next("invoices", count, None).await.unwrap());
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                taken
            })
        })
        .collect();
    for _ in 0..3 {
        client.sequence_next("invoices", 1, None).await.unwrap();
        let leader = nodes.agreed().await;
        nodes.kill(leader);
        client.sequence_next("invoices", 1, None).await.unwrap();
        nodes.start(leader);
        nodes.ready(leader).await;
    }
    stop.store(true, Relaxed);
    // Those of the calls above, too: they are the ones that no caller has.
    let mut taken = Vec::new();
    for caller in callers {
        taken.extend(caller.await.unwrap());
    }
    let count = taken.len();
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), count, "no number comes twice");
    let highest = *taken.last().unwrap();
    assert!(highest <= count as u64 + 6, "{highest} of {count}: a number is missing");
    let stats = client.stats();
    assert_eq!((stats.failures, stats.leader_changes > 0), (1, true), "{stats:?}");
}

/// Every figure that a script reads, and the check of all numbers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_benchmark_of_a_sequence_checks_what_it_got() {
    let nodes = Nodes::start_all(1).await;
    let endpoint = format!("http://{}", nodes.address(1));
    let words = ["ts", "--json", "--seconds", "0.2", "--sequence", "orders", "--callers", "8"];
    // The second run finds the sequence of the first.
    for n in ["1", "3"] {
        let mut bench = program("esker-bench", &words);
        bench.args(["--n", n, "--endpoint", &endpoint]);
        let figure = tokio::task::spawn_blocking(|| run(bench, b"").ok().json()).await.unwrap();
        assert_eq!(figure["bench"], "oracle/sequence");
        assert_eq!((&figure["checked"], &figure["verified"]), (&true.into(), &true.into()));
        for key in ["ops", "ops_per_s", "p50_us", "max_us", "numbers_per_s", "requests"] {
            assert!(figure[key].as_f64().unwrap() > 0.0, "{key}: {figure}");
        }
        let params = &figure["params"];
        assert_eq!((&params["callers"], &params["sequence"]), (&8.into(), &"orders".into()));
        for key in ["retries", "unknown", "unrecorded"] {
            assert_eq!(figure[key], 0, "{figure}");
        }
    }
}

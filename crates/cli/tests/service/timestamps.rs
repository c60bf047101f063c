//! `esker ts` and `esker cluster`.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use esker_oracle::Timestamp;
use esker_testkit::free_port;
use rustix::process::Signal;
use serde_json::Value;

use crate::client::{Protocol, get};
use crate::esker::{command, end, program, read_lines, run, signal, spawn, until};
use crate::lines::{ANY_PORT, NodeProcess, serve, until_timestamps};
use crate::nodes::Nodes;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Each node names the leader and all members. One that is removed is none of them any longer.
/// Timestamps of 16 bytes and of 64 bits are in one order, and the texts of both are decoded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timestamps_come_from_any_node() {
    let mut nodes = Nodes::start_all(3).await;
    let mut last = 0;
    for node in 1..=3 {
        let endpoint = format!("http://{}", nodes.address(node));
        for is_u64 in [false, true] {
            let mut ts = command(&["ts", "--endpoint", &endpoint, "--n", "3", "--json"]);
            ts.args(is_u64.then_some("--u64"));
            let taken = lines(run(ts, b"").ok().text());
            assert_eq!(taken.len(), 3);
            for timestamp in taken {
                let text = timestamp["timestamp"].as_str().unwrap();
                let number = match is_u64 {
                    true => text.parse().unwrap(),
                    false => text.parse::<Timestamp>().unwrap().to_u64().unwrap(),
                };
                assert!(number > last, "{number} {last}");
                assert_eq!(timestamp["index"], number % (1 << 18), "{timestamp}");
                let milliseconds = timestamp["epoch"].as_u64().unwrap() / 1_000_000;
                assert_eq!(milliseconds, number >> 18, "{timestamp}");
                let decoded = run(command(&["ts", "decode", text, "--json"]), b"").ok().json();
                assert_eq!(decoded, timestamp);
                last = number;
            }
        }
        let status = run(command(&["cluster", "status", "--endpoint", &endpoint, "--json"]), b"");
        let status = lines(status.ok().text());
        let leads = status.iter().filter(|node| node["leads"] == true).count();
        assert_eq!((status.len(), leads), (3, 1));
        assert!(status.iter().all(|node| node["status"]["role"].is_string()), "{status:?}");
    }
    let leader = nodes.agreed().await;
    let endpoint = format!("http://{}", nodes.address(leader));
    // From a follower, which names the leader.
    let other = format!("http://{}", nodes.address(leader % 3 + 1));
    let followed = run(command(&["cluster", "follow-clock", "--endpoint", &other]), b"").ok();
    assert!(followed.text().starts_with("epochs follow the clock from 1"), "{}", followed.text());
    let refused = ["cluster", "remove", "--node-id", &leader.to_string(), "--endpoint", &endpoint];
    run(command(&refused), b"").exits(1).says(&["transfer"]);
    let gone = leader % 3 + 1;
    let remove = ["cluster", "remove", "--node-id", &gone.to_string(), "--endpoint", &endpoint];
    run(command(&remove), b"").ok();
    assert_eq!(nodes.members(leader).await.unwrap().members.len(), 2);
    nodes.signal(gone, Signal::TERM);
    assert_eq!(nodes.ended(gone), Some(0));
    run(command(&["ts", "--endpoint", &endpoint]), b"").ok();
}

#[test]
fn what_is_no_timestamp_and_no_service() {
    let above_64_bits = "18446744073709551616";
    for wrong in ["", "zz", "0123", "+5", "1.5", above_64_bits, &"0".repeat(33), &"g".repeat(32)] {
        let refused = run(command(&["ts", "decode", wrong]), b"").exits(2);
        refused.says(&["32 hexadecimal digits", "64 bits"]);
    }
    let late = u64::MAX.to_string();
    run(command(&["ts", "decode", &late]), b"").exits(2).says(&[&late, "2554"]);
    for wrong in [&["--n", "0"][..], &["--n", "65537"], &["--endpoint", "ftp://a"]] {
        let mut ts = command(&["ts"]);
        ts.args(wrong);
        run(ts, b"").exits(2);
    }
    let endpoint = format!("http://127.0.0.1:{}", free_port());
    let words = ["ts", "--timeout", "200ms", "--endpoint", &endpoint];
    run(command(&words), b"").exits(1).says(&["127.0.0.1"]);
}

/// A reader that has enough ends it, as `head` does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_ends_when_its_reader_does() {
    let nodes = Nodes::start_all(1).await;
    let endpoint = format!("http://{}", nodes.address(1));
    let mut watch = spawn(&mut command(&["ts", "--watch", "--endpoint", &endpoint]), Stdio::null());
    let mut out = watch.stdout.take().unwrap();
    assert_eq!(read_lines(&mut out, 1).lines().count(), 1);
    drop(out);
    until("the watch ends", || watch.try_wait().unwrap().is_some());
    end(watch).ok();
}

/// Bug: with its output blocked, it ended neither at the first signal nor at the second. With a
/// reader, it first printed everything that it had asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_with_more_to_print_ends_at_a_signal() {
    let nodes = Nodes::start_all(1).await;
    let endpoint = format!("http://{}", nodes.address(1));
    for is_read in [true, false] {
        let mut watch = command(&["ts", "--watch", "--n", "65536", "--endpoint", &endpoint]);
        let mut watch = spawn(&mut watch, Stdio::null());
        let mut out = watch.stdout.take().unwrap();
        assert_eq!(read_lines(&mut out, 1).lines().count(), 1);
        std::thread::sleep(std::time::Duration::from_millis(100));
        signal(&watch, "TERM");
        std::thread::sleep(std::time::Duration::from_millis(100));
        if is_read {
            let mut rest = String::new();
            out.read_to_string(&mut rest).unwrap();
            assert!(rest.ends_with('\n') && rest.lines().count() < 65_000);
            assert_eq!(end(watch).ok().err, "");
        } else {
            until("the watch ends", || watch.try_wait().unwrap().is_some());
            end(watch).ok().says(&["standard output is blocked"]);
        }
    }
}

/// The server that answers is of something else, or no HTTP server.
#[test]
fn a_server_that_is_no_esker_node_is_named_as_such() {
    for answer in ["", "220 mail\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                drop(stream.read(&mut [0; 1024]));
                drop(stream.write_all(answer.as_bytes()));
            }
        });
        let words = ["ts", "--timeout", "200ms", "--endpoint", &endpoint];
        run(command(&words), b"").exits(1).says(&["Esker node"]);
    }
}

/// Timestamps of two clusters have no order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_of_two_clusters_are_refused() {
    let (one, other) = (Nodes::start_all(1).await, Nodes::start_all(1).await);
    let (one, other) = (one.address(1), other.address(1));
    let absent = format!("127.0.0.1:{}", free_port());
    for words in [&["ts"][..], &["cluster", "status"]] {
        let asks = |first: &str, second: &str| {
            let mut all = command(words);
            all.args(["--endpoint", &format!("http://{first}")]);
            all.args(["--endpoint", &format!("http://{second}")]);
            run(all, b"")
        };
        asks(&one, &other).exits(1).says(&[&one, &other, "cluster"]);
        asks(&one, &one).ok();
        asks(&absent, &one).ok();
    }
}

/// The status shows what is known, and its exit status says that nothing works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_quorum_the_status_fails() {
    let mut nodes = Nodes::start_all(3).await;
    let stays = nodes.agreed().await;
    let gone: Vec<_> = (1..=3).filter(|node| *node != stays).collect();
    let endpoint = format!("http://{}", nodes.address(stays));
    let status = || run(command(&["cluster", "status", "--endpoint", &endpoint]), b"");
    nodes.kill(gone[0]);
    status().ok();
    nodes.kill(gone[1]);
    let shown = status().exits(1).says(&["no quorum answers: 1 of 3"]);
    assert_eq!(shown.text().lines().count(), 5, "{}", shown.text());
    // The member that is there says why, not how another one is not.
    let number = gone[0].to_string();
    let remove = ["cluster", "remove", "--node-id", &number, "--endpoint", &endpoint];
    let refused = run(command(&remove), b"").exits(1);
    assert!(refused.err.contains(&nodes.address(stays)), "{}", refused.err);
    assert!(!refused.err.contains("refused"), "{}", refused.err);
}

/// Every figure that a script reads, and the check of the whole history.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_benchmark_checks_what_it_got() {
    let nodes = Nodes::start_all(1).await;
    let endpoint = format!("http://{}", nodes.address(1));
    for (flags, format) in [
        ("--protocol h1", "list"),
        ("--protocol h2c --streams 4 --n 10", "list"),
        ("--u64", "u64"),
        ("--protocol h2c --streams 4 --n 10 --u64 --format range", "u64-range"),
    ] {
        let mut bench =
            program("esker-bench", &["ts", "--json", "--seconds", "0.2", "--connections", "4"]);
        bench.args(flags.split(' ')).args(["--endpoint", &endpoint]);
        let figure = tokio::task::spawn_blocking(|| run(bench, b"").ok().json()).await.unwrap();
        assert_eq!(figure["bench"], "oracle/timestamp");
        assert_eq!(figure["params"]["format"], format);
        assert_eq!((&figure["checked"], &figure["verified"]), (&true.into(), &true.into()));
        assert_eq!(figure["unrecorded"], 0, "{figure}");
        for key in ["ops", "ops_per_s", "p50_us", "p999_us", "max_us", "timestamps_per_s"] {
            assert!(figure[key].as_f64().unwrap() > 0.0, "{key}: {figure}");
        }
        assert!(figure["floor"]["http_rps"].as_f64().unwrap() > 0.0, "{figure}");
        // There is no disk in this benchmark.
        assert!(figure["floor"]["sync_p50_us"].is_null(), "{figure}");
        assert_eq!(figure["failed"], serde_json::json!({}));
    }
}

/// The number of refused requests in these metrics of a node.
fn count_refused(metrics: &str) -> u64 {
    let name = "esker_http_answers_total{status=\"503\"} ";
    metrics
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .map_or(0, |count| count.parse().unwrap())
}

/// Requests that the node counts as refused, and those that failed when it was killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_failed_request_of_a_benchmark_has_a_class() {
    let dir = tempfile::tempdir().unwrap();
    let mut one_waits = serve(&ANY_PORT);
    one_waits.current_dir(&dir).env("TIMESTAMP_REQUEST_BUFFER", "1");
    let mut node = NodeProcess::start(&mut one_waits);
    let address = node.answers();
    until_timestamps(&address).await;
    let bench = |seconds: &str, form: &str| {
        let mut bench =
            program("esker-bench", &["ts", "--connections", "32", "--seconds", seconds]);
        bench.args(["--endpoint", &format!("http://{address}")]).args(form.split_whitespace());
        tokio::task::spawn_blocking(move || run(bench, b""))
    };
    let figure = bench("0.3", "--json").await.unwrap().ok().json();
    let metrics = get(Protocol::Http1, &address, "/metrics").await;
    let refused = count_refused(metrics.text());
    assert!(refused > 0, "{figure}");
    assert_eq!(figure["failed"], serde_json::json!({ "503": refused }));
    let table = bench("0.3", "").await.unwrap().ok();
    assert!(table.text().contains(" failed: 503\n"), "{table:?}");
    let metrics = get(Protocol::Http1, &address, "/metrics").await;
    let refused = count_refused(metrics.text());
    // Killed as soon as the next load has reached it.
    let figure = bench("1", "--json");
    let mut now = refused;
    while now == refused && !figure.is_finished() {
        let metrics = get(Protocol::Http1, &address, "/metrics").await;
        now = count_refused(metrics.text());
    }
    node.process.kill().unwrap();
    // Without a single answer it has failed, and says as much as otherwise.
    let ended = figure.await.unwrap();
    let figure = ended.json();
    ended.exits(i32::from(figure["ops"] == 0));
    let failed = figure["failed"].as_object().unwrap();
    assert!(failed["503"].as_u64() > Some(0) && failed["connect"].as_u64() > Some(0), "{figure}");
    let known = ["503", "closed", "connect"];
    assert!(failed.keys().all(|class| known.contains(&&**class)), "{figure}");
}

/// A protocol that the node does not speak ends the benchmark, with the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_benchmark_says_that_there_is_no_connection() {
    let dir = tempfile::tempdir().unwrap();
    let mut without = serve(&ANY_PORT);
    let mut node = NodeProcess::start(without.current_dir(&dir).arg("--http3=off"));
    let address = node.answers();
    until_timestamps(&address).await;
    let mut bench = program("esker-bench", &["ts", "--protocol", "h3", "--seconds", "1"]);
    bench.args(["--timeout", "1s", "--endpoint", &format!("http://{address}")]);
    let ended = tokio::task::spawn_blocking(move || run(bench, b"")).await.unwrap();
    ended.exits(1).says(&["h3", &address, "--http3=off"]);
    node.stop();
}

/// Clients would be sent there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_is_not_where_another_node_answers() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let start = |dir: &tempfile::TempDir| NodeProcess::start(serve(&ANY_PORT).current_dir(dir));
    let (mut one, mut other) = (start(&dirs[0]), start(&dirs[1]));
    let (address, elsewhere) = (one.answers(), other.answers());
    until_timestamps(&address).await;
    let add = |to: &str| {
        let mut add = command(&["cluster", "add", "--node-id", "1", "--addr", to]);
        add.args(["--endpoint", &format!("http://{address}")]);
        run(add, b"")
    };
    add(&elsewhere).exits(1).says(&["another node", &elsewhere]);
    add("elsewhere").exits(2).says(&["--addr", "elsewhere"]);
    add(&address).ok();
    one.stop();
    other.stop();
}

#[test]
fn several_timestamps_are_decoded() {
    let wide = "18eb02db3097e5170000000000000001";
    let timestamps = [wide, "18eb02db3097e5170000000000000002", "470687945031155713"];
    let mut decode = command(&["ts", "decode"]);
    decode.args(timestamps);
    let shown = run(decode, b"").ok();
    let lines: Vec<_> = shown.text().lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[2].ends_with("  2026-11-24T14:53:36.873000000Z  1"), "{}", lines[2]);
    assert!(lines.iter().zip(timestamps).all(|(line, timestamp)| line.starts_with(timestamp)));
    let mut wrong = command(&["ts", "decode"]);
    wrong.args([timestamps[0], "18eb"]);
    let wrong = run(wrong, b"").exits(2);
    assert!(wrong.out.is_empty(), "{wrong:?}");
}

/// Through curl, where there is one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_gets_timestamps_over_both_protocols() {
    if Command::new("curl").arg("--version").output().is_err() {
        println!("SKIPPED: there is no curl");
        return;
    }
    let nodes = Nodes::start_all(1).await;
    for protocol in ["--http1.1", "--http2-prior-knowledge"] {
        let url = format!("http://{}/timestamp?n=2", nodes.address(1));
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail", protocol, &url]);
        let ended = tokio::task::spawn_blocking(move || curl.output().unwrap()).await.unwrap();
        assert_eq!((ended.status.code(), ended.stdout.len()), (Some(0), 32), "{ended:?}");
    }
}

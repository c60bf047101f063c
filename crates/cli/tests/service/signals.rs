//! Signals at every moment of a node, and what it leaves on the disk.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::esker::command;
use crate::lines::{ANY_PORT, NodeProcess, serve, until_timestamps};

const STARTS: &str = "starts a node with these settings";

/// Files of the owner alone, and folders too.
fn is_private(dir: &Path) -> usize {
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(dir), 0o700, "{}", dir.display());
    let mut files = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files += is_private(&path);
        } else {
            assert_eq!(mode(&path), 0o600, "{}", path.display());
            files += 1;
        }
    }
    files
}

/// Whatever the umask of the process is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_data_of_a_node_is_its_owners_alone() {
    let dir = tempfile::tempdir().unwrap();
    let esker = command(&["serve"]).get_program().to_owned();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "umask 0; exec \"$0\" serve \"$@\""]).arg(esker);
    let mut node = NodeProcess::start(shell.args(ANY_PORT).current_dir(&dir));
    let address = node.answers();
    until_timestamps(&address).await;
    assert!(is_private(&dir.path().join("esker-data")) > 2);
    node.stop();
    assert!(is_private(&dir.path().join("esker-data")) > 2);
}

/// While a new node, and one that was there before, starts; then it starts and answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_at_any_moment_of_a_start_ends_it_with_0() {
    let dir = tempfile::tempdir().unwrap();
    for moment in 0..24 {
        if moment % 2 == 0 {
            drop(std::fs::remove_dir_all(dir.path().join("esker-data")));
        }
        let mut node = NodeProcess::start(serve(&ANY_PORT).current_dir(&dir));
        node.says(STARTS);
        tokio::time::sleep(Duration::from_millis(moment * 5)).await;
        node.signal(if moment % 4 < 2 { Signal::TERM } else { Signal::INT });
        assert_eq!(node.end(), (Some(0), String::new()), "after {} ms", moment * 5);
    }
    let mut node = NodeProcess::start(serve(&ANY_PORT).current_dir(&dir));
    let address = node.answers();
    until_timestamps(&address).await;
    node.stop();
}

/// Bug: SIGHUP, which programs that rotate logs send, killed a node without a line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hangup_at_any_moment_has_no_effect_but_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = NodeProcess::start(serve(&ANY_PORT).current_dir(&dir));
    node.says(STARTS);
    node.signal(Signal::HUP);
    let address = node.answers();
    let is_line = |line: &serde_json::Value| {
        line["message"].as_str().unwrap().starts_with("SIGHUP has no effect")
    };
    let before = node.seen.iter().filter(|line| is_line(line)).count();
    node.signal(Signal::HUP);
    node.next(is_line);
    until_timestamps(&address).await;
    let lines = node.stop();
    let hangups = lines.iter().filter(|line| is_line(line));
    assert!(before <= 1 && hangups.clone().count() == 2, "{lines:#?}");
    assert!(hangups.clone().all(|line| line["level"] == "info"), "{lines:#?}");
}

/// A member that takes the connection and does not answer delays no signal.
#[test]
fn a_signal_ends_a_node_that_waits_to_join() {
    let dir = tempfile::tempdir().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let member = silent.local_addr().unwrap().to_string();
    let mut serve = serve(&ANY_PORT);
    serve.args(["--node-id", "2", "--join", &member]).current_dir(&dir);
    let mut node = NodeProcess::start(&mut serve);
    node.says(STARTS);
    // It asks.
    let (_asked, _) = silent.accept().unwrap();
    node.signal(Signal::TERM);
    assert_eq!(node.end(), (Some(0), String::new()));
    assert!(!dir.path().join("esker-data").exists());
}

/// A node that stops accepts nothing more and answers what it has. Signals that follow change
/// nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stops_answers_what_it_has() {
    let dir = tempfile::tempdir().unwrap();
    for first in [Signal::TERM, Signal::INT] {
        let mut node = NodeProcess::start(serve(&ANY_PORT).current_dir(&dir));
        let address = node.answers();
        let mut stream = TcpStream::connect(&address).await.unwrap();
        // Half of a request.
        let head = "POST /cluster/transfer HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\
                    content-type: application/json\r\n\r\n{";
        stream.write_all(head.as_bytes()).await.unwrap();
        // The node has it, as all that came before on the connections that it accepted.
        until_timestamps(&address).await;
        let begun = Instant::now();
        node.signal(first);
        node.says("stops");
        while TcpStream::connect(&address).await.is_ok() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it still accepts");
        }
        for more in [Signal::TERM, Signal::INT, Signal::TERM] {
            node.signal(more);
        }
        // It waits for the other half.
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(node.process.try_wait().unwrap().is_none(), "it ended before its request");
        stream.write_all(b"}").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        assert_eq!(node.end(), (Some(0), String::new()));
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
}

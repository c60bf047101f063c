//! A cluster without requests.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use esker_server::{NodeStatus, ask};

use crate::nodes::{Nodes, TEST_TIMEOUT};

/// Length and last change of each file.
fn files(dir: &Path) -> BTreeMap<PathBuf, (u64, SystemTime)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let facts = entry.metadata().unwrap();
        if facts.is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.insert(entry.path(), (facts.len(), facts.modified().unwrap()));
        }
    }
    found
}

/// Returns the state of the nodes: the last entry, the last applied one and the files of each.
async fn state(nodes: &Nodes) -> Vec<impl PartialEq + std::fmt::Debug> {
    let mut all = Vec::new();
    for node in 1..=3 {
        let answer = ask(&nodes.address(node), "/status", None, TEST_TIMEOUT).await.unwrap();
        let NodeStatus { last, applied, .. } = serde_json::from_slice(&answer.body).unwrap();
        all.push((last, applied, files(&nodes.data(node))));
    }
    all
}

/// Ten intervals of the epoch, and many heartbeats: nothing is proposed, and no file changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_cluster_writes_nothing() {
    let nodes = Nodes::start_all(3).await;
    let leader = nodes.leader().await;
    nodes.timestamp(leader).await;
    // What the last request began ends, and so do the files that are prepared ahead.
    let deadline = Instant::now() + TEST_TIMEOUT;
    // A leader that gets no processor is replaced, which is an entry.
    let mut before = (leader, state(&nodes).await);
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = (nodes.leader().await, state(&nodes).await);
        if now == before {
            break;
        }
        assert!(Instant::now() < deadline, "{now:#?}");
        before = now;
    }
}

//! One command for all nodes of a cluster, from the first start on.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::{Duration, Instant};

use esker_server::{Server, ServerError, ServerOptions, ask};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::client::{BOTH, Protocol, get, post};
use crate::nodes::{Nodes, TEST_TIMEOUT, alone, own_port};

type Starting = JoinHandle<Result<Server, ServerError>>;

/// Nodes that are all started with the same list of three addresses.
struct ListedNodes {
    nodes: Nodes,
    list: Vec<String>,
}

impl ListedNodes {
    fn new() -> Self {
        let mut nodes = Nodes::none();
        let list = (1..=3).map(|node| nodes.reserve(node)).collect();
        Self { nodes, list }
    }

    fn options(&mut self, node: u64) -> ServerOptions {
        let mut options = self.nodes.options(node);
        options.cluster = self.list.clone();
        (options.join, options.node) = (None, None);
        options
    }

    fn begin(&mut self, node: u64) -> Starting {
        tokio::spawn(Server::start(self.options(node)))
    }

    async fn all(&mut self, order: [u64; 3]) {
        let starting = order.map(|node| (node, self.begin(node)));
        for (node, starting) in starting {
            let server =
                tokio::time::timeout(TEST_TIMEOUT, starting).await.unwrap().unwrap().unwrap();
            self.nodes.servers.insert(node, server);
        }
        self.nodes.wait_for_voters(3).await;
    }

    /// Waits until the node says that it waits for this one.
    async fn waits_for(&self, node: u64, missing: u64) {
        let (address, missing) = (&self.list[node as usize - 1], &self.list[missing as usize - 1]);
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            // A connection ends when the node continues.
            if let Ok(ready) = ask(address, "/ready", None, TEST_TIMEOUT).await {
                assert_eq!(ready.status, 500);
                if ready.text().contains(&format!("{missing}: ")) {
                    return;
                }
            }
            assert!(Instant::now() < deadline, "node {node} does not wait");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn lose_data(&self, node: u64) {
        std::fs::remove_dir_all(self.nodes.data(node)).unwrap();
    }

    fn has_log(&self, node: u64) -> bool {
        self.nodes.data(node).join("raft/manifest").exists()
    }
}

async fn end(starting: Starting) {
    starting.abort();
    assert!(starting.await.unwrap_err().is_cancelled());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_start_with_one_command_in_any_order() {
    let mut listed = ListedNodes::new();
    listed.all([3, 1, 2]).await;
    let leader = listed.nodes.leader().await;
    let (cluster, before) =
        (listed.nodes.members(1).await.cluster, listed.nodes.timestamp(leader).await);
    let metrics = get(Protocol::Http1, &listed.list[1], "/metrics").await;
    let named = format!("esker_cluster_info{{cluster=\"{cluster}\",node=\"2\"}} 1\n");
    assert!(metrics.text().contains(&named), "{}", metrics.text());
    // Later starts: the same command.
    for node in 1..=3 {
        listed.nodes.stop(node).await;
    }
    listed.all([2, 3, 1]).await;
    for node in 1..=3 {
        assert_eq!(listed.nodes.members(node).await.cluster, cluster);
    }
    let leader = listed.nodes.leader().await;
    assert!(listed.nodes.timestamp(leader).await > before);
}

/// It founded a second cluster, under the address that clients knew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_node_that_lost_its_data_founds_no_second_cluster() {
    let mut listed = ListedNodes::new();
    listed.all([1, 2, 3]).await;
    let cluster = listed.nodes.members(2).await.cluster;
    for node in 1..=3 {
        listed.nodes.stop(node).await;
    }
    listed.lose_data(1);
    // All others are down: it waits, and has nothing.
    let first = listed.begin(1);
    listed.waits_for(1, 2).await;
    listed.waits_for(1, 3).await;
    assert!(!listed.has_log(1) && !first.is_finished());
    // They are of its cluster, which refuses the number.
    for node in [2, 3] {
        let options = listed.options(node);
        listed.nodes.start_with(node, options).await.unwrap();
    }
    let refused = tokio::time::timeout(TEST_TIMEOUT, first).await.unwrap().unwrap();
    let is_refused = |why: &str| why.contains("needs a new number");
    assert!(matches!(&refused, Err(ServerError::Join(why)) if is_refused(why)), "{refused:?}");
    assert!(!listed.has_log(1));
    // Under a new number it joins, with the same list.
    let leader = listed.nodes.leader().await;
    let body = format!(r#"{{"cluster":"{cluster}","nodeID":1}}"#);
    let removed = post(&listed.nodes.address(leader), "/cluster/remove", &body).await;
    assert_eq!(removed.status, 200, "{removed:?}");
    let mut options = listed.options(1);
    options.node = Some(4);
    let joined = tokio::time::timeout(TEST_TIMEOUT, Server::start(options)).await.unwrap().unwrap();
    listed.nodes.servers.insert(1, joined);
    listed.nodes.wait_for_voters(3).await;
    assert_eq!(listed.nodes.members(1).await.cluster, cluster);
}

/// It led its own cluster beside the one of the others, and nothing said so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_data_of_another_cluster_than_the_list_stops() {
    let mut listed = ListedNodes::new();
    listed.all([1, 2, 3]).await;
    listed.nodes.stop(1).await;
    listed.lose_data(1);
    let mut alone = listed.options(1);
    (alone.cluster, alone.node) = (Vec::new(), Some(1));
    let other = Server::start(alone).await.unwrap();
    other.stop().await.unwrap();
    let node = Server::start(listed.options(1)).await.unwrap();
    let failed = tokio::time::timeout(TEST_TIMEOUT, node.failed()).await.unwrap();
    let is_named = |why: &str| why.contains("leave it out of the list");
    assert!(matches!(&failed, ServerError::DataMismatch(why) if is_named(why)), "{failed}");
    node.stop().await.unwrap();
    let leader = listed.nodes.leader().await;
    listed.nodes.timestamp(leader).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_waits_says_for_whom_and_leaves_nothing() {
    let mut listed = ListedNodes::new();
    let waiting = [1, 2].map(|node| listed.begin(node));
    listed.waits_for(1, 3).await;
    listed.waits_for(2, 3).await;
    for address in &listed.list[..2] {
        for protocol in BOTH {
            assert_eq!(get(protocol, address, "/up").await.status, 200);
            let refused = get(protocol, address, "/timestamp").await;
            assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
            assert_eq!(get(protocol, address, "/members").await.status, 503);
        }
    }
    for starting in waiting {
        end(starting).await;
    }
    assert!(!listed.has_log(1) && !listed.has_log(2));
}

/// Node 1 loses its data while it founds: another cluster with the same nodes would be a second one
/// for those that took the first id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_that_was_taken_is_not_founded_again() {
    let mut listed = ListedNodes::new();
    // Node 3 answers that it has nothing, and never takes the id.
    let mut third = listed.options(3);
    third.node = None;
    let silent = silent_third(&listed).await;
    let founding = [1, 2].map(|node| listed.begin(node));
    listed.waits_for(1, 3).await;
    let [first, second] = founding;
    let second = tokio::time::timeout(TEST_TIMEOUT, second).await.unwrap().unwrap().unwrap();
    assert!(listed.has_log(1) && listed.has_log(2));
    // A later start continues with the same id.
    end(first).await;
    let first = listed.begin(1);
    listed.waits_for(1, 3).await;
    end(first).await;
    silent.abort();
    assert!(silent.await.unwrap_err().is_cancelled());
    listed.lose_data(1);
    let again = [listed.begin(1), tokio::spawn(Server::start(third))];
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline {
        assert!(!listed.has_log(1) && !listed.has_log(3), "a second cluster is founded");
        assert!(again.iter().all(|starting| !starting.is_finished()));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(get(Protocol::Http1, &listed.list[0], "/ready").await.status, 500);
    // Nothing was lost with the first: all begin again.
    second.stop().await.unwrap();
    listed.lose_data(2);
    let second = listed.begin(2);
    let [first, third] = again;
    for (node, starting) in [(1, first), (2, second), (3, third)] {
        let server = tokio::time::timeout(TEST_TIMEOUT, starting).await.unwrap().unwrap().unwrap();
        listed.nodes.servers.insert(node, server);
    }
    listed.nodes.wait_for_voters(3).await;
}

/// Answers in the place of node 3 that it has nothing.
async fn silent_third(listed: &ListedNodes) -> JoinHandle<()> {
    let listener = TcpListener::bind(&listed.list[2]).await.unwrap();
    let status = serde_json::json!({ "nodeID": 3, "cluster": "", "nodes": listed.list });
    let body = status.to_string();
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            // It is one read; the other end may have gone.
            drop(stream.read(&mut [0; 1024]).await);
            drop(stream.write_all(answer.as_bytes()).await);
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_names_the_node_once_and_in_its_place() {
    let mut listed = ListedNodes::new();
    type Change = fn(&mut ServerOptions);
    let cases: [(&str, Change); 5] = [
        ("--join", |options| options.join = Some("127.0.0.1:1".into())),
        ("two nodes or more", |options| options.cluster.truncate(1)),
        ("each once", |options| options.cluster[1] = options.cluster[0].clone()),
        ("is not in it", |options| options.advertise = Some("elsewhere:1".into())),
        ("node 2 is", |options| options.node = Some(2)),
    ];
    for (expected, change) in cases {
        let mut options = listed.options(1);
        change(&mut options);
        let refused = Server::start(options).await;
        let says = |why: &str| why.starts_with("--cluster: ") && why.contains(expected);
        assert!(
            matches!(&refused, Err(ServerError::InvalidOption(why)) if says(why)),
            "{refused:?}"
        );
    }
    assert!(!listed.nodes.data(1).exists());
}

/// The member may come later than the node that joins it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_waits_for_the_member_that_it_joins() {
    let port = std::net::TcpListener::bind(own_port()).unwrap().local_addr().unwrap();
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut joins = alone(second.path());
    (joins.node, joins.join) = (Some(2), Some(port.to_string()));
    let joining = tokio::spawn(Server::start(joins));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!joining.is_finished(), "{joining:?}");
    let mut options = alone(first.path());
    options.listen = port;
    let first = Server::start(options).await.unwrap();
    let second = tokio::time::timeout(TEST_TIMEOUT, joining).await.unwrap().unwrap().unwrap();
    second.stop().await.unwrap();
    first.stop().await.unwrap();
}

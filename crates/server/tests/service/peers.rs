//! Certificates of the connections between nodes.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Instant;

use esker_server::{CertificateFiles, PeerCertificateFiles, ServerOptions, make_certificates};

use crate::nodes::{Nodes, TEST_TIMEOUT, alone};

/// Gives a node its certificate, from the folder beside its data.
fn certify(options: &mut ServerOptions) {
    let node = options.node.unwrap();
    let folder = options.data.parent().unwrap().join(format!("certs/node-{node}"));
    let own = CertificateFiles { cert: folder.join("cert.pem"), key: folder.join("key.pem") };
    options.peer_certificates = Some(PeerCertificateFiles { ca: folder.join("ca.pem"), own });
}

fn certify_and_allow_plain(options: &mut ServerOptions) {
    certify(options);
    options.plain_peers = true;
}

fn make_for(nodes: &Nodes) {
    let dir = nodes.data(1).parent().unwrap().join("certs");
    let hosts = BTreeMap::from([1, 2, 3].map(|node| (node, vec!["127.0.0.1".to_owned()])));
    make_certificates(&dir, &hosts).unwrap();
}

async fn start_all(nodes: &mut Nodes) {
    for node in 1..=3 {
        nodes.start(node).await.unwrap();
    }
    nodes.wait_for_voters(3).await;
}

/// Bytes of a stranger on the port for other nodes, and what it gets.
fn answer_of(port: std::net::SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(port).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // It may end with a reset.
    drop(stream.read_to_end(&mut answer));
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_with_certificates_are_a_cluster_and_a_plain_node_gets_nothing() {
    let mut nodes = Nodes::none();
    nodes.change = certify;
    make_for(&nodes);
    start_all(&mut nodes).await;
    // The beginning of a handshake, which a node without certificates would answer or wait for.
    let raft = nodes.servers[&1].raft_address();
    let mut handshake = b"ESKRAFT1".to_vec();
    handshake.resize(48, 0);
    let answer = tokio::task::spawn_blocking(move || answer_of(raft, &handshake)).await.unwrap();
    assert!(!answer.windows(8).any(|bytes| bytes == b"ESKRAFT1"), "{answer:?}");
    let refused = r#"esker_tls_refused_total{port="raft",reason="protocol"} 1"#;
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !nodes.metrics(1).await.lines().any(|line| line == refused) {
        assert!(Instant::now() < deadline, "{}", nodes.metrics(1).await);
    }
    // Node 3 comes back without its certificate, and no leader reaches it.
    nodes.stop(3).await;
    nodes.change = |_| {};
    nodes.start(3).await.unwrap();
    assert_eq!(nodes.status(3).await.leader, None);
    nodes.stop(3).await;
    nodes.change = certify;
    nodes.start(3).await.unwrap();
    nodes.wait_for_voters(3).await;
}

/// Each node is restarted twice: first it takes both, and then certificates alone.
#[tokio::test(flavor = "multi_thread")]
async fn cluster_gets_certificates_while_it_runs() {
    let mut nodes = Nodes::none();
    make_for(&nodes);
    start_all(&mut nodes).await;
    for change in [certify_and_allow_plain, certify] {
        for node in 1..=3 {
            nodes.stop(node).await;
            nodes.change = change;
            nodes.start(node).await.unwrap();
            nodes.wait_for_voters(3).await;
        }
    }
}

fn refusal(data: &Path, change: fn(&mut ServerOptions)) -> String {
    let mut options = alone(data);
    change(&mut options);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(esker_server::Server::start(options)).unwrap_err().to_string()
}

#[test]
fn node_that_strangers_reach_needs_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let why = refusal(&data, |options| options.raft_listen = ([0, 0, 0, 0], 0).into());
    assert!(why.contains("esker cluster certs") && why.contains("--plain-peers"), "{why}");
    let certs = dir.path().join("certs");
    let hosts = BTreeMap::from([(2, vec!["127.0.0.1".to_owned()])]);
    make_certificates(&certs, &hosts).unwrap();
    std::fs::rename(certs.join("node-2"), certs.join("node-1")).unwrap();
    let why = refusal(&data, |options| {
        options.node = Some(1);
        certify(options);
    });
    assert!(why.contains("is of node 2, and not 1"), "{why}");
    assert!(!data.exists(), "the data was not touched");
}

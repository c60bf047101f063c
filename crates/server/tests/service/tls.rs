//! TLS and authorization on the port of clients.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use esker_server::{PeerCertificateFiles, Server, ServerOptions};
use http_body_util::{Full, StreamBody};
use hyper::Request;
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::authority::{Authority, any_node};
use crate::client::{BOTH, Protocol};
use crate::nodes::{TEST_TIMEOUT, alone, own_port};
use crate::tls_client::{TlsClient, send_plain};

pub const TOKEN: &str = "a-token-of-16-bytes-or-more";
pub const CLUSTER: &str = "orders";

fn write_tokens(path: &Path, tokens: &[&str]) {
    fs::write(path, tokens.join("\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

pub fn token_file(dir: &Path) -> PathBuf {
    let path = dir.join("tokens");
    write_tokens(&path, &[TOKEN]);
    path
}

fn request(address: &str, method: &str, path: &str) -> hyper::http::request::Builder {
    Request::builder().method(method).uri(format!("http://{address}{path}"))
}

/// A change that changes nothing: it asks whether a node may have a number.
pub fn change(address: &str, cluster: &str, token: Option<&str>) -> Request<Full<Bytes>> {
    let mut request = request(address, "POST", "/cluster/admit")
        .header("host", address)
        .header("content-type", "application/json");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let body = format!(r#"{{"cluster":"{cluster}","nodeID":99}}"#);
    request.body(Full::from(body)).unwrap()
}

pub fn read(address: &str) -> Request<Full<Bytes>> {
    request(address, "GET", "/members").header("host", address).body(Full::default()).unwrap()
}

/// Waits until a node answers this caller, and returns the id of its cluster.
pub async fn cluster_of(address: &str, client: &TlsClient) -> String {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        let ready = client.get(address, "/ready").await;
        if ready.is_some_and(|answer| answer.status == 200) {
            let members = client.get(address, "/members").await.unwrap();
            let members: esker_server::Members = serde_json::from_slice(&members.body).unwrap();
            return members.cluster;
        }
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub fn node_client(files: &PeerCertificateFiles, cluster: &str) -> TlsClient {
    TlsClient::new(&files.ca, Some(&files.own)).for_name(&any_node(cluster))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_are_answered_over_tls() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "one");
    let mut options = alone(&dir.path().join("data"));
    options.certificate = Some(authority.server());
    let server = Server::start(options).await.unwrap();
    let address = server.address().to_string();
    let client = TlsClient::new(&authority.ca(), None);
    cluster_of(&address, &client).await;
    for protocol in BOTH {
        let mut request = request(&address, "GET", "/timestamp?n=65536");
        if protocol == Protocol::Http1 {
            request = request.header("host", &address);
        }
        let request = request.body(Full::default()).unwrap();
        let answer = client.send(&address, protocol, request).await.unwrap();
        assert_eq!((answer.status, answer.body.len()), (200, 16 * 65536), "{protocol:?}");
    }
    // Without TLS the answer says why.
    let refused = send_plain(&address, read(&address)).await.unwrap();
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("https://"), "{}", refused.text());
    // A client that trusts another authority.
    let other = Authority::new(dir.path(), "two");
    let stranger = TlsClient::new(&other.ca(), None);
    assert!(stranger.get(&address, "/up").await.is_none());
    let metrics = client.get(&address, "/metrics").await.unwrap();
    for line in [
        r#"esker_tls_refused_total{port="clients",reason="plain"} 1"#,
        r#"esker_tls_refused_total{port="clients",reason="alert"} 1"#,
        r#"esker_http_requests_total{protocol="h2"} 1"#,
    ] {
        assert!(metrics.text().lines().any(|found| found == line), "{line}: {}", metrics.text());
    }
    server.stop().await.unwrap();
}

/// A denial came before the request had been sent, and curl took it for a broken stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denial_comes_after_the_body() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = alone(&dir.path().join("data"));
    options.admin_token_file = Some(token_file(dir.path()));
    let server = Server::start(options).await.unwrap();
    let address = server.address().to_string();
    let stream = TokioIo::new(TcpStream::connect(&address).await.unwrap());
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream);
    let (mut sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let (ends, body) = tokio::sync::oneshot::channel::<()>();
    let body = Box::pin(futures_util::stream::once(async move {
        body.await.unwrap();
        Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from_static(b"{}")))
    }));
    let request = request(&address, "POST", "/cluster/admit");
    let request = request.header("content-type", "application/json");
    let mut answer = pin!(sender.send_request(request.body(StreamBody::new(body)).unwrap()));
    let early = tokio::time::timeout(Duration::from_millis(300), &mut answer).await;
    assert!(early.is_err(), "the request is not complete");
    ends.send(()).unwrap();
    assert_eq!(answer.await.unwrap().status(), 401);
    server.stop().await.unwrap();
}

/// Off loopback a change needs a token, and the denial says which flag.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_closed_where_strangers_reach_the_node() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = alone(&dir.path().join("data"));
    let at = own_port();
    options.advertise = Some(at.to_string());
    options.listen = ([0, 0, 0, 0], esker_testkit::free_port()).into();
    let refused = Server::start(options.clone()).await.unwrap_err().to_string();
    assert!(
        refused.contains("esker cluster certs") && refused.contains("--plain-http"),
        "{refused}"
    );
    assert!(!options.data.exists(), "the data was not touched");
    options.plain_http = true;
    let server = Server::start(options).await.unwrap();
    let address = format!("127.0.0.1:{}", server.address().port());
    let denied = send_plain(&address, change(&address, "", None)).await.unwrap();
    assert_eq!(denied.status, 403);
    assert!(denied.text().contains("--admin-token-file"), "{}", denied.text());
    assert_eq!(send_plain(&address, read(&address)).await.unwrap().status, 200);
    let request = request(&address, "GET", "/metrics").header("host", &address);
    let metrics = send_plain(&address, request.body(Full::default()).unwrap()).await.unwrap();
    let line = r#"esker_changes_denied_total{reason="closed"} 1"#;
    assert!(metrics.text().lines().any(|found| found == line), "{}", metrics.text());
    server.stop().await.unwrap();
}

#[tokio::test]
async fn options_that_secure_nothing_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "one");
    let data = dir.path().join("data");
    let why = async |change: &dyn Fn(&mut ServerOptions)| {
        let mut options = alone(&data);
        change(&mut options);
        let refused = Server::start(options).await.unwrap_err().to_string();
        assert!(!data.exists(), "the data was not touched");
        refused
    };
    let no_cert = why(&|options| options.client_ca = Some(authority.ca())).await;
    assert!(no_cert.contains("--client-ca") && no_cert.contains("--cert"), "{no_cert}");
    let joins = |options: &mut ServerOptions| {
        options.certificate = Some(authority.server());
        options.join = Some("127.0.0.1:1".into());
        options.node = Some(2);
    };
    let no_peers = why(&joins).await;
    assert!(no_peers.contains("esker cluster certs"), "{no_peers}");
    let open = dir.path().join("open");
    fs::write(&open, "0123456789abcdef").unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    let readable = why(&|options| options.admin_token_file = Some(open.clone())).await;
    assert!(readable.contains("chmod 600"), "{readable}");
}

/// An operator who replaced files learns that the node does not use them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_cannot_be_used_are_in_the_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "one");
    let tokens = token_file(dir.path());
    let client_ca = dir.path().join("client-ca.pem");
    fs::copy(authority.ca(), &client_ca).unwrap();
    let mut options = alone(&dir.path().join("data"));
    let files = authority.server();
    options.certificate = Some(files.clone());
    options.client_ca = Some(client_ca.clone());
    options.admin_token_file = Some(tokens.clone());
    options.certificate_check_interval = Duration::from_millis(10);
    let server = Server::start(options).await.unwrap();
    let address = server.address().to_string();
    let own = authority.issue("client", &["client.example"]);
    let client = TlsClient::new(&authority.ca(), Some(&own));
    let until = async |file: &str, expected: u8| {
        let line = format!(r#"esker_reload_failing{{file="{file}"}} {expected}"#);
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let answer = client.get(&address, "/metrics").await.unwrap();
            let metrics = answer.text();
            if metrics.lines().any(|found| found.trim_end_matches(".0") == line) {
                return;
            }
            assert!(Instant::now() < deadline, "{line}: {metrics}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let is_there =
        [("admin_tokens", &tokens), ("client_ca", &client_ca), ("certificate", &files.key)];
    for (file, path) in is_there {
        until(file, 0).await;
        let contents = fs::read(path).unwrap();
        fs::write(path, "").unwrap();
        until(file, 1).await;
        fs::write(path, contents).unwrap();
        until(file, 0).await;
    }
    server.stop().await.unwrap();
}

/// Each file is replaced while the node runs; a connection that is open stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_read_again_when_they_change() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (Authority::new(dir.path(), "one"), Authority::new(dir.path(), "two"));
    let tokens = token_file(dir.path());
    let client_ca = dir.path().join("client-ca.pem");
    fs::copy(one.ca(), &client_ca).unwrap();
    let mut options = alone(&dir.path().join("data"));
    let files = one.server();
    options.certificate = Some(files.clone());
    options.client_ca = Some(client_ca.clone());
    options.admin_token_file = Some(tokens.clone());
    options.certificate_check_interval = Duration::from_millis(10);
    let server = Server::start(options).await.unwrap();
    let address = server.address().to_string();
    let old = TlsClient::new(&one.ca(), Some(&one.issue("client", &["client.example"])));
    let cluster = cluster_of(&address, &old).await;
    let status = async |client: &TlsClient, token: &str| {
        let request = change(&address, &cluster, Some(token));
        client.send(&address, Protocol::Http1, request).await.ok().map(|answer| answer.status)
    };
    let until = async |client: &TlsClient, token: &str, expected: Option<u16>| {
        let deadline = Instant::now() + TEST_TIMEOUT;
        while status(client, token).await != expected {
            assert!(Instant::now() < deadline, "{expected:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let stream = old.connect(&address, Protocol::Http1).await.unwrap();
    let stream = TokioIo::new(stream);
    let (mut kept, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    kept.send_request(read(&address)).await.unwrap();
    // The token, in two steps.
    let (first, second) = (TOKEN, "another-token-of-16");
    until(&old, first, Some(200)).await;
    write_tokens(&tokens, &[second, first]);
    until(&old, second, Some(200)).await;
    assert_eq!(status(&old, first).await, Some(200));
    write_tokens(&tokens, &[second]);
    until(&old, first, Some(401)).await;
    // The authority of clients.
    let new_client = two.issue("client", &["client.example"]);
    fs::copy(two.ca(), &client_ca).unwrap();
    let new = TlsClient::new(&one.ca(), Some(&new_client));
    until(&new, second, Some(200)).await;
    until(&old, second, None).await;
    // The certificate.
    let renewed = two.server();
    fs::copy(&renewed.cert, &files.cert).unwrap();
    fs::copy(&renewed.key, &files.key).unwrap();
    let new = TlsClient::new(&two.ca(), Some(&new_client));
    until(&new, second, Some(200)).await;
    kept.ready().await.unwrap();
    assert_eq!(kept.send_request(read(&address)).await.unwrap().status(), 200);
    drop(kept);
    server.stop().await.unwrap();
}

/// Three nodes with one list.
struct Cluster {
    dir: tempfile::TempDir,
    authority: Authority,
    addresses: Vec<(std::net::SocketAddr, std::net::SocketAddr)>,
    servers: Vec<Option<Server>>,
}

impl Cluster {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new(dir.path(), "one");
        let addresses = (0..3).map(|_| (own_port(), own_port())).collect();
        Self { dir, authority, addresses, servers: vec![None, None, None] }
    }

    fn addresses(&self) -> Vec<String> {
        self.addresses.iter().map(|(clients, _)| clients.to_string()).collect()
    }

    fn options(
        &self,
        node: usize,
        secure: impl Fn(&mut ServerOptions, &Authority),
    ) -> ServerOptions {
        let mut options = ServerOptions::new(self.dir.path().join(format!("node{node}")));
        (options.listen, options.raft_listen) = self.addresses[node - 1];
        options.cluster = self.addresses();
        options.node = Some(node as u64);
        secure(&mut options, &self.authority);
        options
    }

    /// Starts all nodes, with these changes of their options. They wait for each other.
    async fn start_all(&mut self, secure: impl Fn(&mut ServerOptions, &Authority)) {
        let starts = (1..=3).map(|node| Server::start(self.options(node, &secure)));
        let servers = futures_util::future::join_all(starts).await;
        self.servers = servers.into_iter().map(|server| Some(server.unwrap())).collect();
    }

    async fn restart(&mut self, node: usize, secure: impl Fn(&mut ServerOptions, &Authority)) {
        self.servers[node - 1].take().unwrap().stop().await.unwrap();
        let server = Server::start(self.options(node, secure)).await.unwrap();
        self.servers[node - 1] = Some(server);
    }

    /// Waits until all nodes name one leader, and returns it.
    async fn agree(&self, ask: impl AsyncFn(&str, &str) -> Option<Bytes>) -> u64 {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let mut leaders = Vec::new();
            for address in self.addresses() {
                let members = ask(&address, "/members").await;
                let members = members
                    .and_then(|body| serde_json::from_slice::<esker_server::Members>(&body).ok());
                let voting =
                    members.filter(|it| it.members.iter().filter(|it| it.voter).count() == 3);
                leaders.push(voting.and_then(|it| it.leader).map(|leader| leader.node));
            }
            leaders.dedup();
            if let [Some(leader)] = leaders[..] {
                return leader;
            }
            assert!(Instant::now() < deadline, "{leaders:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn with_all(options: &mut ServerOptions, authority: &Authority) {
    options.peer_certificates = Some(authority.peer(options.node.unwrap(), CLUSTER));
    options.certificate =
        Some(authority.issue(&format!("server-{}", options.node.unwrap()), &["localhost"]));
}

/// A cluster is founded, and answers, with TLS alone: also a follower that asks the leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_call_each_other_over_tls() {
    let mut cluster = Cluster::new();
    cluster
        .start_all(|options, authority| {
            with_all(options, authority);
            options.client_ca = Some(authority.ca());
            options.follower_answer = esker_server::FollowerAnswer::Forward;
        })
        .await;
    let own = cluster.authority.issue("client", &["client.example"]);
    let client = TlsClient::new(&cluster.authority.ca(), Some(&own));
    cluster.agree(async |address, path| Some(client.get(address, path).await?.body)).await;
    for address in cluster.addresses() {
        let answer = client.get(&address, "/timestamp").await.unwrap();
        assert_eq!((answer.status, answer.body.len()), (200, 16), "{}", answer.text());
    }
}

/// The certificate of a node may be valid for months after the node was removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_node_changes_nothing() {
    let mut cluster = Cluster::new();
    cluster
        .start_all(|options, authority| {
            with_all(options, authority);
            options.round_trip = Duration::from_millis(100);
        })
        .await;
    let callers: Vec<_> =
        (1..=3).map(|node| node_client(&cluster.authority.peer(node, CLUSTER), CLUSTER)).collect();
    let leader =
        cluster.agree(async |address, path| Some(callers[0].get(address, path).await?.body)).await;
    let address = cluster.addresses()[leader as usize - 1].clone();
    let id = cluster_of(&address, &callers[0]).await;
    let removed = leader % 3 + 1;
    let remove = request(&address, "POST", "/cluster/remove")
        .header("host", &address)
        .header("content-type", "application/json")
        .body(Full::from(format!(r#"{{"cluster":"{id}","nodeID":{removed}}}"#)))
        .unwrap();
    let admit = async |node: u64| {
        let caller = &callers[node as usize - 1];
        caller.send(&address, Protocol::Http1, change(&address, &id, None)).await.unwrap()
    };
    assert_eq!(admit(removed).await.status, 200);
    let answer = callers[leader as usize - 1].send(&address, Protocol::Http1, remove).await;
    assert_eq!(answer.unwrap().status, 200);
    let refused = admit(removed).await;
    assert!(refused.status == 422 && refused.text().contains("was removed"), "{refused:?}");
    assert_eq!(admit(leader).await.status, 200);
}

/// A redirect keeps the scheme of the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirects_keep_the_scheme() {
    let mut cluster = Cluster::new();
    cluster
        .start_all(|options, authority| {
            with_all(options, authority);
            options.plain_http = true;
            options.follower_answer = esker_server::FollowerAnswer::Redirect;
        })
        .await;
    let client = TlsClient::new(&cluster.authority.ca(), None);
    cluster.agree(async |address, path| Some(client.get(address, path).await?.body)).await;
    let mut redirects = 0;
    for address in cluster.addresses() {
        let encrypted = client.get(&address, "/timestamp").await.unwrap();
        let request = request(&address, "GET", "/timestamp").header("host", &address);
        let plain = send_plain(&address, request.body(Full::default()).unwrap()).await.unwrap();
        for (answer, scheme) in [(encrypted, "https://"), (plain, "http://")] {
            if answer.status == 307 {
                let location = answer.header("location").unwrap();
                assert!(location.starts_with(scheme), "{location}");
                redirects += 1;
            }
        }
    }
    assert_eq!(redirects, 4, "two nodes follow");
}

/// From plain HTTP and plain peers to TLS alone, in the three steps of the documentation, while a
/// client gets timestamps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_moves_to_tls_while_a_client_works() {
    let mut cluster = Cluster::new();
    cluster.start_all(|_, _| {}).await;
    let client = TlsClient::new(&cluster.authority.ca(), None);
    let plain = async |address: &str, path: &str| {
        let request = request(address, "GET", path).header("host", address);
        Some(send_plain(address, request.body(Full::default()).unwrap()).await.ok()?.body)
    };
    let encrypted = async |address: &str, path: &str| Some(client.get(address, path).await?.body);
    cluster.agree(plain).await;
    let (uses_tls, stops) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let timestamps = Arc::new(AtomicU64::new(0));
    let working = {
        let (uses_tls, stops, timestamps) =
            (Arc::clone(&uses_tls), Arc::clone(&stops), Arc::clone(&timestamps));
        let (client, addresses) = (client.clone(), cluster.addresses());
        tokio::spawn(async move {
            let (mut last, mut deadline) = (Bytes::new(), Instant::now() + TEST_TIMEOUT);
            while !stops.load(Relaxed) {
                for address in &addresses {
                    let answer = if uses_tls.load(Relaxed) {
                        client.get(address, "/timestamp").await
                    } else {
                        let request = request(address, "GET", "/timestamp").header("host", address);
                        send_plain(address, request.body(Full::default()).unwrap()).await.ok()
                    };
                    if let Some(answer) = answer.filter(|answer| answer.status == 200) {
                        assert!(answer.body > last, "timestamps rise");
                        last = answer.body;
                        timestamps.fetch_add(1, Relaxed);
                        deadline = Instant::now() + TEST_TIMEOUT;
                    }
                }
                assert!(Instant::now() < deadline, "no node answers");
            }
        })
    };
    let progress = async |timestamps: &AtomicU64| {
        let (before, deadline) = (timestamps.load(Relaxed), Instant::now() + TEST_TIMEOUT);
        while timestamps.load(Relaxed) < before + 20 {
            assert!(Instant::now() < deadline, "the client gets no timestamps");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    // 1: all nodes have certificates, and do without.
    for node in 1..=3 {
        let both = |options: &mut ServerOptions, authority: &Authority| {
            with_all(options, authority);
            (options.plain_http, options.plain_peers) = (true, true);
        };
        cluster.restart(node, both).await;
        cluster.agree(plain).await;
    }
    progress(&timestamps).await;
    // 2: clients move.
    uses_tls.store(true, Relaxed);
    progress(&timestamps).await;
    // 3: nothing without TLS.
    for node in 1..=3 {
        cluster.restart(node, with_all).await;
        cluster.agree(encrypted).await;
    }
    progress(&timestamps).await;
    for address in cluster.addresses() {
        assert_eq!(send_plain(&address, read(&address)).await.unwrap().status, 400);
    }
    stops.store(true, Relaxed);
    working.await.unwrap();
}

/// A node without certificates joins with the token of its own file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_without_certificates_joins_with_a_token() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = token_file(dir.path());
    let mut first = alone(&dir.path().join("node1"));
    first.admin_token_file = Some(tokens.clone());
    let one = Server::start(first).await.unwrap();
    let mut second = alone(&dir.path().join("node2"));
    (second.node, second.join) = (Some(2), Some(one.address().to_string()));
    let refused = Server::start(second.clone()).await.unwrap_err().to_string();
    assert!(refused.contains("cannot join") && refused.contains("--admin-token-file"), "{refused}");
    second.admin_token_file = Some(tokens);
    let two = Server::start(second).await.unwrap();
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        let answer =
            esker_server::ask(&two.address().to_string(), "/members", None, TEST_TIMEOUT).await;
        let members: esker_server::Members = serde_json::from_slice(&answer.unwrap().body).unwrap();
        if members.members.iter().filter(|member| member.voter).count() == 2 {
            break;
        }
        assert!(Instant::now() < deadline, "{members:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    two.stop().await.unwrap();
    one.stop().await.unwrap();
}

/// A thousand strangers who connect and wait: clients are answered, and strangers are closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_who_wait_stop_no_client() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "one");
    let mut options = alone(&dir.path().join("data"));
    options.certificate = Some(authority.server());
    let server = Server::start(options).await.unwrap();
    let address = server.address().to_string();
    let mut strangers = Vec::new();
    for stranger in 0..1000 {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        // Half of them begin a handshake.
        if stranger % 2 == 0 {
            tokio::io::AsyncWriteExt::write_all(&mut stream, &[0x16, 3, 1]).await.unwrap();
        }
        strangers.push(stream);
    }
    let client = TlsClient::new(&authority.ca(), None);
    cluster_of(&address, &client).await;
    assert_eq!(client.get(&address, "/timestamp").await.unwrap().status, 200);
    for mut stranger in strangers {
        let mut byte = [0];
        let ended = tokio::time::timeout(TEST_TIMEOUT, async {
            while stranger.read(&mut byte).await.is_ok_and(|read| read > 0) {}
        });
        ended.await.unwrap();
    }
    server.stop().await.unwrap();
}

/// As an operator would look at it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openssl_finds_tls_1_3_alone() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "one");
    let mut options = alone(&dir.path().join("data"));
    options.certificate = Some(authority.server());
    let server = Server::start(options).await.unwrap();
    let (address, ca) = (server.address().to_string(), authority.ca().display().to_string());
    let openssl = move |more: &[&str]| {
        let base = ["s_client", "-connect", &address, "-CAfile", &ca, "-verify_return_error"];
        let mut openssl = Command::new("openssl");
        let ended = openssl.args(base).args(more).stdin(Stdio::null()).output().ok()?;
        let text = [ended.stdout, ended.stderr].concat();
        Some(String::from_utf8_lossy(&text).into_owned())
    };
    let asked = tokio::task::spawn_blocking(move || {
        let Some(said) = openssl(&[]) else {
            return println!("SKIPPED: there is no openssl");
        };
        assert!(said.contains("TLSv1.3") && said.contains("Verify return code: 0"), "{said}");
        let old = openssl(&["-tls1_2"]).unwrap();
        assert!(old.contains("alert protocol version"), "{old}");
    });
    asked.await.unwrap();
    server.stop().await.unwrap();
}

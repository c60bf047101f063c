//! How long a role lasts on a connection that stays open.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use esker_raft::WallClock;
use esker_server::{Server, ServerOptions};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;

use crate::authority::Authority;
use crate::client::Protocol;
use crate::nodes::{TEST_TIMEOUT, alone};
use crate::tls::{CLUSTER, TOKEN, change, cluster_of, node_client, read, token_file};
use crate::tls_client::TlsClient;

/// Certificates of these tests end an hour after their beginning.
const TWO_HOURS: Duration = Duration::from_secs(2 * 3600);

/// A connection that stays open.
struct Connection(SendRequest<Full<Bytes>>);

impl Connection {
    async fn open(client: &TlsClient, address: &str) -> Self {
        let stream = client.connect(address, Protocol::Http1).await.unwrap();
        let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    async fn ask(&mut self, request: Request<Full<Bytes>>) -> (u16, String) {
        self.0.ready().await.unwrap();
        let (head, body) = self.0.send_request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (head.status.as_u16(), String::from_utf8_lossy(&body).into_owned())
    }
}

/// A node that verifies certificates of clients.
fn mutual(dir: &std::path::Path, authority: &Authority) -> ServerOptions {
    let mut options = alone(&dir.join("data"));
    options.certificate = Some(authority.server());
    options.client_ca = Some(authority.ca());
    options.peer_certificates = Some(authority.peer(1, CLUSTER));
    options
}

/// A certificate that ends while its connection is open is worth no more than none: a change needs
/// a token. Reading needs none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn role_ends_with_its_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "one");
    let mut options = mutual(dir.path(), &authority);
    options.admin_token_file = Some(token_file(dir.path()));
    let ahead = Arc::new(AtomicU64::new(0));
    let (clock, system) = (Arc::clone(&ahead), WallClock::default());
    options.clock = WallClock::new(move || system.now() + clock.load(Relaxed));
    let server = Server::start(options).await.unwrap();
    let address = server.address().to_string();
    let own = authority.issue("admin", &["admin.esker.internal"]);
    let admin = TlsClient::new(&authority.ca(), Some(&own));
    let node = node_client(&authority.peer(2, CLUSTER), CLUSTER);
    let cluster = cluster_of(&address, &admin).await;
    let mut callers =
        [Connection::open(&admin, &address).await, Connection::open(&node, &address).await];
    #[cfg(feature = "http3")]
    let http3 =
        crate::http3_client::Client::connect_as(&address, "localhost", Some(&own)).await.unwrap();
    #[cfg(feature = "http3")]
    let change_over_http3 = async || {
        let body = format!(r#"{{"cluster":"{cluster}","nodeID":99}}"#);
        let json = [("content-type", "application/json")];
        let answer = http3.send("POST", "/cluster/admit", &json, body.as_bytes()).await.unwrap();
        (answer.status, answer.text().to_owned())
    };
    let check_denied = |(status, why): (u16, String)| {
        assert!(status == 403 && why.contains("not valid any more"), "{status}: {why}");
    };
    for caller in &mut callers {
        assert_eq!(caller.ask(change(&address, &cluster, None)).await.0, 200);
    }
    #[cfg(feature = "http3")]
    assert_eq!(change_over_http3().await.0, 200);
    ahead.store(TWO_HOURS.as_nanos() as u64, Relaxed);
    for caller in &mut callers {
        check_denied(caller.ask(change(&address, &cluster, None)).await);
        assert_eq!(caller.ask(change(&address, &cluster, Some(TOKEN))).await.0, 200);
        assert_eq!(caller.ask(change(&address, &cluster, Some("another-token"))).await.0, 401);
        assert_eq!(caller.ask(read(&address)).await.0, 200);
    }
    #[cfg(feature = "http3")]
    check_denied(change_over_http3().await);
    let metrics = admin.get(&address, "/metrics").await.unwrap();
    let denied = if cfg!(feature = "http3") { 3 } else { 2 };
    let line = format!(r#"esker_changes_denied_total{{reason="certificate"}} {denied}"#);
    assert!(metrics.text().lines().any(|found| found == line), "{}", metrics.text());
    server.stop().await.unwrap();
}

/// An authority that is replaced takes the roles that it gave with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn role_ends_with_its_authority() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (Authority::new(dir.path(), "one"), Authority::new(dir.path(), "two"));
    let client_ca = dir.path().join("client-ca.pem");
    fs::copy(one.ca(), &client_ca).unwrap();
    let mut options = mutual(dir.path(), &one);
    options.client_ca = Some(client_ca.clone());
    options.certificate_check_interval = Duration::from_millis(10);
    let server = Server::start(options).await.unwrap();
    let address = server.address().to_string();
    let own = one.issue("admin", &["admin.esker.internal"]);
    let admin = TlsClient::new(&one.ca(), Some(&own));
    let cluster = cluster_of(&address, &admin).await;
    let mut kept = Connection::open(&admin, &address).await;
    assert_eq!(kept.ask(change(&address, &cluster, None)).await.0, 200);
    fs::copy(two.ca(), &client_ca).unwrap();
    let deadline = Instant::now() + TEST_TIMEOUT;
    let why = loop {
        let (status, why) = kept.ask(change(&address, &cluster, None)).await;
        if status != 200 {
            assert_eq!(status, 403, "{why}");
            break why;
        }
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(why.contains("UnknownIssuer"), "{why}");
    assert_eq!(kept.ask(read(&address)).await.0, 200);
    server.stop().await.unwrap();
}

//! TLS between a client and nodes.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::time::Duration;

use esker_client::{
    AttemptError, AttemptErrorKind, Client, Error, NodeCaller, TlsError, TlsOptions,
};
use tokio::net::TcpListener;

use crate::authority::{Authority, Pair, tls_front};
use crate::fake::{CLUSTER, Fake, Issuer, Reply, TEST_TIMEOUT, last_failure, members, raw_server};

/// The time in which attempts fail. One attempt has more than this.
const SHORT_DEADLINE: Duration = Duration::from_millis(300);

const HOST: &[&str] = &["127.0.0.1"];

fn https(address: &str) -> String {
    format!("https://{address}")
}

/// A leader and a follower, whose addresses have no scheme.
#[tokio::test]
async fn leader_is_found_and_asked_over_tls() {
    let (authority, issuer) = (Authority::new(), Issuer::new());
    let (follower, leader) = (Fake::issuing(&issuer).await, Fake::issuing(&issuer).await);
    let config = || authority.server(&authority.pair(HOST), None);
    let front = tls_front(&follower.address, config()).await;
    let leader_front = tls_front(&leader.address, config()).await;
    let named = leader_front.clone();
    follower.answers(move |_| Reply::not_leader(&named));
    follower.members(members(None, &[&front, &leader_front], CLUSTER));
    leader.members(members(None, &[&front, &leader_front], CLUSTER));
    // The scheme of one endpoint is that of all.
    let client = Client::builder().endpoint(https(&front)).endpoint(&front).timeout(TEST_TIMEOUT);
    let client = client.tls(authority.options()).build().unwrap();
    for _ in 0..3 {
        client.timestamp().await.unwrap();
    }
    assert_eq!(leader.asked(), [1; 3]);
    // Over the first connection of each, and none goes around TLS.
    assert_eq!((leader.connections(), client.stats().failures), (1, 0));
}

/// The last failure of a client, and that of a call, which are of this node.
async fn failures(endpoint: &str, tls: Option<&TlsOptions>) -> [AttemptErrorKind; 2] {
    let mut builder = Client::builder().endpoint(endpoint).timeout(SHORT_DEADLINE);
    if let Some(tls) = tls {
        builder = builder.tls(tls.clone());
    }
    let last = last_failure(&builder.build().unwrap()).await;
    let caller = NodeCaller::new([endpoint], tls.cloned()).unwrap();
    let called = caller.get(&caller.endpoints()[0], "/members", TEST_TIMEOUT).await.unwrap_err();
    [last, called.attempt].map(|AttemptError { address, kind }| {
        assert_eq!(address, caller.endpoints()[0]);
        kind
    })
}

async fn check_failure(endpoint: &str, tls: Option<&TlsOptions>, expected: TlsError) {
    for kind in failures(endpoint, tls).await {
        assert_eq!(kind, AttemptErrorKind::Tls(expected.clone()), "{endpoint}");
    }
}

#[tokio::test]
async fn node_that_cannot_be_trusted_is_not_asked() {
    let (authority, other) = (Authority::new(), Authority::new());
    let fake = Fake::issuing(&Issuer::new()).await;
    let front = tls_front(&fake.address, authority.server(&authority.pair(HOST), None)).await;
    check_failure(&https(&front), Some(&other.options()), TlsError::UnknownAuthority).await;
    check_failure(&https(&front), None, TlsError::UnknownAuthority).await;
    let ended = authority.changed_pair(HOST, |params| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    });
    let early = authority.changed_pair(HOST, |params| {
        params.not_before = rcgen::date_time_ymd(2901, 1, 1);
        params.not_after = rcgen::date_time_ymd(2902, 1, 1);
    });
    let elsewhere = authority.pair(&["node-2.example"]);
    for (pair, expected) in [
        (ended, TlsError::Expired),
        (early, TlsError::NotYetValid),
        (elsewhere, TlsError::OtherHost("node-2.example".into())),
    ] {
        let front = tls_front(&fake.address, authority.server(&pair, None)).await;
        check_failure(&https(&front), Some(&authority.options()), expected).await;
    }
    assert_eq!(fake.connections(), 0);
}

#[tokio::test]
async fn node_that_wants_a_certificate_says_so() {
    let (authority, other) = (Authority::new(), Authority::new());
    let fake = Fake::issuing(&Issuer::new()).await;
    let config = authority.server(&authority.pair(HOST), Some(&authority));
    let front = https(&tls_front(&fake.address, config).await);
    check_failure(&front, Some(&authority.options()), TlsError::CertificateRequired).await;
    let stranger = other.pair(&["client"]);
    let options = authority.options().client_certificate(&stranger.certificate, &stranger.key);
    for kind in failures(&front, Some(&options)).await {
        let is_refused = matches!(kind, AttemptErrorKind::Tls(TlsError::CertificateRefused(_)));
        assert!(is_refused, "{kind:?}");
    }
    assert_eq!(fake.connections(), 0);
    let member = authority.pair(&["client"]);
    let options = authority.options().client_certificate(member.certificate, member.key);
    let client = Client::builder().endpoint(front).timeout(TEST_TIMEOUT).tls(options);
    client.build().unwrap().timestamp().await.unwrap();
}

#[tokio::test]
async fn plain_and_tls_that_meet_are_named() {
    let authority = Authority::new();
    let fake = Fake::issuing(&Issuer::new()).await;
    let kinds = failures(&https(&fake.address), Some(&authority.options())).await;
    for kind in kinds {
        // An HTTP/2 server may end the connection without a byte.
        let is_named =
            matches!(kind, AttemptErrorKind::Tls(TlsError::PlainNode | TlsError::Other(_)));
        assert!(is_named, "{kind:?}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let http1 = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let answer = hyper::service::service_fn(async |_| {
                Ok::<_, std::convert::Infallible>(hyper::Response::new(String::new()))
            });
            let builder = hyper::server::conn::http1::Builder::new();
            let stream = hyper_util::rt::TokioIo::new(stream);
            tokio::spawn(builder.serve_connection(stream, answer));
        }
    });
    check_failure(&https(&http1), Some(&authority.options()), TlsError::PlainNode).await;
    let front = tls_front(&fake.address, authority.server(&authority.pair(HOST), None)).await;
    check_failure(&format!("http://{front}"), None, TlsError::TlsNode).await;
    // The port of a node that speaks TLS answers HTTP/1.1 to every request without it.
    let answer = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n\
                  content-length: 62\r\nconnection: close\r\n\r\n\
                  this port speaks TLS: use https://, or start with --plain-http";
    let port = raw_server(answer.as_bytes()).await;
    check_failure(&format!("http://{port}"), None, TlsError::TlsNode).await;
}

/// Other servers answer HTTP/1.1 to HTTP/2, too.
#[tokio::test]
async fn other_answers_without_tls_are_not_those_of_a_tls_port() {
    let answer = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
    let port = raw_server(answer).await;
    let client = Client::builder().endpoint(&port).timeout(SHORT_DEADLINE).build().unwrap();
    let kind = last_failure(&client).await.kind;
    assert!(matches!(kind, AttemptErrorKind::NotANode(_)), "{kind:?}");
    let lost = raw_server(b"").await;
    let client = Client::builder().endpoint(&lost).timeout(SHORT_DEADLINE).build().unwrap();
    let kind = last_failure(&client).await.kind;
    assert!(matches!(kind, AttemptErrorKind::Connection(_)), "{kind:?}");
}

/// It accepts connections, and never answers: the time to connect has a bound, and the next node is
/// asked.
#[tokio::test]
async fn handshake_that_never_ends_is_given_up() {
    let authority = Authority::new();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_at = silent.local_addr().unwrap().to_string();
    let connect_timeout = Duration::from_millis(100);
    let builder = Client::builder().endpoint(https(&silent_at)).tls(authority.options());
    let builder = builder.connect_timeout(connect_timeout).timeout(TEST_TIMEOUT);
    let client = builder.clone().timeout(connect_timeout * 5).build().unwrap();
    let no_answer = AttemptErrorKind::NoAnswer { within: connect_timeout };
    assert_eq!(last_failure(&client).await.kind, no_answer);
    let fake = Fake::issuing(&Issuer::new()).await;
    let front = tls_front(&fake.address, authority.server(&authority.pair(HOST), None)).await;
    let builder = builder.connect_timeout(Duration::from_secs(1)).endpoint(&front);
    builder.build().unwrap().timestamp().await.unwrap();
    let caller = NodeCaller::new([https(&silent_at)], Some(authority.options())).unwrap();
    let error = caller.get(&silent_at, "/members", connect_timeout).await.unwrap_err();
    assert_eq!(error.attempt.kind, no_answer);
}

/// A certificate of a client ends after a day in some places.
#[tokio::test]
async fn renewed_files_are_used_by_new_connections() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (stranger, member) = (other.pair(&["client"]), authority.pair(&["client"]));
    let shown = authority.pair(&["client"]);
    let fake = Fake::issuing(&Issuer::new()).await;
    let config = authority.server(&authority.pair(HOST), Some(&authority));
    let front = https(&tls_front(&fake.address, config).await);
    let use_certificate = |pair: &Pair| fs::copy(&pair.certificate, &shown.certificate).unwrap();
    let use_key = |pair: &Pair| fs::copy(&pair.key, &shown.key).unwrap();
    let options = || authority.options().client_certificate(&shown.certificate, &shown.key);
    use_certificate(&stranger);
    use_key(&stranger);
    let client = Client::builder().endpoint(&front).timeout(SHORT_DEADLINE).tls(options());
    let client = client.build().unwrap();
    let caller = NodeCaller::new([&front], Some(options())).unwrap();
    // Each call has a connection of its own. The node speaks HTTP/2 alone.
    let is_refused = async || {
        let called = caller.get(&caller.endpoints()[0], "/members", TEST_TIMEOUT).await;
        let kind = called.unwrap_err().attempt.kind;
        matches!(kind, AttemptErrorKind::Tls(TlsError::CertificateRefused(_)))
    };
    let refused = last_failure(&client).await.kind;
    assert!(matches!(refused, AttemptErrorKind::Tls(TlsError::CertificateRefused(_))), "{refused}");
    assert!(is_refused().await);
    // After half of a change, what was read before stays: refused here, and taken below.
    use_certificate(&member);
    assert!(is_refused().await);
    use_key(&member);
    assert!(!is_refused().await);
    let deadline = std::time::Instant::now() + TEST_TIMEOUT;
    client.timestamps_by(1, deadline).await.unwrap();
    use_certificate(&stranger);
    assert!(!is_refused().await);
    use_key(&stranger);
    assert!(is_refused().await);
}

#[test]
fn unusable_options_are_refused_when_the_client_is_built() {
    let authority = Authority::new();
    let (one, other) = (authority.pair(HOST), authority.pair(HOST));
    let build = |tls: TlsOptions| {
        Client::builder().endpoint("https://127.0.0.1:1").tls(tls).build().map(drop).unwrap_err()
    };
    let check = |tls, file: &Path, words: &str| match build(tls) {
        Error::UnusableFile { path, why } => {
            assert!(path == file && why.contains(words), "{}: {why}", path.display());
        }
        error => panic!("{error}"),
    };
    let missing = Path::new("/nowhere/ca.pem");
    check(TlsOptions::new().ca_file(missing), missing, "No such file");
    check(TlsOptions::new().ca_file(&one.key), &one.key, "it has no certificate");
    let endless = Path::new("/dev/zero");
    check(TlsOptions::new().ca_file(endless), endless, "more than 4 MiB");
    let options = || authority.options();
    check(options().client_certificate(&one.certificate, missing), missing, "No such file");
    let swapped = options().client_certificate(&one.certificate, &one.certificate);
    check(swapped, &one.certificate, "");
    let foreign = options().client_certificate(&one.certificate, &other.key);
    check(foreign, &one.certificate, "");
    let builder = || Client::builder().endpoint("http://127.0.0.1:1");
    let mixed = builder().endpoint("https://127.0.0.1:2").build().unwrap_err();
    assert!(matches!(mixed, Error::MixedSchemes), "{mixed}");
    let plain = builder().tls(options()).build().unwrap_err();
    assert!(matches!(plain, Error::TlsWithoutHttps), "{plain}");
    let without = Client::builder().endpoint("127.0.0.1:1").tls(options()).build().unwrap_err();
    assert!(matches!(without, Error::TlsWithoutHttps), "{without}");
}

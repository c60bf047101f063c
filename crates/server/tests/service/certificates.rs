//! The certificate of HTTP/3: absent, present, unusable, renewed, and the operator's.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use esker_server::{CertificateFiles, ServerError, ServerOptions};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_cert::der::Decode;

use crate::client::{Protocol, get};
use crate::http3_client::{Client, connect};
use crate::nodes::{HOST, Nodes, TEST_TIMEOUT};

/// The files of a data folder.
fn files(data: &Path) -> [Vec<u8>; 2] {
    ["cert.pem", "key.pem"].map(|name| fs::read(data.join(name)).unwrap())
}

fn put(data: &Path, cert: &[u8], key: &[u8]) {
    fs::create_dir_all(data).unwrap();
    for (name, bytes) in [("cert.pem", cert), ("key.pem", key)] {
        let path = data.join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

/// A pair under this name, which begins and ends so many seconds from now.
fn pair(name: &str, begins: i64, ends: i64) -> [Vec<u8>; 2] {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs().cast_signed();
    let at = |seconds: i64| {
        date_time_ymd(1970, 1, 1) + Duration::from_secs((now + seconds).cast_unsigned())
    };
    let host = HOST.to_string();
    let mut params =
        CertificateParams::new(["localhost", "127.0.0.1", &host, "::1"].map(String::from)).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    (params.not_before, params.not_after) = (at(begins), at(ends));
    let key = KeyPair::generate().unwrap();
    let cert = params.self_signed(&key).unwrap();
    [cert.pem().into_bytes(), key.serialize_pem().into_bytes()]
}

/// The certificate that a new connection gets, which is in this file.
async fn served(address: &str, pem: &[u8]) -> CertificateDer<'static> {
    let client = Client::connect(address, Some(pem)).await.unwrap();
    assert_eq!(client.get("/up").await.unwrap().text(), "ok");
    client.certificate()
}

fn der(pem: &[u8]) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_made_once() {
    let mut nodes = Nodes::none();
    let mut options = nodes.options(1);
    options.advertise = Some("node-1.example:8080".into());
    nodes.start_with(1, options.clone()).await.unwrap();
    let data = nodes.data(1);
    assert_eq!(data.metadata().unwrap().mode() & 0o777, 0o700);
    for name in ["cert.pem", "key.pem"] {
        assert_eq!(data.join(name).metadata().unwrap().mode() & 0o777, 0o600, "{name}");
    }
    let made = files(&data);
    let listens = nodes.servers[&1].address();
    let address = listens.to_string();
    assert_eq!(served(&address, &made[0]).await, der(&made[0]));
    for (name, is_named) in [
        ("localhost", true),
        ("127.0.0.1", true),
        (&*listens.ip().to_string(), true),
        ("127.0.0.3", false),
        ("::1", true),
        ("node-1.example", true),
        ("node-2.example", false),
    ] {
        let connected = connect(&address, name, Some(&made[0])).await;
        assert_eq!(connected.is_ok(), is_named, "{name}");
    }
    let parsed = x509_cert::Certificate::from_der(&der(&made[0])).unwrap();
    let ends = parsed.tbs_certificate.validity.not_after.to_system_time();
    let days = ends.duration_since(SystemTime::now()).unwrap().as_secs_f64() / 86_400.0;
    assert!((179.9..=180.0).contains(&days), "{days}");
    // The next start uses it, unless the node is elsewhere.
    nodes.stop(1).await;
    nodes.start_with(1, options.clone()).await.unwrap();
    assert_eq!(files(&data), made);
    nodes.stop(1).await;
    options.advertise = Some("node-2.example:8080".into());
    nodes.start_with(1, options).await.unwrap();
    let [cert, _] = files(&data);
    let address = nodes.servers[&1].address().to_string();
    connect(&address, "node-2.example", Some(&cert)).await.unwrap();
}

/// A node replaces what it made itself and cannot use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unusable_certificate_of_the_node_is_replaced() {
    let name = "Esker node";
    let good = || pair(name, -60, 3600);
    let (one, two) = (good(), good());
    for (why, cert, key) in [
        ("expired", &pair(name, -600, -60), None),
        ("expired soon", &pair(name, -600, 60), None),
        ("not valid yet", &pair(name, 600, 3600), None),
        ("another key", &one, Some(&two[1][..])),
        ("garbage", &[b"garbage".to_vec(), one[1].clone()], None),
        ("a garbage key", &one, Some(&b"garbage"[..])),
        ("half", &[one[0][..200].to_vec(), one[1].clone()], None),
        ("empty", &[Vec::new(), Vec::new()], None),
    ] {
        let mut nodes = Nodes::none();
        let data = nodes.data(1);
        put(&data, &cert[0], key.unwrap_or(&cert[1]));
        let before = files(&data);
        nodes.start(1).await.unwrap();
        let [cert, _] = files(&data);
        assert_ne!(cert, before[0], "{why}");
        assert_eq!(served(&nodes.address(1), &cert).await, der(&cert), "{why}");
    }
    // One that can be used stays. Its key is for its owner alone.
    let mut nodes = Nodes::none();
    let data = nodes.data(1);
    put(&data, &one[0], &one[1]);
    nodes.start(1).await.unwrap();
    assert_eq!(files(&data), one);
    nodes.stop(1).await;
    fs::set_permissions(data.join("key.pem"), fs::Permissions::from_mode(0o640)).unwrap();
    nodes.start(1).await.unwrap();
    assert_ne!(files(&data), one);
    assert_eq!(data.join("key.pem").metadata().unwrap().mode() & 0o777, 0o600);
    // Half of it, as after a crash between the two files.
    nodes.stop(1).await;
    fs::remove_file(data.join("cert.pem")).unwrap();
    nodes.start(1).await.unwrap();
    served(&nodes.address(1), &files(&data)[0]).await;
    // It may be half of a pair of the operator's: each version is kept.
    for garbage in ["one", "two", "two"] {
        nodes.stop(1).await;
        fs::write(data.join("cert.pem"), garbage).unwrap();
        nodes.start(1).await.unwrap();
    }
    assert_eq!(fs::read(data.join("cert.pem.replaced")).unwrap(), b"one");
    assert_eq!(fs::read(data.join("cert.pem.replaced.1")).unwrap(), b"two");
    assert!(!data.join("cert.pem.replaced.2").exists());
}

/// A file that cannot be read ends the start: it may be the operator's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_cannot_be_read_ends_the_start() {
    for name in ["cert.pem", "key.pem"] {
        let mut nodes = Nodes::none();
        let path = nodes.data(1).join(name);
        fs::create_dir_all(&path).unwrap();
        let error = nodes.start(1).await.unwrap_err();
        let ServerError::Io(what, _) = &error else { panic!("{error}") };
        assert!(what.contains(&*path.to_string_lossy()), "{what}");
        // The ports and the log are free again.
        fs::remove_dir(path).unwrap();
        nodes.start(1).await.unwrap();
        nodes.timestamp(1).await;
    }
}

/// The operator's pair in the data folder is used, and never replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_the_operator_is_left_alone() {
    let mut nodes = Nodes::none();
    let data = nodes.data(1);
    let good = pair("example.org", -60, 20);
    put(&data, &good[0], &good[1]);
    nodes.start(1).await.unwrap();
    assert_eq!(served(&nodes.address(1), &good[0]).await, der(&good[0]));
    nodes.stop(1).await;
    assert_eq!(files(&data), good);
    let expired = pair("example.org", -600, -60);
    for (cert, key) in [(&expired[0], &expired[1]), (&good[0], &expired[1])] {
        put(&data, cert, key);
        let error = nodes.start(1).await.unwrap_err();
        assert!(matches!(error, ServerError::InvalidOption(_)), "{error}");
        assert_eq!(files(&data), [cert.clone(), key.clone()]);
    }
}

/// A node whose certificate is due within four seconds.
async fn short_lived() -> Nodes {
    Nodes::with(1, |options| {
        options.certificate_life = Duration::from_secs(5);
        options.certificate_check_interval = Duration::from_millis(20);
    })
    .await
}

/// A certificate is renewed while the node runs, and open connections stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_renewed_while_the_node_runs() {
    let nodes = short_lived().await;
    let (address, data) = (nodes.address(1), nodes.data(1));
    let old = Client::connect(&address, None).await.unwrap();
    let [first, _] = files(&data);
    assert_eq!(old.certificate(), der(&first));
    let deadline = Instant::now() + TEST_TIMEOUT;
    let new = loop {
        let certificate = Client::connect(&address, None).await.unwrap().certificate();
        if certificate != der(&first) {
            break certificate;
        }
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let end = |der: &[u8]| {
        let parsed = x509_cert::Certificate::from_der(der).unwrap();
        parsed.tbs_certificate.validity.not_after.to_system_time()
    };
    assert!(SystemTime::now() < end(&der(&first)) && end(&der(&first)) < end(&new));
    assert_eq!(old.get("/up").await.unwrap().status, 200);
    assert_eq!(old.quic.close_reason().map(|reason| reason.to_string()), None);
    for name in ["cert.pem", "key.pem"] {
        assert_eq!(data.join(name).metadata().unwrap().mode() & 0o777, 0o600, "{name}");
    }
}

/// A certificate that an operator puts there while the node runs is used and never written, also
/// while it cannot be read; who removes it gets one of the node's own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_an_operator_puts_there_is_left_alone() {
    let nodes = short_lived().await;
    let (address, data) = (nodes.address(1), nodes.data(1));
    let serves = async |is_wanted: &dyn Fn(&CertificateDer<'_>) -> bool| {
        let deadline = Instant::now() + TEST_TIMEOUT;
        while !is_wanted(&Client::connect(&address, None).await.unwrap().certificate()) {
            assert!(Instant::now() < deadline);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let [own, _] = files(&data);
    fs::remove_file(data.join("cert.pem")).unwrap();
    let link = data.join("cert.pem");
    std::os::unix::fs::symlink(".", &link).unwrap();
    // Two thirds of its life are over: it is due.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(link.is_symlink(), "what cannot be read was replaced");
    fs::remove_file(&link).unwrap();
    let [cert, key] = pair("example.org", -60, 3600);
    put(&data, &cert, &key);
    serves(&|served| *served == der(&cert)).await;
    assert_eq!(files(&data), [cert.clone(), key.clone()]);
    for name in ["cert.pem", "key.pem"] {
        fs::remove_file(data.join(name)).unwrap();
    }
    serves(&|served| *served != der(&cert)).await;
    let [new, _] = files(&data);
    assert!(new != own && new != cert);
    // The same files again are the operator's again.
    put(&data, &cert, &key);
    serves(&|served| *served == der(&cert)).await;
    assert_eq!(files(&data), [cert, key]);
}

fn given(nodes: &mut Nodes, pair: &[Vec<u8>; 2]) -> (ServerOptions, CertificateFiles) {
    let mut options = nodes.options(1);
    let dir = options.data.parent().unwrap().join("operator");
    put(&dir, &pair[0], &pair[1]);
    let files = CertificateFiles { cert: dir.join("cert.pem"), key: dir.join("key.pem") };
    options.certificate = Some(files.clone());
    options.certificate_check_interval = Duration::from_millis(10);
    (options, files)
}

/// `--cert` and `--key`: read again when they change, never written, and checked at the start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_given_certificate_is_read_again() {
    let mut nodes = Nodes::none();
    let (one, two) = (pair("one.example", -60, 3600), pair("two.example", -60, 3600));
    let (mut options, paths) = given(&mut nodes, &one);
    options.plain_http = true;
    nodes.start_with(1, options).await.unwrap();
    let (address, data) = (nodes.address(1), nodes.data(1));
    assert!(!data.join("cert.pem").exists());
    assert_eq!(served(&address, &one[0]).await, der(&one[0]));
    // Half of a change is none, nor is one that cannot be used.
    fs::write(&paths.cert, &two[0]).unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(served(&address, &one[0]).await, der(&one[0]));
    fs::write(&paths.key, &two[1]).unwrap();
    let deadline = Instant::now() + TEST_TIMEOUT;
    while Client::connect(&address, None).await.unwrap().certificate() != der(&two[0]) {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(fs::read(&paths.cert).unwrap(), two[0]);
    // Without TLS, no certificate is needed.
    assert_eq!(get(Protocol::Http1, &address, "/up").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_given_certificate_that_cannot_be_used_ends_the_start() {
    let good = pair("example.org", -60, 3600);
    let other = pair("example.org", -60, 3600);
    let expired = pair("example.org", -600, -60);
    for (why, pair) in [
        ("ended", expired),
        ("not valid yet", pair("example.org", 600, 3600)),
        ("together", [good[0].clone(), other[1].clone()]),
        ("PEM", [b"-----BEGIN CERTIFICATE-----\ngarbage".to_vec(), good[1].clone()]),
        ("none", [Vec::new(), good[1].clone()]),
        ("key", [good[0].clone(), Vec::new()]),
    ] {
        let mut nodes = Nodes::none();
        let (options, _) = given(&mut nodes, &pair);
        let error = nodes.start_with(1, options).await.unwrap_err();
        assert!(matches!(error, ServerError::InvalidOption(_)), "{error}");
        assert!(error.to_string().contains(why), "{error}");
        assert!(!nodes.data(1).exists(), "the data was not touched");
    }
    let mut nodes = Nodes::none();
    let (options, paths) = given(&mut nodes, &good);
    fs::remove_file(paths.key).unwrap();
    fs::remove_file(paths.cert).unwrap();
    let error = nodes.start_with(1, options).await.unwrap_err();
    assert!(error.to_string().contains("not there"), "{error}");
}

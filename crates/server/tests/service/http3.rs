//! Connections over HTTP/3: what clients may not do, and how they end.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use esker_server::Server;
use esker_testkit::own_address;

use crate::authority::Authority;
use crate::client::{Protocol, get, send};
use crate::http3_client::{Client, connect};
use crate::nodes::{Nodes, TEST_TIMEOUT, alone};

/// The answers of one connection, which has many requests at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_has_many_requests_at_a_time() {
    let nodes = Nodes::start_all(1).await;
    nodes.timestamp(1).await;
    let client = std::sync::Arc::new(Client::connect(&nodes.address(1), None).await.unwrap());
    let mut requests = tokio::task::JoinSet::new();
    for n in 1..=200 {
        let client = std::sync::Arc::clone(&client);
        requests.spawn(async move { (n, client.get(&format!("/timestamp?n={n}")).await.unwrap()) });
    }
    let mut all = Vec::new();
    while let Some(answered) = requests.join_next().await {
        let (n, seen) = answered.unwrap();
        assert_eq!((seen.status, seen.body.len()), (200, 16 * n));
        assert_eq!(seen.header("content-length"), Some(&*(16 * n).to_string()));
        all.extend(seen.body.chunks(16).map(<[u8]>::to_vec));
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 200 * 201 / 2);
    let long = client.get("/timestamp?n=65536").await.unwrap();
    assert_eq!(long.body.len(), 16 * 65_536);
    let metrics = client.get("/metrics").await.unwrap();
    assert!(metrics.text().contains("esker_http3_connections 1.0"), "{}", metrics.text());
    let requests = "esker_http_requests_total{protocol=\"h3\"} 202";
    assert!(metrics.text().contains(requests), "{}", metrics.text());
}

/// The body of a request is bounded, as over the other protocols.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_cluster_is_checked() {
    let nodes = Nodes::start_all(1).await;
    let (address, json) = (nodes.address(1), [("content-type", "application/json")]);
    for (body, status) in [("{}".to_owned(), 400), ("x".repeat(65 << 10), 413)] {
        let seen =
            send(Protocol::Http3, &address, "POST", "/cluster/add", &json, body.as_bytes()).await;
        assert_eq!(seen.status, status, "{seen:?}");
    }
    let other = [json[0], ("origin", "https://example.org")];
    let seen = send(Protocol::Http3, &address, "POST", "/cluster/add", &other, b"{}").await;
    assert_eq!(seen.status, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_datagrams_do_no_harm() {
    let nodes = Nodes::start_all(1).await;
    let address = nodes.address(1);
    nodes.timestamp(1).await;
    let client = Client::connect(&address, None).await.unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut state = 1_u64;
    for round in 0..3000 {
        let mut bytes = Vec::new();
        for _ in 0..(round * 7 % 1300) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            bytes.push((state >> 33) as u8);
        }
        // Some look like the first packet of version 1.
        if round % 2 == 0 && bytes.len() > 5 {
            bytes[..5].copy_from_slice(&[0xc3, 0, 0, 0, 1]);
            bytes[5] %= 21;
        }
        socket.send_to(&bytes, &address).unwrap();
    }
    assert_eq!(client.get("/timestamp").await.unwrap().status, 200);
    assert_eq!(get(Protocol::Http3, &address, "/timestamp").await.status, 200);
    assert_eq!(get(Protocol::Http1, &address, "/timestamp").await.status, 200);
}

/// A frame may say that it is as long as it likes: no more than 128 KiB of it are buffered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_stream_brings_is_bounded() {
    let nodes = Nodes::start_all(1).await;
    let address = nodes.address(1);
    // A header, and a frame of an unknown type; 16 MiB each.
    for kind in [&[0x01][..], &[0x40, 0x42]] {
        let (_endpoint, quic) = connect(&address, "127.0.0.1", None).await.unwrap();
        let mut control = quic.open_uni().await.unwrap();
        control.write_all(&[0x00, 0x04, 0x00]).await.unwrap();
        let (mut send, _receive) = quic.open_bi().await.unwrap();
        send.write_all(kind).await.unwrap();
        send.write_all(&[0x81, 0x00, 0x00, 0x00]).await.unwrap();
        let sent = async {
            let mut sent = 0;
            while send.write_all(&[0; 4096]).await.is_ok() {
                sent += 4096;
                assert!(sent < 8 << 20, "{kind:?}");
            }
            sent
        };
        let sent = tokio::time::timeout(TEST_TIMEOUT, sent).await.unwrap();
        assert!(sent <= 512 << 10, "{sent} bytes of {kind:?}");
    }
    let value = "y".repeat(20 << 10);
    let client = Client::connect(&address, None).await.unwrap();
    let refused = client.send("GET", "/up", &[("x", &value)], b"").await;
    assert!(refused.map_or(true, |seen| seen.status == 431));
    let value = "y".repeat(12 << 10);
    let seen = client.send("GET", "/up", &[("x", &value)], b"").await.unwrap();
    assert_eq!(seen.status, 200);
}

/// All requests of a connection have one MiB together until they end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_streams_of_a_connection_bring_is_bounded() {
    const CHUNK_BYTES: usize = 100 << 10;
    const REQUESTS_BYTES: usize = 1 << 20;
    let nodes = Nodes::start_all(1).await;
    let address = nodes.address(1);
    let (_endpoint, quic) = connect(&address, "127.0.0.1", None).await.unwrap();
    let mut control = quic.open_uni().await.unwrap();
    control.write_all(&[0x00, 0x04, 0x00]).await.unwrap();
    let mut streams = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let (mut send, receive) = quic.open_bi().await.unwrap();
        streams.spawn(async move {
            // A header of 120 KiB, most of which comes. It ends after ten seconds.
            let sent = async {
                send.write_all(&[0x01, 0x80, 0x01, 0xe0, 0x00]).await?;
                send.write_all(&[0; CHUNK_BYTES]).await
            };
            let sent = tokio::time::timeout(Duration::from_secs(5), sent).await;
            let stopped = tokio::time::timeout(Duration::from_secs(1), send.stopped());
            let is_kept = matches!(sent, Ok(Ok(()))) && stopped.await.is_err();
            (is_kept, send, receive)
        });
    }
    let streams = streams.join_all().await;
    let kept = streams.iter().filter(|(is_kept, ..)| *is_kept).count();
    assert!((1..=REQUESTS_BYTES / CHUNK_BYTES).contains(&kept), "{kept}");
}

/// A handshake that fails is counted as over TCP.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_handshakes_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (Authority::new(dir.path(), "one"), Authority::new(dir.path(), "two"));
    let mut options = alone(&dir.path().join("data"));
    options.certificate = Some(one.server());
    options.client_ca = Some(one.ca());
    let server = Server::start(options).await.unwrap();
    let address = server.address().to_string();
    let own = one.issue("client", &["client.example"]);
    let client = Client::connect_as(&address, "localhost", Some(&own)).await.unwrap();
    let expired = one.issue_until("expired", &["client.example"], -60);
    let other = two.issue("client", &["client.example"]);
    for certificate in [None, Some(&other), Some(&expired)] {
        // The client learns it with its first request at the latest.
        if let Ok(refused) = Client::connect_as(&address, "localhost", certificate).await {
            refused.get("/up").await.unwrap_err();
        }
    }
    let trusted = std::fs::read(two.ca()).unwrap();
    assert!(connect(&address, "localhost", Some(&trusted)).await.is_err());
    let counted =
        [("certificate", 2), ("expired", 1), ("alert", 1), ("closed", 0), ("protocol", 0)];
    let lines = counted.map(|(reason, count)| {
        format!(r#"esker_tls_refused_total{{port="clients",reason="{reason}"}} {count}"#)
    });
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        let metrics = client.get("/metrics").await.unwrap();
        let has = |line: &String| metrics.text().lines().any(|found| found == line);
        if lines.iter().all(has) {
            break;
        }
        assert!(Instant::now() < deadline, "{}", metrics.text());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.stop().await.unwrap();
}

/// Connections above their limit are refused, and a place is free when one ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_bounded() {
    let nodes = Nodes::with(1, |options| options.connections_max = 2).await;
    let address = nodes.address(1);
    let one = Client::connect(&address, None).await.unwrap();
    let two = Client::connect(&address, None).await.unwrap();
    let Err(refused) = Client::connect(&address, None).await else { panic!("a third one") };
    assert!(refused.to_string().contains("refused"), "{refused}");
    assert_eq!(one.get("/up").await.unwrap().status, 200);
    two.quic.close(0x100_u32.into(), b"");
    let deadline = Instant::now() + TEST_TIMEOUT;
    while Client::connect(&address, None).await.is_err() {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A node that stops answers what it has, refuses more, and waits for no connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stops_answers_what_it_has() {
    let mut nodes = Nodes::start_all(1).await;
    let address = nodes.address(1);
    let client = Client::connect(&address, None).await.unwrap();
    let idle = Client::connect(&address, None).await.unwrap();
    assert_eq!(idle.get("/up").await.unwrap().status, 200);
    // A request whose body is on its way.
    let request = hyper::Request::post(format!("https://{address}/cluster/add"));
    let request = request.header("content-type", "application/json").body(()).unwrap();
    let mut late = client.sender.clone().send_request(request).await.unwrap();
    late.send_data("{".into()).await.unwrap();
    assert_eq!(client.get("/up").await.unwrap().status, 200);
    let server = nodes.servers.remove(&1).unwrap();
    let stopped = tokio::spawn(server.stop());
    let reason = tokio::time::timeout(TEST_TIMEOUT, idle.quic.closed()).await.unwrap();
    let quinn::ConnectionError::ApplicationClosed(close) = reason else { panic!("{reason}") };
    assert_eq!(close.error_code, 0x100_u32.into());
    assert!(client.get("/up").await.is_err(), "a request after the end");
    assert!(!stopped.is_finished());
    late.send_data("}".into()).await.unwrap();
    late.finish().await.unwrap();
    assert_eq!(late.recv_response().await.unwrap().status(), 400);
    assert!(late.recv_data().await.unwrap().is_some());
    tokio::time::timeout(Duration::from_secs(9), stopped).await.unwrap().unwrap().unwrap();
    UdpSocket::bind(&address).unwrap();
}

/// A port that another program has over UDP is named, with the way out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_is_taken_over_both() {
    let mut nodes = Nodes::none();
    let taken = UdpSocket::bind((own_address(), 0)).unwrap();
    let mut options = nodes.options(1);
    options.listen = taken.local_addr().unwrap();
    let error = nodes.start_with(1, options.clone()).await.unwrap_err();
    assert!(error.to_string().contains("--http3=off"), "{error}");
    assert!(!nodes.data(1).exists());
    options.http3 = false;
    nodes.start_with(1, options).await.unwrap();
    nodes.timestamp(1).await;
    assert!(!nodes.data(1).join("cert.pem").exists());
}

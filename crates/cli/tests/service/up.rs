//! `esker up`, as health checks run it.
#![allow(clippy::unwrap_used)]

use std::net::TcpListener;
use std::time::Instant;

use esker_testkit::commands::CommandOutput;
use esker_testkit::free_port;

use crate::esker::{command, run};
use crate::lines::{ANY_PORT, NodeProcess, serve};
use crate::nodes::LONG;

/// Runs `esker up` with these variables alone.
fn up(words: &[&str], variables: &[(&str, &str)]) -> CommandOutput {
    let mut up = command(&["up"]);
    for name in ["ESKER_LISTEN", "HTTP_PORT", "ESKER_CA", "ESKER_CLIENT_CERT", "ESKER_CLIENT_KEY"] {
        up.env_remove(name);
    }
    up.args(words).envs(variables.iter().copied());
    run(up, b"")
}

#[test]
fn node_is_found_where_serve_with_the_same_variables_listens() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = NodeProcess::start(serve(&ANY_PORT).current_dir(&dir));
    let address = node.answers();
    let port = address.rsplit(':').next().unwrap();
    let text = format!("{address}: ok\n");
    let listen = ("ESKER_LISTEN", &*address);
    assert_eq!(up(&[], &[("HTTP_PORT", port)]).ok().text(), text);
    assert_eq!(up(&[], &[listen]).ok().text(), text);
    let other_port = ("ESKER_LISTEN", "127.0.0.1:1");
    assert_eq!(up(&[], &[other_port, ("HTTP_PORT", port)]).ok().text(), text);
    let endpoint = ["--endpoint", &format!("http://{address}")];
    assert_eq!(up(&endpoint, &[other_port]).ok().text(), text);
    up(&[], &[other_port]).exits(1).says(&["127.0.0.1:1", "Connection refused"]);
    up(&[], &[("HTTP_PORT", "0")]).exits(2).says(&["127.0.0.1:0"]);
    let deadline = Instant::now() + LONG;
    while up(&["--ready"], &[listen]).status != 0 {
        assert!(Instant::now() < deadline);
    }
    let ready = up(&["--ready"], &[listen]).ok();
    assert_eq!(ready.text(), format!("{address}: leader=1 nodeID=1 raftAvailable=true\n"));
    node.stop();
}

#[test]
fn node_that_waits_for_others_is_up_and_not_ready() {
    let dir = tempfile::tempdir().unwrap();
    let [own, other, raft] = [(); 3].map(|()| format!("127.0.0.1:{}", free_port()));
    let cluster = format!("{own},{other}");
    let words = ["--cluster", &cluster, "--listen", &own, "--raft-listen", &raft];
    let _node = NodeProcess::start(serve(&words).current_dir(&dir));
    let deadline = Instant::now() + LONG;
    while up(&["--endpoint", &own], &[]).status != 0 {
        assert!(Instant::now() < deadline);
    }
    up(&["--ready", "--endpoint", &own], &[]).exits(1).says(&["500", "waits for its cluster"]);
}

/// A kubelet and an image have no certificate of a client.
#[test]
fn node_with_tls_alone_is_up_also_without_a_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let mut certs = command(&["cluster", "certs", "certs", "--nodes", "1=127.0.0.1"]);
    certs.current_dir(&dir);
    run(certs, b"").ok();
    let file = |name: &str| dir.path().join("certs").join(name).to_str().unwrap().to_owned();
    let [ca, cert, key] = ["ca.pem", "node-1/server.pem", "node-1/server-key.pem"].map(file);
    let mut started = serve(&ANY_PORT);
    started.args(["--cert", &cert, "--key", &key, "--client-ca", &ca]).current_dir(&dir);
    let mut node = NodeProcess::start(&mut started);
    let address = node.answers();
    let listen = ("ESKER_LISTEN", &*address);
    let plain = up(&[], &[listen]).ok();
    assert!(plain.text().contains("this port speaks TLS"), "{}", plain.text());
    up(&["--ready"], &[listen]).exits(1).says(&["the node speaks TLS", "https://"]);
    let trusted = [listen, ("ESKER_CA", &*ca)];
    up(&[], &trusted).exits(1).says(&["wants a certificate of the client", "--client-cert"]);
    let [cert, key] = ["admin.pem", "admin-key.pem"].map(file);
    let certificate = [("ESKER_CLIENT_CERT", &*cert), ("ESKER_CLIENT_KEY", &*key)];
    let variables = [trusted, certificate].concat();
    let port = address.rsplit(':').next().unwrap();
    assert_eq!(up(&[], &variables).ok().text(), format!("localhost:{port}: ok\n"));
    let deadline = Instant::now() + LONG;
    while up(&["--ready", "--endpoint", &format!("https://{address}")], &variables).status != 0 {
        assert!(Instant::now() < deadline);
    }
    node.stop();
}

/// A process that is stopped accepts connections, and answers none.
#[test]
fn port_that_does_not_answer_is_not_up() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap().to_string();
    up(&["--endpoint", &address], &[]).exits(1).says(&[&address, "no answer within 3s"]);
}

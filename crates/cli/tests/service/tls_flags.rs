//! TLS and tokens of the commands: each failure names the flag that helps.
#![allow(clippy::unwrap_used)]

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use esker_testkit::commands::CommandOutput;
use rcgen::CertifiedKey;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::esker::{command, program, run};
use crate::lines::{ANY_PORT, NodeProcess, serve};

/// A node that speaks TLS, and denies all changes.
struct TlsNode {
    endpoint: String,
    /// The heads of the requests for changes.
    changes: Arc<Mutex<Vec<String>>>,
}

impl TlsNode {
    /// Starts a node for this host, whose certificate is its own authority.
    fn start(host: &str, ca: &Path) -> Self {
        let CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed([host.to_owned()]).unwrap();
        fs::write(ca, cert.pem()).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (config, changes) = (Arc::new(config), Arc::new(Mutex::new(Vec::new())));
        let node = Self { endpoint: format!("https://{address}"), changes: Arc::clone(&changes) };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                let mut stream = StreamOwned::new(connection, stream.unwrap());
                let mut head = [0; 4096];
                // Clients that do not trust it end the connection.
                let Ok(read) = stream.read(&mut head) else { continue };
                let head = String::from_utf8_lossy(&head[..read]).into_owned();
                let (status, body) = match head.split(' ').nth(1) {
                    Some("/members") => {
                        let node = format!(r#"{{"nodeID":1,"addr":"{address}","voter":true}}"#);
                        (
                            "200 OK",
                            format!(r#"{{"leader":{node},"members":[{node}],"cluster":"7"}}"#),
                        )
                    }
                    Some("/up") => ("200 OK", "ok".into()),
                    _ => {
                        changes.lock().unwrap().push(head);
                        ("401 Unauthorized", "this change needs a token".into())
                    }
                };
                let len = body.len();
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {len}\r\n\r\n{body}");
                drop(stream.write_all(answer.as_bytes()).and_then(|()| stream.flush()));
            }
        });
        node
    }

    /// Runs a command with this endpoint and these variables.
    fn run(&self, words: &[&str], variables: &[(&str, &Path)]) -> CommandOutput {
        let mut command = command(words);
        command.args(["--endpoint", &self.endpoint]).envs(variables.iter().copied());
        run(command, b"")
    }
}

#[test]
fn node_that_is_not_trusted_is_named_with_the_flag_that_helps() {
    let dir = tempfile::tempdir().unwrap();
    let [ca, other] = ["ca.pem", "other.pem"].map(|name| dir.path().join(name));
    let (node, elsewhere) =
        (TlsNode::start("127.0.0.1", &ca), TlsNode::start("node-2.example", &other));
    let status = ["cluster", "status"];
    let address = node.endpoint.trim_start_matches("https://");
    let unknown = [address, "not of an authority that is trusted here", "--ca FILE (ESKER_CA)"];
    node.run(&status, &[("ESKER_CA", &other)]).exits(1).says(&unknown);
    let words = ["ts", "--timeout", "1s", "--ca", other.to_str().unwrap()];
    node.run(&words, &[]).exits(1).says(&unknown);
    let host = ["not for this host, but for node-2.example", "--endpoint with a name"];
    elsewhere.run(&status, &[("ESKER_CA", &other)]).exits(1).says(&host);
    // It answers /status with a 401.
    node.run(&status, &[("ESKER_CA", &ca)]).exits(1).says(&["no quorum answers"]);
}

#[test]
fn change_that_is_denied_names_the_token_and_is_not_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let [ca, token] = ["ca.pem", "token"].map(|name| dir.path().join(name));
    let node = TlsNode::start("127.0.0.1", &ca);
    let transfer = |variables: &[_]| node.run(&["cluster", "transfer"], variables);
    let denied = ["this change needs a token", "ESKER_TOKEN_FILE"];
    transfer(&[("ESKER_CA", &*ca)]).exits(1).says(&denied);
    fs::write(&token, "0123456789abcdef\n").unwrap();
    fs::set_permissions(&token, Permissions::from_mode(0o644)).unwrap();
    let with_token = [("ESKER_CA", &*ca), ("ESKER_TOKEN_FILE", &*token)];
    transfer(&with_token).exits(2).says(&["others may read or change it", "chmod 600"]);
    fs::set_permissions(&token, Permissions::from_mode(0o600)).unwrap();
    transfer(&with_token).exits(1).says(&denied);
    let changes = node.changes.lock().unwrap();
    let tokens: Vec<_> = changes
        .iter()
        .map(|head| head.contains("authorization: Bearer 0123456789abcdef"))
        .collect();
    assert_eq!(tokens, [false, true], "{changes:?}");
}

#[test]
fn flags_that_do_not_fit_the_endpoints_are_refused() {
    let refused = |words: &[&str]| run(command(&[&["ts"], words].concat()), b"").exits(2);
    let ca = ["--ca", "/nowhere/ca.pem"];
    refused(&ca).says(&["https:// endpoints", "--endpoint https://..."]);
    let https = ["--endpoint", "https://127.0.0.1:1"];
    refused(&[https, ca].concat()).says(&["/nowhere/ca.pem", "No such file"]);
    refused(&[https, ["--endpoint", "http://127.0.0.1:1"]].concat()).says(&["give one scheme"]);
    let without_key = refused(&[https, ["--client-cert", "a.pem"]].concat());
    assert!(without_key.err.contains("--client-key"), "{}", without_key.err);
    let other = refused(&["--endpoint", "ftp://127.0.0.1:1"]);
    assert!(other.err.contains("like http://127.0.0.1:8080"), "{}", other.err);
}

/// A variable is for all commands of a shell.
#[test]
fn variables_of_tls_do_not_count_without_https() {
    // No server listens there.
    let closed = "127.0.0.1:1";
    let endpoint = format!("http://{closed}");
    for words in [&["ts", "--timeout", "100ms"][..], &["cluster", "status"]] {
        for variable in ["ESKER_CA", "ESKER_CLIENT_CERT", "ESKER_CLIENT_KEY"] {
            let mut command = command(words);
            command.args(["--endpoint", &endpoint]).env(variable, "/nowhere/file.pem");
            // Not the file, but the node is missing.
            run(command, b"").exits(1);
        }
    }
    let mut mixed = command(&["ts", "--endpoint", &endpoint, "--ca", "/nowhere/ca.pem"]);
    mixed.env("ESKER_CLIENT_CERT", "/nowhere/file.pem");
    run(mixed, b"").exits(2).says(&["--ca", "--endpoint https://..."]);
    let https = format!("https://{closed}");
    let mut half = command(&["ts", "--endpoint", &https]);
    half.env("ESKER_CLIENT_KEY", "/nowhere/file.pem");
    run(half, b"").exits(2).says(&["ESKER_CLIENT_KEY", "--client-cert"]);
}

/// The certificates of node 1 in a new folder. What scripts read is on standard output alone.
fn certificates() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("certs/node-1");
    let mut certs = command(&["cluster", "certs", "certs", "--nodes", "1=127.0.0.1"]);
    certs.current_dir(&dir);
    let made = run(certs, b"").ok();
    assert_eq!(made.text(), "certs/node-1\n");
    assert!(made.err.contains("--peer-ca ca.pem") && made.err.contains("--cert"), "{}", made.err);
    let mut renewed = command(&["cluster", "certs", "renew", "certs", "--json"]);
    renewed.current_dir(&dir);
    run(renewed, b"").ok().says_nothing();
    (dir, own)
}

/// Such a port answers requests without TLS with 400, which was that of "no node of a cluster".
#[test]
fn port_that_speaks_tls_is_named_to_those_without_it() {
    let (dir, own) = certificates();
    let mut first = serve(&ANY_PORT);
    first.arg("--cert").arg(own.join("server.pem")).arg("--key").arg(own.join("server-key.pem"));
    let mut node = NodeProcess::start(first.current_dir(&dir));
    let address = node.answers();
    let endpoint = ["--endpoint", &format!("http://{address}")];
    for words in [&["cluster", "status"][..], &["cluster", "transfer"], &["ts", "--timeout", "5s"]]
    {
        let failed = run(command(&[words, &endpoint].concat()), b"").exits(1);
        failed.says(&[&*address, "speaks TLS", "--endpoint https://...", "--ca"]);
    }
    let mut bench = program("esker-bench", &["ts", "--timeout", "1s"]);
    bench.args(endpoint);
    run(bench, b"").exits(1).says(&[&*address, "speaks TLS", "--endpoint https://..."]);
    // It would not be another one later: the node ends, and says what it lacks.
    let mut second = serve(&ANY_PORT);
    second.args(["--node-id", "2", "--join", &address, "--data", "second"]).current_dir(&dir);
    let (status, errors) = NodeProcess::start(&mut second).end();
    assert_eq!(status, Some(1), "{errors}");
    for words in ["this node cannot join", &*address, "speaks TLS", "--peer-ca, --peer-cert"] {
        assert!(errors.contains(words), "{words}: {errors}");
    }
    node.stop();
}

/// The floor has no TLS.
#[test]
fn benchmark_over_tls_says_so_and_has_no_floor() {
    let (dir, own) = certificates();
    let [ca, cert, key] = ["ca.pem", "admin.pem", "admin-key.pem"].map(|name| {
        let file = dir.path().join("certs").join(name);
        file.to_str().unwrap().to_owned()
    });
    let mut first = serve(&ANY_PORT);
    first.arg("--cert").arg(own.join("server.pem")).arg("--key").arg(own.join("server-key.pem"));
    first.args(["--client-ca", &ca]);
    let mut node = NodeProcess::start(first.current_dir(&dir));
    let endpoint = format!("https://{}", node.answers());
    let bench = |flags: &[&str]| {
        let mut bench =
            program("esker-bench", &["ts", "--json", "--seconds", "0.2", "--endpoint", &endpoint]);
        bench.args(["--ca", &ca, "--client-cert", &cert, "--client-key", &key]).args(flags);
        run(bench, b"").ok().json()
    };
    let over_tls = bench(&["--connections", "2"]);
    assert_eq!((&over_tls["params"]["tls"], &over_tls["verified"]), (&true.into(), &true.into()));
    assert!(over_tls["ops"].as_u64().unwrap() > 0, "{over_tls}");
    assert!(over_tls["floor"]["http_rps"].is_null(), "{over_tls}");
    assert!(over_tls["ratio_to_http"].is_null(), "{over_tls}");
    let callers = bench(&["--callers", "2"]);
    assert_eq!(callers["params"]["tls"], true, "{callers}");
    #[cfg(feature = "http3")]
    {
        let over_http3 = bench(&["--protocol", "h3", "--connections", "1", "--streams", "2"]);
        assert_eq!(over_http3["params"]["tls"], true, "{over_http3}");
        assert!(over_http3["ops"].as_u64().unwrap() > 0, "{over_http3}");
        // That of HTTP/3 has TLS, too.
        assert!(over_http3["floor"]["http_rps"].as_f64().unwrap() > 0.0, "{over_http3}");
    }
    node.stop();
}

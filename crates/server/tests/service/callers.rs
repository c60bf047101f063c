//! The table of callers and setups of a node: who is answered, and who may change the cluster. Each
//! row is tried with rustls over HTTP/1.1 and HTTP/3, and with curl and openssl where they are
//! installed.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use esker_server::{CertificateFiles, Server};
use http_body_util::Full;
use hyper::Request;

use crate::authority::{Authority, any_node};
use crate::client::Protocol;
use crate::nodes::{TEST_TIMEOUT, alone};
use crate::tls::{CLUSTER, TOKEN, cluster_of, node_client, token_file};
use crate::tls_client::{TlsClient, send_plain};

/// The cluster of the node, and another one.
const OURS: &str = CLUSTER;
const BILLS: &str = "bills";
const ADMIN_NAME: &str = "admin.esker.internal";
const OTHER_TOKEN: &str = "another-token-of-16";

/// How a node is set up: without a certificate for clients, with one, and with `--client-ca`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setup {
    Plain,
    Tls,
    Mutual,
}

/// How a caller connects: as a node of a cluster, it names that in its first message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Connection {
    WithoutTls,
    AsClient,
    AsNode(&'static str),
}

/// The certificate that a caller shows; the other ones are of another authority.
#[derive(Debug, Clone, Copy)]
enum Certificate {
    Nothing,
    Client,
    Admin,
    ExpiredAdmin,
    OtherAdmin,
    Node(u64, &'static str),
    ExpiredNode,
    OtherNode,
}

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// No answer. The refusal is counted under this reason.
    Refused(&'static str),
    /// 400, and that this port speaks TLS.
    NoTls,
    /// As any client: it reads, and changes what the setup lets clients change.
    Reads,
    /// It changes without a token, too.
    Changes,
    /// There is no such caller.
    NoCase,
}

use Certificate::{Admin, Client, ExpiredAdmin, ExpiredNode, Node, Nothing, OtherAdmin, OtherNode};
use Connection::{AsClient, AsNode, WithoutTls};
use Outcome::{Changes, NoCase, NoTls, Reads, Refused};

const NO_CERT: Outcome = Refused("no_certificate");
const WRONG: Outcome = Refused("certificate");
const EXPIRED: Outcome = Refused("expired");
const NAME: Outcome = Refused("name");
const ALERT: Outcome = Refused("alert");

/// The caller, and what it gets in each setup, the last one also over HTTP/3.
type Row = (&'static str, Connection, Certificate, [Outcome; 4]);

#[rustfmt::skip]
const TABLE: [Row; 13] = [
    //                                                       plain    TLS      mutual   HTTP/3
    ("without TLS",            WithoutTls,    Nothing,       [Reads,   NoTls,   NoTls,   NoCase]),
    ("without a certificate",  AsClient,      Nothing,       [NO_CERT, Reads,   WRONG,   WRONG]),
    ("a client",               AsClient,      Client,        [NO_CERT, Reads,   Reads,   Reads]),
    ("an admin",               AsClient,      Admin,         [NO_CERT, Reads,   Changes, Changes]),
    ("an expired admin",       AsClient,      ExpiredAdmin,  [NO_CERT, Reads,   EXPIRED, EXPIRED]),
    ("another CA's admin",     AsClient,      OtherAdmin,    [NO_CERT, Reads,   WRONG,   WRONG]),
    ("a member",               AsNode(OURS),  Node(2, OURS), [Changes, Changes, Changes, Reads]),
    ("a number that is none",  AsNode(OURS),  Node(7, OURS), [Changes, Changes, Changes, Reads]),
    ("another cluster's node", AsNode(OURS),  Node(2, BILLS),[NAME,    NAME,    NAME,    Reads]),
    ("wants another cluster",  AsNode(BILLS), Node(2, OURS), [ALERT,   ALERT,   ALERT,   Reads]),
    ("an expired node",        AsNode(OURS),  ExpiredNode,   [EXPIRED, EXPIRED, EXPIRED, EXPIRED]),
    ("another CA's node",      AsNode(OURS),  OtherNode,     [WRONG,   WRONG,   WRONG,   WRONG]),
    ("an admin as a node",     AsNode(OURS),  Admin,         [NAME,    NAME,    NAME,    Changes]),
];

/// A request: one that reads, or a change that changes nothing, with a token or without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Read,
    Change(Option<&'static str>),
}

const CALLS: [Call; 4] =
    [Call::Read, Call::Change(None), Call::Change(Some(OTHER_TOKEN)), Call::Change(Some(TOKEN))];

impl Call {
    fn parts(self, cluster: &str) -> (&'static str, &'static str, Vec<(&str, String)>, String) {
        let Self::Change(token) = self else { return ("GET", "/members", vec![], String::new()) };
        let mut headers = vec![("content-type", "application/json".to_owned())];
        headers.extend(token.map(|token| ("authorization", format!("Bearer {token}"))));
        let body = format!(r#"{{"cluster":"{cluster}","nodeID":99}}"#);
        ("POST", "/cluster/admit", headers, body)
    }

    /// The status of the answer.
    fn expected(self, outcome: Outcome, setup: Setup, has_tokens: bool) -> Option<u16> {
        match (outcome, self) {
            (Refused(_) | NoCase, _) => None,
            (NoTls, _) => Some(400),
            (Reads, Self::Change(token)) if has_tokens && token != Some(TOKEN) => Some(401),
            // With certificates of clients, the loopback is open for none without.
            (Reads, Self::Change(_)) if !has_tokens && setup == Setup::Mutual => Some(403),
            (Reads | Changes, _) => Some(200),
        }
    }
}

/// A node of one setup, and the authorities.
struct Case {
    setup: Setup,
    has_tokens: bool,
    address: String,
    cluster: String,
    own: Authority,
    other: Authority,
    member: TlsClient,
}

type Statuses = [Option<u16>; CALLS.len()];

impl Case {
    fn shown(&self, certificate: Certificate) -> Option<CertificateFiles> {
        Some(match certificate {
            Nothing => return None,
            Client => self.own.issue("client", &["client.example"]),
            Admin => self.own.issue("admin", &[ADMIN_NAME]),
            ExpiredAdmin => self.own.issue_until("expired", &[ADMIN_NAME], -60),
            OtherAdmin => self.other.issue("admin", &[ADMIN_NAME]),
            Node(number, cluster) => self.own.peer(number, cluster).own,
            ExpiredNode => {
                let names = ["node-2.orders.esker.internal", &any_node(CLUSTER)];
                self.own.issue_until("expired", &names, -60)
            }
            OtherNode => self.other.peer(2, CLUSTER).own,
        })
    }

    /// The refusals of clients, by reason.
    async fn refusals(&self) -> BTreeMap<String, u64> {
        let metrics = self.member.get(&self.address, "/metrics").await.unwrap();
        let counts = metrics.text().lines().filter_map(|line| {
            let prefix = r#"esker_tls_refused_total{port="clients",reason=""#;
            let (reason, count) = line.strip_prefix(prefix)?.split_once("\"} ")?;
            Some((reason.to_owned(), count.parse().unwrap()))
        });
        counts.collect()
    }

    /// Checks what a caller got.
    fn check(&self, row: &str, program: &str, outcome: Outcome, answered: Statuses) {
        let expected = CALLS.map(|call| call.expected(outcome, self.setup, self.has_tokens));
        let (setup, has_tokens) = (self.setup, self.has_tokens);
        assert_eq!(answered, expected, "{setup:?}, tokens: {has_tokens}, {row}, {program}");
    }

    /// Waits until a refusal is counted that was not before.
    async fn check_count(&self, row: &str, outcome: Outcome, before: &BTreeMap<String, u64>) {
        let Refused(reason) = outcome else { return };
        let deadline = Instant::now() + TEST_TIMEOUT;
        while self.refusals().await[reason] == before[reason] {
            assert!(Instant::now() < deadline, "{:?}, {row}: no refusal is {reason}", self.setup);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn ask_with_rustls(
        &self,
        connection: Connection,
        own: Option<&CertificateFiles>,
    ) -> Statuses {
        let client = TlsClient::new(&self.own.ca(), own);
        let client = match connection {
            AsNode(cluster) => client.for_name(&any_node(cluster)),
            WithoutTls | AsClient => client,
        };
        let mut statuses = [None; CALLS.len()];
        for (status, call) in statuses.iter_mut().zip(CALLS) {
            let (method, path, headers, body) = call.parts(&self.cluster);
            let mut request = Request::builder().method(method).uri(path);
            request = request.header("host", &self.address);
            for (name, value) in headers {
                request = request.header(name, value);
            }
            let request = request.body(Full::new(Bytes::from(body))).unwrap();
            let answered = match connection {
                WithoutTls => send_plain(&self.address, request).await,
                AsClient | AsNode(_) => client.send(&self.address, Protocol::Http1, request).await,
            };
            *status = answered.ok().map(|answer| answer.status);
        }
        statuses
    }

    #[cfg(feature = "http3")]
    async fn ask_over_http3(
        &self,
        connection: Connection,
        own: Option<&CertificateFiles>,
    ) -> Statuses {
        let name = server_name(connection);
        let mut statuses = [None; CALLS.len()];
        let connected = crate::http3_client::Client::connect_as(&self.address, &name, own).await;
        let Ok(client) = connected else { return statuses };
        for (status, call) in statuses.iter_mut().zip(CALLS) {
            let (method, path, headers, body) = call.parts(&self.cluster);
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
            let answered = client.send(method, path, &headers, body.as_bytes()).await;
            *status = answered.ok().map(|answer| answer.status);
        }
        statuses
    }

    /// All requests by one curl; `None` if there is none.
    fn ask_with_curl(
        &self,
        connection: Connection,
        own: Option<&CertificateFiles>,
    ) -> Option<Statuses> {
        let (scheme, name) = match connection {
            WithoutTls => ("http", "localhost".into()),
            AsClient | AsNode(_) => ("https", server_name(connection)),
        };
        let port = self.address.rsplit_once(':').unwrap().1;
        let mut curl = Command::new("curl");
        for (at, call) in CALLS.into_iter().enumerate() {
            let (method, path, headers, body) = call.parts(&self.cluster);
            curl.args((at > 0).then_some("--next"));
            curl.args(["-s", "--max-time", "60", "--noproxy", "*", "-o", "/dev/null"]);
            curl.args(["-w", "%{http_code}\n", "--connect-to", &format!("::{}", self.address)]);
            curl.arg("--cacert").arg(self.own.ca()).args(["-X", method]);
            if let Some(own) = own {
                curl.arg("--cert").arg(&own.cert).arg("--key").arg(&own.key);
            }
            for (name, value) in headers {
                curl.args(["-H", &format!("{name}: {value}")]);
            }
            if !body.is_empty() {
                curl.args(["--data-binary", &body]);
            }
            curl.arg(format!("{scheme}://{name}:{port}{path}"));
        }
        let said = run(curl, b"")?;
        let codes: Vec<_> = said.lines().map(|code| code.parse::<u16>().unwrap()).collect();
        assert_eq!(codes.len(), CALLS.len(), "{said}");
        Some(std::array::from_fn(|at| Some(codes[at]).filter(|code| *code > 0)))
    }

    /// All requests over one connection of openssl; `None` if there is none, or for a caller
    /// without TLS.
    fn ask_with_openssl(
        &self,
        connection: Connection,
        own: Option<&CertificateFiles>,
    ) -> Option<Statuses> {
        if connection == WithoutTls {
            return None;
        }
        let name = server_name(connection);
        let mut openssl = Command::new("openssl");
        openssl.args(["s_client", "-quiet", "-connect", &self.address, "-servername", &name]);
        openssl.args(["-verify_hostname", &name, "-verify_return_error"]);
        openssl.arg("-CAfile").arg(self.own.ca());
        if let Some(own) = own {
            openssl.arg("-cert").arg(&own.cert).arg("-key").arg(&own.key);
        }
        let mut requests = String::new();
        for (at, call) in CALLS.into_iter().enumerate() {
            let (method, path, headers, body) = call.parts(&self.cluster);
            requests += &format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n", self.address);
            for (name, value) in headers {
                requests += &format!("{name}: {value}\r\n");
            }
            if at + 1 == CALLS.len() {
                requests += "connection: close\r\n";
            }
            requests += &format!("content-length: {}\r\n\r\n{body}", body.len());
        }
        let said = run(openssl, requests.as_bytes())?;
        let codes: Vec<_> = said
            .split("HTTP/1.1 ")
            .skip(1)
            .map(|answer| answer[..3].parse::<u16>().unwrap())
            .collect();
        assert!([0, CALLS.len()].contains(&codes.len()), "{said}");
        Some(std::array::from_fn(|at| codes.get(at).copied()))
    }
}

/// The reason under which a refusal is counted.
fn reason(outcome: Outcome) -> Option<&'static str> {
    match outcome {
        Refused(reason) => Some(reason),
        NoTls => Some("plain"),
        Reads | Changes | NoCase => None,
    }
}

/// The name under which a caller knows the node.
fn server_name(connection: Connection) -> String {
    match connection {
        AsNode(cluster) => any_node(cluster),
        WithoutTls | AsClient => "localhost".into(),
    }
}

/// Runs a program, and returns its output; `None` if it is not installed.
fn run(mut command: Command, input: &[u8]) -> Option<String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut program = match command.spawn() {
        Ok(program) => program,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => panic!("{command:?}: {error}"),
    };
    // It may have ended: the node refused it.
    drop(program.stdin.take().unwrap().write_all(input));
    let ended = program.wait_with_output().unwrap();
    Some(String::from_utf8_lossy(&ended.stdout).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_get_what_they_have_proven() {
    let mut skipped = BTreeSet::new();
    for (at, setup) in [Setup::Plain, Setup::Tls, Setup::Mutual].into_iter().enumerate() {
        for has_tokens in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let own = Authority::new(dir.path(), "one");
            let mut options = alone(&dir.path().join("data"));
            options.peer_certificates = Some(own.peer(1, CLUSTER));
            options.certificate = (setup != Setup::Plain).then(|| own.server());
            options.client_ca = (setup == Setup::Mutual).then(|| own.ca());
            options.admin_token_file = has_tokens.then(|| token_file(dir.path()));
            let server = Server::start(options).await.unwrap();
            let address = server.address().to_string();
            let member = node_client(&own.peer(2, CLUSTER), CLUSTER);
            let cluster = cluster_of(&address, &member).await;
            let other = Authority::new(dir.path(), "two");
            let case = Case { setup, has_tokens, address, cluster, own, other, member };
            let mut reasons = BTreeSet::new();
            for (row, connection, certificate, outcome) in TABLE {
                let (shown, by_tcp) = (case.shown(certificate), outcome[at]);
                let before = case.refusals().await;
                let answered = case.ask_with_rustls(connection, shown.as_ref()).await;
                case.check(row, "rustls", by_tcp, answered);
                case.check_count(row, by_tcp, &before).await;
                #[cfg(feature = "http3")]
                if connection != WithoutTls {
                    // Without `--client-ca`, clients of HTTP/3 are asked for no certificate.
                    let by_quic = if setup == Setup::Mutual { outcome[3] } else { Reads };
                    let before = case.refusals().await;
                    let answered = case.ask_over_http3(connection, shown.as_ref()).await;
                    case.check(row, "HTTP/3", by_quic, answered);
                    case.check_count(row, by_quic, &before).await;
                    reasons.extend(reason(by_quic));
                }
                let shown = shown.as_ref();
                let by_programs = tokio::task::block_in_place(|| {
                    std::thread::scope(|scope| {
                        let openssl = scope.spawn(|| case.ask_with_openssl(connection, shown));
                        let curl = case.ask_with_curl(connection, shown);
                        [("curl", curl), ("openssl", openssl.join().unwrap())]
                    })
                });
                for (program, answered) in by_programs {
                    match answered {
                        Some(answered) => case.check(row, program, by_tcp, answered),
                        None => skipped.extend((connection != WithoutTls).then_some(program)),
                    }
                }
                reasons.extend(reason(by_tcp));
            }
            let counts = case.refusals().await;
            for (reason, count) in counts {
                // A program may end its connection in any way.
                if !["alert", "closed"].contains(&&*reason) {
                    assert_eq!(count > 0, reasons.contains(&*reason), "{setup:?}: {reason}");
                }
            }
            server.stop().await.unwrap();
        }
    }
    for program in skipped {
        println!("SKIPPED: there is no {program}");
    }
}

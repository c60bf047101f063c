//! The options of a node.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use esker_disk::{Disk, StdDisk};
use esker_oracle::OracleOptions;
use esker_raft::WallClock;

/// The most streams of a connection over HTTP/2 or HTTP/3, which is also the most requests that a
/// node forwards at a time on one connection.
pub(crate) const STREAMS_MAX: u32 = 128;

/// The answer of a node to requests for timestamps while another node leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum FollowerAnswer {
    /// Answers 409 and names the leader in `Esker-Leader`.
    #[default]
    Refuse,
    /// Answers 307 with the leader's address in `Location`, and in `Esker-Leader`.
    Redirect,
    /// Forwards the request to the leader, and answers as it does. At most 512 requests are
    /// forwarded at a time; more are answered 503.
    Forward,
}

/// The files of a certificate, PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate and its chain.
    pub cert: PathBuf,
    /// The key of the certificate.
    pub key: PathBuf,
}

/// The files that a node shows to the other nodes, and those that it trusts, PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCertificateFiles {
    /// The authority of all nodes of the cluster. Several while one replaces another.
    pub ca: PathBuf,
    /// The certificate of this node and its key. It names the node and the cluster:
    /// `node-N.CLUSTER.esker.internal`. See [`make_certificates`](crate::make_certificates).
    pub own: CertificateFiles,
}

/// The options of a node.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServerOptions {
    /// The folder of the node's data, created for its owner alone. It must not be deleted while the
    /// node is a member: a node that lost its data needs a new number.
    pub data: PathBuf,
    /// The number of the node, not 0. `None`: the number in its data, or 1 for a new cluster.
    pub node: Option<u64>,
    /// The address on which the node listens for clients. 127.0.0.1:8080.
    pub listen: SocketAddr,
    /// The address on which it listens for the other nodes. 127.0.0.1:8081.
    pub raft_listen: SocketAddr,
    /// The address that is advertised to clients, host and port. `None`: `listen`.
    pub advertise: Option<String>,
    /// The address that is advertised to the other nodes, host and port. `None`: `raft_listen`.
    pub raft_advertise: Option<String>,
    /// The client address of a member of the cluster to join, for a node that belongs to none.
    pub join: Option<String>,
    /// The client addresses of all nodes of a cluster, in the order of their numbers, two or more:
    /// the same for each node, also at later starts. The first node founds the cluster when all
    /// others answer that they have no data, and the others join it; until then [`Server::start`]
    /// waits, without a bound. Not with `join`. Empty: the node founds a cluster alone, or joins
    /// the one of `join`.
    ///
    /// [`Server::start`]: crate::Server::start
    pub cluster: Vec<String>,
    /// The round-trip time between nodes, from which the timeouts of elections are derived. 10 ms.
    pub round_trip: Duration,
    /// The most connections of clients at a time. 10,000, or as many as the limit of open files
    /// allows.
    pub connections_max: usize,
    /// The time that an entry may wait for the disk of a leader. After that, the leader gives its
    /// leadership away. 400 ms.
    pub disk_stall_timeout: Duration,
    /// The time that closing the log may take when the node stops: a disk may stall. 5 s.
    pub close_timeout: Duration,
    /// Whether leaders answer under their lease: this node switches that on or off for the cluster
    /// whenever it leads. `None`: it does not change it.
    pub lease_reads: Option<bool>,
    /// Whether clients are answered over HTTP/3, on the port of `listen` over UDP. `true` in builds
    /// with the feature `http3`.
    pub http3: bool,
    /// The certificate for clients, over TCP and HTTP/3: it is read again when its files change,
    /// and never written. With it, clients over TCP need TLS. `None`: they have none, and HTTP/3
    /// has `cert.pem` and `key.pem` of `data`. The node makes them if they are missing, and
    /// replaces those that it made before they end.
    pub certificate: Option<CertificateFiles>,
    /// The authority of certificates of clients, PEM: without such a certificate no client is
    /// answered over TLS. Read again when it changes. Only with `certificate`. `None`: clients need
    /// no certificate.
    pub client_ca: Option<PathBuf>,
    /// Whether clients are answered without TLS, too, or alone if there is no `certificate`. Needed
    /// where `listen` is not on loopback and there is none. `false`.
    pub plain_http: bool,
    /// The file with the tokens of those who may change the cluster, one on each line; read again
    /// when it changes. `None`: nodes and administrators with certificates may, and on loopback
    /// without `client_ca` every caller.
    pub admin_token_file: Option<PathBuf>,
    /// The time for which a certificate that the node makes is valid. It is replaced when a third
    /// of that is left. 180 days; at most ten years.
    pub certificate_life: Duration,
    /// The time between two checks of the certificate. A minute.
    pub certificate_check_interval: Duration,
    /// The certificates of the connections between nodes, in both directions; read again when they
    /// change. `None`: each caller that reaches `raft_listen` can act as any node.
    pub peer_certificates: Option<PeerCertificateFiles>,
    /// Whether this node talks without TLS to nodes that have none: for the time in which a cluster
    /// gets certificates. Needed where `raft_listen` is not on loopback and there are none.
    /// `false`.
    pub plain_peers: bool,
    /// The answer to requests for timestamps while another node leads.
    pub follower_answer: FollowerAnswer,
    /// The number of lost spans, counted by the program if it sends spans: a metric of the node.
    pub spans_lost: Option<Arc<AtomicU64>>,
    /// The options of issuing timestamps.
    pub oracle: OracleOptions,
    /// The wall clock of the node. That of the system.
    pub clock: WallClock,
    /// The disk that holds the data.
    pub disk: Arc<dyn Disk>,
}

impl ServerOptions {
    /// Creates the default options, with the data in this folder.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            data: data.into(),
            node: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            raft_listen: SocketAddr::from(([127, 0, 0, 1], 8081)),
            advertise: None,
            raft_advertise: None,
            join: None,
            cluster: Vec::new(),
            round_trip: Duration::from_millis(10),
            connections_max: 10_000,
            disk_stall_timeout: Duration::from_millis(400),
            close_timeout: Duration::from_secs(5),
            lease_reads: None,
            http3: cfg!(feature = "http3"),
            certificate: None,
            client_ca: None,
            plain_http: false,
            admin_token_file: None,
            certificate_life: Duration::from_secs(180 * 24 * 3600),
            certificate_check_interval: Duration::from_secs(60),
            peer_certificates: None,
            plain_peers: false,
            follower_answer: FollowerAnswer::default(),
            spans_lost: None,
            oracle: OracleOptions::default(),
            clock: WallClock::default(),
            disk: Arc::new(StdDisk::new()),
        }
    }

    /// Returns the folder of the node's log, which is in that of its data.
    pub fn log_dir(&self) -> PathBuf {
        self.data.join("raft")
    }
}

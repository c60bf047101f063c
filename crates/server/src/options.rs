//! What a node is started with.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use esker_disk::{Disk, StdDisk};
use esker_oracle::OracleOptions;
use esker_raft::WallClock;

/// What a node does with a request for timestamps while another node leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum FollowerAnswer {
    /// Answers 409 and names the leader in `Esker-Leader`.
    #[default]
    Refuse,
    /// Answers 307 with the leader's address in `Location`, and in `Esker-Leader`.
    Redirect,
    /// Asks the leader, and answers as it does. At most 512 such requests are on their way at a
    /// time; more are answered 503.
    Forward,
}

/// The files of a certificate, PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, and what it depends on.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// What a node is started with.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServerOptions {
    /// The node's data. Never to be deleted while the node is a member: a node that lost its data
    /// needs a new number. It is created, for its owner alone.
    pub data: PathBuf,
    /// The number of the node, not 0. `None`: that of the data, or 1 for a new cluster.
    pub node: Option<u64>,
    /// Where clients connect. 127.0.0.1:8080.
    pub listen: SocketAddr,
    /// Where the other nodes connect. 127.0.0.1:8081.
    pub raft_listen: SocketAddr,
    /// The address that clients get, host and port. `None`: `listen`.
    pub advertise: Option<String>,
    /// The address that the other nodes get, host and port. `None`: `raft_listen`.
    pub raft_advertise: Option<String>,
    /// The client address of a member of the cluster to join, for a node that belongs to none.
    pub join: Option<String>,
    /// The client addresses of all nodes of a cluster, in the order of their numbers, two or more:
    /// the same for each node, also at later starts. The first founds the cluster when all others
    /// answer that they have no data, and the others join it; until then [`Server::start`] waits,
    /// without a bound. Not beside `join`. Empty: the node founds a cluster, or joins one.
    ///
    /// [`Server::start`]: crate::Server::start
    pub cluster: Vec<String>,
    /// The round-trip time between nodes, from which the timeouts of elections follow. 10 ms.
    pub round_trip: Duration,
    /// Connections of clients at a time. 10,000, and what the limit of open files leaves.
    pub connections: usize,
    /// A leader whose disk has kept an entry waiting for so long gives its leadership away. 400 ms.
    pub disk_stall: Duration,
    /// How long closing the log may take when the node stops: a disk may stall. 5 s.
    pub close: Duration,
    /// Whenever this node leads, it switches reads under a lease on or off, for the cluster.
    /// `None`: it leaves them as they are.
    pub lease_reads: Option<bool>,
    /// Whether clients are answered over HTTP/3, on the port of `listen` over UDP. `true`, if this
    /// build has the feature `http3`.
    pub http3: bool,
    /// The certificate of HTTP/3: it is read again when its files change, and never written.
    /// `None`: `cert.pem` and `key.pem` of `data`. The node makes them if they are not there, and
    /// replaces its own ones before they end.
    pub certificate: Option<CertificateFiles>,
    /// How long a certificate that the node makes is valid. It is replaced when a third of that is
    /// left. 180 days; at most ten years.
    pub certificate_life: Duration,
    /// How often the certificate is looked at. A minute.
    pub certificate_check: Duration,
    /// What the node does with a request for timestamps while another node leads.
    pub follower_answer: FollowerAnswer,
    /// Spans that were lost, counted by the program if it sends spans: a metric of the node.
    pub spans_lost: Option<Arc<AtomicU64>>,
    /// How timestamps are issued.
    pub oracle: OracleOptions,
    /// The node's wall clock. The system's.
    pub clock: WallClock,
    /// The disk that holds the data.
    pub disk: Arc<dyn Disk>,
}

impl ServerOptions {
    /// The defaults, with the data in this folder.
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
            connections: 10_000,
            disk_stall: Duration::from_millis(400),
            close: Duration::from_secs(5),
            lease_reads: None,
            http3: cfg!(feature = "http3"),
            certificate: None,
            certificate_life: Duration::from_secs(180 * 24 * 3600),
            certificate_check: Duration::from_secs(60),
            follower_answer: FollowerAnswer::default(),
            spans_lost: None,
            oracle: OracleOptions::default(),
            clock: WallClock::default(),
            disk: Arc::new(StdDisk::new()),
        }
    }

    /// The folder of the node's log, in that of its data.
    pub fn log_dir(&self) -> PathBuf {
        self.data.join("raft")
    }
}

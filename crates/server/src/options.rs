//! What a node is started with.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use esker_disk::{Disk, StdDisk};
use esker_oracle::OracleOptions;

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
    /// The round-trip time between nodes, from which the timeouts of elections follow. 10 ms.
    pub round_trip: Duration,
    /// Connections of clients at a time. 10,000, and what the limit of open files leaves.
    pub connections: usize,
    /// A leader whose disk has kept an entry waiting for so long gives its leadership away. 400 ms.
    pub disk_stall: Duration,
    /// How long closing the log may take when the node stops: a disk may stall. 5 s.
    pub close: Duration,
    /// Whenever this node leads, it switches reads under a lease on or off, for the cluster. `None`:
    /// it leaves them as they are.
    pub lease_reads: Option<bool>,
    /// How timestamps are issued.
    pub oracle: OracleOptions,
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
            round_trip: Duration::from_millis(10),
            connections: 10_000,
            disk_stall: Duration::from_millis(400),
            close: Duration::from_secs(5),
            lease_reads: None,
            oracle: OracleOptions::default(),
            disk: Arc::new(StdDisk::new()),
        }
    }

    /// The folder of the node's log, in that of its data.
    pub fn log_dir(&self) -> PathBuf {
        self.data.join("raft")
    }
}

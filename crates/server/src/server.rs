//! A node from its start to its end.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use esker_consensus::ConsensusLog;
use esker_oracle::{Epochs, Oracle};
use esker_raft::{Member, Node, NodeError, NodeOptions, Replica};
use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::clients::Clients;
use crate::counters::Counters;
use crate::error::ServerError;
use crate::founding::Founding;
use crate::handover;
use crate::http::connection_places::RESERVE_PLACES;
use crate::identity::{Identity, Store, check_data, is_unused, random};
use crate::join::{admit, announce};
use crate::leases;
use crate::options::ServerOptions;
use crate::port;
use crate::reach;
use crate::refusals::Refusals;
use crate::rooms::Rooms;
use crate::shared::{Followers, Shared};
use crate::stall;
use crate::standing::Standing;
use crate::supervise::{Failure, Supervisor, Tasks};

/// How long requests may take to end when the node stops.
const STOP: Duration = Duration::from_secs(10);
/// Files that are no connections of clients: the node's own, and those of health checks.
const OTHER_FILES: u64 = 200 + RESERVE_PLACES as u64;

/// A node that runs.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    raft_address: SocketAddr,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    listener: JoinHandle<()>,
    close: Duration,
    /// What runs beside the requests, and ends with the node.
    tasks: Tasks,
}

impl Server {
    /// Starts a node, on the tokio runtime that this is called from. It answers when this returns,
    /// and refuses connections until then; it is ready when it has, or knows, a leader: see
    /// `GET /ready`.
    ///
    /// Blocks while the node's state is restored.
    ///
    /// # Errors
    /// [`ServerError`]. A node that failed to start is not a member, unless it was one before.
    pub async fn start(options: ServerOptions) -> Result<Self, ServerError> {
        check(&options)?;
        // Before the data is touched.
        let mut clients = Clients::bind(&options, || port::bind(options.listen, "--listen"))?;
        let peers = port::bind(options.raft_listen, "--raft-listen")?;
        let (address, raft_address) = (local(&clients.tcp)?, local(&peers)?);
        let raft = options.raft_advertise.clone().unwrap_or_else(|| raft_address.to_string());
        let client = options.advertise.clone().unwrap_or_else(|| address.to_string());
        warn_of_loopback(&client, &raft);
        let (log, identity) = open(&options, &clients.tcp, address, [&client, &raft]).await?;
        let own = Member { raft, client, store: identity.store, removed: Vec::new() };
        report_reserve(&log);
        clients.certify(&options, &own.client)?;
        port::listen(&peers, "--raft-listen")?;
        let node = NodeOptions {
            node: identity.node,
            cluster: identity.cluster,
            log,
            listener: peers,
            round_trip: options.round_trip,
            clock: options.clock.clone(),
        };
        let epochs = Replica::new(Epochs::default());
        let node = Node::start(node, &epochs);
        let node = Arc::new(node.map_err(|error| ServerError::Io("no Raft node".into(), error))?);
        // Of its log, not of what it has read so far.
        let is_new = !node
            .is_initialized()
            .await
            .map_err(|error| ServerError::Stopped(error.to_string()))?;
        if identity.founds {
            // Does nothing if the cluster is there.
            let founded = node.bootstrap(own.clone()).await;
            founded.map_err(|error| ServerError::Stopped(error.to_string()))?;
        }
        let shared = Arc::new(share(&options, identity, node, epochs)?);
        let (stop, stopping) = watch::channel(false);
        let connections = options.connections.min(files_for_connections());
        let supervisor =
            Supervisor::new(Arc::clone(&shared.counters.failed_tasks), stopping.clone());
        let mut tasks = Tasks::new(supervisor.clone());
        let serving = clients.serve(Arc::clone(&shared), connections, stopping, &mut tasks)?;
        let listener = tokio::spawn(supervisor.watch("answer clients", serving));
        let issuing = Arc::clone(&shared);
        tasks.spawn("issue timestamps", async move { issuing.oracle.ended().await });
        tasks.spawn("watch the disk", stall::watch(Arc::clone(&shared), options.disk_stall));
        if let Some(on) = options.lease_reads {
            tasks.spawn("switch leases", leases::switch(Arc::clone(&shared), on));
        }
        let belonging = belong(Arc::clone(&shared), own, options.clone(), is_new, supervisor);
        tasks.spawn("belong to the cluster", belonging);
        tracing::info!(
            node = identity.node,
            cluster = %identity.cluster,
            clients = %address,
            raft = %raft_address,
            data = %options.data.display(),
            "the node answers"
        );
        Ok(Self { address, raft_address, shared, stop, listener, close: options.close, tasks })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the other nodes connect.
    pub fn raft_address(&self) -> SocketAddr {
        self.raft_address
    }

    /// Waits until the node cannot work any more: its log failed, the epoch did not advance for too
    /// many times, one of its tasks has ended, another process runs as this node
    /// ([`ServerError::OtherData`]), the member to join is of another cluster than the node's data,
    /// or its data is of an earlier time of its cluster (the same error). Call [`Server::stop`]
    /// then: a leader that issues nothing stays the leader.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn failed(&self) -> ServerError {
        tokio::select! {
            biased;
            failure = self.tasks.supervisor.failed() => failure.into(),
            why = self.shared.node.stopped() => match why {
                NodeError::OtherData(why) => ServerError::OtherData(why),
                NodeError::Stopped(why) => ServerError::Stopped(why),
                why => ServerError::Stopped(why.to_string()),
            },
            () = self.shared.oracle.gave_up() => ServerError::Stopped(
                "the epoch missed its deadline too many times in a row (EPOCH_DEADLINE_LIMIT)".into(),
            ),
        }
    }

    /// Stops the node: gives leadership away, if a quorum of the others is there, accepts no more,
    /// ends the requests that it has, within 10 s, and closes its log, within
    /// [`ServerOptions::close`]. If no voter takes leadership in 0.5 s, it is offered again while
    /// requests end.
    ///
    /// # Errors
    /// The log's, when it cannot be closed, also in time: what is durable stays so, and the thread
    /// that closes it continues.
    pub async fn stop(mut self) -> Result<(), ServerError> {
        handover::give(&self.shared).await;
        self.stop.send_replace(true);
        let offered = handover::offer(&self.shared);
        let ended = tokio::select! {
            ended = tokio::time::timeout(STOP, &mut self.listener) => ended,
            never = offered => match never {},
        };
        if ended.is_err() {
            tracing::warn!("requests did not end in time");
            self.listener.abort();
        }
        self.tasks.shutdown().await;
        let shared = Arc::clone(&self.shared);
        // It blocks.
        let stopped = tokio::task::spawn_blocking(move || shared.stop_node());
        let Ok(stopped) = tokio::time::timeout(self.close, stopped).await else {
            let late = std::io::ErrorKind::TimedOut.into();
            return Err(ServerError::Io("the log was not closed in time".into(), late));
        };
        match stopped {
            Ok(stopped) => {
                stopped.map_err(|error| ServerError::Io("the log was not closed".into(), error))
            }
            Err(error) => Err(ServerError::Stopped(error.to_string())),
        }
    }
}

fn check(options: &ServerOptions) -> Result<(), ServerError> {
    if options.node == Some(0) {
        return Err(ServerError::Option("a node's number is 1 or more".into()));
    }
    if !has_date(SystemTime::now()) {
        return Err(ServerError::Clock);
    }
    Ok(())
}

fn warn_of_loopback(client: &str, raft: &str) {
    if reach::is_loopback(raft) && !reach::is_loopback(client) {
        tracing::warn!(
            client,
            raft,
            "other hosts cannot join: only this one reaches the address for other nodes; \
             give --raft-listen (RAFT_ADDR)"
        );
    }
}

/// Starts the oracle of the node, and puts together what all requests use.
fn share(
    options: &ServerOptions,
    identity: Identity,
    node: Arc<Node>,
    epochs: Replica<Epochs>,
) -> Result<Shared, ServerError> {
    let oracle = Oracle::start(Arc::clone(&node), epochs.clone(), options.oracle.clone());
    let counters = Counters::new(options.spans_lost.clone());
    let lease = options.round_trip * 8;
    let run = format!("{:032x}", u128::from_le_bytes(random()?));
    let (refusals, stopping) = (Refusals::default(), Mutex::new(()));
    let patience = options.oracle.patience;
    let followers = Followers::new(options.follower_answer, identity.node, patience);
    Ok(Shared {
        identity,
        node,
        epochs,
        oracle,
        counters,
        rooms: Rooms::default(),
        followers,
        lease,
        refusals,
        full: Refusals::default(),
        is_removed: AtomicBool::new(false),
        stopping,
        run,
    })
}

/// Keeps the node known to its cluster, until it may not go on: tells the supervisor, and ends its
/// part in the cluster.
async fn belong(
    shared: Arc<Shared>,
    own: Member,
    options: ServerOptions,
    is_new: bool,
    supervisor: Supervisor,
) {
    let standing = Standing::new(Arc::clone(&shared), own.client.clone());
    let stops = Arc::clone(&shared);
    let listed: Vec<String> =
        options.cluster.iter().filter(|address| **address != own.client).cloned().collect();
    let why = match standing.look(options.join.as_deref(), &listed).await {
        Err(why) => why,
        Ok(()) => {
            let join = options.join.iter().chain(&listed).cloned().collect();
            let announced = async {
                announce(shared, own, join, is_new).await;
                std::future::pending().await
            };
            tokio::select! {
                why = standing.watch() => why,
                never = announced => never,
            }
        }
    };
    tracing::error!(why, "this node may not go on");
    supervisor.fail(Failure::OtherData(why));
    // It blocks.
    let stopped = tokio::task::spawn_blocking(move || stops.stop_node()).await;
    if !matches!(stopped, Ok(Ok(()))) {
        tracing::warn!("the node was not stopped in order");
    }
}

/// The node's log: that of its data, or a new one of a node that listens for clients at `address`
/// and is known at the other two. May wait for the other nodes of `--cluster`, and answers them.
async fn open(
    options: &ServerOptions,
    port: &TcpListener,
    address: SocketAddr,
    [client, raft]: [&str; 2],
) -> Result<(ConsensusLog, Identity), ServerError> {
    check_data(&options.data)?;
    let store = Store::new(Arc::clone(&options.disk), options.log_dir());
    if let Some((log, identity)) = store.open()? {
        match options.node {
            Some(node) if node != identity.node => {
                return Err(ServerError::OtherData(format!(
                    "{} belongs to node {}, not to node {node}",
                    options.data.display(),
                    identity.node
                )));
            }
            _ => {}
        }
        if identity.founds && is_unused(&log) {
            // It stopped before the others had its cluster's id.
            if let Some(founding) = Founding::new(options, client)? {
                founding.await_all(port, &identity).await?;
            }
        }
        return Ok((log, identity));
    }
    if let Some(founding) = Founding::new(options, client)? {
        return founding.begin(port, &store, raft).await;
    }
    let identity = match (&options.join, options.node) {
        (None, node) => Identity::founder(node.unwrap_or(1))?,
        (Some(member), _)
            if *member == address.to_string() || options.advertise.as_ref() == Some(member) =>
        {
            let why = format!("a new node cannot join itself: --join {member}");
            return Err(ServerError::Option(why));
        }
        (Some(member), Some(node)) => {
            let cluster = admit(member, node).await?;
            reach::check(member, client, raft).await?;
            Identity::joining(cluster, node)?
        }
        (Some(_), None) => {
            return Err(ServerError::Option("a node that joins needs a number: --node-id".into()));
        }
    };
    let log = store.create(&identity)?;
    let Identity { cluster, node, founds, .. } = identity;
    if founds {
        tracing::info!(node, %cluster, "founded a cluster");
    }
    Ok((log, identity))
}

/// Warns of a disk that is too small for the reserve: when it is full, the node may not be able to
/// open its log.
fn report_reserve(log: &ConsensusLog) {
    let metrics = log.maintenance().log_metrics();
    let (bytes, wanted_bytes) = (metrics.reserve_bytes, metrics.reserve_wanted_bytes);
    if bytes < wanted_bytes {
        tracing::warn!(bytes, wanted_bytes, "no room for the whole reserve: the disk is too small");
    }
}

/// Whether HTTP has a date for this time, in the seconds that it has.
fn has_date(time: SystemTime) -> bool {
    const YEAR_10000: u64 = 253_402_300_800;
    time.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|since| since.as_secs() < YEAR_10000)
}

fn local(listener: &TcpListener) -> Result<SocketAddr, ServerError> {
    listener
        .local_addr()
        .map_err(|error| ServerError::Io("a listener has no address".into(), error))
}

/// Raises the limit of open files as far as it goes, and returns what of it connections may use.
fn files_for_connections() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    let connections = current.unwrap_or(u64::MAX).saturating_sub(OTHER_FILES).max(16);
    usize::try_from(connections).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node whose clock was before 1970 panicked at its start.
    #[test]
    fn no_node_starts_without_a_date() {
        let at = |secs: i64| {
            let by = Duration::from_secs(secs.unsigned_abs());
            let epoch = SystemTime::UNIX_EPOCH;
            if secs < 0 { epoch - by } else { epoch + by }
        };
        for (secs, is_date) in [
            (-315_619_200, false),
            (-1, false),
            (0, true),
            (253_402_300_799, true),
            (253_402_300_800, false),
        ] {
            assert_eq!(has_date(at(secs)), is_date, "{secs}");
        }
    }
}

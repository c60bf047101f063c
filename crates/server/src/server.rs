//! A node, from its start to its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use esker_consensus::ConsensusLog;
use esker_oracle::{OracleError, OracleState};
use esker_raft::{Member, Node, NodeError, NodeOptions, Replica};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::call::is_address;
use crate::client_ports::ClientPorts;
use crate::disk_stall;
use crate::duplicate_node::DuplicateCheck;
use crate::error::ServerError;
use crate::founding::Founding;
use crate::handover::{hand_over, keep_handing_over};
use crate::http::connection_slots::RESERVE_SLOTS;
use crate::identity::{Identity, LogFolder, check_data_dir, is_unused};
use crate::join::{admit, announce};
use crate::lease_reads;
use crate::loopback;
use crate::node_state::NodeState;
use crate::options::ServerOptions;
use crate::port;
use crate::security::{Caller, Security};
use crate::supervisor::{FailureSignal, NodeFailure, Supervisor, Tasks};

/// The time that requests may take to end when the node stops.
const REQUESTS_END_TIMEOUT: Duration = Duration::from_secs(10);
/// The open files that are no connections of clients: the node's own, and those of health checks.
const RESERVED_FILES: u64 = 200 + RESERVE_SLOTS as u64;
/// The fewest connections of clients, whatever the limit of open files is.
const CONNECTIONS_MIN: u64 = 16;

/// A running node.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    raft_address: SocketAddr,
    state: Arc<NodeState>,
    stop: watch::Sender<bool>,
    listener: JoinHandle<()>,
    close_timeout: Duration,
    /// The tasks beside the requests, which end with the node.
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
        let mut options = options;
        check(&options)?;
        // Before the data is touched.
        let security = Security::open(&mut options)?;
        let tcp = || port::bind(options.listen, "--listen");
        let mut clients = ClientPorts::bind(&options, &security, tcp)?;
        let peers = port::bind(options.raft_listen, "--raft-listen")?;
        let (address, raft_address) = (clients.address()?, port::local_address(&peers)?);
        let raft = options.raft_advertise.clone().unwrap_or_else(|| raft_address.to_string());
        let client = options.advertise.clone().unwrap_or_else(|| address.to_string());
        warn_of_loopback(&client, &raft);
        let own = [&*client, &*raft];
        // It may wait for its cluster without a bound, also for an authority that is put right.
        let watches = security.watch_at_start(options.certificate_check_interval);
        let opened = open_log(&options, &clients, security.caller(), address, own).await;
        drop(watches);
        let (log, identity) = opened?;
        let own = Member { raft, client, store: identity.store, removed: Vec::new() };
        report_reserve(&log);
        clients.certify(&options, &own.client)?;
        port::listen(&peers, "--raft-listen")?;
        let node = NodeOptions {
            node: identity.node,
            cluster: identity.cluster,
            log,
            listener: peers,
            security: security.peers.clone().map(|peers| peers as _),
            round_trip: options.round_trip,
            clock: options.clock.clone(),
        };
        let replica = Replica::new(OracleState::default());
        let node = Node::start(node, &replica);
        let node = Arc::new(node.map_err(|error| ServerError::Io("no Raft node".into(), error))?);
        // In its log, whatever it has read so far.
        let is_new = !node
            .is_initialized()
            .await
            .map_err(|error| ServerError::Stopped(error.to_string()))?;
        if identity.founds {
            // Does nothing if the cluster is there.
            let founded = node.bootstrap(own.clone()).await;
            founded.map_err(|error| ServerError::Stopped(error.to_string()))?;
        }
        let failures = FailureSignal::default();
        let state =
            NodeState::start(&options, &security, identity, node, replica, failures.clone())?;
        let state = Arc::new(state);
        let (stop, stopping) = watch::channel(false);
        let connections = options.connections_max.min(connections_of_file_limit());
        let failed_tasks = Arc::clone(&state.counters().failed_tasks);
        let supervisor = Supervisor::new(failed_tasks, stopping.clone(), failures);
        let mut tasks = Tasks::new(supervisor.clone());
        let serving = clients.serve(Arc::clone(&state), connections, stopping, &mut tasks)?;
        let listener = tokio::spawn(supervisor.watch("answer clients", serving));
        add_tasks(&mut tasks, &state, &options);
        security.add_tasks(&mut tasks, options.certificate_check_interval);
        let membership =
            keep_membership(Arc::clone(&state), own, options.clone(), is_new, supervisor);
        tasks.spawn("belong to the cluster", membership);
        tracing::info!(
            node = identity.node,
            cluster = %identity.cluster,
            clients = %address,
            raft = %raft_address,
            data = %options.data.display(),
            "the node answers"
        );
        let close_timeout = options.close_timeout;
        Ok(Self { address, raft_address, state, stop, listener, close_timeout, tasks })
    }

    /// Returns the address on which clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address on which the other nodes connect.
    pub fn raft_address(&self) -> SocketAddr {
        self.raft_address
    }

    /// Waits until the node cannot work any more: its log failed, the epoch did not advance for too
    /// many times, one of its tasks ended, or an invariant does not hold
    /// ([`ServerError::Internal`]). [`ServerError::DataMismatch`]: another process runs as this
    /// node, the member to join belongs to another cluster than the node's data, or the data is
    /// from an earlier time of its cluster. Call [`Server::stop`] then: a leader that issues
    /// nothing stays the leader.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn failed(&self) -> ServerError {
        tokio::select! {
            biased;
            failure = self.tasks.failed() => failure.into(),
            why = self.state.node().stopped() => match why {
                NodeError::OtherData(why) => ServerError::DataMismatch(why),
                NodeError::Stopped(why) => ServerError::Stopped(why),
                NodeError::Internal { invariant } => ServerError::Internal { invariant },
                why => ServerError::Stopped(why.to_string()),
            },
            () = self.state.oracle().gave_up() => ServerError::Stopped(
                "the epoch missed its deadline too many times in a row (EPOCH_DEADLINE_LIMIT)".into(),
            ),
        }
    }

    /// Stops the node: hands leadership over, if a quorum of the others runs, accepts no more
    /// connections, waits at most 10 s for requests to end, and closes its log within
    /// [`ServerOptions::close_timeout`]. If no voter takes leadership in 0.5 s, it is offered again
    /// while requests end.
    ///
    /// # Errors
    /// The error of the log if it cannot be closed, or not in time: durable entries stay durable,
    /// and the thread that closes the log continues.
    pub async fn stop(mut self) -> Result<(), ServerError> {
        hand_over(&self.state).await;
        self.stop.send_replace(true);
        let offered = keep_handing_over(&self.state);
        let ended = tokio::select! {
            ended = tokio::time::timeout(REQUESTS_END_TIMEOUT, &mut self.listener) => ended,
            never = offered => match never {},
        };
        if ended.is_err() {
            tracing::warn!("requests did not end in time");
            self.listener.abort();
        }
        self.tasks.shutdown().await;
        let state = Arc::clone(&self.state);
        // It blocks.
        let stopped = tokio::task::spawn_blocking(move || state.stop_node());
        let Ok(stopped) = tokio::time::timeout(self.close_timeout, stopped).await else {
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
        return Err(ServerError::InvalidOption("a node's number is 1 or more".into()));
    }
    for (flag, address) in
        [("--advertise", &options.advertise), ("--raft-advertise", &options.raft_advertise)]
    {
        // Members and clients get it from the cluster, which refuses any other.
        if let Some(address) = address.as_ref().filter(|address| !is_address(address)) {
            let why = format!("{flag}: {address:?} is not the host:port of one host");
            return Err(ServerError::InvalidOption(why));
        }
    }
    if !has_date(SystemTime::now()) {
        return Err(ServerError::ClockOutOfRange);
    }
    Ok(())
}

fn warn_of_loopback(client: &str, raft: &str) {
    if port::is_loopback(raft) && !port::is_loopback(client) {
        tracing::warn!(
            client,
            raft,
            "other hosts cannot join: only this one reaches the address for other nodes; \
             give --raft-listen (RAFT_ADDR)"
        );
    }
}

/// Adds the tasks beside the requests, but for that of the membership.
fn add_tasks(tasks: &mut Tasks, state: &Arc<NodeState>, options: &ServerOptions) {
    let issuing = Arc::clone(state);
    tasks.spawn("issue timestamps", async move {
        issuing.oracle().ended().await;
        // The oracle has logged it.
        if let Some(OracleError::Internal { invariant }) = issuing.oracle().blocked() {
            issuing.failures().set(NodeFailure::Internal { invariant });
        }
    });
    tasks.spawn("watch the disk", disk_stall::watch(Arc::clone(state), options.disk_stall_timeout));
    if let Some(on) = options.lease_reads {
        tasks.spawn("switch leases", lease_reads::keep_switched(Arc::clone(state), on));
    }
}

/// Keeps the node a member of its cluster until another process runs as it. Then reports that to
/// the supervisor, and stops the Raft node.
async fn keep_membership(
    state: Arc<NodeState>,
    own: Member,
    options: ServerOptions,
    is_new: bool,
    supervisor: Supervisor,
) {
    let duplicates = DuplicateCheck::new(Arc::clone(&state), own.client.clone());
    let stopped_state = Arc::clone(&state);
    let listed: Vec<String> =
        options.cluster.iter().filter(|address| **address != own.client).cloned().collect();
    let why = match duplicates.check(options.join.as_deref(), &listed).await {
        Err(why) => why,
        Ok(()) => {
            let join = options.join.iter().chain(&listed).cloned().collect();
            let announced = async {
                announce(state, own, join, is_new).await;
                std::future::pending().await
            };
            tokio::select! {
                why = duplicates.watch() => why,
                never = announced => never,
            }
        }
    };
    tracing::error!(why, "this node may not go on");
    supervisor.fail(NodeFailure::DataMismatch(why));
    // It blocks.
    let stopped = tokio::task::spawn_blocking(move || stopped_state.stop_node()).await;
    if !matches!(stopped, Ok(Ok(()))) {
        tracing::warn!("the node was not stopped in order");
    }
}

/// Opens the log in the node's data, or creates the log of a node that listens for clients at
/// `address` and advertises `client` and `raft`. May wait for the other nodes of `--cluster`, and
/// answers them.
async fn open_log(
    options: &ServerOptions,
    port: &ClientPorts,
    caller: Caller,
    address: SocketAddr,
    [client, raft]: [&str; 2],
) -> Result<(ConsensusLog, Identity), ServerError> {
    check_data_dir(&options.data)?;
    let folder = LogFolder::new(Arc::clone(&options.disk), options.log_dir());
    if let Some((log, identity)) = folder.open()? {
        match options.node {
            Some(node) if node != identity.node => {
                return Err(ServerError::DataMismatch(format!(
                    "{} belongs to node {}, not to node {node}",
                    options.data.display(),
                    identity.node
                )));
            }
            _ => {}
        }
        if identity.founds && is_unused(&log) {
            // It stopped before the others had its cluster's id.
            if let Some(founding) = Founding::new(options, client, caller.clone())? {
                founding.await_all(port, &identity).await?;
            }
        }
        return Ok((log, identity));
    }
    if let Some(founding) = Founding::new(options, client, caller.clone())? {
        return founding.create_log(port, &folder, raft).await;
    }
    let identity = match (&options.join, options.node) {
        (None, node) => Identity::new_founder(node.unwrap_or(1))?,
        (Some(member), _)
            if *member == address.to_string() || options.advertise.as_ref() == Some(member) =>
        {
            let why = format!("a new node cannot join itself: --join {member}");
            return Err(ServerError::InvalidOption(why));
        }
        (Some(member), Some(node)) => {
            let cluster = admit(&caller, member, node).await?;
            loopback::check_members(&caller, member, client, raft).await?;
            Identity::new_member(cluster, node)?
        }
        (Some(_), None) => {
            return Err(ServerError::InvalidOption(
                "a node that joins needs a number: --node-id".into(),
            ));
        }
    };
    let log = folder.create(&identity)?;
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

/// Whether HTTP has a date for this time.
fn has_date(time: SystemTime) -> bool {
    const YEAR_10000: u64 = 253_402_300_800;
    time.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|since| since.as_secs() < YEAR_10000)
}

/// Raises the limit of open files as far as possible, and returns how many connections it allows.
fn connections_of_file_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    let files = current.unwrap_or(u64::MAX);
    let connections = files.saturating_sub(RESERVED_FILES).max(CONNECTIONS_MIN);
    usize::try_from(connections).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// A node that gave others an address which reaches no host was a member that no node reached.
    #[tokio::test]
    async fn an_address_of_no_host_is_not_advertised() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        for address in ["", "node-1", "node-1:0", "0.0.0.0:8080", "[::]:8080", "a b:8080", "a:b:1"]
        {
            for flag in ["--advertise", "--raft-advertise"] {
                let mut options = ServerOptions::new(&data);
                let own = if flag == "--advertise" {
                    &mut options.advertise
                } else {
                    &mut options.raft_advertise
                };
                *own = Some(address.to_owned());
                let refused = Server::start(options).await.unwrap_err();
                let expected = format!("{flag}: {address:?} is not the host:port of one host");
                assert!(
                    matches!(&refused, ServerError::InvalidOption(why) if *why == expected),
                    "{refused:?}"
                );
            }
        }
        assert!(!data.exists(), "nothing is written");
    }

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

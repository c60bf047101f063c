//! Founding a cluster with one command for all its nodes, and joining it with the same one.
//!
//! All nodes are started with the same list of addresses, `--cluster`, in the order of their
//! numbers. A node without data asks the others of the list (`GET /founding`), and answers them:
//!
//! 1. If another node is of a cluster, the node joins that one, as with `--join`. The leader
//!    refuses a number that the cluster has or had: a node that lost its data needs a new one.
//! 2. Node 1 takes a random cluster id once all others answer that they have neither data nor a
//!    cluster, and that they have the same list. The id is durable, in the label of its log, before
//!    any other node learns it.
//! 3. Another node that has no data, and hears from the first address of its list that this id is
//!    being founded, takes the id: it is durable before the node answers with it.
//! 4. Node 1 founds the cluster once all others answer with its id. Until then it is a member of
//!    nothing, and answers nothing but that it waits; nor is another node until it was added.
//!
//! A node whose label has an id never takes another one. While an answer is missing, nodes wait,
//! and say for whom.
//!
//! # Why there is no second cluster
//!
//! Let cluster X be founded. By 4, each node of the list had the id X in its data at some time
//! before. Let another cluster Y be founded from the same list, later or at the same time. Then
//! each of its nodes had the id Y, too. A folder has one id for ever, so each of them lost its data
//! between. Each other node asks the first address itself for the id: so of two processes that both
//! take themselves for node 1, the one that is not reached there founds nothing. Thus:
//! **as long as one node of the list has its data, no second cluster is founded**, in whatever
//! order nodes start, lose their data, or are cut off. A node that is cut off, or down, does not
//! answer, and without its answer there is no founding.
//!
//! If node 1 loses its data between 2 and 4, the nodes that have taken its id wait for a cluster
//! that never comes, and say so. No timestamp was issued; the operator removes their data folders.
//!
//! Two things are not seen: a list without the nodes that have the data, as after all nodes of the
//! list were replaced by others; and a node 1 that is started without a list.

use std::collections::BTreeSet;
use std::time::Duration;

use esker_consensus::ConsensusLog;
use esker_raft::ClusterId;
use tokio::time::Instant;

use crate::call::ask_all;
use crate::client_ports::ClientPorts;
use crate::error::{BrokenInvariant, ServerError};
use crate::http::founding_listener::FoundingListener;
use crate::identity::{Identity, LogFolder};
use crate::join::{AdmitError, admit_at, parse_cluster_id};
use crate::loopback;
use crate::options::ServerOptions;
use crate::protocol::FoundingStatus;
use crate::security::Caller;

/// The time that the other nodes have to answer in each round.
const FOUNDING_CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// The wait before another round. It doubles with each.
const RETRY_DELAY: Duration = Duration::from_millis(100);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(2);
/// The time before a wait is logged, and the time between two lines.
const FIRST_LOG_DELAY: Duration = Duration::from_secs(1);
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// A list of nodes, and the one of them that is this node.
#[derive(Debug)]
pub(crate) struct Founding<'a> {
    addresses: &'a [String],
    own: &'a str,
    node: u64,
    caller: Caller,
}

/// The next step of a node without data.
#[derive(Debug, PartialEq, Eq)]
enum FoundingStep {
    /// Found the cluster: this is node 1, and all others have no data.
    FoundCluster,
    /// Take the id of the cluster that node 1 founds.
    TakeId(ClusterId),
    /// Join this cluster, through these members.
    Join(ClusterId, Vec<String>),
    /// Wait, for this reason.
    Wait(String),
}

/// The address of another node, and its status or the reason why it did not answer.
type NodeAnswer = (String, Result<FoundingStatus, String>);

impl<'a> Founding<'a> {
    /// Creates the founding of a node that clients reach at `own`, if it is started with a list.
    pub(crate) fn new(
        options: &'a ServerOptions,
        own: &'a str,
        caller: Caller,
    ) -> Result<Option<Self>, ServerError> {
        let addresses = &*options.cluster;
        if addresses.is_empty() {
            return Ok(None);
        }
        let invalid = |why: String| Err(ServerError::InvalidOption(format!("--cluster: {why}")));
        if options.join.is_some() {
            return invalid("it says whom to join; leave out --join".into());
        }
        let distinct: BTreeSet<_> = addresses.iter().collect();
        if distinct.len() != addresses.len() || addresses.len() < 2 {
            return invalid("it has the addresses of two nodes or more, each once".into());
        }
        let position = addresses.iter().position(|address| address == own);
        let Some(node) = options.node.or_else(|| Some(position? as u64 + 1)) else {
            return invalid(format!(
                "{own} is not in it: give --advertise as it is there, or, to a node that joins \
                 later, --node-id"
            ));
        };
        let Some(index) = node.checked_sub(1) else {
            return Err(ServerError::internal(BrokenInvariant("nodes are numbered from 1")));
        };
        let listed = usize::try_from(index).ok().and_then(|index| addresses.get(index));
        match listed {
            Some(listed) if listed != own => invalid(format!(
                "node {node} is {listed} there, and this node is {own}: give another --node-id, or \
                 --advertise"
            )),
            _ => Ok(Some(Self { addresses, own, node, caller })),
        }
    }

    /// Creates the log of a node without data, and its identity. Waits for the other nodes.
    pub(crate) async fn create_log(
        &self,
        port: &ClientPorts,
        folder: &LogFolder,
        raft: &str,
    ) -> Result<(ConsensusLog, Identity), ServerError> {
        let listener = FoundingListener::new(&self.status(String::new()))?;
        let decided =
            listener.answer_until(port.tcp(), port.tls(), self.decide(&listener, raft)).await?;
        let identity = match decided {
            None => Identity::new_founder(self.node)?,
            Some(cluster) => Identity::new_member(cluster, self.node)?,
        };
        let log = folder.create(&identity)?;
        if identity.founds {
            self.await_all(port, &identity).await?;
        }
        Ok((log, identity))
    }

    /// Waits until all other nodes have the id that this one founds.
    pub(crate) async fn await_all(
        &self,
        port: &ClientPorts,
        identity: &Identity,
    ) -> Result<(), ServerError> {
        let id = identity.cluster.to_string();
        let listener = FoundingListener::new(&self.status(id.clone()))?;
        let complete = async {
            let mut timer = RetryTimer::new();
            loop {
                match missing_nodes(&id, &self.ask_others().await)? {
                    None => return Ok(()),
                    Some(why) => timer.wait(&listener, &why).await,
                }
            }
        };
        listener.answer_until(port.tcp(), port.tls(), complete).await
    }

    fn status(&self, cluster: String) -> FoundingStatus {
        let nodes = self.addresses.to_vec();
        FoundingStatus { node: self.node, cluster, nodes, is_founded: false }
    }

    /// Asks the other nodes of the list.
    async fn ask_others(&self) -> Vec<NodeAnswer> {
        let others = self.addresses.iter().filter(|address| *address != self.own).cloned();
        ask_all(&self.caller, others, "/founding", FOUNDING_CALL_TIMEOUT).await
    }

    /// Decides which cluster to join; `None`: this node founds it.
    async fn decide(
        &self,
        listener: &FoundingListener,
        raft: &str,
    ) -> Result<Option<ClusterId>, ServerError> {
        let mut timer = RetryTimer::new();
        loop {
            let why = match next_step(self.addresses, self.node, &self.ask_others().await)? {
                FoundingStep::FoundCluster => return Ok(None),
                FoundingStep::TakeId(cluster) => return Ok(Some(cluster)),
                FoundingStep::Wait(why) => why,
                FoundingStep::Join(cluster, members) => {
                    let Some(member) = members.first() else {
                        return Err(ServerError::internal(BrokenInvariant(
                            "a cluster to join has a member",
                        )));
                    };
                    // Until a leader answers, which may take long.
                    listener.set_reason(&format!("it asks the cluster {cluster} to join"));
                    match admit_at(&self.caller, &members, cluster, self.node).await {
                        Ok(()) => {
                            loopback::check_members(&self.caller, member, self.own, raft).await?;
                            return Ok(Some(cluster));
                        }
                        Err(AdmitError::Broken(broken)) => {
                            return Err(ServerError::internal(broken));
                        }
                        Err(AdmitError::Refused(why)) => return Err(ServerError::Join(why)),
                        Err(AdmitError::Unavailable(why)) => {
                            format!("the cluster {cluster}: {why}")
                        }
                    }
                }
            };
            timer.wait(listener, &why).await;
        }
    }
}

/// Decides the next step of node `node`, which has no data, after these answers of the other nodes.
fn next_step(
    addresses: &[String],
    node: u64,
    answers: &[NodeAnswer],
) -> Result<FoundingStep, ServerError> {
    let mut members: Vec<(&String, ClusterId)> = Vec::new();
    let (mut founded, mut missing) = (None, Vec::new());
    for (address, status) in answers {
        let status = match status {
            Ok(status) => status,
            Err(why) => {
                missing.push(format!("{address}: {why}"));
                continue;
            }
        };
        let number = addresses.iter().position(|listed| listed == address).map(|at| at as u64 + 1);
        debug_assert!(number.is_some(), "only listed nodes are asked");
        let is_first = number == Some(1);
        let cluster = parse_cluster_id(&status.cluster);
        if cluster.is_none() && !status.cluster.is_empty() {
            // No id is not the same as an invalid one: this node may have data.
            missing.push(format!("{address}: its cluster has the invalid id {:?}", status.cluster));
            continue;
        }
        match cluster {
            // A member of a cluster, or of one that is being founded.
            Some(cluster) if status.nodes.is_empty() => members.push((address, cluster)),
            _ if status.nodes != addresses => {
                missing.push(format!("{address}: it was started with another --cluster"));
            }
            Some(cluster) if is_first => founded = Some(cluster),
            None if Some(status.node) == number => {}
            _ => missing.push(format!("{address}: it runs as node {}", status.node)),
        }
    }
    if let Some(((one, _), (other, _))) = members
        .iter()
        .find_map(|member| Some((members.first()?, member)).filter(|(a, b)| a.1 != b.1))
    {
        return Err(ServerError::Join(format!(
            "{one} and {other} (--cluster) are of two clusters: leave one of them out"
        )));
    }
    let cluster = members.first().map(|(_, cluster)| *cluster);
    let is_listed = (2..=addresses.len() as u64).contains(&node);
    Ok(match (cluster, founded) {
        (joined, Some(id)) if is_listed && joined.is_none_or(|joined| joined == id) => {
            FoundingStep::TakeId(id)
        }
        (Some(cluster), _) => {
            let members = members.into_iter().map(|(address, _)| address.clone()).collect();
            FoundingStep::Join(cluster, members)
        }
        (None, None) if node == 1 && missing.is_empty() => FoundingStep::FoundCluster,
        (None, _) if missing.is_empty() => {
            FoundingStep::Wait(format!("{} founds it", addresses[0]))
        }
        (None, _) => FoundingStep::Wait(missing.join("; ")),
    })
}

/// Describes the nodes that do not have the id of the new cluster yet; `None` if all have it.
fn missing_nodes(id: &str, answers: &[NodeAnswer]) -> Result<Option<String>, ServerError> {
    let mut missing = Vec::new();
    for (address, status) in answers {
        match status {
            Ok(status) if status.is_founded && status.cluster == id => {
                return Err(ServerError::DataMismatch(format!(
                    "{address} (--cluster) is a member of the cluster {id}, which this node is to \
                     found: its data is of an earlier time; remove it, and join under a new number"
                )));
            }
            Ok(status) if status.cluster == id => {}
            Ok(status) if status.cluster.is_empty() => {
                missing.push(format!("{address}: it does not have the cluster's id yet"));
            }
            Ok(status) => {
                return Err(ServerError::DataMismatch(format!(
                    "{address} (--cluster) is of the cluster {}, and this node founds {id}: remove \
                     the data of one of them, which has no timestamps if it was never ready",
                    status.cluster
                )));
            }
            Err(why) => missing.push(format!("{address}: {why}")),
        }
    }
    Ok((!missing.is_empty()).then(|| missing.join("; ")))
}

/// The waits between two rounds, and their log lines.
struct RetryTimer {
    delay: Duration,
    log_at: Instant,
}

impl RetryTimer {
    fn new() -> Self {
        Self { delay: RETRY_DELAY, log_at: Instant::now() + FIRST_LOG_DELAY }
    }

    async fn wait(&mut self, listener: &FoundingListener, why: &str) {
        listener.set_reason(why);
        if Instant::now() >= self.log_at {
            tracing::warn!(why, "this node waits for its cluster");
            self.log_at = Instant::now() + LOG_INTERVAL;
        }
        tokio::time::sleep(self.delay).await;
        self.delay = (self.delay * 2).min(RETRY_DELAY_MAX);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const X: ClusterId = ClusterId([1; 16]);
    const Y: ClusterId = ClusterId([2; 16]);

    fn list() -> Vec<String> {
        (1..=3).map(|node| format!("n{node}:8080")).collect()
    }

    /// A node that waits, with the id that it founds, or none.
    fn waits(node: u64, founds: Option<ClusterId>) -> NodeAnswer {
        let cluster = founds.map(|id| id.to_string()).unwrap_or_default();
        let status = FoundingStatus { node, cluster, nodes: list(), is_founded: false };
        (format!("n{node}:8080"), Ok(status))
    }

    /// A node with data of this cluster.
    fn is_of(node: u64, cluster: ClusterId) -> NodeAnswer {
        let cluster = cluster.to_string();
        let status = FoundingStatus { node, cluster, nodes: Vec::new(), is_founded: false };
        (format!("n{node}:8080"), Ok(status))
    }

    fn is_silent(node: u64) -> NodeAnswer {
        (format!("n{node}:8080"), Err("no answer".into()))
    }

    fn next(node: u64, answers: &[NodeAnswer]) -> FoundingStep {
        next_step(&list(), node, answers).unwrap()
    }

    fn waits_for(next: &FoundingStep, node: u64) -> bool {
        matches!(next, FoundingStep::Wait(why) if why.contains(&format!("n{node}:8080: ")))
    }

    /// A node 1 that had lost its data founded a second cluster.
    #[test]
    fn only_the_first_node_founds_and_only_when_all_others_have_nothing() {
        assert_eq!(next(1, &[waits(2, None), waits(3, None)]), FoundingStep::FoundCluster);
        assert!(waits_for(&next(1, &[waits(2, None), is_silent(3)]), 3));
        assert!(waits_for(&next(1, &[is_silent(2), waits(3, None)]), 2));
        let joins = |node| FoundingStep::Join(X, vec![format!("n{node}:8080")]);
        assert_eq!(next(1, &[waits(2, None), is_of(3, X)]), joins(3));
        assert_eq!(next(1, &[is_of(2, X), is_silent(3)]), joins(2));
        for node in 2..=4 {
            let others = (1..=3).filter(|other| *other != node);
            let others: Vec<_> = others.map(|other| waits(other, None)).collect();
            assert!(matches!(next(node, &others), FoundingStep::Wait(_)), "node {node}");
        }
    }

    #[test]
    fn the_others_take_the_id_of_the_first_node_alone() {
        assert_eq!(next(2, &[waits(1, Some(X)), waits(3, None)]), FoundingStep::TakeId(X));
        assert_eq!(next(3, &[waits(1, Some(X)), is_of(2, X)]), FoundingStep::TakeId(X));
        // Another process says that it is the first node.
        assert!(waits_for(&next(2, &[waits(1, None), waits(3, Some(X))]), 3));
        // The first one lost what it had promised, and begins again.
        let joins = FoundingStep::Join(X, vec!["n2:8080".into()]);
        assert_eq!(next(3, &[waits(1, Some(Y)), is_of(2, X)]), joins);
        // A new node is not of the founders.
        assert!(matches!(next(4, &[waits(1, Some(X)), waits(2, None)]), FoundingStep::Wait(_)));
    }

    #[test]
    fn lists_and_numbers_that_differ_found_nothing() {
        let mut other = waits(2, None);
        if let Ok(status) = &mut other.1 {
            status.nodes.pop();
        }
        assert!(waits_for(&next(1, &[other, waits(3, None)]), 2));
        let mut other = waits(3, None);
        if let Ok(status) = &mut other.1 {
            status.node = 4;
        }
        assert!(waits_for(&next(1, &[waits(2, None), other]), 3));
        let two = next_step(&list(), 1, &[is_of(2, X), is_of(3, Y)]);
        assert!(matches!(two, Err(ServerError::Join(why)) if why.contains("two clusters")));
    }

    #[test]
    fn a_cluster_is_founded_when_all_have_its_id() {
        let id = X.to_string();
        assert_eq!(missing_nodes(&id, &[is_of(2, X), is_of(3, X)]).unwrap(), None);
        for other in [waits(3, None), is_silent(3)] {
            let why = missing_nodes(&id, &[is_of(2, X), other]).unwrap().unwrap();
            assert!(why.starts_with("n3:8080: "), "{why}");
        }
        // Node 1 runs with its data of before the founding.
        let mut member = is_of(3, X);
        if let Ok(status) = &mut member.1 {
            status.is_founded = true;
        }
        let founded = missing_nodes(&id, &[is_of(2, X), member]);
        assert!(
            matches!(founded, Err(ServerError::DataMismatch(why)) if why.contains("earlier time"))
        );
        let other = missing_nodes(&id, &[is_of(2, X), is_of(3, Y)]);
        assert!(
            matches!(other, Err(ServerError::DataMismatch(why)) if why.contains(&Y.to_string()))
        );
    }

    /// A node whose id could not be read counted as one without data.
    #[test]
    fn a_node_with_an_invalid_id_is_waited_for() {
        let mut other = waits(3, None);
        if let Ok(status) = &mut other.1 {
            status.cluster = "no id".into();
        }
        assert!(waits_for(&next(1, &[waits(2, None), other]), 3));
    }
}

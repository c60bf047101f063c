//! `esker cluster transfer`, `add`, `remove` and `follow-clock`.

use std::time::{Duration, Instant};

use clap::Args;
use esker_client::{NodeAnswer, NodeCaller};
use esker_server::{
    AddNodeRequest, FollowClockRequest, FollowClockResponse, MemberInfo, Members, NodeStatus,
    RemoveNodeRequest, TransferRequest, TransferResponse, is_address,
};
use serde::Serialize;

use super::clocks;
use esker_command::changed_cluster::{
    CHANGE_TIMEOUT, ChangedCluster, addresses, check_made, decode,
};
use esker_command::endpoints::members;
use esker_command::exit::{Failure, Outcome, complain};
use esker_command::output::{escaped, print};
use esker_command::quantity::number;

/// How long a command waits before it asks the endpoints again.
const RETRY_INTERVAL: Duration = Duration::from_millis(300);

/// How long a node is asked who it is.
const IDENTITY_TIMEOUT: Duration = Duration::from_secs(2);

const TRANSFER: &str = "\
Examples:
  # To the node that has most of the log
  esker cluster transfer

  # To node 2
  esker cluster transfer --to 2";

/// Give leadership to another node
#[derive(Debug, Args)]
#[command(after_help = TRANSFER)]
pub struct TransferArguments {
    #[command(flatten)]
    cluster: ChangedCluster,
    /// The number of the node [default: the voter that has most of the log]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<u64>(1..=u64::MAX))]
    to: Option<u64>,
}

const ADD: &str = "\
Example:
  # Node 3 has another address now
  esker cluster add --node-id 3 --addr 10.0.0.9:8080 \\
      --raft-addr 10.0.0.9:8081

A new node joins by itself: `esker serve --node-id N --join ADDR`. A member that
starts under other addresses tells the cluster by itself, too; this is for one
that cannot.";

/// Tell the cluster where a member is
#[derive(Debug, Args)]
#[command(after_help = ADD)]
pub struct AddArguments {
    #[command(flatten)]
    cluster: ChangedCluster,
    /// The number of the node
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<u64>(1..=u64::MAX))]
    node_id: u64,
    /// Where clients connect to it, host and port [default: as it is]
    #[arg(long, value_name = "ADDR")]
    addr: Option<String>,
    /// Where the other nodes connect to it, host and port [default: as it is]
    #[arg(long, value_name = "ADDR")]
    raft_addr: Option<String>,
}

const REMOVE: &str = "\
Example:
  esker cluster remove --node-id 3

The leader is not removed: transfer its leadership first. A node that was
removed does not come back under its number with its old data: stop it, and give
a new one a new number.";

/// Remove a node
#[derive(Debug, Args)]
#[command(after_help = REMOVE)]
pub struct RemoveArguments {
    #[command(flatten)]
    cluster: ChangedCluster,
    /// The number of the node
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<u64>(1..=u64::MAX))]
    node_id: u64,
}

const FOLLOW_CLOCK: &str = "\
Example:
  esker cluster follow-clock

A clock that steps ahead by more than --max-clock-step is followed at twice real
time, and `esker cluster status` says so. This is for one that is right. An
epoch that is ahead of time cannot be taken back, so a clock that is not that of
most voters is refused.";

/// Have epochs follow the leader's clock at once
#[derive(Debug, Args)]
#[command(after_help = FOLLOW_CLOCK)]
pub struct FollowClockArguments {
    #[command(flatten)]
    cluster: ChangedCluster,
    /// Also if most other voters have another time
    #[arg(long)]
    force: bool,
}

pub async fn transfer(arguments: &TransferArguments) -> Outcome {
    let caller = arguments.cluster.caller()?;
    let members = members(&caller).await?;
    let wanted = TransferRequest { cluster: members.cluster.clone(), node: arguments.to };
    let answer = change(&caller, &members, "/cluster/transfer", &wanted, CHANGE_TIMEOUT).await?;
    let TransferResponse { node } = decode(&answer)?;
    print(&format!("node {node} leads\n"))
}

pub async fn add(arguments: &AddArguments) -> Outcome {
    let (caller, node) = (arguments.cluster.caller()?, arguments.node_id);
    let (members, known) = member(&caller, node).await?;
    for (flag, address) in [("--addr", &arguments.addr), ("--raft-addr", &arguments.raft_addr)] {
        if let Some(address) = address.as_ref().filter(|address| !is_address(address)) {
            return Err(Failure::usage(format!("{flag} {address}: not the host:port of one host")));
        }
    }
    let wanted = AddNodeRequest {
        cluster: members.cluster.clone(),
        node,
        addr: arguments.addr.clone().unwrap_or_else(|| known.addr.clone()),
        raft: arguments.raft_addr.clone().unwrap_or_else(|| known.raft.clone()),
        store: None,
        joins: false,
    };
    let there = who_answers(&caller, &wanted.addr).await;
    let (addr, raft) = (escaped(&wanted.addr), escaped(&wanted.raft));
    if there.as_ref().is_some_and(|there| there.node != node || there.cluster != wanted.cluster) {
        return Err(Failure::failed(format!("another node answers at {addr}")));
    }
    change(&caller, &members, "/cluster/add", &wanted, CHANGE_TIMEOUT).await?;
    if there.is_none() {
        complain(&format!("no node answers at {addr} yet"));
    }
    print(&format!("node {node} is a member at {addr}, raft {raft}\n"))
}

/// The members, and the one of this number. A node that knows no leader may have missed that it was
/// added.
async fn member(caller: &NodeCaller, node: u64) -> Outcome<(Members, MemberInfo)> {
    let deadline = Instant::now() + CHANGE_TIMEOUT;
    loop {
        let members = members(caller).await?;
        if let Some(known) = members.members.iter().find(|member| member.node == node) {
            let known = known.clone();
            return Ok((members, known));
        }
        if members.leader.is_some() {
            return Err(Failure::failed(format!(
                "node {node} is no member; a new node joins by itself, with a number that no node \
                 had before: `esker serve --node-id N --join ADDR`"
            )));
        }
        if Instant::now() >= deadline {
            return Err(Failure::failed(format!(
                "no leader is known to the nodes that answer, and no node {node}; try again with \
                 --endpoint of a node that knows the leader"
            )));
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// The node at this address, if there is one.
async fn who_answers(caller: &NodeCaller, address: &str) -> Option<NodeStatus> {
    let answer = caller.get(address, "/status", IDENTITY_TIMEOUT).await.ok()?;
    serde_json::from_slice(&answer.body).ok()
}

pub async fn remove(arguments: &RemoveArguments) -> Outcome {
    let caller = arguments.cluster.caller()?;
    let members = members(&caller).await?;
    let wanted = RemoveNodeRequest { cluster: members.cluster.clone(), node: arguments.node_id };
    change(&caller, &members, "/cluster/remove", &wanted, CHANGE_TIMEOUT).await?;
    print(&format!("node {} is no member any more\n", arguments.node_id))
}

pub async fn follow_clock(arguments: &FollowClockArguments) -> Outcome {
    let caller = arguments.cluster.caller()?;
    let members = members(&caller).await?;
    let begun = Instant::now();
    if !arguments.force
        && let Some(why) = clocks::disagreement(&caller, &members).await
    {
        return Err(Failure::failed(format!("{why}; --force follows it all the same")));
    }
    let left = CHANGE_TIMEOUT.saturating_sub(begun.elapsed());
    let wanted = FollowClockRequest { cluster: members.cluster.clone() };
    let answer = change(&caller, &members, "/cluster/follow-clock", &wanted, left).await?;
    let FollowClockResponse { epoch } = decode(&answer)?;
    print(&format!("epochs follow the clock from {epoch} on\n"))
}

/// Asks the leader for a change, and returns its answer.
async fn change(
    caller: &NodeCaller,
    members: &Members,
    path: &str,
    wanted: &impl Serialize,
    patience: Duration,
) -> Outcome<NodeAnswer> {
    let body = serde_json::to_vec(wanted).map_err(|error| Failure::failed(error.to_string()))?;
    let answered = caller.change(&addresses(members), path, &body, patience).await;
    check_made(answered, "esker cluster status")
}

//! The state of a running node, which its requests and tasks share.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use esker_oracle::{Oracle, OracleState, Step};
use esker_raft::{Member, Node, Replica, Role, Status};
use parking_lot::Mutex;

use crate::counters::Counters;
use crate::error::{BrokenInvariant, ServerError};
use crate::forward::Forwarder;
use crate::identity::{Identity, random_bytes};
use crate::log_limiter::LogLimiter;
use crate::memory_budget::MemoryBudget;
use crate::options::{FollowerAnswer, ServerOptions};
use crate::protocol::{ClockStatus, FollowerStatus, MemberInfo, Members, NodeStatus};
use crate::security::{Caller, ChangeAccess, Security};
use crate::supervisor::FailureSignal;

/// The time that a change of the members, or of the leader, may take.
pub(crate) const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// The state of a running node.
#[derive(Debug)]
pub(crate) struct NodeState {
    identity: Identity,
    raft: RaftState,
    timestamps: TimestampState,
    http: HttpState,
    access: AccessState,
    failures: FailureSignal,
}

/// The access of callers to changes, and the way in which this node calls others.
#[derive(Debug)]
struct AccessState {
    changes: ChangeAccess,
    caller: Caller,
}

/// The Raft node, and its place in the cluster.
#[derive(Debug)]
struct RaftState {
    node: Arc<Node>,
    /// Random: distinguishes this process from another one with a copy of the data.
    run: String,
    /// Whether the leader said last that this node is no member any more. The members that the
    /// node itself knows are from before that.
    is_removed: AtomicBool,
    /// Held while the Raft node stops.
    stopping: Mutex<()>,
}

/// The issuing of timestamps.
#[derive(Debug)]
struct TimestampState {
    oracle: Oracle,
    replica: Replica<OracleState>,
    followers: FollowerPolicy,
}

/// The limits and the counters of the HTTP interface.
#[derive(Debug)]
struct HttpState {
    counters: Counters,
    memory: MemoryBudget,
    refusal_log: LogLimiter,
    connection_log: LogLimiter,
}

/// The answer to requests for timestamps while another node leads.
#[derive(Debug)]
pub(crate) enum FollowerPolicy {
    Refuse,
    Redirect,
    Forward(Box<Forwarder>),
}

impl FollowerPolicy {
    /// Creates the policy of node `node`, which waits for the leader's answer for `timeout`.
    fn new(answer: FollowerAnswer, node: u64, caller: Caller, timeout: Duration) -> Self {
        match answer {
            FollowerAnswer::Refuse => Self::Refuse,
            FollowerAnswer::Redirect => Self::Redirect,
            FollowerAnswer::Forward => {
                Self::Forward(Box::new(Forwarder::new(node, caller, timeout)))
            }
        }
    }
}

impl NodeState {
    /// Starts the oracle of `node`, and creates the state that requests share.
    pub(crate) fn start(
        options: &ServerOptions,
        security: &Security,
        identity: Identity,
        node: Arc<Node>,
        replica: Replica<OracleState>,
        failures: FailureSignal,
    ) -> Result<Self, ServerError> {
        if node.id() != identity.node {
            return Err(ServerError::internal(BrokenInvariant(
                "the Raft node has the number of its identity",
            )));
        }
        let oracle = Oracle::start(Arc::clone(&node), replica.clone(), options.oracle.clone());
        let (answer, patience) = (options.follower_answer, options.oracle.patience);
        let caller = security.caller();
        let followers = FollowerPolicy::new(answer, identity.node, caller.clone(), patience);
        Ok(Self {
            identity,
            raft: RaftState {
                node,
                run: format!("{:032x}", u128::from_le_bytes(random_bytes()?)),
                is_removed: AtomicBool::new(false),
                stopping: Mutex::new(()),
            },
            timestamps: TimestampState { oracle, replica, followers },
            http: HttpState {
                counters: Counters::new(
                    options.spans_lost.clone(),
                    security.refusals(),
                    security.reload_failures(),
                ),
                memory: MemoryBudget::new(failures.clone()),
                refusal_log: LogLimiter::default(),
                connection_log: LogLimiter::default(),
            },
            access: AccessState { changes: security.change_access(options), caller },
            failures,
        })
    }

    /// Returns who may change the cluster.
    pub(crate) fn change_access(&self) -> &ChangeAccess {
        &self.access.changes
    }

    /// Returns how this node calls others.
    pub(crate) fn caller(&self) -> &Caller {
        &self.access.caller
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn node(&self) -> &Node {
        &self.raft.node
    }

    pub(crate) fn oracle(&self) -> &Oracle {
        &self.timestamps.oracle
    }

    pub(crate) fn followers(&self) -> &FollowerPolicy {
        &self.timestamps.followers
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.http.counters
    }

    pub(crate) fn memory(&self) -> &MemoryBudget {
        &self.http.memory
    }

    pub(crate) fn failures(&self) -> &FailureSignal {
        &self.failures
    }

    /// Whether this process answered with this [`NodeStatus::run`].
    pub(crate) fn is_own_run(&self, run: &str) -> bool {
        self.raft.run == run
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.raft.is_removed.load(Relaxed)
    }

    /// Sets whether the node was removed from its cluster, and returns whether it was before.
    pub(crate) fn set_removed(&self, is_removed: bool) -> bool {
        self.raft.is_removed.swap(is_removed, Relaxed)
    }

    /// Whether leaders answer under their lease.
    pub(crate) fn lease_reads(&self) -> bool {
        self.timestamps.replica.with(|state| state.epochs().lease_reads())
    }

    /// Returns the last epoch that the node has applied.
    pub(crate) fn last_epoch(&self) -> u64 {
        self.timestamps.replica.with(|state| state.epochs().last())
    }

    /// Stops the Raft node, and closes its log. Blocks, also while another caller does it.
    pub(crate) fn stop_node(&self) -> io::Result<()> {
        let _turn = self.raft.stopping.lock();
        self.raft.node.stop()
    }

    /// Returns whether to log that a request was refused, or had no timestamp.
    pub(crate) fn should_log_refusal(
        &self,
        kind: &'static str,
        node: Option<u64>,
        why: &str,
    ) -> bool {
        self.http.refusal_log.should_log(kind, node, why)
    }

    /// Logs once a minute that a connection was not accepted.
    pub(crate) fn log_accept_failure(&self, error: &io::Error) {
        if self.http.connection_log.should_log("accept", None, &error.to_string()) {
            tracing::warn!(%error, "a connection was not accepted");
        }
    }

    /// Counts a connection beyond the limit of this protocol, and logs it once a minute.
    pub(crate) fn count_over_limit(&self, protocol: &'static str, connections: usize) {
        self.http.counters.over_limit.fetch_add(1, Relaxed);
        if self.http.connection_log.should_log(protocol, None, "full") {
            tracing::warn!(
                protocol,
                connections,
                "all connections are in use (--connections, and the limit of open files): more get \
                 no timestamps"
            );
        }
    }

    /// Returns the members as this node knows them: it needs no quorum.
    pub(crate) fn members(&self) -> Members {
        let status = self.raft.node.status();
        let info = |id: &u64, member| member_info(*id, member, status.voters.contains(id));
        let leader = status.leader.and_then(|id| Some(info(&id, status.members.get(&id)?)));
        let is_gone = |id: &u64| *id == status.node && self.is_removed();
        let members = status.members.iter().filter(|(id, _)| !is_gone(id));
        let members = members.map(|(id, member)| info(id, member)).collect();
        let cluster = self.identity.cluster.to_string();
        Members { leader, members, cluster, changing: status.is_joint }
    }

    pub(crate) fn clock(&self) -> ClockStatus {
        let (status, clock) = (self.raft.node.status(), self.timestamps.oracle.clock());
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let leads = status.leads();
        ClockStatus {
            node: status.node,
            leads,
            clock_ns: clock.clock,
            epoch: clock.epoch,
            epoch_age_ns: clock.epoch_age.filter(|_| leads).map(ns),
            spread_ns: clock.spread.filter(|_| leads).map(ns),
            uncertainty_ns: clock.uncertainty().filter(|_| leads).map(ns),
            step_ns: if leads { signed_step(clock.step, |by| by.as_nanos()) } else { 0 },
        }
    }

    pub(crate) fn status(&self) -> NodeStatus {
        let status = self.raft.node.status();
        debug_assert_eq!(status.node, self.identity.node, "a node keeps its number");
        let disk_wait = self.raft.node.disk_wait().unwrap_or(Duration::ZERO);
        let step = self.timestamps.oracle.clock().step;
        NodeStatus {
            node: status.node,
            cluster: self.identity.cluster.to_string(),
            role: match self.is_removed() {
                true => "removed".to_owned(),
                false => role(&status).to_owned(),
            },
            term: status.term,
            leader: status.leader,
            leader_age_ms: status.leader_age.map(milliseconds),
            last: status.last,
            applied: status.applied,
            epoch: self.last_epoch(),
            lease_reads: self.lease_reads(),
            clock_step_ms: if status.leads() { signed_step(step, |by| by.as_millis()) } else { 0 },
            blocked: self.timestamps.oracle.blocked().map(|why| why.to_string()),
            reverted: status.reverted.keys().copied().collect(),
            followers: followers(&status, self.raft.node.lease() * 2),
            disk_wait_ms: milliseconds(disk_wait),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            run: self.raft.run.clone(),
        }
    }
}

/// Returns how much further ahead the clock is than epochs follow at once, in the unit of `count`;
/// below 0 if it is behind. A number that does not fit is the highest.
fn signed_step(step: Step, count: impl Fn(Duration) -> u128) -> i64 {
    let count = |by: Duration| i64::try_from(count(by)).unwrap_or(i64::MAX);
    match step {
        Step::None => 0,
        Step::Forward(by) => count(by),
        Step::Backward(by) => -count(by),
    }
}

fn member_info(id: u64, member: &Member, voter: bool) -> MemberInfo {
    debug_assert_ne!(id, 0, "members are numbered from 1");
    MemberInfo { node: id, addr: member.client.clone(), raft: member.raft.clone(), voter }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the other nodes as this leader sees them; none if it does not lead. One that has not
/// acknowledged it for `age_max` does not answer.
fn followers(status: &Status, age_max: Duration) -> Vec<FollowerStatus> {
    let others = status.members.keys().filter(|node| status.leads() && **node != status.node);
    let follower = |node: &u64| FollowerStatus {
        node: *node,
        matched: status.matched.get(node).copied().flatten(),
        heard_ms: status.acknowledged.get(node).copied().map(milliseconds),
        answers: status.has_heard(*node, age_max),
    };
    others.map(follower).collect()
}

fn role(status: &Status) -> &'static str {
    match status.role {
        Role::Learner => "learner",
        Role::Follower => "follower",
        Role::Candidate => "candidate",
        Role::Leader => "leader",
        Role::Stopped => "stopped",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The milliseconds of a step were taken from its nanoseconds, which end after 292 years.
    #[test]
    fn a_step_of_centuries_is_counted_in_full() {
        const STEP_S: u64 = 476 * 31_556_952;
        let step = Duration::from_secs(STEP_S);
        let ms = signed_step(Step::Forward(step), |by| by.as_millis());
        assert_eq!(ms.unsigned_abs(), STEP_S * 1_000);
        assert_eq!(signed_step(Step::Backward(step), |by| by.as_nanos()), -i64::MAX);
        assert_eq!(signed_step(Step::None, |by| by.as_nanos()), 0);
    }
}

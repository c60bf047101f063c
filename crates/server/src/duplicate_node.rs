//! Detection of a second process of the same node.
//!
//! A node cannot know by itself that its data is a copy, from which another process runs: both have
//! its number and its votes, and together they could vote twice in one term. So it asks the other
//! members for its address, and stops if another process answers there. It asks before it announces
//! its own address, and then every 3 s.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::call::ask_all;
use crate::node_state::NodeState;
use crate::protocol::{Members, NodeStatus};

/// The time that one member has to answer.
const DUPLICATE_CALL_TIMEOUT: Duration = Duration::from_secs(1);
/// The time between two checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(3);
/// The most members that are asked in one check.
const ASKED_MEMBERS_MAX: usize = 8;

/// The check that no other process runs as this node, and that its cluster is the expected one.
pub(crate) struct DuplicateCheck {
    state: Arc<NodeState>,
    /// The address where clients reach this process.
    address: String,
    /// The number of checks so far.
    checks: AtomicUsize,
}

/// The answers of members in one check.
#[derive(Default)]
struct MemberAnswers {
    /// The addresses that members, or the log, have for this node.
    own_addresses: BTreeSet<String>,
    /// Whether a leader has this node as a member; `None` if no leader answered.
    is_member: Option<bool>,
    /// Whether a member of this node's cluster answered.
    has_own_cluster: bool,
    /// A listed node of another cluster, and that cluster.
    other_cluster: Option<(String, String)>,
}

/// Chooses the addresses for the check of this number: the named ones, and then members, of which
/// each check takes the next ones.
fn choose_asked(named: &[&str], members: &[&str], check: usize) -> BTreeSet<String> {
    let count = members.len().max(1);
    let begin = check % count * ASKED_MEMBERS_MAX % count;
    let members = members.iter().cycle().skip(begin).take(members.len());
    let mut asked = BTreeSet::new();
    for address in named.iter().chain(members) {
        if asked.len() == ASKED_MEMBERS_MAX {
            break;
        }
        asked.insert((*address).to_owned());
    }
    asked
}

impl DuplicateCheck {
    pub(crate) fn new(state: Arc<NodeState>, address: String) -> Self {
        Self { state, address, checks: AtomicUsize::new(0) }
    }

    /// Checks once.
    ///
    /// # Errors
    /// The reason why this node has to stop: another process runs as it; the member to join,
    /// `join`, belongs to another cluster than this node's data; or a node of `listed`, the others
    /// of `--cluster`, does, and no member of the data's cluster answers. A member that the data
    /// names may have lost its own data: that is no reason.
    pub(crate) async fn check(&self, join: Option<&str>, listed: &[String]) -> Result<(), String> {
        let answers = self.ask_members(join, listed).await?;
        if let Some((address, cluster)) = answers.other_cluster {
            let why = format!(
                "the data of this node is of the cluster {}, and {address} (--cluster) is of the \
                 cluster {cluster}: leave it out of the list, or join with new data",
                self.state.identity().cluster
            );
            if !answers.has_own_cluster {
                return Err(why);
            }
            tracing::error!(why, "more than one cluster");
        }
        if let Some(is_member) = answers.is_member {
            self.set_member(is_member);
        }
        let mut addresses = answers.own_addresses;
        addresses.remove(&self.address);
        self.find_other_process(addresses).await
    }

    /// Asks the members that the data names, the member to join and the listed nodes.
    async fn ask_members(
        &self,
        join: Option<&str>,
        listed: &[String],
    ) -> Result<MemberAnswers, String> {
        let (identity, status) = (self.state.identity(), self.state.node().status());
        let others = status.members.iter().filter(|(id, _)| **id != status.node);
        let known: BTreeMap<String, u64> =
            others.map(|(id, member)| (member.client.clone(), *id)).collect();
        let own = status.members.get(&status.node);
        let mut found = MemberAnswers {
            own_addresses: own.map(|own| own.client.clone()).into_iter().collect(),
            ..MemberAnswers::default()
        };
        let named: Vec<_> = join.into_iter().chain(listed.iter().map(String::as_str)).collect();
        let members: Vec<_> = known.keys().map(String::as_str).collect();
        let asked = choose_asked(&named, &members, self.checks.fetch_add(1, Relaxed));
        for (address, members) in
            ask_all::<Members>(self.state.caller(), asked, "/members", DUPLICATE_CALL_TIMEOUT).await
        {
            let Ok(members) = members else { continue };
            if members.cluster == identity.cluster.to_string() {
                found.has_own_cluster = true;
                let named = members.members.iter().find(|member| member.node == identity.node);
                found.own_addresses.extend(named.map(|named| named.addr.clone()));
                let leads = members.leader.is_some_and(|leader| leader.addr == address);
                if leads && own.is_some() {
                    // One that was deposed, and does not know it, may not know this node.
                    let is_member = found.is_member.unwrap_or(false) || named.is_some();
                    found.is_member = Some(is_member);
                }
            } else if let Some(node) = known.get(&address) {
                tracing::error!(
                    node,
                    address,
                    cluster = members.cluster,
                    "a member answers for another cluster"
                );
            } else if !members.cluster.is_empty() && join != Some(&*address) {
                found.other_cluster = Some((address, members.cluster));
            } else if !members.cluster.is_empty() {
                return Err(format!(
                    "the data of this node is of the cluster {}, and {address} (--join) is of the \
                     cluster {}: start it without --join, or join with new data",
                    identity.cluster, members.cluster
                ));
            }
        }
        Ok(found)
    }

    /// Fails if another process answers as this node at one of these addresses.
    async fn find_other_process(&self, addresses: BTreeSet<String>) -> Result<(), String> {
        let identity = self.state.identity();
        let caller = self.state.caller();
        let answers =
            ask_all::<NodeStatus>(caller, addresses, "/status", DUPLICATE_CALL_TIMEOUT).await;
        for (address, status) in answers {
            let Ok(status) = status else { continue };
            let is_node = status.node == identity.node
                && status.cluster == identity.cluster.to_string()
                && !status.run.is_empty();
            if is_node && !self.state.is_own_run(&status.run) {
                return Err(format!(
                    "another process runs as node {} at {address}: the data of one of them is a \
                     copy; keep the one that is a member, and never start the other",
                    identity.node
                ));
            }
        }
        Ok(())
    }

    /// Checks every 3 s until this node has to stop; returns the reason.
    pub(crate) async fn watch(&self) -> String {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            if let Err(why) = self.check(None, &[]).await {
                return why;
            }
        }
    }

    /// Records whether this node is a member, and logs once that it was removed.
    fn set_member(&self, is_member: bool) {
        let was_removed = self.state.set_removed(!is_member);
        if !was_removed && !is_member {
            let node = self.state.identity().node;
            tracing::warn!(node, "removed from the cluster; stop this node");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each check asked the same eight: a leader among the others never said that a node had been
    /// removed, and a process that only the others knew was not found.
    #[test]
    fn all_members_of_a_large_cluster_are_asked_in_turns() {
        let members: Vec<_> = (10..31).map(|node| format!("node-{node}:80")).collect();
        let members: Vec<_> = members.iter().map(String::as_str).collect();
        for first in [0, 1, 100, usize::MAX / ASKED_MEMBERS_MAX] {
            let checks = (0..3).map(|n| choose_asked(&[], &members, first + n));
            let asked: Vec<_> = checks.inspect(|asked| assert_eq!(asked.len(), 8)).collect();
            let all: BTreeSet<_> = asked.iter().flatten().map(String::as_str).collect();
            assert_eq!(all.len(), members.len(), "{asked:?}");
        }
    }

    #[test]
    fn named_addresses_are_asked_first() {
        let asked = choose_asked(&["z:80", "y:80"], &["a:80", "y:80"], 7);
        assert_eq!(asked, ["a:80", "y:80", "z:80"].map(String::from).into());
        let listed: Vec<_> = (0..9).map(|node| format!("z-{node}:80")).collect();
        let listed: Vec<_> = listed.iter().map(String::as_str).collect();
        let asked = choose_asked(&listed, &["a:80"], 0);
        assert_eq!(asked.len(), ASKED_MEMBERS_MAX);
        assert!(!asked.contains("a:80"));
    }
}

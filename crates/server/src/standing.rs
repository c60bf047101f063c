//! What the other members say of this node.
//!
//! A node cannot know by itself that its data is a copy, from which another process runs: both have
//! its number and its votes, and together they could vote twice in one term. So it asks the other
//! members where they reach it, and stops if another process answers there. It asks before it tells
//! them its own address, and then every 3 s.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::call::ask_all;
use crate::protocol::{Members, NodeStatus};
use crate::shared::Shared;

/// How long one member is asked.
const ASK: Duration = Duration::from_secs(1);
/// How often the members are asked.
const AGAIN: Duration = Duration::from_secs(3);
/// The most members that are asked at a time.
const ASKED: usize = 8;

/// This node, as the other members see it.
pub(crate) struct Standing {
    shared: Arc<Shared>,
    /// Where clients reach this process.
    address: String,
}

impl Standing {
    pub(crate) fn new(shared: Arc<Shared>, address: String) -> Self {
        Self { shared, address }
    }

    /// Looks once.
    ///
    /// # Errors
    /// Why this node has to stop: another process runs as it; the member to join, `join`, has
    /// another cluster than this node's data; or a node of `listed`, the others of `--cluster`,
    /// has, and no member answers for the cluster of the data. A member that the data names may
    /// have lost its own: that is no reason.
    pub(crate) async fn look(&self, join: Option<&str>, listed: &[String]) -> Result<(), String> {
        let shared = Arc::clone(&self.shared);
        let (identity, status) = (&shared.identity, shared.node.status());
        let others = status.members.iter().filter(|(id, _)| **id != status.node);
        let known: BTreeMap<String, u64> =
            others.map(|(id, member)| (member.client.clone(), *id)).collect();
        let own = status.members.get(&status.node);
        let mut places: BTreeSet<String> = own.map(|own| own.client.clone()).into_iter().collect();
        let named = join.map(ToOwned::to_owned).into_iter().chain(listed.iter().cloned());
        let asked: BTreeSet<String> = named.chain(known.keys().cloned()).take(ASKED).collect();
        let (mut is_member, mut other, mut is_answered) = (None, None, false);
        for (address, members) in ask_all::<Members>(asked, "/members", ASK).await {
            let Ok(members) = members else { continue };
            if members.cluster == identity.cluster.to_string() {
                is_answered = true;
                let named = members.members.iter().find(|member| member.node == identity.node);
                places.extend(named.map(|named| named.addr.clone()));
                let leads = members.leader.is_some_and(|leader| leader.addr == address);
                if leads && own.is_some() {
                    // One that was deposed, and does not know it, may not know this node.
                    is_member = Some(is_member.unwrap_or(false) || named.is_some());
                }
            } else if let Some(node) = known.get(&address) {
                tracing::error!(
                    node,
                    address,
                    cluster = members.cluster,
                    "a member answers for another cluster"
                );
            } else if !members.cluster.is_empty() && join != Some(&*address) {
                other = Some((address, members.cluster));
            } else if !members.cluster.is_empty() {
                return Err(format!(
                    "the data of this node is of the cluster {}, and {address} (--join) is of the \
                     cluster {}: start it without --join, or join with new data",
                    identity.cluster, members.cluster
                ));
            }
        }
        if let Some((address, cluster)) = other {
            let why = format!(
                "the data of this node is of the cluster {}, and {address} (--cluster) is of the \
                 cluster {cluster}: leave it out of the list, or join with new data",
                identity.cluster
            );
            if !is_answered {
                return Err(why);
            }
            tracing::error!(why, "more than one cluster");
        }
        if let Some(is_member) = is_member {
            self.is_member(is_member);
        }
        places.remove(&self.address);
        for (address, theirs) in ask_all::<NodeStatus>(places, "/status", ASK).await {
            let Ok(theirs) = theirs else { continue };
            let is_node = theirs.node == identity.node
                && theirs.cluster == identity.cluster.to_string()
                && !theirs.run.is_empty();
            if is_node && theirs.run != shared.run {
                return Err(format!(
                    "another process runs as node {} at {address}: the data of one of them is a \
                     copy; keep the one that is a member, and never start the other",
                    identity.node
                ));
            }
        }
        Ok(())
    }

    /// Looks again and again, until this node has to stop; returns why.
    pub(crate) async fn watch(&self) -> String {
        loop {
            tokio::time::sleep(AGAIN).await;
            if let Err(why) = self.look(None, &[]).await {
                return why;
            }
        }
    }

    fn is_member(&self, is_member: bool) {
        if !self.shared.is_removed.swap(!is_member, Relaxed) && !is_member {
            tracing::warn!(
                node = self.shared.identity.node,
                "removed from the cluster; stop this node"
            );
        }
    }
}

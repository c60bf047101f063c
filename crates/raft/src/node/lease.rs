//! The lease of a leader: a time in which no other node can lead.

use std::time::Duration;

use openraft::ServerState;
use openraft::async_runtime::instant::Instant as _;
use openraft::async_runtime::watch::WatchReceiver;

use crate::base::ballots::term_of;
use crate::base::instant::BootInstant;
use crate::node::start::Node;

/// The part of a voter's lease that a leader counts on: clocks may run at rates that differ by a
/// tenth.
const COUNTED: (u32, u32) = (9, 10);

impl Node {
    /// The term in which this node leads and has a lease now, so that no other node can lead in a
    /// later term yet. It may act for what it was asked before the call. No message, no wait.
    ///
    /// A voter that acknowledges a heartbeat gives no vote, and does not campaign, for a lease from
    /// then on (eight round trips), also if it restarts meanwhile. The leader counts nine tenths of
    /// that, from before it sent the heartbeat, of the voters that are a majority of each
    /// configuration in force. The clock runs while the system is suspended.
    ///
    /// # Assumption
    /// The clocks of two nodes run at rates that differ by less than a tenth, also while a virtual
    /// machine is paused or moved. [`Prover`](crate::Prover) assumes nothing of clocks.
    ///
    /// `None` from the moment at which a transfer begins, for the rest of the term.
    pub fn leased_term(&self) -> Option<u64> {
        let (term, acknowledged, is_alone) = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow_watched();
            if metrics.state != ServerState::Leader {
                return None;
            }
            let configurations = metrics.membership_config.membership().get_joint_config();
            let own = |voters: &std::collections::BTreeSet<u64>| {
                voters.len() == 1 && voters.contains(&metrics.id)
            };
            let is_alone = configurations.iter().all(own);
            (metrics.current_term, metrics.last_quorum_acked, is_alone)
        };
        let is_leased = match acknowledged {
            // Without its own vote no node is elected.
            _ if is_alone => self.log.promised().map(term_of) == Some(term),
            Some(sent) => BootInstant::now() < sent.into_inner() + self.counted_lease(),
            None => false,
        };
        // Read last: a transfer that has begun is seen.
        let stays = is_leased && self.refuse_resigned(term).is_ok();
        stays.then_some(term)
    }

    fn counted_lease(&self) -> Duration {
        let lease = Duration::from_millis(self.raft.config().election_timeout_max);
        lease * COUNTED.0 / COUNTED.1
    }
}

//! The lease of a leader: a time in which no other node can lead.

use std::collections::BTreeSet;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::{Instant, ServerState};

use crate::base::ballots::ballot_term;
use crate::base::boot_instant::BootInstant;
use crate::base::failure::Internal;
use crate::node::Node;

/// The part of a voter's lease that a leader counts on, numerator and denominator: clocks may run
/// at rates that differ by a tenth.
const COUNTED_LEASE_FRACTION: (u32, u32) = (9, 10);

const _: () = assert!(COUNTED_LEASE_FRACTION.0 < COUNTED_LEASE_FRACTION.1);

impl Node {
    /// The term in which this node leads and has a lease now, so that no other node can lead in a
    /// later term yet. The node may act for requests that came before the call. Sends no message.
    /// It waits only for a call that holds a lock of the log, such as one that waits for room in
    /// memory.
    ///
    /// A voter that acknowledges a heartbeat gives no vote, and does not campaign, for a lease from
    /// then on (eight of its round trips), also if it restarts meanwhile, and its answer has that
    /// time. The leader counts nine tenths of it, from before it sent the request that the voter
    /// answered, of a majority of each configuration in force. It counts itself while it gave no
    /// vote in another term. The clock runs while the system is suspended.
    ///
    /// # Assumption
    /// The clocks of two nodes run at rates that differ by less than a tenth, also while a virtual
    /// machine is paused or moved. [`Prover`](crate::Prover) assumes nothing of clocks.
    ///
    /// `None` from the moment at which a transfer begins, for the rest of the term.
    pub fn leased_term(&self) -> Option<u64> {
        let (term, is_counted) = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow_watched();
            if metrics.state != ServerState::Leader {
                return None;
            }
            let term = metrics.current_term;
            let configurations = metrics.membership_config.membership().get_joint_config();
            if configurations.is_empty() {
                self.fail(Internal::new("a leader has voters"));
                return None;
            }
            let is_counted = self.network.lease_acks().with(term, |ack| {
                is_leased(configurations, BootInstant::now(), |node| match node == metrics.id {
                    true => LeaseVoter::Itself,
                    false => LeaseVoter::Other(ack(node)),
                })
            });
            (term, is_counted)
        };
        // The promise rises before a vote is sent; the metrics may be from before.
        let is_own = self.log().promised().map(ballot_term) == Some(term);
        // Read last: a transfer that has begun is seen.
        let stays = is_counted && is_own && self.check_not_resigned(term).is_ok();
        stays.then_some(term)
    }

    /// The time for which a voter that acknowledged this leader gives no vote: openraft's longest
    /// election timeout.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.raft.config().election_timeout_max)
    }

    /// The time for which a node that runs may be silent: three leases.
    pub(super) fn silence_max(&self) -> Duration {
        self.lease() * 3
    }
}

/// A voter of a lease: this node, or another one with its acknowledgement.
enum LeaseVoter {
    Itself,
    /// The send time of the newest request that it acknowledged, and the time for which it gives no
    /// vote.
    Other(Option<(BootInstant, Duration)>),
}

fn counted_part(lease: Duration) -> Duration {
    lease * COUNTED_LEASE_FRACTION.0 / COUNTED_LEASE_FRACTION.1
}

/// Returns whether a majority of each configuration gives no vote yet.
fn is_leased(
    configurations: &[BTreeSet<u64>],
    now: BootInstant,
    voter: impl Fn(u64) -> LeaseVoter,
) -> bool {
    debug_assert!(!configurations.is_empty(), "a lease without voters");
    let holds = |node: &u64| match voter(*node) {
        LeaseVoter::Itself => true,
        LeaseVoter::Other(ack) => ack.is_some_and(|(sent, lease)| now < sent + counted_part(lease)),
    };
    configurations.iter().all(|voters| {
        let majority = voters.len() / 2 + 1;
        voters.iter().filter(|node| holds(node)).count() >= majority
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether node 1 has a lease, when each of these nodes acknowledged a request that was
    /// sent the given milliseconds ago. Node 9 gives no vote for 20 ms, each of the others for 80
    /// ms.
    fn leased(configurations: &[&[u64]], acknowledged: &[(u64, u64)]) -> bool {
        let configurations: Vec<_> =
            configurations.iter().map(|voters| voters.iter().copied().collect()).collect();
        let now = BootInstant::now() + Duration::from_secs(10);
        is_leased(&configurations, now, |node| {
            let known = acknowledged.iter().find(|(other, _)| *other == node);
            let lease = Duration::from_millis(if node == 9 { 20 } else { 80 });
            match node {
                1 => LeaseVoter::Itself,
                _ => LeaseVoter::Other(
                    known.map(|(_, ms)| (now - Duration::from_millis(*ms), lease)),
                ),
            }
        })
    }

    #[test]
    fn a_majority_holds_its_votes_back() {
        assert!(leased(&[&[1]], &[]));
        assert!(!leased(&[&[1, 2]], &[]));
        assert!(leased(&[&[1, 2, 3]], &[(2, 71)]));
        assert!(!leased(&[&[1, 2, 3]], &[(2, 72), (3, 80)]));
        assert!(!leased(&[&[1, 2, 3, 4]], &[(2, 1), (3, 90)]));
        // A leader without a vote.
        assert!(!leased(&[&[2, 3, 4]], &[(2, 1)]));
        assert!(leased(&[&[2, 3, 4]], &[(2, 1), (4, 1)]));
    }

    #[test]
    fn each_for_as_long_as_it_said() {
        assert!(leased(&[&[1, 2, 9]], &[(9, 17)]));
        assert!(!leased(&[&[1, 2, 9]], &[(9, 18)]));
        assert!(leased(&[&[1, 2, 9]], &[(9, 18), (2, 71)]));
    }

    #[test]
    fn in_each_of_two_configurations() {
        assert!(!leased(&[&[1, 2, 3], &[1, 4, 5]], &[(2, 1), (3, 1)]));
        assert!(leased(&[&[1, 2, 3], &[1, 4, 5]], &[(2, 1), (5, 1)]));
    }
}

//! The requests that voters acknowledged, with their send times: the base of a leader's lease.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use openraft::Instant;
use parking_lot::Mutex;

use crate::base::boot_instant::BootInstant;

/// The newest request to append that each node answered with a success: the term of its leader, its
/// send time, and the time for which the node gives no vote. Clones are handles of one table.
///
/// openraft keeps such times, too, and attributes an answer to the newest request that it covers.
/// With several requests on their way the node may not have received that one. Here an answer
/// counts for its own request.
#[derive(Debug, Clone, Default)]
pub(crate) struct LeaseAcks(Arc<Mutex<HashMap<u64, LeaseAck>>>);

/// The send time of an acknowledged request, and the lease that its answer gives.
#[derive(Debug, Clone, Copy)]
struct LeaseAck {
    term: u64,
    sent: BootInstant,
    lease: Duration,
}

impl LeaseAcks {
    /// The send time of a request that is about to be sent.
    pub(crate) fn send_time() -> BootInstant {
        BootInstant::now()
    }

    /// Records that a node has answered the request that was sent at `sent`, and gives no vote for
    /// this lease from then on.
    pub(crate) fn record(&self, node: u64, term: u64, sent: BootInstant, lease: Duration) {
        debug_assert!(sent <= Self::send_time(), "a request is sent before it is answered");
        let mut acks = self.0.lock();
        let newest = acks.entry(node).or_insert(LeaseAck { term, sent, lease });
        if (newest.term, newest.sent) < (term, sent) {
            *newest = LeaseAck { term, sent, lease };
        }
    }

    /// Calls `read` with a function that returns the newest acknowledgement of a node in this term:
    /// its send time, and the lease.
    pub(crate) fn with<T>(
        &self,
        term: u64,
        read: impl FnOnce(&dyn Fn(u64) -> Option<(BootInstant, Duration)>) -> T,
    ) -> T {
        let acks = self.0.lock();
        read(&|node| {
            let newest = acks.get(&node)?;
            (newest.term == term).then_some((newest.sent, newest.lease))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_the_term_counts() {
        let acknowledged = LeaseAcks::default();
        let [short, long] = [80, 800].map(Duration::from_millis);
        let second = LeaseAcks::send_time();
        let first = second - Duration::from_millis(5);
        let known = |term, node| acknowledged.with(term, |known| known(node));
        assert_eq!(known(1, 2), None);
        acknowledged.record(2, 1, second, short);
        acknowledged.record(2, 1, first, long);
        assert_eq!((known(1, 2), known(1, 3), known(2, 2)), (Some((second, short)), None, None));
        acknowledged.record(2, 3, first, long);
        acknowledged.record(2, 1, second, short);
        assert_eq!((known(3, 2), known(1, 2)), (Some((first, long)), None));
    }
}

//! When what each voter acknowledged was sent: what a lease counts.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use openraft::Instant;
use parking_lot::Mutex;

use crate::base::instant::BootInstant;

/// For each node, the newest request to append that it answered with a success: the term of its
/// leader, when it was sent, and for how long the node gives no vote. Clones are handles of one
/// table.
///
/// openraft keeps such times, too: of the newest request that cannot be in doubt, once an answer
/// shows what the node has. With several requests on their way that may be one that the node has
/// not seen. Here an answer counts for its own request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Acknowledged(Arc<Mutex<HashMap<u64, Newest>>>);

/// A request that was answered.
#[derive(Debug, Clone, Copy)]
struct Newest {
    term: u64,
    sent: BootInstant,
    lease: Duration,
}

impl Acknowledged {
    /// Now, before a request is sent.
    pub(crate) fn sending() -> BootInstant {
        BootInstant::now()
    }

    /// The node has answered the request that was sent then, and gives no vote for this lease.
    pub(crate) fn by(&self, node: u64, term: u64, sent: BootInstant, lease: Duration) {
        let mut known = self.0.lock();
        let newest = known.entry(node).or_insert(Newest { term, sent, lease });
        if (newest.term, newest.sent) < (term, sent) {
            *newest = Newest { term, sent, lease };
        }
    }

    /// Calls `look` with what is known of each node: when the newest request of this term was sent
    /// that it answered, and the lease of the answer.
    pub(crate) fn with<T>(
        &self,
        term: u64,
        look: impl FnOnce(&dyn Fn(u64) -> Option<(BootInstant, Duration)>) -> T,
    ) -> T {
        let known = self.0.lock();
        look(&|node| {
            let newest = known.get(&node)?;
            (newest.term == term).then_some((newest.sent, newest.lease))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_the_term_counts() {
        let acknowledged = Acknowledged::default();
        let [short, long] = [80, 800].map(Duration::from_millis);
        let first = Acknowledged::sending();
        let second = first + Duration::from_millis(5);
        let known = |term, node| acknowledged.with(term, |known| known(node));
        assert_eq!(known(1, 2), None);
        acknowledged.by(2, 1, second, short);
        acknowledged.by(2, 1, first, long);
        assert_eq!((known(1, 2), known(1, 3), known(2, 2)), (Some((second, short)), None, None));
        acknowledged.by(2, 3, first, long);
        acknowledged.by(2, 1, second, short);
        assert_eq!((known(3, 2), known(1, 2)), (Some((first, long)), None));
    }
}

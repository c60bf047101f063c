//! When what each voter acknowledged was sent: what a lease counts.

use std::collections::HashMap;
use std::sync::Arc;

use openraft::Instant;
use parking_lot::Mutex;

use crate::base::instant::BootInstant;

/// For each node, the newest request to append that it answered with a success, by when it was
/// sent, and the term of its leader. Clones are handles of one table.
///
/// openraft keeps such times, too: of the newest request that cannot be in doubt, once an answer
/// shows what the node has. With several requests on their way that may be one that the node has
/// not seen. Here an answer counts for its own request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Acknowledged(Arc<Mutex<HashMap<u64, (u64, BootInstant)>>>);

impl Acknowledged {
    /// Now, before a request is sent.
    pub(crate) fn sending() -> BootInstant {
        BootInstant::now()
    }

    /// The node has answered the request that was sent then.
    pub(crate) fn by(&self, node: u64, term: u64, sent: BootInstant) {
        let mut known = self.0.lock();
        let newest = known.entry(node).or_insert((term, sent));
        *newest = (*newest).max((term, sent));
    }

    /// Calls `look` with what is known of each node: when the newest request of this term was sent
    /// that it answered.
    pub(crate) fn with<T>(
        &self,
        term: u64,
        look: impl FnOnce(&dyn Fn(u64) -> Option<BootInstant>) -> T,
    ) -> T {
        let known = self.0.lock();
        look(&|node| known.get(&node).filter(|(of, _)| *of == term).map(|(_, sent)| *sent))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_newest_of_the_term_counts() {
        let acknowledged = Acknowledged::default();
        let first = Acknowledged::sending();
        let second = first + Duration::from_millis(5);
        let known = |term, node| acknowledged.with(term, |sent| sent(node));
        assert_eq!(known(1, 2), None);
        acknowledged.by(2, 1, second);
        acknowledged.by(2, 1, first);
        assert_eq!((known(1, 2), known(1, 3), known(2, 2)), (Some(second), None, None));
        acknowledged.by(2, 3, first);
        acknowledged.by(2, 1, second);
        assert_eq!((known(3, 2), known(1, 2)), (Some(first), None));
    }
}

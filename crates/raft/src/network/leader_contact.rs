//! The last message from a leader.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The leader of the highest term that sent entries or a heartbeat, and the time of its last one.
/// openraft reports a leader until another is elected, even if the leader is gone. While openraft
/// waits for a disk that stalls, it notices no other leader. Clones are handles of one.
#[derive(Debug, Clone, Default)]
pub(crate) struct LeaderContact(Arc<SharedContact>);

#[derive(Debug, Default)]
struct SharedContact {
    last: Mutex<Option<Contact>>,
    /// Notified when the term rises.
    term_rises: Notify,
}

#[derive(Debug, Clone, Copy)]
struct Contact {
    leader: u64,
    term: u64,
    at: Instant,
}

impl LeaderContact {
    /// Records a message from the leader of this term.
    pub(crate) fn record(&self, leader: u64, term: u64) {
        let mut last = self.0.last.lock();
        let before = last.map(|last| last.term);
        // A deposed leader that does not know it.
        if before.is_some_and(|before| term < before) {
            return;
        }
        *last = Some(Contact { leader, term, at: Instant::now() });
        drop(last);
        if before != Some(term) {
            self.0.term_rises.notify_waiters();
        }
    }

    /// The leader and its term, if its last message is not older than `age_max`.
    pub(crate) fn within(&self, age_max: Duration) -> Option<(u64, u64)> {
        let last = self.0.last.lock().filter(|last| last.at.elapsed() <= age_max)?;
        Some((last.leader, last.term))
    }

    /// Waits for a message from a leader of a later term, and returns that leader.
    pub(crate) async fn wait_for_term_above(&self, term: u64) -> u64 {
        loop {
            let mut term_rises = pin!(self.0.term_rises.notified());
            term_rises.as_mut().enable();
            if let Some(last) = self.0.last.lock().filter(|last| last.term > term) {
                return last.leader;
            }
            term_rises.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_leader_of_the_highest_term_counts() {
        let (heard, most) = (LeaderContact::default(), Duration::from_secs(30));
        assert_eq!(heard.within(most), None);
        heard.record(1, 5);
        let waiting = heard.clone();
        let waiting = tokio::spawn(async move { waiting.wait_for_term_above(5).await });
        tokio::task::yield_now().await;
        heard.record(2, 4);
        assert_eq!(heard.within(most), Some((1, 5)));
        heard.record(3, 6);
        assert_eq!(heard.within(most), Some((3, 6)));
        assert_eq!(heard.within(Duration::ZERO), None);
        assert_eq!(waiting.await.ok(), Some(3));
        assert_eq!(heard.wait_for_term_above(5).await, 3);
    }
}

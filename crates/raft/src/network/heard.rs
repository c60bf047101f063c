//! When a leader was heard of.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The leader of the highest term that sent entries or a heartbeat, and when. openraft keeps the
/// name of a leader for as long as no other is elected, whether it is there or not; and while it
/// waits for a disk that stalls, it notices no other.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heard(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    last: Mutex<Option<Last>>,
    /// Notified when the term rises.
    risen: Notify,
}

#[derive(Debug, Clone, Copy)]
struct Last {
    leader: u64,
    term: u64,
    at: Instant,
}

impl Heard {
    /// This node leads in this term, and was heard of now.
    pub(crate) fn from(&self, leader: u64, term: u64) {
        let mut last = self.0.last.lock();
        let before = last.map(|last| last.term);
        // One that was deposed, and does not know it.
        if before.is_some_and(|before| term < before) {
            return;
        }
        *last = Some(Last { leader, term, at: Instant::now() });
        drop(last);
        if before != Some(term) {
            self.0.risen.notify_waiters();
        }
    }

    /// The node that was heard of last, and its term, if that is not longer ago.
    pub(crate) fn recent(&self, most: Duration) -> Option<(u64, u64)> {
        let last = self.0.last.lock().filter(|last| last.at.elapsed() <= most)?;
        Some((last.leader, last.term))
    }

    /// Waits until a leader of a later term is heard of, and returns it.
    pub(crate) async fn after(&self, term: u64) -> u64 {
        loop {
            let mut risen = pin!(self.0.risen.notified());
            risen.as_mut().enable();
            if let Some(last) = self.0.last.lock().filter(|last| last.term > term) {
                return last.leader;
            }
            risen.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_leader_of_the_highest_term_counts() {
        let (heard, most) = (Heard::default(), Duration::from_secs(30));
        assert_eq!(heard.recent(most), None);
        heard.from(1, 5);
        let waiting = heard.clone();
        let waiting = tokio::spawn(async move { waiting.after(5).await });
        tokio::task::yield_now().await;
        heard.from(2, 4);
        assert_eq!(heard.recent(most), Some((1, 5)));
        heard.from(3, 6);
        assert_eq!(heard.recent(most), Some((3, 6)));
        assert_eq!(heard.recent(Duration::ZERO), None);
        assert_eq!(waiting.await.ok(), Some(3));
        assert_eq!(heard.after(5).await, 3);
    }
}

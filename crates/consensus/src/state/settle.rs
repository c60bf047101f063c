//! Letting commits count that have become durable.

use std::sync::Arc;

use crossbeam_epoch::Guard;

use crate::base::slot::number_of;
use crate::index::page::State;
use crate::index::page_table::Found;
use crate::outcome::{Result, Ticket};
use crate::state::commit_tracker::Settled;
use crate::state::inner::Inner;

/// Commits that are pending before a commit looks which of them count.
const MANY: usize = 64;

impl Inner {
    pub(crate) fn frontier(&self) -> Option<u64> {
        self.settle(&crossbeam_epoch::pin());
        self.settled.lock().next.checked_sub(1)
    }

    /// The same, when there are many, or somebody watches: so that what is pending stays bounded.
    pub(crate) fn settle_if_many(&self, pending: usize, guard: &Guard) {
        let watched = !self.options.sync_on_commit && self.waiting.is_watched();
        if watched || pending >= MANY {
            self.settle(guard);
        }
    }

    /// Lets those commits count whose markers are durable, and those raises of the floor.
    pub(crate) fn settle(&self, guard: &Guard) {
        let visible = self.visible();
        let durable = self.log.durable().0;
        let mut settled = self.settled.lock();
        let before = settled.next;
        if settled.raised(durable) {
            self.advance(&mut settled, visible, guard);
        }
        while let Some((marker, slot, bytes)) = settled.pending.front().copied() {
            if marker > visible {
                break;
            }
            settled.pending.pop_front();
            settled.count(slot);
            settled.cache(slot, marker, bytes);
            if slot == settled.next {
                self.advance(&mut settled, visible, guard);
            }
        }
        if settled.stuck {
            self.advance(&mut settled, visible, guard);
        }
        self.evict(&mut settled, guard);
        let moved = settled.next != before;
        drop(settled);
        if moved {
            self.waiting.wake();
        }
    }

    /// Moves the frontier over all slots that are committed without a gap.
    pub(crate) fn advance(&self, settled: &mut Settled, visible: u64, guard: &Guard) {
        settled.stuck = false;
        loop {
            // A page that only the log has is read; if that fails, whoever comes next tries again.
            let page = match self.page(number_of(settled.next), guard) {
                Ok(Some(page)) => page,
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "the frontier stands still");
                    settled.stuck = true;
                    return;
                }
            };
            for (slot, place) in page.from(settled.next) {
                let counts = place.word().state() == State::Committed
                    && place.held().load(guard).is_none_or(|held| held.marker() <= visible);
                if !counts {
                    return;
                }
                settled.next = slot + 1;
            }
        }
    }

    /// Takes the oldest committed values out of memory while there are too many. What is not durable
    /// stays: it could not be read back.
    fn evict(&self, settled: &mut Settled, guard: &Guard) {
        if settled.cached <= self.options.cache_size {
            return;
        }
        let durable = self.log.durable().0;
        while settled.cached > self.options.cache_size {
            let Some((slot, seq, bytes)) = settled.cache.front().copied() else { return };
            if seq > durable {
                return;
            }
            settled.cache.pop_front();
            settled.cached -= bytes;
            if let Found::Page(page) = self.index.find(number_of(slot), guard) {
                let place = page.slot(slot);
                if place.word().state() == State::Committed {
                    place.put(None, bytes, guard);
                }
            }
        }
    }
}

impl Inner {
    /// The acknowledgement of what an earlier record, with this number, says.
    pub(crate) fn ticket_of(self: &Arc<Self>, seq: u64) -> Result<Ticket> {
        if seq <= self.log.durable().0 {
            return Ok(Ticket::READY);
        }
        let ticket = self.log.flush().map_err(|error| self.fail(error))?;
        Ok(Ticket::new(ticket, self.failing()))
    }

    /// The acknowledgement of a commit.
    pub(crate) fn commit_ticket(self: &Arc<Self>, ticket: esker_log::Ticket) -> Ticket {
        if self.options.sync_on_commit {
            Ticket::new(ticket, self.failing())
        } else {
            Ticket::READY
        }
    }

    /// The acknowledgement of a commit by an earlier record.
    pub(crate) fn commit_ticket_of(self: &Arc<Self>, marker: u64) -> Result<Ticket> {
        if self.options.sync_on_commit { self.ticket_of(marker) } else { Ok(Ticket::READY) }
    }
}

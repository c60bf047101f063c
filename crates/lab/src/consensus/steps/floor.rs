//! Truncation at both ends, and the floor of an installed snapshot.

use esker_consensus::{Ballot, Error, FloorTicket, Slot, SnapshotBounds, Ticket};

use crate::consensus::{Life, LifeResult, SimEnv, broken, ensure};

impl SimEnv {
    pub(super) fn truncate_before(&mut self, life: &Life, back: u64) -> LifeResult {
        let to = self.model.decided.saturating_sub(back);
        let app_state = self.model.raising(to, back.is_multiple_of(2));
        let truncated = match app_state {
            None => life.log.truncate_before(Slot(to)),
            Some(app_state) => {
                life.log.app_state().set_and_truncate_before(&app_state.to_le_bytes(), Slot(to))
            }
        };
        match truncated.and_then(FloorTicket::blocking_wait) {
            Err(error) => self.stop(&error, "truncate_before"),
            Ok(()) => {
                self.raised(to, app_state.is_some());
                self.below_the_floor(life)
            }
        }
    }

    /// The floor is durable at `to` or above, with the application's state if one was given.
    pub(crate) fn raised(&mut self, to: u64, app_state: bool) {
        let moved = app_state || to > self.model.start;
        self.model.started(to);
        if moved {
            self.model.promise_recorded = self.model.promise;
            self.model.durable(&self.setup);
        }
    }

    pub(super) fn below_the_floor(&self, life: &Life) -> LifeResult {
        let Some(floor) = self.model.start.checked_sub(1) else { return Ok(()) };
        let guard = life.log.pin();
        let high = Ballot { number: u64::MAX, node: 0 };
        let said = [
            life.log.read(Slot(floor), &guard).err(),
            life.log.read_committed(Slot(floor), &guard).err(),
            life.log.maintenance().offset_of(Slot(floor)).err(),
            life.log.accept(Slot(floor), high, b"late").err(),
            life.log.commit(Slot(floor), high).err(),
            life.log.learn(Slot(floor), high, b"late").err(),
        ];
        for error in said {
            match error {
                Some(Error::Truncated { floor: reported }) if reported == Slot(floor) => {}
                Some(error) if !self.disk.is_on() => return self.stop(&error, ""),
                other => broken!("below the floor {floor}: {other:?}"),
            }
        }
        Ok(())
    }

    pub(super) fn truncate_from(&mut self, life: &Life, n: u64) -> LifeResult {
        let slots = &self.model.slots;
        let highest = slots.iter().rev().find(|(_, slot)| slot.committed.is_some());
        let highest = highest.map(|(n, _)| *n).max(self.model.decided.checked_sub(1));
        match life.log.truncate_from(Slot(n)).and_then(Ticket::blocking_wait) {
            Err(Error::BelowFrontier { committed }) => {
                ensure!(
                    highest == Some(committed.0) && committed >= Slot(n),
                    "{committed} is no reason"
                );
                Ok(())
            }
            Err(error) => {
                self.model.cutting = Some(n);
                self.stop(&error, "truncate_from")
            }
            Ok(()) => {
                ensure!(highest.is_none_or(|highest| highest < n), "committed slots were dropped");
                let mut dropped = false;
                for (_, slot) in self.model.slots.range_mut(n..) {
                    dropped |= slot.accepted.take().is_some();
                    slot.acknowledged = None;
                }
                if dropped {
                    self.model.durable(&self.setup);
                }
                Ok(())
            }
        }
    }

    pub(super) fn install(&mut self, life: &Life, ahead: u64) -> LifeResult {
        let floor = self.model.decided + ahead / 2;
        let frontier = floor + ahead;
        let app_state = self.model.raising(floor + 1, ahead.is_multiple_of(2));
        self.model.deciding = self.model.deciding.max(frontier + 1);
        let bounds = SnapshotBounds { floor: Slot(floor), frontier: Slot(frontier) };
        let installed = match app_state {
            None => life.log.snapshots().install(bounds),
            Some(app_state) => {
                life.log.app_state().set_and_install(&app_state.to_le_bytes(), bounds)
            }
        };
        match installed.and_then(FloorTicket::blocking_wait) {
            Err(error) => self.stop(&error, "install"),
            Ok(()) => {
                self.model.decided = self.model.decided.max(frontier + 1);
                // The floor always moves here, and durably.
                self.raised(floor + 1, app_state.is_some());
                self.below_the_floor(life)
            }
        }
    }
}

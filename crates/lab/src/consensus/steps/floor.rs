//! Truncation at both ends, and the floor of an installed snapshot.

use esker_consensus::{Ballot, Error, FloorTicket, Slot, SnapshotBounds, TruncateError};

use crate::consensus::checks::app_state_of;
use crate::consensus::{Life, LifeResult, SimEnv, broken, ensure};

impl SimEnv {
    pub(super) fn truncate_before(&mut self, life: &Life, back: u64, wait: bool) -> LifeResult {
        let to = self.model.next().saturating_sub(back);
        let app_state = back.is_multiple_of(2).then(|| self.model.next_app_state());
        let moves = self.model.raising(to, to, app_state);
        let truncated = match app_state {
            None => life.log.truncate_before(Slot(to)),
            Some(app_state) => {
                life.log.app_state().set_and_truncate_before(&app_state.to_le_bytes(), Slot(to))
            }
        };
        self.floor_raised(life, truncated, moves, wait, "truncate_before")
    }

    /// A raise is durable if its ticket is waited for, and pending otherwise.
    fn floor_raised(
        &mut self,
        life: &Life,
        ticket: Result<FloorTicket, impl Into<Error>>,
        moves: bool,
        wait: bool,
        what: &str,
    ) -> LifeResult {
        let resolved = match ticket {
            Ok(ticket) if wait => ticket.blocking_wait().map_err(Error::from),
            ticket => ticket.map(drop).map_err(Into::into),
        };
        if let Err(error) = resolved {
            return self.stop(&error, what);
        }
        if moves {
            // In its record.
            self.model.promise_recorded = self.model.promise;
        }
        if wait {
            self.raised(moves);
        }
        self.shows(life)?;
        self.below_the_floor(life)
    }

    /// The newest raise of the floor is durable. If it `moves` something, its record came last.
    pub(crate) fn raised(&mut self, moves: bool) {
        if moves {
            self.model.promise_recorded = self.model.promise;
            self.model.durable(&self.setup);
        } else {
            self.model.raise_durable(self.model.raises.len() - 1);
        }
    }

    /// The floor and the application's state that the log shows are those of one raise, which is
    /// durable.
    pub(crate) fn shows(&mut self, life: &Life) -> LifeResult {
        let start = life.log.floor().map_or(0, |floor| floor.0 + 1);
        let shown = (start, app_state_of(&life.log.app_state().get()));
        let (raised, raises) = (self.model.raised, &self.model.raises);
        let at = raises.iter().rposition(|raise| (raise.start, raise.app_state) == shown);
        let Some(at) = at.filter(|at| *at >= raised) else {
            broken!("floor and application state are {shown:?}, and may be {:?}", &raises[raised..])
        };
        self.model.raise_durable(at);
        Ok(())
    }

    pub(super) fn below_the_floor(&self, life: &Life) -> LifeResult {
        let Some(floor) = self.model.start().checked_sub(1) else { return Ok(()) };
        let guard = life.log.pin();
        let high = Ballot { number: u64::MAX, node: 0 };
        let said = [
            life.log.read(Slot(floor), &guard).err().map(Error::from),
            life.log.read_committed(Slot(floor), &guard).err().map(Error::from),
            life.log.maintenance().offset_of(Slot(floor)).err().map(Error::from),
            life.log.accept(Slot(floor), high, b"late").err().map(Error::from),
            life.log.commit(Slot(floor), high).err().map(Error::from),
            life.log.learn(Slot(floor), high, b"late").err().map(Error::from),
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

    pub(super) fn truncate_from(&mut self, life: &Life, n: u64, wait: bool) -> LifeResult {
        let slots = &self.model.slots;
        let highest = slots.iter().rev().find(|(_, slot)| slot.committed.is_some());
        let highest = highest.map(|(n, _)| *n).max(self.model.next().checked_sub(1));
        let cut = life.log.truncate_from(Slot(n));
        if let Err(TruncateError::BelowFrontier { committed }) = cut {
            ensure!(
                highest == Some(committed.0) && committed >= Slot(n),
                "{committed} is no reason"
            );
            return Ok(());
        }
        let is_in_order = highest.is_none_or(|highest| highest < n);
        ensure!(cut.is_err() || is_in_order, "committed slots were dropped");
        let dropped = self.model.cut(n);
        let resolved = match cut {
            Ok(ticket) if wait => ticket.blocking_wait().map_err(Error::from),
            cut => cut.map(drop).map_err(Error::from),
        };
        match resolved {
            Err(error) => self.stop(&error, "truncate_from"),
            Ok(()) if wait && dropped => {
                self.model.durable(&self.setup);
                Ok(())
            }
            Ok(()) if wait => {
                self.model.cuts_durable(|_| true);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    pub(super) fn install(&mut self, life: &Life, ahead: u64, wait: bool) -> LifeResult {
        let floor = self.model.next() + ahead / 2;
        let frontier = floor + ahead;
        let app_state = ahead.is_multiple_of(2).then(|| self.model.next_app_state());
        let moves = self.model.raising(floor + 1, frontier + 1, app_state);
        let bounds = SnapshotBounds { floor: Slot(floor), frontier: Slot(frontier) };
        let installed = match app_state {
            None => life.log.snapshots().install(bounds),
            Some(app_state) => {
                life.log.app_state().set_and_install(&app_state.to_le_bytes(), bounds)
            }
        };
        self.floor_raised(life, installed, moves, wait, "install")
    }
}

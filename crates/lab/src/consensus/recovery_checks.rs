//! Compares what an opening found with the model, which then continues from there.

use std::collections::BTreeMap;

use esker_consensus::{Ballot, Mode, ReadError, Slot};

use crate::survival::Survival;

use super::checks::app_state_of;
use super::slot_model::{Cut, Raise, SlotModel};
use super::{Life, LifeResult, SimEnv, Stop, broken, ensure};

/// The entries that an opening found, by slot.
type SlotContents = BTreeMap<u64, FoundEntry>;

/// An entry that an opening found.
#[derive(Debug, Clone)]
struct FoundEntry {
    ballot: Ballot,
    value: Vec<u8>,
    is_committed: bool,
}

impl SimEnv {
    /// Holds what an opening found against what must be there, and learns what it was.
    pub(crate) fn recovered(&mut self, life: &Life) -> LifeResult {
        let start = life.log.floor().map_or(0, |floor| floor.0 + 1);
        let (found, unreadable) = self.found(life, start)?;
        // Counted before it is judged.
        if std::mem::take(&mut self.crashed) {
            self.survivals.push(self.survival(start, &found));
        }
        if let Some(what) = unreadable {
            return Err(Stop::Broken(what));
        }
        self.judge(life, start, &found)?;
        self.look(life)?;
        if self.checks { self.inspected() } else { Ok(()) }
    }

    /// Reads the slots of the model, and says which one cannot be read.
    fn found(&self, life: &Life, start: u64) -> LifeResult<(SlotContents, Option<String>)> {
        let guard = life.log.pin();
        let (mut found, mut unreadable) = (SlotContents::new(), None);
        for n in self.model.slots.range(start..).map(|(n, _)| *n) {
            match life.log.read(Slot(n), &guard) {
                Ok(entry) => {
                    let (ballot, value) = (entry.ballot(), entry.value().to_vec());
                    let is_committed = entry.is_committed();
                    found.insert(n, FoundEntry { ballot, value, is_committed });
                }
                Err(ReadError::SlotNotFound { .. }) => {}
                Err(_) if !self.disk.is_on() => return Err(Stop::Ended),
                Err(error) => unreadable = Some(format!("slot {n} cannot be read: {error:?}")),
            }
        }
        Ok((found, unreadable))
    }

    /// The writes that survived a crash. A write is a slot that holds an accepted value.
    fn survival(&self, start: u64, found: &SlotContents) -> Survival {
        let mut survival = Survival::default();
        for (n, slot) in self.model.slots.range(start..) {
            let durable = slot.commit_acknowledged || self.is_durable(slot);
            // An older accept than the last one may be all that is found.
            let lost = match (&slot.accepted, found.get(n)) {
                (Some((accepted, _)), Some(found)) => {
                    found.ballot < *accepted && !found.is_committed
                }
                (accepted, there) => accepted.is_some() && there.is_none(),
            };
            // A crash may take a pending cut back.
            let is_back = self.model.may_be_cut(*n) && found.contains_key(n);
            survival.accepted += u64::from(slot.accepted.is_some() || is_back);
            survival.durable += u64::from(durable);
            survival.recovered += u64::from(found.contains_key(n));
            survival.lost_calls += u64::from(lost);
        }
        survival
    }

    /// Whether an accept of this slot has to survive. In volatile mode a crash may forget one that
    /// replaced a durable one.
    fn is_durable(&self, slot: &SlotModel) -> bool {
        slot.acknowledged.is_some() && self.setup.mode == Mode::Durable
    }

    fn judge(&mut self, life: &Life, start: u64, found: &SlotContents) -> LifeResult {
        let promise = self.judge_promise(life)?;
        let app_state = app_state_of(&life.log.app_state().get());
        self.judge_raises((start, app_state), promise)?;
        self.judge_cuts(found)?;
        for (n, slot) in &self.model.slots {
            self.judge_slot(*n, slot, found.get(n))?;
        }
        self.go_on_from(found);
        let next = life.log.frontier().map_or(0, |frontier| frontier.0 + 1);
        let model = &mut self.model;
        let expected = model.run_from(model.decided);
        ensure!(next == expected, "slots below {next} are decided, and should be below {expected}");
        model.decided = next;
        model.promise = promise;
        model.promise_recorded = promise;
        model.promise_acknowledged = promise;
        (model.raises, model.raised) = (vec![Raise { start, next, app_state, promise }], 0);
        Ok(())
    }

    fn judge_promise(&self, life: &Life) -> LifeResult<Ballot> {
        let model = &self.model;
        let promised = life.log.promised().unwrap_or(Ballot::ZERO);
        ensure!(
            (model.promise_acknowledged..=model.promise).contains(&promised),
            "{promised} is promised, and was {} acknowledged, {} attempted",
            model.promise_acknowledged,
            model.promise
        );
        Ok(promised)
    }

    /// Floor and application's state are those of a raise, and so is everything else in its record.
    /// The records before that one are durable.
    fn judge_raises(&mut self, raised: (u64, u64), promise: Ballot) -> LifeResult {
        let model = &mut self.model;
        let raises = &model.raises;
        let at = raises.iter().rposition(|raise| (raise.start, raise.app_state) == raised);
        let Some(at) = at.filter(|at| *at >= model.raised) else {
            broken!(
                "floor and application state are {raised:?}, and may be {:?}",
                &raises[model.raised..]
            )
        };
        let before = raises[at].promise;
        ensure!(promise >= before, "{promise} is promised, and the floor's record has {before}");
        model.raises.truncate(at + 1);
        model.raise_durable(at);
        Ok(())
    }

    /// A pending cut dropped all its slots or none, and all raises and cuts before it were found,
    /// too.
    fn judge_cuts(&self, found: &SlotContents) -> LifeResult {
        let model = &self.model;
        let (mut done, mut undone) = (0, u64::MAX);
        for (n, slot) in &model.slots {
            let mut cuts = model.cuts.iter().filter(|cut| cut.from <= *n);
            let found = found.get(n);
            if let Some(attempt) = found.and_then(|f| slot.attempt_of(f.ballot, &f.value)) {
                let not_found = cuts.find(|cut| cut.number > attempt.cuts);
                undone = not_found.map_or(undone, |cut| undone.min(cut.number));
                done = done.max(attempt.cuts);
            } else if self.setup.mode == Mode::Durable && slot.acknowledged_before_cut.is_some() {
                done = cuts.next().map_or(done, |cut| done.max(cut.number));
            }
        }
        ensure!(done < undone, "cut {done} was found, and cut {undone} was not: {:?}", model.cuts);
        let later = |cut: &&Cut| cut.number <= done && cut.raise >= model.raises.len();
        let later = model.cuts.iter().find(later);
        ensure!(later.is_none(), "{later:?} was found without the raise before it");
        Ok(())
    }

    fn judge_slot(&self, n: u64, slot: &SlotModel, found: Option<&FoundEntry>) -> LifeResult {
        if let Some(found) = found {
            ensure!(
                slot.attempt_of(found.ballot, &found.value).is_some(),
                "slot {n} holds a value that was never tried under {}, or that was cut",
                found.ballot
            );
            if let Some(chosen) = &slot.committed {
                ensure!(
                    *chosen == found.value || !slot.commit_acknowledged && !found.is_committed,
                    "slot {n} was committed, and holds another value"
                );
            }
        }
        let is_committed = found.is_some_and(|found| found.is_committed);
        ensure!(is_committed || !slot.commit_acknowledged, "slot {n} is not committed any more");
        if self.setup.mode == Mode::Volatile {
            return Ok(());
        }
        let is_at_least = |ballot| found.is_some_and(|found| found.ballot >= ballot);
        if let Some(ballot) = slot.acknowledged {
            ensure!(
                is_committed || is_at_least(ballot),
                "slot {n} was accepted under {ballot}, and holds {found:?}"
            );
        }
        if let Some(ballot) = slot.acknowledged_before_cut {
            ensure!(
                is_committed || found.is_none() || is_at_least(ballot),
                "slot {n} was accepted under {ballot} before a cut, and holds {found:?}"
            );
        }
        Ok(())
    }

    /// Continues from the state that was found: it is durable, and no other is possible any more.
    fn go_on_from(&mut self, found: &SlotContents) {
        let mode = self.setup.mode;
        let model = &mut self.model;
        model.cuts.clear();
        for (n, slot) in &mut model.slots {
            let found = found.get(n);
            // In volatile mode what a crash forgot may be found by an opening that reads
            // everything.
            if mode == Mode::Durable {
                let is_found = |value: &[u8]| found.is_some_and(|found| found.value == value);
                slot.attempted.retain(|attempt| is_found(&attempt.value));
            }
            slot.accepted = found.map(|found| (found.ballot, found.value.clone()));
            slot.acknowledged = found.map(|found| found.ballot);
            slot.acknowledged_before_cut = None;
            let committed = found.filter(|found| found.is_committed);
            slot.committed = committed.map(|found| found.value.clone());
            slot.commit_acknowledged = slot.committed.is_some();
        }
    }
}

//! Compares the contents of a consensus log with the model.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use esker_consensus::{Ballot, Error, IterateOptions, Mode, Slot};

use crate::survival::Survival;

use super::{DIR, Life, LifeResult, SimEnv, Stop, broken, ensure};

/// The number that a program stores as the application's state.
fn app_state_of(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// The entries that an opening found, by slot: ballot, value, and whether it is committed.
type SlotContents = BTreeMap<u64, (Ballot, Vec<u8>, bool)>;

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
        self.judge(life, start, found)?;
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
                    let entry = (entry.ballot(), entry.value().to_vec(), entry.is_committed());
                    found.insert(n, entry);
                }
                Err(Error::SlotNotFound { .. }) => {}
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
            let durable = slot.commit_acknowledged || self.is_durable(*n);
            // An older accept than the last one may be all that is found.
            let lost = match (&slot.accepted, found.get(n)) {
                (Some((accepted, _)), Some((ballot, _, committed))) => {
                    ballot < accepted && !committed
                }
                (accepted, there) => accepted.is_some() && there.is_none(),
            };
            survival.accepted += u64::from(slot.accepted.is_some());
            survival.durable += u64::from(durable);
            survival.recovered += u64::from(found.contains_key(n));
            survival.lost_calls += u64::from(lost);
        }
        survival
    }

    /// Whether an accept of this slot has to survive. In volatile mode a crash may forget one that
    /// replaced a durable one.
    fn is_durable(&self, n: u64) -> bool {
        let may_be_cut = self.model.cutting.is_some_and(|from| n >= from);
        let acknowledged = self.model.slots.get(&n).is_some_and(|slot| slot.acknowledged.is_some());
        acknowledged && self.setup.mode == Mode::Durable && !may_be_cut
    }

    fn judge(&mut self, life: &Life, start: u64, mut found: SlotContents) -> LifeResult {
        ensure!(
            (self.model.start..=self.model.starting).contains(&start),
            "the first slot is {start}, and may be {} to {}",
            self.model.start,
            self.model.starting
        );
        let must_be_there: Vec<_> =
            self.model.slots.keys().copied().filter(|n| self.is_durable(*n)).collect();
        let model = &mut self.model;
        let promised = life.log.promised().unwrap_or(Ballot::ZERO);
        ensure!(
            (model.promise_acknowledged..=model.promise).contains(&promised),
            "{promised} is promised, and was {} acknowledged, {} attempted",
            model.promise_acknowledged,
            model.promise
        );
        let raised = (start, app_state_of(&life.log.app_state().get()));
        ensure!(
            model.raises.get(model.raised..).is_some_and(|raises| raises.contains(&raised)),
            "floor and application state are {raised:?}, and may be {:?} from {} on",
            model.raises,
            model.raised
        );
        (model.raises, model.raised) = (vec![raised], 0);
        let next = life.log.frontier().map_or(0, |frontier| frontier.0 + 1);
        let (least, most) = (model.decided, model.deciding);
        model.start = start;
        model.starting = start;
        model.slots = model.slots.split_off(&start);
        model.cutting = None;
        for (n, slot) in &mut model.slots {
            let found = found.remove(n);
            if let Some((ballot, value, committed)) = &found {
                ensure!(
                    slot.attempted.iter().any(|(b, v)| b == ballot && v == value),
                    "slot {n} holds a value that was never tried under {ballot}"
                );
                if let Some(chosen) = &slot.committed {
                    ensure!(
                        chosen == value || !slot.commit_acknowledged && !committed,
                        "slot {n} was committed, and holds another value"
                    );
                }
            }
            let committed = found.as_ref().is_some_and(|(.., committed)| *committed);
            ensure!(committed || !slot.commit_acknowledged, "slot {n} is not committed any more");
            if let Some(ballot) = slot.acknowledged.filter(|_| must_be_there.contains(n)) {
                let kept = found.as_ref().is_some_and(|(found, ..)| *found >= ballot || committed);
                ensure!(kept, "slot {n} was accepted under {ballot}, and holds {found:?}");
            }
            slot.accepted = found.as_ref().map(|(ballot, value, _)| (*ballot, value.clone()));
            slot.acknowledged = found.as_ref().map(|(ballot, ..)| *ballot);
            slot.committed = found.filter(|(.., committed)| *committed).map(|(_, value, _)| value);
            slot.commit_acknowledged = slot.committed.is_some();
        }
        model.promise = promised;
        model.promise_recorded = promised;
        model.promise_acknowledged = promised;
        let expected = |from: u64| model.run_from(from.max(start));
        ensure!(
            (expected(least)..=expected(most)).contains(&next),
            "slots below {next} are decided, and should be below {} to {}",
            expected(least),
            expected(most)
        );
        model.decided = next;
        model.deciding = next;
        Ok(())
    }

    /// Checks that the records, from the oldest on and without any checkpoint, give the state that
    /// opening gave.
    pub(super) fn inspected(&self) -> LifeResult {
        let reported = match esker_consensus::inspect_on(Arc::new(self.disk.process()), DIR) {
            Ok(reported) => reported,
            Err(error) => return self.stop(&error, "inspect"),
        };
        let model = &self.model;
        ensure!(
            reported.invalid_records.is_empty(),
            "the records contradict themselves: {:?}",
            reported.invalid_records
        );
        let promised = reported.promised.unwrap_or(Ballot::ZERO);
        ensure!(promised == model.promise, "the records promise {promised}");
        let raised = (model.start, app_state_of(&reported.app_state));
        ensure!(model.raises == [raised], "the records have the floor and state {raised:?}");
        let bounds =
            [reported.floor, reported.frontier].map(|slot| slot.map_or(0, |slot| slot.0 + 1));
        ensure!(bounds == [model.start, model.decided], "the records have the bounds {bounds:?}");
        let there = model.slots.iter().filter_map(|(n, slot)| {
            let (ballot, value) = slot.accepted.as_ref()?;
            Some((*n, *ballot, value.len() as u64, slot.committed.is_some()))
        });
        let slots = match reported.slots() {
            Ok(slots) => slots,
            Err(error) => return self.stop(&error, "inspect"),
        };
        let read = slots.iter().map(|(n, p)| (n.0, p.ballot, p.len, p.committed));
        // In volatile mode an accept in memory may have replaced one that an orderly end wrote, and
        // a crash forgets both; the records of the older one are still there.
        let forgotten = |n: &u64| {
            let slot = model.slots.get(n);
            self.setup.mode == Mode::Volatile && slot.is_none_or(|slot| slot.accepted.is_none())
        };
        let read = read.filter(|(n, .., committed)| *committed || !forgotten(n));
        let (there, read): (Vec<_>, Vec<_>) = (there.collect(), read.collect());
        ensure!(there == read, "the records contain {read:?}, expected {there:?}");
        Ok(())
    }

    /// Compares all that can be read with the model.
    pub(crate) fn look(&self, life: &Life) -> LifeResult {
        let model = &self.model;
        let guard = life.log.pin();
        let mut seen = BTreeMap::new();
        let visited = life.log.iterate(.., IterateOptions::default(), |entry| {
            seen.insert(entry.slot().0, entry.value().to_vec());
            ControlFlow::Continue(())
        });
        if let Err(error) = visited {
            return self.stop(&error, "replay");
        }
        for (n, slot) in &model.slots {
            // A commit that was not acknowledged may be lost, unless commits do not wait for a
            // sync.
            let must = slot.commit_acknowledged || !self.setup.sync_on_commit;
            match (&slot.committed, seen.get(n)) {
                (Some(value), Some(reported)) => ensure!(value == reported, "slot {n} has changed"),
                (None, Some(_)) => broken!("slot {n} is reported as committed"),
                (Some(_), None) => ensure!(!must, "slot {n} is committed, and is not reported"),
                (None, None) => {}
            }
            let read =
                life.log.read_committed(Slot(*n), &guard).map(|entry| entry.value().to_vec());
            let same = match (&read, seen.get(n)) {
                (Ok(value), Some(reported)) => value == reported,
                (Err(Error::NotCommitted { .. }), None) => slot.accepted.is_some(),
                (Err(Error::SlotNotFound { .. }), None) => slot.accepted.is_none(),
                _ => false,
            };
            if let (false, Err(error)) = (same, &read) {
                return self.stop(error, &format!("slot {n}, read as committed"));
            }
            ensure!(same, "slot {n} is read as {read:?}");
        }
        let unknown = seen.keys().find(|n| !model.slots.contains_key(n));
        ensure!(unknown.is_none(), "slot {unknown:?} is reported");
        let range = life.log.stats().committed.map(|r| (r.lowest.0, r.highest.0, r.count));
        let expected = seen.keys().next().zip(seen.keys().next_back());
        let expected = expected.map(|(low, high)| (*low, *high, seen.len() as u64));
        ensure!(range == expected, "the range is {range:?}, and should be {expected:?}");
        let scanned = match life.log.maintenance().scan_uncommitted(&guard) {
            Ok(scanned) => scanned,
            Err(error) => return self.stop(&error, "scan"),
        };
        let scanned: Vec<_> =
            scanned.iter().map(|e| (e.slot().0, e.ballot(), e.value().to_vec())).collect();
        let open = model.open();
        ensure!(scanned == open, "uncommitted are {scanned:?}, and should be {open:?}");
        let stats = life.log.stats();
        let used = model.used();
        ensure!(
            (stats.mutable_used, stats.uncommitted) == (used, open.len() as u64),
            "{} bytes of {} are said to be uncommitted, not {used} of {}",
            stats.mutable_used,
            stats.uncommitted,
            open.len()
        );
        let next = life.log.frontier().map_or(0, |frontier| frontier.0 + 1);
        let expected = (model.decided..).find(|n| !seen.contains_key(n)).unwrap();
        ensure!(next == expected, "slots below {next} are decided, not {expected}");
        let promised = life.log.promised().unwrap_or(Ballot::ZERO);
        ensure!(promised == model.promise, "{promised} is promised");
        let app_state = app_state_of(&life.log.app_state().get());
        let stored = model.raises.last().map(|(_, app_state)| *app_state);
        ensure!(Some(app_state) == stored, "the application's state is {app_state}");
        Ok(())
    }
}

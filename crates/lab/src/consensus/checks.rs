//! Compares the contents of an open consensus log with the model.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use esker_consensus::{Ballot, IterateOptions, Mode, ReadError, Slot};

use super::{DIR, Life, LifeResult, SimEnv, broken, ensure};

/// The number that a program stores as the application's state.
pub(super) fn app_state_of(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

impl SimEnv {
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
        let raised = reported.floor.map_or(0, |slot| slot.0 + 1);
        let raised = (raised, app_state_of(&reported.app_state));
        let newest = model.newest_raise();
        ensure!(
            raised == (newest.start, newest.app_state),
            "the records have the floor and state {raised:?}"
        );
        let next = reported.frontier.map_or(0, |slot| slot.0 + 1);
        ensure!(next == model.decided, "the records decide the slots below {next}");
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
    pub(crate) fn look(&mut self, life: &Life) -> LifeResult {
        self.shows(life)?;
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
        for (n, slot) in model.kept() {
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
                (Err(ReadError::NotCommitted { .. }), None) => slot.accepted.is_some(),
                (Err(ReadError::SlotNotFound { .. }), None) => slot.accepted.is_none(),
                _ => false,
            };
            if let (false, Err(error)) = (same, &read) {
                return self.stop(error, &format!("slot {n}, read as committed"));
            }
            ensure!(same, "slot {n} is read as {read:?}");
        }
        let is_kept = |n: &u64| *n >= model.start() && model.slots.contains_key(n);
        let unknown = seen.keys().find(|n| !is_kept(n));
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
        self.shows_frontier(life, |n| seen.contains_key(&n))?;
        let promised = life.log.promised().unwrap_or(Ballot::ZERO);
        ensure!(promised == model.promise, "{promised} is promised");
        Ok(())
    }

    /// The frontier is that of what iterations return. While a raise is pending these begin above
    /// it, and it is at most where the slots below lead.
    fn shows_frontier(&self, life: &Life, is_seen: impl Fn(u64) -> bool) -> LifeResult {
        let model = &self.model;
        let next = life.log.frontier().map_or(0, |frontier| frontier.0 + 1);
        let expected = if model.raised + 1 == model.raises.len() {
            let expected = (model.decided..).find(|n| !is_seen(*n)).unwrap();
            expected..=expected
        } else {
            model.decided..=model.run_from(model.decided)
        };
        ensure!(expected.contains(&next), "slots below {next} are decided, not {expected:?}");
        Ok(())
    }
}

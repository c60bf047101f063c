//! Programs over a store on the simulated disk, a model of what must be in it, and a power that
//! fails anywhere.
//!
//! One sentence is checked, value by value: **durable ⊆ recovered ⊆ accepted**. The recovered
//! content is that after some prefix of the accepted calls, and the prefix has every call that was
//! durable. So no overwritten value and no deleted key comes back, and a batch is whole.
//!
//! Everything runs on the test's thread with a manual engine: a case is fixed by its seed and the
//! place where power fails.
#![allow(clippy::unwrap_used)]

mod store_program;
mod store_steps;
mod store_subject;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use esker_disk::Op;
use esker_disk::sim::SimDisk;
use esker_kv::{Error, Options, Policy, Seq, Snapshot, Store, Ticket};
use esker_log::Engine;
use esker_testkit::{SplitMix64, keep_freed_memory};

use store_program::{KEY_COUNT, key};
pub use store_program::{POLICIES, Step, program};

use crate::interleaving::{Interleaving, On};
use crate::plan::{LifeResult, Plan, Stop, ensure};
use crate::survival::Survival;

const DIR: &str = "/store";
type Keys = BTreeMap<Vec<u8>, Vec<u8>>;
/// The keys of each keyspace that exists.
type Content = BTreeMap<String, Keys>;

/// A disk, a store on it now and then, and what must be in it.
pub struct SimEnv {
    pub disk: SimDisk,
    policy: Policy,
    /// Whether everything is checked after every step.
    pub checks: bool,
    /// The accepted calls that a crash could still take back, after the newest durable one.
    calls: Vec<Call>,
    /// The calls before those.
    earlier: u64,
    /// The content after a call whose outcome is unknown.
    unknown: Option<Content>,
    nonce: u64,
    interleaving: Interleaving,
    /// The clock of the current life, or of the last one.
    clock: Duration,
    /// Whether the last life ended with a crash that no opening has looked at.
    crashed: bool,
    /// The calls that survived each crash.
    pub survivals: Vec<Survival>,
}

/// An accepted call.
#[derive(Debug)]
struct Call {
    /// The call's last record.
    seq: u64,
    /// The content after it.
    content: Content,
    at: Duration,
}

struct Life {
    store: Store,
    engine: Engine,
    ticket: Option<Ticket>,
    snapshot: Option<(Snapshot, Content)>,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

impl SimEnv {
    pub fn new(policy: Policy, seed: u64) -> Self {
        keep_freed_memory();
        let disk = SimDisk::new(seed);
        let empty: Content = [("default".to_owned(), Keys::new())].into();
        Self {
            disk,
            policy,
            checks: false,
            calls: vec![Call { seq: 0, content: empty, at: Duration::ZERO }],
            earlier: 0,
            unknown: None,
            nonce: seed << 20,
            interleaving: Interleaving::default(),
            clock: Duration::ZERO,
            crashed: false,
            survivals: Vec::new(),
        }
    }

    fn value(&mut self, len: usize) -> Vec<u8> {
        self.nonce += 1;
        let mut value = self.nonce.to_le_bytes().to_vec();
        value.resize(8 + len, self.nonce as u8);
        value
    }

    fn stop<T>(&self, error: impl Into<Error>, what: &str) -> LifeResult<T> {
        match self.disk.is_on() {
            true => Err(Stop::Broken(format!("{what}: {:?}", error.into()))),
            false => Err(Stop::Ended),
        }
    }

    fn newest(&self) -> &Content {
        &self.calls.last().unwrap().content
    }

    fn open(&mut self) -> LifeResult<Life> {
        let engine = Engine::manual();
        let disk = self.interleaving.disk(Arc::new(self.disk.process()));
        let mut options = Options::on(Arc::new(disk));
        options.log.policy = self.policy;
        options.log.segment_size = 64 << 10;
        options.clean = false;
        options.cache_bytes = 64 << 10;
        options.log.engine = Some(engine.clone());
        match Store::builder(DIR).options(options).open() {
            Ok(store) => {
                let life = Life { store, engine, ticket: None, snapshot: None };
                self.recovered(&life)?;
                Ok(life)
            }
            Err(error) => {
                engine.stop();
                self.stop(error, "opening")
            }
        }
    }

    /// Checks what was recovered, and makes it the content of the model.
    fn recovered(&mut self, life: &Life) -> LifeResult {
        let found = self.content(&life.store)?;
        let end = life.store.accepted().0;
        ensure!(life.store.durable().0 == end, "what was recovered is durable");
        let kept = self.calls.partition_point(|call| call.seq <= end);
        if std::mem::take(&mut self.crashed) {
            self.survivals.push(self.survival(kept, end));
        }
        ensure!(kept > 0, "recovery ends with {end}, and {} was durable", self.calls[0].seq);
        // A call whose outcome is unknown comes after all others.
        let unknown = self.unknown.take().filter(|_| kept == self.calls.len());
        ensure!(
            self.calls[kept - 1].content == found
                || unknown.is_some_and(|content| content == found),
            "recovered {} keys, which is not the content after {kept} of the calls",
            found.values().map(BTreeMap::len).sum::<usize>()
        );
        self.earlier += kept as u64 - 1;
        self.clock = Duration::ZERO;
        self.calls = vec![Call { seq: end, content: found, at: Duration::ZERO }];
        Ok(())
    }

    /// The survivors of a crash: `kept` of the calls, and so not even the durable one if it is 0.
    /// Recovery ended with the record `end`.
    fn survival(&self, kept: usize, end: u64) -> Survival {
        let lost = &self.calls[kept..];
        let accepted = self.earlier + self.calls.len() as u64 - 1;
        let recovered = match kept.checked_sub(1) {
            Some(more) => self.earlier + more as u64,
            // There are no more calls than records.
            None => end.min(self.earlier.saturating_sub(1)),
        };
        Survival {
            accepted,
            durable: self.earlier,
            recovered,
            lost_calls: accepted - recovered,
            lost_age: lost.first().map_or(Duration::ZERO, |oldest| self.clock - oldest.at),
        }
    }

    /// The contents of the store.
    fn content(&self, store: &Store) -> LifeResult<Content> {
        let mut content = Content::new();
        for name in store.keyspaces() {
            let keyspace = store.find_keyspace(&name).unwrap();
            let mut keys = Keys::new();
            let scan = keyspace.scan(..).or_else(|error| self.stop(error, "scanning"))?;
            let mut last = None;
            for entry in scan {
                let (key, value) = entry.or_else(|error| self.stop(error, "scanning"))?;
                ensure!(last.as_ref() < Some(&key), "a scan out of order");
                last = Some(key.clone());
                keys.insert(key.to_vec(), value.to_vec());
            }
            ensure!(keyspace.len() == keys.len() as u64, "{name} counts {}", keyspace.len());
            content.insert(name, keys);
        }
        Ok(content)
    }

    /// Forgets the calls that a crash cannot take back any more.
    fn note_durable(&mut self, store: &Store) {
        let durable = store.durable().0;
        let keep = self.calls.iter().rposition(|call| call.seq <= durable).unwrap_or(0);
        self.calls.drain(..keep);
        self.earlier += keep as u64;
    }

    /// Goes through the steps until power fails.
    fn live(&mut self, steps: &[Step]) -> LifeResult<Life> {
        let mut life = self.open()?;
        for (n, step) in steps.iter().enumerate() {
            let mut reported = self.step(&mut life, *step);
            if reported.is_ok() && self.checks {
                reported = self.check(&life);
            }
            if !self.disk.is_on() {
                return Err(Stop::Ended);
            }
            reported.map_err(|stop| match stop {
                Stop::Broken(what) => Stop::Broken(format!("step {n} {step:?}: {what}")),
                Stop::Ended => Stop::Ended,
            })?;
        }
        Ok(life)
    }

    /// Applies a call to the model. `outcome` has the number of its last record.
    fn called(&mut self, outcome: Result<Seq, impl Into<Error>>, content: Content) -> LifeResult {
        match outcome {
            // What changes nothing may have no record, and has nothing that could be lost.
            Ok(_) if content == *self.newest() => Ok(()),
            Ok(seq) => {
                self.calls.push(Call { seq: seq.0, content, at: self.clock });
                Ok(())
            }
            Err(error) => {
                self.unknown = Some(content);
                self.stop(error, "writing")
            }
        }
    }

    fn written(
        &mut self,
        life: &mut Life,
        ticket: Result<Ticket, impl Into<Error> + Clone>,
        content: Content,
    ) -> LifeResult {
        let seq = ticket.as_ref().map(Ticket::seq).map_err(Clone::clone);
        // Kept: dropping a ticket may request a commit.
        life.ticket = ticket.ok().or(life.ticket.take());
        self.called(seq, content)
    }

    /// Cleaning, with a few puts and deletes meanwhile. They come before reads: within a
    /// write, which is that of a commit, a put could wait for this very commit.
    fn compact_interleaved(&mut self, life: &mut Life, rng: &mut SplitMix64) -> LifeResult {
        // Values that are replaced at once fill segments in which little is live.
        for n in 0..5 {
            self.step(life, Step::Put { keyspace: 0, key: n % 2, len: 25_000 })?;
        }
        if rng.percent(70) {
            // Otherwise most of what cleaning reads is in memory, and no call comes between.
            self.step(life, Step::Reopen)?;
        }
        let compact = |store: &Store| -> Result<(), Error> { Ok(store.compact().map(drop)?) };
        self.interleaved(life, rng, (Op::Read, On::Segments), compact)
    }

    /// Some work on the store, with a few puts and deletes meanwhile.
    fn interleaved(
        &mut self,
        life: &mut Life,
        rng: &mut SplitMix64,
        before: (Op, On),
        work: impl FnOnce(&Store) -> Result<(), Error>,
    ) -> LifeResult {
        let keyspace = life.store.keyspace();
        let existing: Vec<_> = self.newest()["default"].keys().cloned().collect();
        let mut calls: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
        for _ in 0..1 + rng.below(6) {
            let value = rng.percent(50).then(|| self.value(rng.index(300)));
            let key = match rng.percent(70) && !existing.is_empty() {
                true => existing[rng.index(existing.len())].clone(),
                false => key(rng.below(KEY_COUNT)),
            };
            calls.push((key, value));
        }
        let done = Arc::new(Mutex::new(Vec::new()));
        let (mut left, made) = (calls.clone().into_iter(), Arc::clone(&done));
        let next = move || {
            let Some((key, value)) = left.next() else { return false };
            let ticket = match value {
                Some(value) => keyspace.put(key, value),
                None => keyspace.delete(key),
            };
            made.lock().unwrap().push(ticket);
            true
        };
        let worked = self.interleaving.clone().during(before, next, || work(&life.store));
        let done = std::mem::take(&mut *done.lock().unwrap());
        for ((key, value), ticket) in calls.into_iter().zip(done) {
            let mut content = self.newest().clone();
            let keys = content.get_mut("default").unwrap();
            match value {
                Some(value) => keys.insert(key, value),
                None => keys.remove(&key),
            };
            self.written(life, ticket, content)?;
        }
        worked.or_else(|error| self.stop(error, "working"))
    }

    /// A snapshot sees the content at its time, in the keyspaces that still exist.
    fn check_snapshot(&self, store: &Store, snapshot: &Snapshot, content: &Content) -> LifeResult {
        for name in store.keyspaces() {
            let keyspace = store.find_keyspace(&name).unwrap();
            let Some(then) = content.get(&name) else { continue };
            let scan = snapshot.scan(&keyspace, ..);
            let scan = scan.or_else(|error| self.stop(error, "scanning a snapshot"))?;
            let mut found = Keys::new();
            for entry in scan {
                let (key, value) = entry.or_else(|error| self.stop(error, "snapshot"))?;
                found.insert(key.to_vec(), value.to_vec());
            }
            // A keyspace that was dropped and created again has another number.
            ensure!(found == *then || found.is_empty(), "{name} of a snapshot has changed");
        }
        Ok(())
    }

    /// Compares everything that can be read with the model.
    fn check(&self, life: &Life) -> LifeResult {
        let store = &life.store;
        let found = self.content(store)?;
        ensure!(found == *self.newest(), "the content is not that of the accepted calls");
        let durable = store.durable_snapshot().or_else(|error| self.stop(error, "snapshot"))?;
        ensure!(durable.seq() <= store.accepted(), "more is durable than accepted");
        for (name, keys) in &found {
            let keyspace = store.find_keyspace(name).unwrap();
            let mut reverse: Vec<_> = Vec::new();
            let scan = keyspace.scan(..).or_else(|error| self.stop(error, "scan"))?;
            for entry in scan.rev() {
                reverse.push(entry.or_else(|error| self.stop(error, "scan"))?.0.to_vec());
            }
            reverse.reverse();
            ensure!(reverse.iter().eq(keys.keys()), "a reverse scan of {name} differs");
            // The durable value is that after some call at or after the last durable one.
            for n in 0..KEY_COUNT {
                let value =
                    keyspace.get_durable(key(n)).or_else(|error| self.stop(error, "get"))?;
                let durable = &self.calls[0].content;
                let then = durable.get(name).and_then(|keys| keys.get(&key(n)));
                ensure!(
                    value.as_deref() == then.map(Vec::as_slice),
                    "the durable value of {:?} in {name} is not that of the last durable call",
                    key(n)
                );
            }
        }
        Ok(())
    }

    /// A life that ends as planned, or after its last step where the plan names a later place.
    pub fn live_and_die(&mut self, steps: &[Step], plan: Plan) -> Result<(), String> {
        let disk = self.disk.clone();
        let live = || {
            let mut life = self.live(steps)?;
            life.snapshot = None;
            Ok(life)
        };
        plan.end(&disk, live)?;
        self.crashed = true;
        self.disk.power_on();
        Ok(())
    }

    /// The last life: goes through the steps, closes, and finds everything again.
    pub fn live_and_close(&mut self, steps: &[Step]) -> Result<(), String> {
        let mut closing = steps.to_vec();
        closing.extend([Step::Reopen, Step::Compact, Step::Checkpoint, Step::Reopen]);
        self.checks = true;
        self.live(&closing).map(drop).map_err(|stop| format!("{stop}"))
    }

    /// Runs steps without any crash.
    pub fn live_on(&mut self, steps: &[Step]) -> Result<(), String> {
        self.live(steps).map(drop).map_err(|stop| format!("{stop}"))
    }
}

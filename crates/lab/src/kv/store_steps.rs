//! The steps of a program: each on the store and on the model.

use std::time::Duration;

use esker_disk::Op;
use esker_kv::{Batch, Store, WriteError};
use esker_testkit::SplitMix64;

use super::store_program::{KEY_COUNT, KEYSPACES, Step, key};
use super::{Life, SimEnv};
use crate::interleaving::On;
use crate::plan::{LifeResult, ensure};

impl SimEnv {
    pub(super) fn step(&mut self, life: &mut Life, step: Step) -> LifeResult {
        let store = life.store.clone();
        match step {
            Step::Put { keyspace, key, len } => self.put(life, KEYSPACES[keyspace], key, len)?,
            Step::Delete { keyspace, key } => self.delete(life, KEYSPACES[keyspace], key)?,
            Step::DeleteRange { keyspace, from, to } => {
                self.delete_range(life, KEYSPACES[keyspace], from, to)?;
            }
            Step::DeleteAll { keyspace } => self.delete_all(life, KEYSPACES[keyspace])?,
            Step::Batch { seed } => self.write_batch(life, seed)?,
            Step::CompareAndSet { key, holds } => self.compare_and_set(life, key, holds)?,
            Step::CreateKeyspace(n) => self.create_keyspace(&store, KEYSPACES[n])?,
            Step::DropKeyspace(n) => self.drop_keyspace(&store, KEYSPACES[n])?,
            Step::Wait => {
                if let Some(ticket) = life.ticket.take() {
                    let seq = ticket.seq();
                    ticket.blocking_wait().or_else(|error| self.stop(error, "waiting"))?;
                    ensure!(store.durable() >= seq, "a ticket resolved early");
                }
            }
            Step::Sync => {
                store.sync().or_else(|error| self.stop(error, "syncing"))?;
                ensure!(store.durable() == store.accepted(), "not all is durable after a sync");
            }
            Step::Compact => {
                // A snapshot would keep its old values; no other thread could drop it here.
                life.snapshot = None;
                store.compact().or_else(|error| self.stop(error, "compacting"))?;
            }
            Step::CompactInterleaved { seed } => {
                life.snapshot = None;
                self.compact_interleaved(life, &mut SplitMix64::new(seed))?;
            }
            Step::Checkpoint => self.checkpoint(&store)?,
            Step::CheckpointInterleaved { seed } => {
                let checkpoint =
                    |store: &Store| -> esker_kv::Result<()> { Ok(store.checkpoint().map(drop)?) };
                let rng = &mut SplitMix64::new(seed);
                self.interleaved(life, rng, (Op::Write, On::Others), checkpoint)?;
            }
            Step::Snapshot => {
                let snapshot = store.snapshot().or_else(|error| self.stop(error, "snapshot"))?;
                life.snapshot = Some((snapshot, self.newest().clone()));
            }
            Step::CheckSnapshot => {
                if let Some((snapshot, content)) = &life.snapshot {
                    self.check_snapshot(&store, snapshot, content)?;
                }
            }
            Step::Reopen => self.reopen(life)?,
            Step::Advance(time) => self.advance(life, time),
        }
        self.note_durable(&life.store);
        Ok(())
    }

    fn put(&mut self, life: &mut Life, name: &str, n: u64, len: usize) -> LifeResult {
        let Some(keyspace) = life.store.find_keyspace(name) else { return Ok(()) };
        let mut content = self.newest().clone();
        let value = self.value(len);
        content.get_mut(name).unwrap().insert(key(n), value.clone());
        let ticket = keyspace.put(key(n), &value);
        self.written(life, ticket, content)?;
        let found = keyspace.get(key(n)).or_else(|error| self.stop(error, "get"))?;
        ensure!(found.as_deref() == Some(&*value), "a put is not read");
        Ok(())
    }

    fn delete(&mut self, life: &mut Life, name: &str, n: u64) -> LifeResult {
        let Some(keyspace) = life.store.find_keyspace(name) else { return Ok(()) };
        let mut content = self.newest().clone();
        content.get_mut(name).unwrap().remove(&key(n));
        let ticket = keyspace.delete(key(n));
        self.written(life, ticket, content)?;
        ensure!(!keyspace.contains_key(key(n)).unwrap(), "a deleted key is there");
        Ok(())
    }

    fn delete_range(&mut self, life: &mut Life, name: &str, from: u64, to: u64) -> LifeResult {
        let Some(keyspace) = life.store.find_keyspace(name) else { return Ok(()) };
        let mut content = self.newest().clone();
        let (from, to) = (key(from), key(to));
        content.get_mut(name).unwrap().retain(|key, _| *key < from || *key >= to);
        let ticket = keyspace.delete_range(from..to);
        self.written(life, ticket, content)
    }

    fn delete_all(&mut self, life: &mut Life, name: &str) -> LifeResult {
        let Some(keyspace) = life.store.find_keyspace(name) else { return Ok(()) };
        let mut content = self.newest().clone();
        content.get_mut(name).unwrap().clear();
        let ticket = keyspace.delete_range(..);
        self.written(life, ticket, content)
    }

    fn write_batch(&mut self, life: &mut Life, seed: u64) -> LifeResult {
        let store = life.store.clone();
        let mut content = self.newest().clone();
        let mut rng = SplitMix64::new(seed);
        let mut batch = Batch::new();
        for _ in 0..1 + rng.below(4) {
            let name = KEYSPACES[rng.index(KEYSPACES.len())];
            let Some(keyspace) = store.find_keyspace(name) else { continue };
            let keys = content.get_mut(name).unwrap();
            let key = key(rng.below(KEY_COUNT));
            if rng.percent(70) {
                let value = self.value(rng.pick(&[1, 2000]));
                batch.put(&keyspace, &key, &value).unwrap();
                keys.insert(key, value);
            } else {
                batch.delete(&keyspace, &key).unwrap();
                keys.remove(&key);
            }
        }
        let ticket = store.write(&batch);
        self.written(life, ticket, content)
    }

    /// A batch on the condition that a key has its value, or with one that does not hold.
    fn compare_and_set(&mut self, life: &mut Life, n: u64, holds: bool) -> LifeResult {
        let store = life.store.clone();
        let mut content = self.newest().clone();
        let keyspace = store.keyspace();
        let (key, value) = (key(n), self.value(5));
        let keys = content.get_mut("default").unwrap();
        let mut batch = Batch::new();
        match (keys.get(&key), holds) {
            (old, true) => batch.expect_value(&keyspace, &key, old).unwrap(),
            (Some(_), false) => batch.expect_exists(&keyspace, &key, false).unwrap(),
            (None, false) => batch.expect_value(&keyspace, &key, Some("?")).unwrap(),
        }
        batch.put(&keyspace, &key, &value).unwrap();
        keys.insert(key, value);
        match store.write(&batch) {
            Err(WriteError::ConditionFailed { condition: 0 }) => {
                ensure!(!holds, "a condition that holds failed");
            }
            ticket if holds => self.written(life, ticket, content)?,
            ticket => {
                drop(ticket.or_else(|error| self.stop(error, "writing"))?);
                ensure!(false, "a condition that does not hold was passed");
            }
        }
        Ok(())
    }

    fn create_keyspace(&mut self, store: &Store, name: &str) -> LifeResult {
        let mut content = self.newest().clone();
        content.entry(name.to_owned()).or_default();
        let created = store.create_keyspace(name).map(|_| store.accepted());
        self.called(created, content)
    }

    fn drop_keyspace(&mut self, store: &Store, name: &str) -> LifeResult {
        let mut content = self.newest().clone();
        if content.remove(name).is_some() {
            let dropped = store.drop_keyspace(name).map(|()| store.accepted());
            self.called(dropped, content)?;
        }
        Ok(())
    }

    fn checkpoint(&mut self, store: &Store) -> LifeResult {
        let wrote = store.checkpoint().or_else(|error| self.stop(error, "checkpoint"))?;
        ensure!(wrote, "no checkpoint was written");
        let durable = store.durable() == store.accepted();
        ensure!(durable, "a checkpoint names what is not durable");
        Ok(())
    }

    fn reopen(&mut self, life: &mut Life) -> LifeResult {
        life.snapshot = None;
        life.store.close().or_else(|error| self.stop(error, "closing"))?;
        let last = self.calls.len() - 1;
        self.calls.drain(..last);
        self.earlier += last as u64;
        life.engine.stop();
        *life = self.open()?;
        Ok(())
    }

    fn advance(&mut self, life: &mut Life, time: u64) {
        for _ in 0..time {
            if !self.disk.is_on() {
                break;
            }
            self.clock += Duration::from_millis(1);
            life.engine.advance(Duration::from_millis(1));
        }
        life.engine.run();
    }
}

//! A manager with fewer open logs than keys, and with snapshots, as a writer uses it.

use std::io::Read;
use std::ops::ControlFlow;
use std::path::Path;

use esker_consensus::{Ballot, IterateOptions, LogGuard, LogManager, Mode, Slot};
use esker_testkit::{SplitMix64, mix};

use super::writer::{Writer, text};
use crate::promise::Promise;
use crate::setting::Policies;

const KEY_COUNT: u64 = 4;
const MAX_OPEN: usize = 2;
/// Writes to one key before those to the next.
const TURN_WRITES: u64 = 50;
/// Writes between two snapshots.
const SNAPSHOT_EVERY: u64 = 64;
const SNAPSHOTS_KEPT: usize = 2;
const BALLOT: Ballot = Ballot { number: 1, node: 1 };

/// A write is a value accepted and committed in the next slot of a key. Some make a snapshot of the
/// slots before it first, so that it is there wherever the write is.
pub(crate) struct ManagerWriter {
    manager: LogManager,
    mode: Mode,
    durable: u64,
}

/// The key and the slot of a write.
fn place(n: u64) -> (u64, u64) {
    let turn = n / TURN_WRITES;
    (turn % KEY_COUNT, turn / KEY_COUNT * TURN_WRITES + n % TURN_WRITES)
}

fn name(key: u64) -> String {
    format!("table/{key}")
}

/// The content of a snapshot.
fn state(key: u64, slot: u64) -> Vec<u8> {
    let mut rng = SplitMix64::new(mix(key, slot));
    let len = rng.below(100_000);
    (0..len).map(|_| rng.next() as u8).collect()
}

fn makes_snapshot(n: u64) -> bool {
    n % SNAPSHOT_EVERY == SNAPSHOT_EVERY - 1
}

impl ManagerWriter {
    fn log(&self, key: u64) -> Result<LogGuard, String> {
        self.manager.get(name(key)).map_err(text)
    }

    /// The values of a log, with whether each is committed.
    fn values(log: &LogGuard) -> Result<Vec<(Vec<u8>, bool)>, String> {
        let mut values = Vec::new();
        let options = IterateOptions::default().include_uncommitted(true);
        let read = log.iterate(Slot(0).., options, |entry| {
            let is_next = entry.slot().0 == values.len() as u64;
            if is_next {
                values.push((entry.value().to_vec(), entry.is_committed()));
            }
            if is_next { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        match read.map_err(text)?.stopped {
            true => Err(format!("slot {} is missing, and later ones are there", values.len())),
            false => Ok(values),
        }
    }

    /// Each snapshot is whole, and the last one that was answered is among them.
    fn check_snapshots(log: &LogGuard, key: u64, durable: u64) -> Result<(), String> {
        let mut answered = (0..durable).rev().filter(|n| makes_snapshot(*n)).map(place);
        let answered =
            answered.find(|(of, _)| *of == key).and_then(|(_, slot)| slot.checked_sub(1));
        let listed = log.snapshots().list().map_err(text)?;
        if let Some(slot) = answered
            && !listed.contains(&Slot(slot))
        {
            return Err(format!("the snapshot of slot {slot} is not among {listed:?}"));
        }
        for slot in listed {
            let mut snapshot = log.snapshots().verify(slot).map_err(text)?;
            let mut found = Vec::new();
            snapshot.read_to_end(&mut found).map_err(text)?;
            if found != state(key, slot.0) {
                return Err(format!("the snapshot of slot {slot} has another content"));
            }
        }
        Ok(())
    }
}

impl Writer for ManagerWriter {
    type Policy = Mode;
    const POLICIES: Policies<Mode> = &[
        ("durable", Mode::Durable, Promise::NoLoss),
        ("volatile", Mode::Volatile, Promise::NoLoss),
    ];

    fn open(dir: &Path, mode: Mode) -> Result<Self, String> {
        let builder = LogManager::builder(dir).mode(mode).max_open(MAX_OPEN);
        let mut options = builder.current_options().clone();
        options.log.segment_size = 1 << 20;
        let manager = builder.options(options).open().map_err(text)?;
        Ok(Self { manager, mode, durable: 0 })
    }

    fn write(&mut self, n: u64, value: &[u8]) -> Result<(), String> {
        let (key, slot) = place(n);
        let log = self.log(key)?;
        if let Some(before) = slot.checked_sub(1).filter(|_| makes_snapshot(n)) {
            log.snapshots().create(Slot(before), &*state(key, before)).map_err(text)?;
            log.snapshots().keep(SNAPSHOTS_KEPT).map_err(text)?;
        }
        let accepted = log.accept(Slot(slot), BALLOT, value).map_err(text)?;
        if self.mode == Mode::Durable {
            accepted.blocking_wait().map_err(text)?;
        }
        log.commit(Slot(slot), BALLOT).map_err(text)?.blocking_wait().map_err(text)?;
        self.durable = n + 1;
        Ok(())
    }

    fn durable(&mut self) -> u64 {
        self.durable
    }

    fn resume(&mut self) -> Result<(), String> {
        for key in 0..KEY_COUNT {
            let log = self.log(key)?;
            let Some(last) = log.last_slot() else { continue };
            log.commit_through(last).map_err(text)?.blocking_wait().map_err(text)?;
        }
        Ok(())
    }

    fn read(&self, durable: u64) -> Result<Vec<Vec<u8>>, String> {
        let mut logs = Vec::new();
        for key in 0..KEY_COUNT {
            let log = self.log(key)?;
            let of_key = |what| format!("{}: {what}", name(key));
            logs.push(Self::values(&log).map_err(of_key)?.into_iter());
            Self::check_snapshots(&log, key, durable).map_err(of_key)?;
        }
        let mut values = Vec::new();
        loop {
            let n = values.len() as u64;
            match logs[place(n).0 as usize].next() {
                Some((_, false)) if n < durable => {
                    return Err(format!("write {n} is not committed any more"));
                }
                Some((value, _)) => values.push(value),
                None => break,
            }
        }
        match logs.iter_mut().any(|rest| rest.next().is_some()) {
            true => Err(format!("write {} is missing, and later ones are there", values.len())),
            false => Ok(values),
        }
    }

    fn close(self) -> Result<(), String> {
        self.manager.close_all().map_err(text)
    }
}

//! The components as a writer uses them: numbered writes, one after the other.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use esker_consensus::{Ballot, ConsensusLog, Entry, IterateOptions, Mode, Slot};
use esker_kv::Store;
use esker_log::{Log, Policy, Start};

use crate::promise::Promise;
use crate::setting::Policies;

/// The `n` of `Batch(n)`.
const BATCH_RECORDS: u64 = 100;
/// The time of `Periodic(t)`.
const SYNC_PERIOD: Duration = Duration::from_millis(100);
/// How long `OsBuffered` keeps a write that no caller waits for. The operating system outlives a
/// kill.
const UNREQUESTED_DELAY: Duration = Duration::from_millis(10);
/// The time that a commit may take on a slow disk. `Periodic(t)` promises `t` and one commit.
const COMMIT_TIME_MAX: Duration = Duration::from_secs(2);

/// A component that is written to in a process of its own.
pub(crate) trait Writer: Sized {
    type Policy: Copy + 'static;
    const POLICIES: Policies<Self::Policy>;

    fn open(dir: &Path, policy: Self::Policy) -> Result<Self, String>;
    /// Write `n`, the next one. Returns when the policy has it answered.
    fn write(&mut self, n: u64, value: &[u8]) -> Result<(), String>;
    /// The number of writes reported as durable.
    fn durable(&mut self) -> u64;
    /// Completes what the life before left half done.
    fn resume(&mut self) -> Result<(), String> {
        Ok(())
    }
    /// The values of all writes, in order. So many were durable.
    fn read(&self, durable: u64) -> Result<Vec<Vec<u8>>, String>;
    fn close(self) -> Result<(), String>;
}

const LOG_POLICIES: Policies<Policy> = &[
    ("always", Policy::Always, Promise::NoLoss),
    (
        "batch_100",
        Policy::Batch(NonZeroU64::MIN.saturating_add(BATCH_RECORDS - 1)),
        Promise::Calls(2 * BATCH_RECORDS - 1),
    ),
    (
        "periodic_100ms",
        Policy::Periodic(SYNC_PERIOD),
        Promise::Age(SYNC_PERIOD.saturating_add(COMMIT_TIME_MAX)),
    ),
    ("os", Policy::OsBuffered, Promise::Age(UNREQUESTED_DELAY.saturating_add(COMMIT_TIME_MAX))),
];

pub(super) fn text(error: impl Debug) -> String {
    format!("{error:?}")
}

pub(crate) struct LogWriter {
    log: Log,
    policy: Policy,
}

impl Writer for LogWriter {
    type Policy = Policy;
    const POLICIES: Policies<Policy> = LOG_POLICIES;

    fn open(dir: &Path, policy: Policy) -> Result<Self, String> {
        let log = Log::builder(dir).policy(policy).segment_size(1 << 20).open().map_err(text)?;
        Ok(Self { log, policy })
    }

    fn write(&mut self, _: u64, value: &[u8]) -> Result<(), String> {
        let ticket = self.log.append(value).map_err(text)?;
        if self.policy == Policy::Always {
            ticket.blocking_wait().map_err(text)?;
        }
        Ok(())
    }

    fn durable(&mut self) -> u64 {
        self.log.durable().0
    }

    fn read(&self, _: u64) -> Result<Vec<Vec<u8>>, String> {
        let mut stream = self.log.stream(Start::Oldest).map_err(text)?;
        let mut values = Vec::new();
        while let Some(batch) = stream.try_next().map_err(text)? {
            values.extend(batch.iter().map(|record| record.payload.to_vec()));
        }
        Ok(values)
    }

    fn close(self) -> Result<(), String> {
        self.log.close().map_err(text)
    }
}

pub(crate) struct KvWriter {
    store: Store,
    policy: Policy,
    /// The last record and the number of each put that is not known to be durable.
    open: VecDeque<(u64, u64)>,
    durable: u64,
}

fn key(n: u64) -> String {
    format!("key_{n:010}")
}

impl Writer for KvWriter {
    type Policy = Policy;
    const POLICIES: Policies<Policy> = LOG_POLICIES;

    fn open(dir: &Path, policy: Policy) -> Result<Self, String> {
        let opened = Store::builder(dir).policy(policy).segment_size(1 << 20).open();
        let store = opened.map_err(text)?;
        let durable = store.keyspace().len();
        Ok(Self { store, policy, open: VecDeque::new(), durable })
    }

    fn write(&mut self, n: u64, value: &[u8]) -> Result<(), String> {
        let ticket = self.store.keyspace().put(key(n), value).map_err(text)?;
        self.open.push_back((ticket.seq().0, n));
        if self.policy == Policy::Always {
            ticket.blocking_wait().map_err(text)?;
        }
        Ok(())
    }

    fn durable(&mut self) -> u64 {
        let durable = self.store.durable().0;
        while let Some((_, n)) = self.open.front().filter(|(seq, _)| *seq <= durable) {
            self.durable = n + 1;
            self.open.pop_front();
        }
        self.durable
    }

    fn read(&self, _: u64) -> Result<Vec<Vec<u8>>, String> {
        let mut values = Vec::new();
        for entry in self.store.keyspace().scan(..).map_err(text)? {
            let (found, value) = entry.map_err(text)?;
            let expected = key(values.len() as u64);
            if *found != *expected.as_bytes() {
                return Err(format!("{expected} is missing, and {found:?} is there"));
            }
            values.push(value.to_vec());
        }
        Ok(values)
    }

    fn close(self) -> Result<(), String> {
        self.store.close().map_err(text)
    }
}

/// A write is a value accepted and committed in the next slot.
pub(crate) struct ConsensusWriter {
    log: ConsensusLog,
    policy: ConsensusPolicy,
    durable: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ConsensusPolicy {
    mode: Mode,
    sync_on_commit: bool,
}

const fn policy(mode: Mode, sync_on_commit: bool) -> ConsensusPolicy {
    ConsensusPolicy { mode, sync_on_commit }
}

const BALLOT: Ballot = Ballot { number: 1, node: 1 };

impl Writer for ConsensusWriter {
    type Policy = ConsensusPolicy;
    const POLICIES: Policies<ConsensusPolicy> = &[
        ("durable", policy(Mode::Durable, true), Promise::NoLoss),
        ("durable_unsynced_commits", policy(Mode::Durable, false), Promise::NoLoss),
        ("volatile", policy(Mode::Volatile, true), Promise::NoLoss),
        ("volatile_unsynced_commits", policy(Mode::Volatile, false), Promise::Nothing),
    ];

    fn open(dir: &Path, policy: ConsensusPolicy) -> Result<Self, String> {
        let mut options = esker_consensus::Options::default();
        options.mode = policy.mode;
        options.sync_on_commit = policy.sync_on_commit;
        options.log.segment_size = 1 << 20;
        let log = ConsensusLog::builder(dir).options(options).open().map_err(text)?;
        let durable = log.stats().committed.map_or(0, |range| range.highest.0 + 1);
        Ok(Self { log, policy, durable })
    }

    fn write(&mut self, n: u64, value: &[u8]) -> Result<(), String> {
        let accepted = self.log.accept(Slot(n), BALLOT, value).map_err(text)?;
        if self.policy.mode == Mode::Durable {
            accepted.blocking_wait().map_err(text)?;
            self.durable = n + 1;
        }
        let committed = self.log.commit(Slot(n), BALLOT).map_err(text)?;
        if self.policy.sync_on_commit {
            committed.blocking_wait().map_err(text)?;
            self.durable = n + 1;
        }
        Ok(())
    }

    fn durable(&mut self) -> u64 {
        self.durable
    }

    fn resume(&mut self) -> Result<(), String> {
        let Some(last) = self.log.last_slot() else { return Ok(()) };
        self.log.commit_through(last).map_err(text)?.blocking_wait().map_err(text)
    }

    fn read(&self, durable: u64) -> Result<Vec<Vec<u8>>, String> {
        let mut values = Vec::new();
        let options = IterateOptions::default().include_uncommitted(true);
        // A write is an accept and a commit: of one that was durable, both are there.
        let durable = if self.policy.sync_on_commit { durable } else { 0 };
        let mut next = |entry: &Entry<'_>| {
            let n = values.len() as u64;
            let is_next = entry.slot().0 == n && (n >= durable || entry.is_committed());
            if is_next {
                values.push(entry.value().to_vec());
            }
            if is_next { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let read = self.log.iterate(Slot(0).., options, &mut next).map_err(text)?;
        if read.stopped {
            let n = values.len();
            return Err(format!("slot {n} is missing or not committed, and later ones are there"));
        }
        Ok(values)
    }

    fn close(self) -> Result<(), String> {
        self.log.close().map_err(text)
    }
}

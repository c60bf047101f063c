//! Esker's consensus log, where it does what a log of entries does: an accept for each entry, in
//! the next slot, durable before it is acknowledged; and, as another system, a commit after it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Result;
use esker::consensus::{Ballot, ConsensusLog, IterateOptions, Options, Slot};
use esker_bench::load::slice::Until;
use esker_bench::load::tasks;
use esker_bench::measure::per_thread::PerThread;
use tokio::runtime::Runtime;

use crate::awaited_log::{AwaitedLog, run_tasks};
use crate::callers::Member;
use crate::job::Job;
use crate::peer::{Caller, Log, Peer, RecordVisitor};

pub const BALLOT: Ballot = Ballot { number: 1, node: 1 };

/// The value budget: values stay in it until they are committed.
const VALUE_BUDGET_BYTES: u64 = 8 << 30;

pub const AS_TASKS: Peer = Peer {
    package: "esker",
    note: "an accept for each entry, durable before the answer, as a follower does; all are committed \
           after the timed part, with room for them until then (`mutable_size`), otherwise default \
           options; callers are async tasks on two threads",
    pipelining: "",
    open: |job| open(job, Kind { tasks: true, commits: false }),
    read_all,
};

pub const AS_THREADS: Peer = Peer {
    note: "as `esker`; callers are threads, as those of the blocking peers",
    open: |job| open(job, Kind { tasks: false, commits: false }),
    ..AS_TASKS
};

pub const COMMIT: Peer = Peer {
    note: "an accept for each entry, and when it is durable a commit, which is waited for, too: two \
           syncs one after the other; default options; callers are async tasks on two threads",
    open: |job| open(job, Kind { tasks: true, commits: true }),
    ..AS_TASKS
};

pub const COMMIT_THREADS: Peer = Peer {
    note: "as `esker-commit`; callers are threads, as those of the blocking peers",
    open: |job| open(job, Kind { tasks: false, commits: true }),
    ..COMMIT
};

#[derive(Debug, Clone, Copy)]
struct Kind {
    tasks: bool,
    commits: bool,
}

/// The log, and the slot for the next entry of any caller.
#[derive(Debug, Clone)]
struct Entries {
    log: ConsensusLog,
    next: Arc<AtomicU64>,
    commits: bool,
}

struct Esker {
    entries: Entries,
    runtime: Option<Runtime>,
}

fn options(commits: bool) -> Options {
    let mut options = Options::default();
    if !commits {
        options.mutable_size = VALUE_BUDGET_BYTES;
    }
    options
}

fn open(job: &Job, kind: Kind) -> Result<Box<dyn Log>> {
    let log = ConsensusLog::builder(job.log()).options(options(kind.commits)).open()?;
    let entries = Entries { log, next: Arc::default(), commits: kind.commits };
    let runtime = kind.tasks.then(tasks::runtime).transpose()?;
    Ok(Box::new(Esker { entries, runtime }))
}

impl AwaitedLog for Entries {
    async fn append(&self, record: &[u8]) -> Result<()> {
        let slot = self.next.fetch_add(1, Relaxed);
        self.log.accept(Slot(slot), BALLOT, record)?.await?;
        if self.commits {
            self.log.commit(Slot(slot), BALLOT)?.await?;
        }
        Ok(())
    }
}

impl Caller for Entries {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        let slot = self.next.fetch_add(1, Relaxed);
        self.log.accept(Slot(slot), BALLOT, record)?.blocking_wait()?;
        if self.commits {
            self.log.commit(Slot(slot), BALLOT)?.blocking_wait()?;
        }
        Ok(())
    }
}

impl Log for Esker {
    fn caller(&self, _writer: u32) -> Result<Box<dyn Caller + '_>> {
        Ok(Box::new(self.entries.clone()))
    }

    fn run_tasks(
        &self,
        members: &mut Vec<Member>,
        until: Until,
        times: &PerThread,
    ) -> Option<Result<Duration>> {
        let runtime = self.runtime.as_ref()?;
        Some(run_tasks(&self.entries, runtime, members, until, times))
    }

    fn append_batch(&self, records: &[&[u8]]) -> Result<()> {
        let Entries { log, next, commits } = &self.entries;
        let first = next.fetch_add(records.len() as u64, Relaxed);
        let values: Vec<_> = (first..).map(Slot).zip(records.iter().copied()).collect();
        let wait = |ticket: esker::consensus::Ticket| match &self.runtime {
            Some(runtime) => runtime.block_on(ticket),
            None => ticket.blocking_wait(),
        };
        wait(log.accept_batch(BALLOT, &values)?)?;
        if *commits {
            wait(log.commit_through(Slot(first + records.len() as u64 - 1))?)?;
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Entries { log, next, commits } = &self.entries;
        if let (false, Some(last)) = (commits, next.load(Relaxed).checked_sub(1)) {
            log.commit_through(Slot(last))?.blocking_wait()?;
        }
        Ok(log.close()?)
    }
}

/// Reads in the order of the slots, which is each caller's order.
fn read_all(job: &Job, see: &mut RecordVisitor<'_>) -> Result<()> {
    let log = ConsensusLog::builder(job.log()).must_exist(true).open()?;
    let mut outcome = Ok(());
    log.iterate(Slot(0).., IterateOptions::default(), |entry| {
        outcome = see(entry.value());
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    outcome?;
    Ok(log.close()?)
}

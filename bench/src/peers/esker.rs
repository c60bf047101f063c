//! Esker, through the facade and with default options: callers as async tasks, and as threads.

use std::time::Duration;

use anyhow::Result;
use esker::log::{self, Append, LogStream, Options, Start, Ticket};
use esker_bench::load::slice::Until;
use esker_bench::load::tasks;
use esker_bench::measure::per_thread::PerThread;
use tokio::runtime::Runtime;

use crate::awaited_log::{AwaitedLog, run_tasks};
use crate::callers::{Member, Records};
use crate::job::Job;
use crate::peer::{Caller, Log, Peer, RecordVisitor, Tail};

/// A task that never has to wait lets others run after so many calls.
const YIELD_EVERY: u64 = 64;

pub const AS_TASKS: Peer = Peer {
    package: "esker",
    note: "default options; callers are async tasks on two threads",
    pipelining: "append_async, one flush at the end",
    open: |job| open(job, true),
    read_all,
};

pub const AS_THREADS: Peer = Peer {
    note: "default options; callers are threads, as those of the blocking peers",
    pipelining: "append, one flush at the end",
    open: |job| open(job, false),
    ..AS_TASKS
};

struct Esker {
    log: log::Log,
    runtime: Option<Runtime>,
}

fn open(job: &Job, with_tasks: bool) -> Result<Box<dyn Log>> {
    let log = log::Log::open(job.log())?;
    let runtime = with_tasks.then(tasks::runtime).transpose()?;
    Ok(Box::new(Esker { log, runtime }))
}

impl AwaitedLog for log::Log {
    async fn append(&self, record: &[u8]) -> Result<()> {
        self.append_async(record).await?.await?;
        Ok(())
    }
}

impl Esker {
    fn wait(&self, ticket: Ticket) -> Result<()> {
        match &self.runtime {
            Some(runtime) => runtime.block_on(ticket)?,
            None => ticket.blocking_wait()?,
        };
        Ok(())
    }
}

impl Log for Esker {
    fn caller(&self, _writer: u32) -> Result<Box<dyn Caller + '_>> {
        Ok(Box::new(Blocking(&self.log)))
    }

    fn run_tasks(
        &self,
        members: &mut Vec<Member>,
        until: Until,
        times: &PerThread,
    ) -> Option<Result<Duration>> {
        let runtime = self.runtime.as_ref()?;
        Some(run_tasks(&self.log, runtime, members, until, times))
    }

    fn pipeline(&self, records: &mut Records<'_>) -> Result<()> {
        let Some(runtime) = &self.runtime else {
            while let Some(record) = records.next() {
                drop(self.log.append(record)?);
            }
            self.log.barrier()?.blocking_wait()?;
            return Ok(());
        };
        runtime.block_on(async {
            let mut calls = 0;
            while let Some(record) = records.next() {
                drop(self.log.append_async(record).await?);
                calls += 1;
                if calls % YIELD_EVERY == 0 {
                    tokio::task::yield_now().await;
                }
            }
            self.log.barrier()?.await?;
            Ok(())
        })
    }

    fn append_batch(&self, records: &[&[u8]]) -> Result<()> {
        self.wait(self.log.write(Append::records(records))?)
    }

    fn tail(&self) -> Result<Box<dyn Tail + '_>> {
        Ok(Box::new(Follower(self.log.stream(Start::Oldest)?)))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.log.close()?)
    }
}

struct Blocking<'a>(&'a log::Log);

impl Caller for Blocking<'_> {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        self.0.append(record)?.blocking_wait()?;
        Ok(())
    }
}

struct Follower(LogStream);

impl Tail for Follower {
    fn next(&mut self, see: &mut RecordVisitor<'_>) -> Result<()> {
        for record in &self.0.blocking_next()? {
            see(record.payload)?;
        }
        Ok(())
    }
}

fn read_all(job: &Job, see: &mut RecordVisitor<'_>) -> Result<()> {
    let mut options = Options::default();
    options.must_exist = true;
    let log = log::Log::builder(job.log()).options(options).open()?;
    let mut stream = log.stream(Start::Oldest)?;
    while let Some(batch) = stream.try_next()? {
        for record in &batch {
            see(record.payload)?;
        }
    }
    Ok(log.close()?)
}

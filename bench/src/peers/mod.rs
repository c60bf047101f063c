//! The systems of this process, each behind the same small interface. The Go peers are processes of
//! their own: see `go/`.

pub mod consensus;
mod esker;
#[cfg(feature = "okaywal")]
mod okaywal;
mod plain;
#[cfg(feature = "raft-engine")]
mod raft_engine;
pub mod tasks;

use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::callers::{Member, Records, Until, run_threads};
use crate::job::{Job, Set};
use crate::kv;

/// Takes one record that was read back.
pub type See<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

/// How a log is opened, and how what it wrote is read back.
pub struct Peer {
    /// Its package, for the version.
    pub package: &'static str,
    /// What has to be said beside its figures.
    pub note: &'static str,
    /// How it pipelines, where it has no way of its own.
    pub pipelining: &'static str,
    pub open: fn(&Job) -> Result<Box<dyn Log>>,
    pub read_all: fn(&Job, &mut See<'_>) -> Result<()>,
}

/// A log under test.
pub trait Log: Send + Sync {
    /// What one blocking caller appends through.
    fn caller(&self, writer: u32) -> Result<Box<dyn Caller + '_>>;

    /// Lets all callers work; how long they took. Threads, unless the log has a better way.
    fn work(&self, members: &mut Vec<Member>, until: Until) -> Result<Duration> {
        run_threads(self, members, until)
    }

    /// Appends all records; they are durable when this returns.
    fn pipeline(&self, records: &mut Records<'_>) -> Result<()>;

    /// Appends records together; they are durable when this returns.
    fn append_batch(&self, _records: &[&[u8]]) -> Result<()> {
        bail!("takes no batches")
    }

    /// A reader that starts at the oldest record.
    fn tail(&self) -> Result<Box<dyn Tail + '_>> {
        bail!("has no reader at the tip")
    }

    /// Ends it in good order.
    fn close(self: Box<Self>) -> Result<()>;
}

/// One blocking caller of a log.
pub trait Caller {
    /// Appends a record; it is durable when this returns.
    fn append(&mut self, record: &[u8]) -> Result<()>;

    /// Appends what the caller has next, in one call: a record, or a batch.
    fn append_next(&mut self, member: &mut Member) -> Result<()> {
        self.append(member.next())
    }
}

/// A reader at the tip.
pub trait Tail: Send {
    /// Waits for more, and hands over what there is.
    fn next(&mut self, see: &mut See<'_>) -> Result<()>;
}

/// The system that a job is for.
pub fn find(job: &Job) -> Result<Peer> {
    let system = job.system.as_str();
    if job.set == Set::Kv {
        return kv::peer(system);
    }
    Ok(match (job.set, system) {
        (Set::Log, "esker") => esker::AS_TASKS,
        (Set::Log, "esker-threads") => esker::AS_THREADS,
        (Set::Consensus, "esker") => consensus::AS_TASKS,
        (Set::Consensus, "esker-threads") => consensus::AS_THREADS,
        (Set::Consensus, "esker-commit") => consensus::COMMIT,
        (Set::Consensus, "esker-commit-threads") => consensus::COMMIT_THREADS,
        (_, "plain") => plain::PEER,
        #[cfg(feature = "okaywal")]
        (_, "okaywal") => okaywal::PEER,
        #[cfg(feature = "raft-engine")]
        (_, "raft-engine") => raft_engine::PEER,
        _ => bail!("{system} was left out of this build"),
    })
}

/// The version of a package in the lock file that this was built with.
pub fn version(package: &str) -> String {
    let lock = include_str!("../../Cargo.lock");
    let find = || -> Option<&str> {
        let (_, rest) = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?;
        Some(rest.split_once('"')?.0)
    };
    find().context("not in the lock file").map_or_else(|_| String::new(), str::to_owned)
}

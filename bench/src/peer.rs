//! The interface of the logs under test and of their callers, for systems that run in this process.
//! The Go peers are processes of their own: see `go/`.

use std::time::Duration;

use anyhow::{Result, bail};
use esker_bench::load::slice::Until;
use esker_bench::measure::per_thread::PerThread;

use crate::callers::{Member, Records};
use crate::job::Job;

/// Takes one record that was read back.
pub type RecordVisitor<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

/// How a log is opened, and how what it wrote is read back.
pub struct Peer {
    /// The package, for the version.
    pub package: &'static str,
    /// The note beside its figures.
    pub note: &'static str,
    /// How it pipelines, where it has no way of its own.
    pub pipelining: &'static str,
    pub open: fn(&Job) -> Result<Box<dyn Log>>,
    pub read_all: fn(&Job, &mut RecordVisitor<'_>) -> Result<()>,
}

/// A log under test.
pub trait Log: Send + Sync {
    /// Creates the handle of one blocking caller.
    fn caller(&self, writer: u32) -> Result<Box<dyn Caller + '_>>;

    /// Lets all callers work as async tasks. Returns how long they took, or `None` if its callers
    /// are threads.
    fn run_tasks(
        &self,
        _members: &mut Vec<Member>,
        _until: Until,
        _times: &PerThread,
    ) -> Option<Result<Duration>> {
        None
    }

    /// Appends all records; they are durable when this returns.
    fn pipeline(&self, _records: &mut Records<'_>) -> Result<()> {
        bail!("pipelines nothing")
    }

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

/// A blocking caller of a log.
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
    fn next(&mut self, see: &mut RecordVisitor<'_>) -> Result<()>;
}

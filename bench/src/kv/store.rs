//! The interface of a store under test.

use anyhow::Result;

use super::entries::Entries;
use super::keys::Key;
use crate::job::Job;
use crate::job_result::{JobResult, TimedPart};
use crate::lock_file;

/// Takes one value.
pub type ValueVisitor<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;
/// Takes one key and its value.
pub type EntryVisitor<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;
/// Takes the value of the key at this place among several.
pub type GroupVisitor<'a> = dyn FnMut(usize, &[u8]) -> Result<()> + 'a;

/// A store under test.
pub trait Store: Send + Sync {
    /// Puts a value; it is durable when this returns.
    fn put(&self, key: &Key, value: &[u8]) -> Result<()>;

    /// Puts several values, all or none; they are durable when this returns.
    fn write(&self, entries: &[(Key, Vec<u8>)]) -> Result<()>;

    /// Puts all entries; they are durable when this returns, not before.
    fn load(&self, entries: &mut Entries<'_>) -> Result<()>;

    /// Waits until it has nothing to do in the background.
    fn await_compactions(&self) -> Result<()> {
        Ok(())
    }

    /// The reader of one caller.
    fn reader(&self) -> Result<Box<dyn Reader + '_>>;

    /// Closes it: everything is durable when this returns.
    fn close(self: Box<Self>) -> Result<()>;
}

/// A reader of one caller.
pub trait Reader {
    /// The value of a key that is there.
    fn get(&self, key: &Key, see: &mut ValueVisitor<'_>) -> Result<()>;

    /// The values of several keys that are there, in one call. `false` if there is no such call.
    fn get_many(&self, _keys: &[Key], _see: &mut GroupVisitor<'_>) -> Result<bool> {
        Ok(false)
    }

    /// All keys in order, with their values.
    fn scan(&self, see: &mut EntryVisitor<'_>) -> Result<()>;

    /// All keys with their values, in any order: for comparing what was written.
    fn all(&self, see: &mut EntryVisitor<'_>) -> Result<()> {
        self.scan(see)
    }
}

/// How a store is opened, and what has to be said beside its figures.
pub struct Kind {
    /// The package, for the version.
    pub package: &'static str,
    /// A power failure loses nothing that was acknowledged as durable.
    pub durable: bool,
    /// A group committer is in front of it.
    pub batched: bool,
    /// How it puts.
    pub puts: &'static str,
    /// How it loads.
    pub loads: &'static str,
    /// How it reads.
    pub reads: &'static str,
    pub open: fn(&Job) -> Result<Box<dyn Store>>,
}

impl Kind {
    /// The result of one work.
    pub fn result(&self, job: &Job, work: &str, note: &str, measured: &TimedPart) -> JobResult {
        JobResult {
            work: Some(work.into()),
            p999_us: Some(measured.times.quantile_us(0.999)),
            durable: work.starts_with("load") && self.durable,
            version: lock_file::version(self.package),
            note: note.into(),
            ..measured.result(measured.ops * u64::from(job.most))
        }
    }
}

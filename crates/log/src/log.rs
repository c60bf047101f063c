//! An open log: what its parts share, and how a commit goes from a caller to the disk and back.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::task::Waker;

use esker_disk::{Dir, Lock};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::cold::Cold;
use crate::committer::{Committer, Mode};
use crate::core::{Core, Job};
use crate::counters::Counters;
use crate::engine::Engine;
use crate::error::Result;
use crate::floor::Floor;
use crate::format::LogId;
use crate::manifest::Manifest;
use crate::mark::Page;
use crate::options::Options;
use crate::progress::Progress;
use crate::published::Published;
use crate::recovery::Recovery;
use crate::runway::Runway;
use crate::segments::Segments;
use crate::space::{Asked, Reserve};
use crate::tail::Tail;
use crate::upkeep::Prewriter;
use crate::waiters::Waiters;

/// A durable, append-only log in a directory. Cheap to clone; all clones are the same log.
///
/// The last handle to go closes the log and blocks while it does; call [`Log::close`] to see
/// whether that worked.
#[derive(Debug, Clone)]
pub struct Log {
    pub(crate) shared: Arc<Shared>,
    pub(crate) _owner: Arc<Owner>,
}

/// Closes the log when the last handle goes.
#[derive(Debug)]
pub(crate) struct Owner(pub(crate) Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.close_or_warn();
    }
}

pub(crate) struct Shared {
    pub(crate) id: LogId,
    /// The directory that was opened and locked, wherever it is now.
    pub(crate) dir: Arc<dyn Dir>,
    pub(crate) options: Options,
    pub(crate) mode: Mode,
    pub(crate) engine: Engine,
    pub(crate) state: Mutex<State>,
    pub(crate) waiters: Waiters,
    pub(crate) published: Published,
    pub(crate) segments: Segments,
    pub(crate) tail: Arc<Tail>,
    pub(crate) cold: Cold,
    pub(crate) runway: Runway,
    pub(crate) counters: Counters,
    pub(crate) progress: Arc<[Progress]>,
    pub(crate) manifest: Mutex<Manifest>,
    pub(crate) floor: Floor,
    /// Numbers of spare files.
    pub(crate) spares: Mutex<Vec<u64>>,
    pub(crate) recovery: Recovery,
    pub(crate) disk_name: &'static str,
    pub(crate) lock: Mutex<Option<Box<dyn Lock>>>,
    /// The log stands in the engine's queue for a commit; for slow work; for reads.
    pub(crate) queued: AtomicBool,
    pub(crate) upkeep_queued: AtomicBool,
    pub(crate) reads_queued: AtomicBool,
    /// The log went on in another segment since slow work was done.
    pub(crate) turned: AtomicBool,
    pub(crate) prewriter: Mutex<Option<Prewriter>>,
    /// For other processes.
    pub(crate) page: Mutex<Page>,
    /// Held by whoever changes which segments there are.
    pub(crate) changing: Mutex<()>,
    /// Held by whoever reserves space. Taken after `changing`, where both are.
    pub(crate) making: Mutex<Reserve>,
    /// Somebody may wait for the committer to come back and the flights to end.
    pub(crate) returned: Condvar,
    /// As many callers are back as somebody waits for.
    pub(crate) gathered: AtomicBool,
    pub(crate) closed: AtomicBool,
    pub(crate) me: Weak<Shared>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let durable = self.published.seq();
        f.debug_struct("Log")
            .field("dir", &self.dir.path())
            .field("durable", &durable)
            .finish_non_exhaustive()
    }
}

/// What is behind the one lock that appenders and committers share. It is never held across I/O.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) core: Core,
    /// There while nobody prepares a commit.
    pub(crate) committer: Option<Box<Committer>>,
    /// It will not come back.
    pub(crate) committer_lost: bool,
    pub(crate) period_runs: bool,
    pub(crate) space: Asked,
    /// Emptied lists, to be used again: at most one for each thread that ever drove a commit at the
    /// same time as another.
    pub(crate) wakers: Vec<Vec<Waker>>,
}

impl State {
    /// The next job, and the committer to make it ready; `None` when there is none, or another thread
    /// is preparing one.
    pub(crate) fn next_job(&mut self) -> Option<(Job, Box<Committer>)> {
        let committer = self.committer.take()?;
        let Some(job) = self.core.next_job() else {
            self.committer = Some(committer);
            return None;
        };
        Some((job, committer))
    }
}

impl Log {
    /// How the log was found when it was opened, and what recovery did.
    pub fn recovery(&self) -> &Recovery {
        &self.shared.recovery
    }
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn progress(&self, unit: u64) -> &Progress {
        &self.progress[(unit % self.progress.len() as u64) as usize]
    }

    /// Changes the manifest, durably. Where that fails it stays as it was.
    pub(crate) fn change_manifest(&self, change: impl FnOnce(&mut Manifest)) -> Result<()> {
        let mut manifest = self.manifest.lock();
        let mut next = *manifest;
        change(&mut next);
        next.write(&*self.dir)?;
        *manifest = next;
        Ok(())
    }

    /// Asks for slow work.
    pub(crate) fn want_upkeep(&self) {
        if !self.upkeep_queued.swap(true, SeqCst)
            && !self.engine.is_manual()
            && let Some(me) = self.me.upgrade()
        {
            self.engine.upkeep(me);
        }
    }

    /// Queues the log for a commit, whether there is one or not.
    pub(crate) fn want_commit(&self) {
        if !self.queued.swap(true, SeqCst) {
            match self.me.upgrade() {
                Some(me) => self.engine.commit(me),
                None => self.queued.store(false, SeqCst),
            }
        }
    }

    /// Asks a thread of the engine for the reads that are queued; `false` where there is none.
    pub(crate) fn engine_reads(&self) -> bool {
        if self.engine.is_stopped() {
            return false;
        }
        let Some(me) = self.me.upgrade() else { return false };
        if self.reads_queued.swap(true, SeqCst) || self.engine.read(me) {
            return true;
        }
        self.reads_queued.store(false, SeqCst);
        false
    }
}

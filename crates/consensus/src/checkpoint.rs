//! Checkpoints of the index: so that opening reads what changed since, and not everything.
//!
//! A checkpoint is records of the log like everything else: the pages of the index that changed, and
//! a root that names all pages, with promise, floor, frontier and counts. The app metadata say where the
//! root stands. They say nothing that the log does not say: without them, or where they lead
//! nowhere, everything is replayed.
//!
//! # The crash argument
//!
//! The content is fixed with the gate held alone, together with the number that the next record will
//! have: everything before is in it, and nothing behind. Pages and root are appended after that, so
//! that they are durable only when all that they speak of is. The app metadata are written when the root is
//! durable. A crash in between leaves those before, whose root is still there: truncation drops
//! nothing that the durable ones need.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::background::{self, Background, Job, Next, Work};
use crate::component::COMPONENT;
use crate::error::{Error, Result};
use crate::gate::Alone;
use crate::log::{ConsensusLog, Inner};
use crate::page::{State, Word};
use crate::record::{self, Root};

impl ConsensusLog {
    /// Makes everything committed durable, and a checkpoint of the index. What is uncommitted stays
    /// as it is. Blocks; other operations go on meanwhile, but for the time that it takes to copy what
    /// changed.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Closed`], [`Error::Log`].
    pub fn checkpoint(&self) -> Result<()> {
        let _upkeep = self.inner.upkeep.lock();
        self.inner.checkpoint(0)
    }
}

/// The content of a checkpoint.
pub(crate) struct Snapshot {
    root: Root,
    pages: Vec<(u64, u16, Vec<u64>)>,
    /// Pages with entries that are accepted and not committed.
    open: BTreeSet<u64>,
}

impl Inner {
    /// Schedules a checkpoint when one is due. The caller holds no lock of the log.
    #[inline]
    pub(crate) fn checkpoint_if_due(self: &Arc<Self>) {
        if self.is_checkpoint_due() {
            background::schedule(self, Job::Checkpoint);
        }
    }

    #[inline]
    fn is_checkpoint_due(&self) -> bool {
        self.since_checkpoint() >= self.options.checkpoint_every
            && self.newest.load(Relaxed) >= self.retry_at.load(Relaxed)
    }

    /// The background job. After a failure it waits for some more records before the next attempt.
    fn automatic_checkpoint(&self) -> Result<()> {
        let _upkeep = self.upkeep.lock();
        if !self.is_checkpoint_due() {
            return Ok(());
        }
        let pause = self.options.checkpoint_every / 8;
        self.retry_at.store(self.newest.load(Relaxed).saturating_add(pause), Relaxed);
        self.checkpoint(0)?;
        self.retry_at.store(0, Relaxed);
        Ok(())
    }

    /// The caller holds `upkeep`, and not the gate. Pages that were stored before `rewrite_below` are stored
    /// anew.
    pub(crate) fn checkpoint(&self, rewrite_below: u64) -> Result<()> {
        let gate = self.gate.alone();
        self.writable(&gate.terms())?;
        let snapshot = self.snapshot(&gate, rewrite_below)?;
        drop(gate);
        self.write_checkpoint(snapshot)
    }

    pub(crate) fn snapshot(&self, gate: &Alone<'_>, rewrite_below: u64) -> Result<Snapshot> {
        let guard = crossbeam_epoch::pin();
        self.settle(&guard);
        let rewrite = |number| self.index.stored_at(number, &guard) < rewrite_below;
        for number in self.index.numbers(0, &guard) {
            if rewrite(number) {
                self.page(number, &guard)?;
            }
        }
        let mut pages = Vec::new();
        let mut open = BTreeSet::new();
        for page in self.index.in_memory(&guard) {
            if page.open.get() > 0 {
                open.insert(page.number);
            }
            if page.take_dirty() || rewrite(page.number) {
                let (first, words) = page.words();
                pages.push((page.number, first, words));
            }
        }
        let settled = self.settled.lock();
        let range = settled.range_with_pending();
        let covered = self.log.accepted().0;
        let root = Root {
            replay: covered + 1,
            promise: gate.terms().promise,
            start: self.start(),
            next: settled.next(),
            count: range.map_or(0, |range| range.count),
            lowest: range.map_or(0, |range| range.lowest),
            highest: range.map_or(0, |range| range.highest),
        };
        self.checkpointed.store(covered, Relaxed);
        Ok(Snapshot { root, pages, open })
    }

    pub(crate) fn write_checkpoint(&self, snapshot: Snapshot) -> Result<()> {
        let Snapshot { root, pages, open } = snapshot;
        let mut tickets = Vec::new();
        for (number, first, words) in pages {
            let ticket = self.append(|out| record::page(out, number, first, &words))?;
            let committed = commits(&words);
            self.index.store(number, ticket.seq().0, committed, &crossbeam_epoch::pin());
            // Kept, so that they ask for no commit of their own.
            tickets.push(ticket);
        }
        let mut stored = self.index.stored(&crossbeam_epoch::pin());
        stored.iter_mut().for_each(|page| page.open = open.contains(&page.number));
        let ticket = self.append(|out| record::root(out, &root, &stored))?;
        let seq = ticket.seq().0;
        ticket.wait().map_err(|error| self.fail(error))?;
        self.log
            .put_app_metadata(COMPONENT, &seq.to_le_bytes())
            .map_err(|error| self.fail(error))?;
        self.checkpointed.store(seq, Relaxed);
        Ok(())
    }
}

impl Work for Inner {
    fn background(&self) -> &Background {
        &self.background
    }

    fn work(self: &Arc<Self>, job: Job) -> Result<Next> {
        match job {
            Job::Checkpoint => self.automatic_checkpoint().map(|()| Next::Done),
            Job::Reclaim => self.reclaim_job(),
        }
    }
}

/// How many of these words are of committed slots.
fn commits(words: &[u64]) -> u64 {
    let committed =
        |bits: &&u64| Word::from_bits(**bits).is_some_and(|word| word.state() == State::Committed);
    words.iter().filter(committed).count() as u64
}

/// The number of the root that app metadata name.
pub(crate) fn named(note: &[u8]) -> Result<u64> {
    let bytes: Option<[u8; 8]> = note.try_into().ok();
    bytes.map(u64::from_le_bytes).ok_or(Error::CorruptedRecord { seq: 0, what: "the note is cut" })
}

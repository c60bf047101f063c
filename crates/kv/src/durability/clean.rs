//! Cleaning: reclaims the space of overwritten values and deleted keys.
//!
//! [`esker_log::reclaim`] plans and drives a pass, and has its crash argument. This crate provides:
//!
//! - *Live* records are the newest puts of the keys that exist, the catalog's included. Deletes are
//!   never copied: a delete is dropped together with everything before it, so nothing that it
//!   deleted is left. See [`super::replay`] for why an opening then finds the same keys.
//! - *A copy* is a put with the same value, appended under the key's write lock if the index still
//!   names the original.
//! - *Before the drop* the pass waits for snapshots that may read a dropped record: those from
//!   before the last record that replaced one. That record is durable by then, so that no later
//!   snapshot of what is durable is from before it either.

use std::sync::Arc;
use std::time::Duration;

use esker_disk::planted::{Bug, is_planted};
use esker_log::Seq;
use esker_log::component::Purpose;
use esker_log::reclaim::{self, Effort, Live, Owner, Reclaimed};

use crate::base::corrupted_record::CorruptedRecord;
use crate::base::operation_errors::WriteError;
use crate::base::store_error::{StoreError, refuse_if_forked};
use crate::base::ticket::Ticket;
use crate::durability::bursts::Bursts;
use crate::durability::checkpoint::DumpPace;
use crate::health::FailOnPanic;
use crate::index::entry::Version;
use crate::record::{Change, Record};
use crate::state::store_writer::StoreWriter;
use crate::state::throttle::Throttle;

/// The number of keys that are visited between two readings of the clock.
const BURST_KEYS: u32 = 1 << 12;
/// The longest pause of a background pass.
const PASS_PAUSE_MAX: Duration = Duration::from_millis(50);

impl StoreWriter {
    /// Reclaims all space that is worth it in the segments that exist now: later ones would keep it
    /// at work for as long as callers overwrite.
    pub(crate) fn compact(&self) -> Result<Reclaimed, StoreError> {
        refuse_if_forked()?;
        let end = self.log.accepted();
        let mut all = Reclaimed::default();
        loop {
            match self.clean_once(Effort::Full, false) {
                Ok(done) => {
                    all += done;
                    if done.segments == 0 || self.log.storage().metadata().after >= end {
                        return Ok(all);
                    }
                }
                Err(error) if error.is_no_space() && all.segments > 0 => return Ok(all),
                Err(error) => return Err(error),
            }
        }
    }

    fn clean_once(&self, effort: Effort, throttled: bool) -> Result<Reclaimed, StoreError> {
        let state = self.state();
        let _pass = self.cleaning().lock_pass_for_writers(|| state.refuse_if_closing())?;
        state.refuse_if_closing()?;
        // A copy of a value from before a gap would count as written after it.
        state.gap().refuse().map_err(StoreError::Quarantined)?;
        state.remove_dropped();
        let pass = CleaningPass { writer: self, throttled };
        let done = reclaim::run(&self.log, &pass, effort)?;
        self.cleaning().add_reclaimed(done);
        Ok(done)
    }

    /// Starts cleaning in the background if this write found no space, or if it is time.
    #[inline]
    pub(crate) fn clean_after<E>(
        self: &Arc<Self>,
        written: Result<Ticket, E>,
        is_no_space: impl Fn(&E) -> bool,
    ) -> Result<Ticket, E> {
        match &written {
            Ok(ticket) => self.clean_soon(ticket.0.position().0),
            Err(error) if is_no_space(error) => self.clean_full_disk(),
            Err(_) => {}
        }
        written
    }

    /// Starts cleaning in the background after a delete of a range: much may be dead now.
    pub(crate) fn clean_after_range(
        self: &Arc<Self>,
        written: Result<Ticket, WriteError>,
    ) -> Result<Ticket, WriteError> {
        if written.is_ok() {
            self.clean_now();
        }
        self.clean_after(written, WriteError::is_no_space)
    }

    /// Starts cleaning in the background, if the log has grown by a segment since the last time.
    fn clean_soon(self: &Arc<Self>, offset: u64) {
        let cleaning = self.cleaning();
        let running = || cleaning.request().is_made();
        if cleaning.throttle().consider(offset, || self.is_behind(), running) {
            tracing::info!("cleaning is behind: writers wait for it");
        }
        if self.cleans() && cleaning.is_due(offset, self.options().log.segment_size) {
            self.clean_now();
        }
    }

    /// Whether space is reclaimed in the background.
    #[inline]
    fn cleans(&self) -> bool {
        self.options().clean && !self.state().gap().is_some()
    }

    /// Starts cleaning in the background: much may be dead now, or space is wanted.
    pub(crate) fn clean_now(self: &Arc<Self>) {
        if self.cleans() && self.cleaning().request().make() {
            self.spawn_cleaning();
        }
    }

    /// Starts cleaning in the background for a write that found no space. Not if the last such pass
    /// freed nothing, and nothing was replaced or deleted since.
    pub(crate) fn clean_full_disk(self: &Arc<Self>) {
        if self.cleaning().request_full_disk() {
            self.clean_now();
        }
    }

    fn spawn_cleaning(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        let health = self.state().health();
        let fail_on_panic = FailOnPanic::new(health, "the cleaning thread does not panic");
        let work = move || {
            let _fail_on_panic = fail_on_panic;
            if let Some(writer) = weak.upgrade()
                && let Err(error) = writer.clean_while_requested()
                && !error.ends_store()
            {
                tracing::warn!(%error, "failed to reclaim space");
            }
        };
        self.cleaning().start_thread(|| {
            let thread = std::thread::Builder::new().name("esker-kv-clean".into()).spawn(work);
            if let Err(error) = &thread {
                tracing::warn!(%error, "failed to start the cleaning thread");
                self.cleaning().request().withdraw();
            }
            thread.ok()
        });
    }

    /// Reclaims what is worth it, as long as that is requested.
    fn clean_while_requested(&self) -> Result<(), StoreError> {
        let cleaning = self.cleaning();
        let _open_on_drop = OpenOnDrop(cleaning.throttle());
        cleaning.request().work(|| {
            let full_disk = cleaning.take_full_disk();
            let garbage = cleaning.garbage();
            let mut done = Ok(Reclaimed::default());
            if full_disk {
                done = self.clean_once(Effort::FullDisk, true);
                let freed = done.as_ref().is_ok_and(|done| done.gained() > 0);
                cleaning.set_full_disk_outcome(freed, garbage);
            }
            if done.as_ref().is_ok_and(|done| done.segments == 0) {
                done = self.clean_once(Effort::Lazy, true);
            }
            let done = done?;
            if done.segments == 0 && self.wants_checkpoint() {
                self.checkpoint_or_warn(DumpPace::Bursts);
            }
            Ok(done.segments > 0)
        })
    }
}

/// Lets writers continue when cleaning has ended, also in a panic.
struct OpenOnDrop<'a>(&'a Throttle);

impl Drop for OpenOnDrop<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// One pass over a store.
struct CleaningPass<'a> {
    writer: &'a StoreWriter,
    throttled: bool,
}

/// A copy that is not durable yet.
struct PendingCopy {
    keyspace: u32,
    key: Vec<u8>,
    version: Version,
}

impl Owner for CleaningPass<'_> {
    type Error = StoreError;
    type Key = PendingCopy;
    const CHECKPOINT_GROWS: bool = false;

    fn barrier(&self) -> Result<(), StoreError> {
        self.writer.state().table().await_writers();
        Ok(())
    }

    fn each_live(&self, visit: &mut dyn FnMut(Live)) -> Result<(), StoreError> {
        let state = self.writer.state();
        state.refuse_if_closing()?;
        let offset = self.writer.log.storage().metadata().position.0;
        let garbage = self.writer.cleaning().garbage();
        let (mut live, mut visited) = (0, 0u32);
        let (mut bursts, mut closing) = (Bursts::new(self.writer, self.throttled), Ok(()));
        state.table().arena().for_each(|id, version| {
            visited = visited.wrapping_add(1);
            if closing.is_ok() && visited % BURST_KEYS == 0 {
                closing = bursts.pause();
            }
            if let Some(bytes) = state.live_bytes(id, version) {
                live += bytes;
                visit(Live::copied(Seq(version.seq), bytes));
            }
        });
        closing?;
        // A record that the index has lost would be dropped.
        state.health().check_invariants()?;
        self.writer.cleaning().set_live(live, offset, garbage);
        Ok(())
    }

    fn is_no_space(error: &StoreError) -> bool {
        error.is_no_space()
    }

    fn append_again(
        &self,
        record: &esker_log::Record<'_>,
        purpose: Purpose,
    ) -> Result<Option<(PendingCopy, esker_log::Ticket)>, StoreError> {
        let writer = self.writer;
        let table = writer.state().table();
        let invalid = |what| CorruptedRecord { seq: record.seq, what };
        let Record { keyspace, key, change } = Record::decode(record.payload).map_err(invalid)?;
        let Change::Put { value, .. } = change else {
            // The index has only puts at the numbers of live records.
            return Err(invalid("it does not put a value").into());
        };
        let hashed = table.hash(keyspace, key);
        let mut payload = Vec::new();
        Record { keyspace, key, change: Change::Put { value, moved: true } }.encode(&mut payload);
        let ticket = writer.log.component().append_locked(|log| {
            let _write_lock = table.lock_writes(hashed.shard);
            let current = table.find(hashed).map(|current| current.version);
            let is_current = match current {
                Some(version) if version.deleted => is_planted(Bug::TombstoneDroppedTooEarly),
                Some(version) => {
                    version.seq == record.seq.0 || is_planted(Bug::CleaningOverNewerValue)
                }
                None => false,
            };
            if !is_current {
                return Ok(None);
            }
            // The original stays the newest version until its copy is durable.
            log.append(purpose, &payload, |_| {}).map(Some)
        })?;
        Ok(ticket.map(|ticket| {
            let version = Version {
                seq: ticket.seq().0,
                deleted: false,
                offset: ticket.position().0,
                len: value.len() as u32,
            };
            (PendingCopy { keyspace, key: key.to_vec(), version }, ticket)
        }))
    }

    fn moved(&self, copy: PendingCopy, from: Seq, to: Seq) -> Result<(), StoreError> {
        let state = self.writer.state();
        let is_its_copy = copy.version.seq == to.0 && from < to;
        state.health().ensure(is_its_copy, "a copy is after its original, and has its number")?;
        let key = state.table().hash(copy.keyspace, &copy.key);
        let _write_lock = state.table().lock_writes(key.shard);
        state.table().set_moved(key, from.0, copy.version, state.horizon());
        Ok(())
    }

    fn before_drop(&self, _cut: Seq) -> Result<(), StoreError> {
        let writer = self.writer;
        let newest = writer.log.durable().0;
        let timeout = writer.options().snapshot_timeout;
        writer.state().snapshots().await_newer(newest, timeout, || {
            writer.cleaning().throttle().open();
            writer.state().refuse_if_closing()
        })?;
        // The index says which records are live.
        writer.state().refuse_if_closing()
    }

    /// Pauses a background pass for as long as its work took while callers write, unless it is
    /// behind.
    fn pace(&self, took: Duration) -> Result<(), StoreError> {
        self.writer.state().refuse_if_closing()?;
        self.writer.cleaning().throttle().open();
        if self.throttled && !self.writer.is_behind() {
            std::thread::sleep(took.min(PASS_PAUSE_MAX));
        }
        Ok(())
    }
}

// Not beside `Request`: its file is also part of a loom model, in which no other test can run.
#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::mpsc::{Sender, channel};
    use std::task::{Context, Wake, Waker};
    use std::time::{Duration, Instant};

    use esker_disk::sim::SimDisk;
    use parking_lot::Mutex;

    use super::DumpPace;
    use crate::Store;
    use crate::base::options::Options;
    use crate::durability::open::open;
    use crate::state::request::Request;
    use crate::state::store_writer::{LastCheckpoint, StoreWriter};

    /// A backup holds the lock of passes until it ends. A future that was waiting for cleaning, and
    /// has no clock, waited for as long.
    #[test]
    fn writers_do_not_wait_for_a_backup_that_holds_cleaning() {
        let options = Options::on(Arc::new(SimDisk::new(1)));
        let writer = open("/store".into(), options).unwrap();
        let held = writer.cleaning().lock_pass().unwrap();
        writer.clean_now();
        let is_admitted = is_admitted(&writer, || writer.cleaning().request().is_made());
        drop(held);
        writer.close().unwrap();
        assert!(is_admitted, "the writer waits for the backup");
    }

    /// Bug: as above, where cleaning had come to a checkpoint.
    #[test]
    fn writers_do_not_wait_for_a_backup_that_holds_a_checkpoint() {
        let options = Options::on(Arc::new(SimDisk::new(1)));
        let writer = open("/store".into(), options).unwrap();
        let held = writer.cleaning().lock_pass().unwrap();
        let is_admitted = std::thread::scope(|scope| {
            scope.spawn(|| writer.checkpoint_or_warn(DumpPace::Bursts));
            let is_admitted = is_admitted(&writer, || true);
            drop(held);
            is_admitted
        });
        writer.close().unwrap();
        assert!(is_admitted, "the writer waits for the backup");
    }

    /// Whether a future continues that waits for cleaning. `false` after a minute.
    fn is_admitted(writer: &StoreWriter, is_running: impl FnOnce() -> bool) -> bool {
        let throttle = writer.cleaning().throttle();
        throttle.consider(u64::MAX, || true, is_running);
        let mut admitted = pin!(throttle.wait());
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut context = Context::from_waker(Waker::noop());
        while admitted.as_mut().poll(&mut context).is_pending() {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// Guards: the background waited for a checkpoint of a caller, which may take minutes, and
    /// writers for the background. A waker that closed the store on that caller's thread waited for
    /// the background, and so for itself.
    #[test]
    fn the_background_does_not_wait_for_the_checkpoint_of_a_caller() {
        let options = Options::on(Arc::new(SimDisk::new(1)));
        let writer = open("/store".into(), options).unwrap();
        let callers = writer.lock_checkpoint(true).unwrap();
        let (done, ended) = channel();
        let background = Arc::clone(&writer);
        std::thread::spawn(move || done.send(background.write_checkpoint(DumpPace::Bursts)));
        let outcome = ended.recv_timeout(Duration::from_secs(60));
        drop(callers);
        assert!(matches!(outcome, Ok(Ok(false))), "{outcome:?}");
        assert!(writer.write_checkpoint(DumpPace::Bursts).unwrap());
        writer.close().unwrap();
    }

    /// Drops a store when it is woken.
    struct DroppingWaker {
        store: Mutex<Option<Store>>,
        done: Sender<()>,
    }

    impl Wake for DroppingWaker {
        fn wake(self: Arc<Self>) {
            let store = self.store.lock().take();
            drop(store);
            self.done.send(()).unwrap();
        }
    }

    /// Bug: closing the store wrote a checkpoint, which waited for the pass of its own thread.
    #[test]
    fn a_waker_may_drop_the_last_store_on_the_cleaning_thread() {
        let mut options = Options::on(Arc::new(SimDisk::new(1)));
        options.clean = false;
        options.log.segment_size = 64 << 10;
        let store = Store::builder("/store").options(options.clone()).open().unwrap();
        let keys = store.keyspace();
        for n in 0..600_u32 {
            drop(keys.put((n % 60).to_be_bytes(), vec![1; 3000]).unwrap());
        }
        store.sync().unwrap();
        let writer = Arc::clone(&keys.writer);
        let throttle = writer.cleaning().throttle();
        throttle.consider(u64::MAX, || true, || true);
        let (done, dropped) = channel();
        let waker = Arc::new(DroppingWaker { store: Mutex::new(Some(store)), done });
        let mut admitted = pin!(throttle.wait());
        assert!(admitted.as_mut().poll(&mut Context::from_waker(&waker.into())).is_pending());
        assert!(writer.cleaning().request().make());
        writer.spawn_cleaning();
        dropped.recv_timeout(Duration::from_secs(60)).expect("it waits for its own thread");
        assert_eq!(writer.last_checkpoint(), LastCheckpoint::default(), "one inside a pass");
        let store = Store::builder("/store").options(options).open().unwrap();
        assert_eq!(store.keyspace().len(), 60);
        store.close().unwrap();
    }

    #[test]
    fn a_request_during_the_last_step_is_another_step() {
        let request = Request::default();
        assert!(request.make() && !request.make());
        let mut steps = 0;
        let done: Result<(), ()> = request.work(|| {
            steps += 1;
            if steps == 3 {
                assert!(!request.make(), "a thread works already");
            }
            Ok(steps < 3)
        });
        assert_eq!((done, steps, request.is_made()), (Ok(()), 4, false));
    }

    #[test]
    fn work_that_failed_can_be_requested_again() {
        let request = Request::default();
        assert!(request.make());
        assert_eq!(request.work(|| Err(7)), Err(7));
        assert!(request.make(), "no thread works");
        let panicked = std::panic::catch_unwind(|| {
            request.work(|| -> Result<bool, ()> { panic!("as a bug would") })
        });
        assert!(panicked.is_err() && !request.is_made());
    }
}

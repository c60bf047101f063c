//! Readers at the tip of one log, each an async task.
//!
//! Each reader checks and counts the records it got, and adds its tally to the shared one when it
//! has reached the goal, a record number, and is idle again. An error of one reader fails the run,
//! so that no reader is missing from the totals.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Context;
use std::time::{Duration, Instant};

use esker_log::{Batch, Log, LogStream, ReadError, Result, Start};
use futures_core::Stream as _;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::load::durable_times::DurableTimes;
use crate::measure::latency::Latencies;
use crate::records::verify::{ExpectedRecords, Tally};
use esker_command::exit::{Failure, Outcome};

/// Histograms that the readers share, sharded against lock contention.
const SHARD_COUNT: usize = 16;
/// Consecutive batches after which a lagging reader yields.
const IN_A_ROW: u32 = 16;
/// The goal of readers while it is unknown: a number that no record has.
pub const NO_GOAL: u64 = u64::MAX;

/// State that the readers share.
#[derive(Debug)]
pub struct TailReaders {
    dir: PathBuf,
    readers: u32,
    expected: ExpectedRecords,
    durable_times: Arc<DurableTimes>,
    /// The record after which a reader adds its tally to the shared one.
    goal: AtomicU64,
    /// Whether the readers end at the goal.
    last: AtomicBool,
    arrived: AtomicU64,
    state: Mutex<State>,
    changed: Notify,
    lags: [Mutex<Latencies>; SHARD_COUNT],
}

#[derive(Debug, Default)]
struct State {
    tally: Tally,
    failure: Option<Failure>,
}

impl TailReaders {
    /// Creates the shared state, without readers. `dir` is named in errors.
    pub fn new(
        dir: PathBuf,
        readers: u32,
        expected: ExpectedRecords,
        durable_times: Arc<DurableTimes>,
    ) -> Self {
        Self {
            dir,
            readers,
            expected,
            durable_times,
            goal: AtomicU64::new(NO_GOAL),
            last: AtomicBool::new(false),
            arrived: AtomicU64::new(0),
            state: Mutex::default(),
            changed: Notify::new(),
            lags: std::array::from_fn(|_| Mutex::new(Latencies::new())),
        }
    }

    /// Opens a stream at the tip for each reader and spawns its task. `tasks` must have room for
    /// all, so that no allocation of its own is counted.
    pub fn spawn(
        self: &Arc<Self>,
        log: &Log,
        runtime: &Handle,
        tasks: &mut Vec<JoinHandle<()>>,
    ) -> Result<()> {
        let (readers, seen) = (self.readers, log.durable().0);
        for reader in 0..readers {
            let stream = log.stream(Start::Tip)?;
            let tail_readers = Arc::clone(self);
            tasks.push(runtime.spawn(async move {
                if let Err(failure) = tail_readers.follow(reader, stream, seen).await {
                    tail_readers.fail(failure.and(format_args!("reader {reader} of {readers}")));
                }
            }));
        }
        Ok(())
    }

    /// Sets the record that `wait_for_goal` waits for, before it is appended. With `last` the
    /// readers end after it.
    pub fn name_goal(&self, seq: u64, last: bool) {
        self.last.store(last, SeqCst);
        self.goal.store(seq, SeqCst);
    }

    /// Waits until every reader has reached the goal. Returns what all of them read since the
    /// previous goal. Fails when a reader failed.
    pub async fn wait_for_goal(&self, at_most: Duration) -> Outcome<Tally> {
        let readers = u64::from(self.readers);
        let timeout = tokio::time::sleep(at_most);
        tokio::pin!(timeout);
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(failure) = self.state().failure.take() {
                return Err(failure);
            }
            if self.arrived.load(SeqCst) >= readers {
                self.goal.store(NO_GOAL, SeqCst);
                self.arrived.store(0, SeqCst);
                return Ok(std::mem::take(&mut self.state().tally));
            }
            tokio::select! {
                () = changed => {}
                () = &mut timeout => {
                    return Err(Failure::failed(format!(
                        "{} of {readers} readers have not received every record {} s after the last append",
                        readers - self.arrived.load(SeqCst),
                        at_most.as_secs()
                    )));
                }
            }
        }
    }

    /// Returns the lags of all batches delivered since the last call.
    pub fn take_lags(&self) -> Latencies {
        let mut all = Latencies::new();
        for lags in &self.lags {
            let mut lags = lags.lock().unwrap_or_else(PoisonError::into_inner);
            all.merge(&lags);
            *lags = Latencies::new();
        }
        all
    }

    fn fail(&self, failure: Failure) {
        self.state().failure.get_or_insert(failure);
        self.changed.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads until the last goal.
    async fn follow(&self, reader: u32, mut stream: LogStream, mut seen: u64) -> Outcome {
        let mut tally = Tally::default();
        let mut reached = NO_GOAL;
        let mut in_a_row = 0;
        loop {
            let next = std::future::poll_fn(|cx: &mut Context<'_>| {
                let next = Pin::new(&mut stream).poll_next(cx);
                if next.is_pending() {
                    in_a_row = 0;
                    self.idle(seen, &mut reached, &mut tally);
                }
                next.map(|next| self.receive(reader, next, &mut seen))
            });
            let got = next.await?;
            tally = tally.and(got);
            if self.last.load(SeqCst) && seen >= self.goal.load(SeqCst) {
                self.arrive(&mut tally);
                return Ok(());
            }
            in_a_row += 1;
            if in_a_row >= IN_A_ROW {
                in_a_row = 0;
                tokio::task::yield_now().await;
            }
        }
    }

    /// Called when a reader is idle.
    fn idle(&self, seen: u64, reached: &mut u64, tally: &mut Tally) {
        let goal = self.goal.load(SeqCst);
        if seen >= goal && *reached != goal {
            *reached = goal;
            self.arrive(tally);
        }
    }

    fn arrive(&self, tally: &mut Tally) {
        let mut state = self.state();
        state.tally = state.tally.and(std::mem::take(tally));
        drop(state);
        if self.arrived.fetch_add(1, SeqCst) + 1 == u64::from(self.readers) {
            self.changed.notify_one();
        }
    }

    /// Checks and counts a batch, and records its lag.
    fn receive(
        &self,
        reader: u32,
        next: Option<Result<Batch, ReadError>>,
        seen: &mut u64,
    ) -> Outcome<Tally> {
        let delivered = Instant::now();
        let Some(next) = next else {
            return Err(Failure::failed(format!("the stream ended after record {seen}")));
        };
        let batch = next.map_err(|error| Failure::from_log(&error.into(), &self.dir))?;
        let tally = self.expected.check(u64::from(reader), seen, &batch)?;
        let lag = self.durable_times.lag(*seen, delivered);
        let shard = &self.lags[reader as usize % SHARD_COUNT];
        shard.lock().unwrap_or_else(PoisonError::into_inner).add(lag);
        Ok(tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::payload::Recipe;
    use crate::records::verify::Verify;

    const SOON: Duration = Duration::from_millis(50);
    const LATE: Duration = Duration::from_secs(60);

    fn tail_readers(
        readers: u32,
    ) -> (tempfile::TempDir, Log, Arc<TailReaders>, Vec<JoinHandle<()>>) {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::open(dir.path().join("log")).unwrap();
        let expected = ExpectedRecords::new(&Recipe::new(1, 10..=20), Verify::Full);
        let durable_times = Arc::new(DurableTimes::new());
        let tail_readers =
            Arc::new(TailReaders::new(dir.path().into(), readers, expected, durable_times));
        let mut tasks = Vec::new();
        tail_readers.name_goal(0, false);
        tail_readers.spawn(&log, &Handle::current(), &mut tasks).unwrap();
        (dir, log, tail_readers, tasks)
    }

    async fn append(log: &Log, from: u64, to: u64) -> u64 {
        let mut payload = Recipe::new(1, 10..=20).payload(0);
        let mut bytes = 0;
        for count in from..to {
            let record = payload.record(count);
            bytes += record.len() as u64;
            log.append_async(record).await.unwrap().await.unwrap();
        }
        bytes
    }

    #[tokio::test]
    async fn reported_records_were_read() {
        let (_dir, log, tail_readers, tasks) = tail_readers(3);
        assert_eq!(tail_readers.wait_for_goal(LATE).await.unwrap(), Tally::default());
        for (from, to, last) in [(0, 10, false), (10, 15, false), (15, 40, true)] {
            tail_readers.name_goal(to, last);
            let bytes = 3 * append(&log, from, to).await;
            let records = 3 * (to - from);
            let read = tail_readers.wait_for_goal(LATE).await.unwrap();
            assert_eq!(read, Tally { records, bytes, touched: bytes });
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert!(tail_readers.take_lags().count() > 0);
        assert_eq!(tail_readers.take_lags().count(), 0);
    }

    #[tokio::test]
    async fn an_aborted_reader_is_not_counted() {
        let (_dir, log, tail_readers, tasks) = tail_readers(3);
        tail_readers.wait_for_goal(LATE).await.unwrap();
        tasks[1].abort();
        tail_readers.name_goal(5, true);
        append(&log, 0, 5).await;
        // The other two are counted before the wait begins: how it ends does not depend on them.
        let others = async {
            while tail_readers.arrived.load(SeqCst) < 2 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LATE, others).await.unwrap();
        let failure = tail_readers.wait_for_goal(SOON).await.unwrap_err();
        assert!(
            format!("{failure:?}").contains("of 3 readers have not received every record"),
            "{failure:?}"
        );
    }

    #[tokio::test]
    async fn a_stream_error_fails_the_tail_readers() {
        let (_dir, log, tail_readers, _tasks) = tail_readers(3);
        tail_readers.wait_for_goal(LATE).await.unwrap();
        tail_readers.name_goal(5, true);
        append(&log, 0, 4).await;
        log.close().unwrap();
        let failure = tail_readers.wait_for_goal(LATE).await.unwrap_err();
        assert!(format!("{failure:?}").contains("of 3"), "{failure:?}");
    }
}

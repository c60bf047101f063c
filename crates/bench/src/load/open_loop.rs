//! A writer whose appends arrive at a rate, whether or not the one before is durable.
//!
//! The latency of an append counts from the time it was due, not from when the writer started it: a
//! log that delays the writer is charged for every append that waited.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use esker_log::{Append, Log, Result};
use tokio::sync::Notify;

use crate::load::callers::reuse;
use crate::load::slice::Until;
use crate::measure::latency::Latencies;
use crate::records::payload::{Payload, Recipe};

/// The writer, between slices.
#[derive(Debug)]
pub struct OpenLoop {
    log: Log,
    payloads: Vec<Payload>,
    /// Bytes per second. Without it, each append is due when the previous one is durable.
    rate: Option<f64>,
    count: u64,
    latencies: Latencies,
    slices: Vec<&'static [u8]>,
    timer: Timer,
}

/// The result of a slice.
#[derive(Debug, Clone, Copy, Default)]
pub struct WrittenRecords {
    pub records: u64,
    pub bytes: u64,
    /// The time until the last append was durable.
    pub time: Duration,
}

impl WrittenRecords {
    /// Returns the sum.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            records: self.records + other.records,
            bytes: self.bytes + other.bytes,
            time: self.time + other.time,
        }
    }
}

impl OpenLoop {
    /// A writer that appends `batch` records per call. Not started yet.
    pub fn new(log: &Log, recipe: &Recipe, batch: u32, rate: Option<f64>) -> io::Result<Self> {
        Ok(Self {
            log: log.clone(),
            payloads: (0..batch).map(|_| recipe.payload(0)).collect(),
            rate,
            count: 0,
            latencies: Latencies::new(),
            slices: Vec::with_capacity(batch as usize),
            timer: Timer::new()?,
        })
    }

    /// Returns the records appended so far, which is the number of the last.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the latencies since the last call.
    pub fn take_latencies(&mut self) -> Latencies {
        std::mem::replace(&mut self.latencies, Latencies::new())
    }

    /// Appends until the slice ends. Calls `name_goal` with the last number before the last append.
    ///
    /// If the log does not keep up, the slice still ends on time and the remaining appends are
    /// skipped.
    pub async fn slice(&mut self, until: Until, name_goal: impl Fn(u64)) -> Result<WrittenRecords> {
        let begin = Instant::now();
        let first = self.count;
        let (limit, time) = match until {
            Until::Elapsed(time) => (u64::MAX, time),
            Until::Records(records) => (first.saturating_add(records), Duration::MAX),
        };
        let mut wrote = WrittenRecords::default();
        loop {
            let mut records = reuse(std::mem::take(&mut self.slices));
            let mut bytes = 0;
            for payload in self.payloads.iter_mut().take((limit - self.count) as usize) {
                let record = payload.record(self.count);
                self.count += 1;
                bytes += record.len() as u64;
                records.push(record);
            }
            wrote.bytes += bytes;
            let now = Instant::now();
            let (due, next) = match self.rate {
                Some(rate) => {
                    let at = |bytes: u64| Duration::from_secs_f64(bytes as f64 / rate);
                    (begin + at(wrote.bytes).min(time), at(wrote.bytes + bytes))
                }
                None => (now, now - begin),
            };
            if due > now {
                self.timer.at(due).await;
            }
            if self.count >= limit || next >= time || begin.elapsed() >= time {
                name_goal(self.count);
                Self::append(&self.log, &records, due, &mut self.latencies).await?;
                wrote.records = self.count - first;
                wrote.time = begin.elapsed();
                self.slices = reuse(records);
                return Ok(wrote);
            }
            Self::append(&self.log, &records, due, &mut self.latencies).await?;
            self.slices = reuse(records);
        }
    }

    async fn append(
        log: &Log,
        records: &[&[u8]],
        due: Instant,
        latencies: &mut Latencies,
    ) -> Result<()> {
        match records {
            [record] => log.append_async(record).await?.await?,
            records => log.write_async(Append::records(records)).await?.await?,
        };
        latencies.add(due.elapsed());
        Ok(())
    }
}

/// Wakes the writer when an append is due. Uses its own thread, because the timers of the runtime
/// are up to two milliseconds late, which would count as latency of the log.
#[derive(Debug)]
struct Timer {
    set: SyncSender<Instant>,
    expired: Arc<Notify>,
}

impl Timer {
    fn new() -> io::Result<Self> {
        let (set, times) = sync_channel::<Instant>(1);
        let expired = Arc::new(Notify::new());
        let notify = Arc::clone(&expired);
        std::thread::Builder::new().name("timer".into()).spawn(move || {
            for time in times {
                std::thread::sleep(time.saturating_duration_since(Instant::now()));
                notify.notify_one();
            }
        })?;
        Ok(Self { set, expired })
    }

    /// Waits until this time.
    async fn at(&self, time: Instant) {
        // Only one timer is set at a time, so the channel has room. Dropping this ends the thread.
        if self.set.send(time).is_ok() {
            self.expired.notified().await;
        }
    }
}

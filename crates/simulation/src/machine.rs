//! A machine of the cluster: a disk, a clock, and a process with a node while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use esker_consensus::ConsensusLog;
use esker_disk::sim::SimDisk;
use esker_log::Engine;
use esker_oracle::{Oracle, OracleOptions, OracleState};
use esker_raft::simulation::{Process, SimulatedOptions};
use esker_raft::{ClusterId, Member, Node, Replica, WallClock};
use esker_testkit::SplitMix64;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::network::{Incarnation, Network};

pub(crate) const CLUSTER: ClusterId = ClusterId([7; 16]);
/// The time on wall clocks when a run begins, in nanoseconds.
pub(crate) const START_TIME_NS: u64 = 1_750_000_000_000_000_000;
/// The most thousandths by which clocks run too fast or too slow. Two of them differ by less than a
/// tenth, which a lease assumes.
const CLOCK_DRIFT_PERMILLE_MAX: u64 = 30;

const _: () =
    assert!((1000 + CLOCK_DRIFT_PERMILLE_MAX) * 10 < (1000 - CLOCK_DRIFT_PERMILLE_MAX) * 11);

/// Entries between two snapshots, and entries that are kept before the newest.
const SNAPSHOT_ENTRIES: (u64, u64) = (20, 2);

/// The interval in which a process runs that nothing wakes, in milliseconds: its timers are late by
/// as much.
const IDLE_RUN_INTERVAL_MS: u64 = 3;

/// A started node, and its oracle.
#[derive(Debug, Clone)]
pub(crate) struct ServingNode {
    pub(crate) node: Arc<Node>,
    pub(crate) oracle: Oracle,
    pub(crate) state: Replica<OracleState>,
    /// Set when the node has stopped: its disk failed.
    failed: Arc<AtomicBool>,
}

/// The reason why a process has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitCause {
    /// The process was killed: its writes are in the page cache.
    Killed,
    /// The machine lost its power.
    PowerCut,
    /// The node stopped by itself: its disk failed.
    Stopped,
}

/// A process with a node, or with one that starts.
pub(crate) struct NodeProcess {
    pub(crate) incarnation: Incarnation,
    process: Process,
    engine: Engine,
    starting: Option<JoinHandle<std::io::Result<ServingNode>>>,
    pub(crate) serving: Option<ServingNode>,
    /// The time when it began, and the time on its clock, in milliseconds.
    began: u64,
    local: u64,
    /// The times when its disk does the queued work, next and last.
    disk_due: u64,
    disk_ran: u64,
    zero: Instant,
    // Dropped last: the fields above use it.
    runtime: Runtime,
}

/// A machine of the cluster.
pub(crate) struct Machine {
    pub(crate) id: u64,
    pub(crate) disk: SimDisk,
    /// Milliseconds of its clock in 1,000 of the simulation.
    rate: u64,
    wall: Arc<SimulatedClock>,
    pub(crate) round_trip: Duration,
    starts: u32,
    pub(crate) running: Option<NodeProcess>,
    /// The times when its process ran, and when it runs next at the latest.
    ran_at: u64,
    runs_at: u64,
    /// The time until which it is suspended, as after SIGSTOP.
    pub(crate) paused_until: u64,
    /// The time when its process is started again.
    pub(crate) starts_at: u64,
    /// The latency of its disk, in milliseconds.
    pub(crate) disk_latency: u64,
    random: SplitMix64,
}

/// A wall clock that can be wrong.
#[derive(Debug)]
struct SimulatedClock {
    /// The right time, in nanoseconds.
    now: AtomicU64,
    /// The time by which it is ahead, in milliseconds.
    ahead_ms: AtomicI64,
}

impl SimulatedClock {
    /// The time that it shows, in nanoseconds: as [`WallClock`] has it, 0 before 1970 and the
    /// highest number after 2554.
    fn shows(&self) -> u64 {
        let ahead = i128::from(self.ahead_ms.load(Relaxed)) * 1_000_000;
        let shown = i128::from(self.now.load(Relaxed)) + ahead;
        u64::try_from(shown.max(0)).unwrap_or(u64::MAX)
    }
}

impl Machine {
    pub(crate) fn new(id: u64, seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        Self {
            id,
            disk: SimDisk::new(random.next()),
            rate: 1000 - CLOCK_DRIFT_PERMILLE_MAX + random.below(2 * CLOCK_DRIFT_PERMILLE_MAX + 1),
            wall: Arc::new(SimulatedClock {
                now: AtomicU64::new(START_TIME_NS),
                ahead_ms: AtomicI64::new(0),
            }),
            round_trip: Duration::from_millis(10),
            starts: 0,
            running: None,
            ran_at: 0,
            runs_at: 0,
            paused_until: 0,
            starts_at: 0,
            disk_latency: 2,
            random,
        }
    }

    /// The member for this machine, whose address is its number.
    pub(crate) fn member(id: u64) -> Member {
        let address = id.to_string();
        Member { raft: address.clone(), client: address, store: id.into(), removed: Vec::new() }
    }

    /// Steps its wall clock.
    pub(crate) fn step_clock(&self, by_ms: i64) {
        self.wall.ahead_ms.fetch_add(by_ms, Relaxed);
    }

    /// Sets its wall clock, in milliseconds since 1970.
    pub(crate) fn show(&self, at_ms: i64) {
        let now_ms = (self.wall.now.load(Relaxed) / 1_000_000).cast_signed();
        self.wall.ahead_ms.store(at_ms - now_ms, Relaxed);
    }

    /// Corrects its wall clock.
    pub(crate) fn set_clock(&self) {
        self.wall.ahead_ms.store(0, Relaxed);
    }

    /// Starts its process.
    ///
    /// # Errors
    /// The errors of the operating system.
    pub(crate) fn start(&mut self, network: &Network, now: u64) -> std::io::Result<()> {
        self.disk.power_on();
        self.starts += 1;
        let incarnation = Incarnation { node: self.id, number: self.starts };
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
        let (carrier, port) = network.join(incarnation);
        let engine = Engine::manual();
        let (process, zero) = {
            let _in_runtime = runtime.enter();
            (Process::new(self.random.next(), self.round_trip), Instant::now())
        };
        let (wall, id) = (Arc::clone(&self.wall), self.id);
        let clock = WallClock::new(move || wall.shows());
        let disk = Arc::new(self.disk.process());
        let log = ConsensusLog::builder("/raft")
            .disk(disk)
            .engine(engine.clone())
            .segment_size(1 << 20)
            .mutable_size(8 << 20)
            .cache_size(1 << 20);
        let own = process.clone();
        let started = async move {
            let log = log.open().map_err(std::io::Error::other)?;
            let state = Replica::new(OracleState::default());
            let options = SimulatedOptions {
                node: id,
                cluster: CLUSTER,
                log,
                transport: Arc::new(carrier),
                listener: port,
                clock,
                snapshots: SNAPSHOT_ENTRIES,
            };
            let node = Arc::new(own.start(options, &state).await?);
            let options = OracleOptions::default();
            let oracle = Oracle::start(Arc::clone(&node), state.clone(), options);
            let failed = Arc::new(AtomicBool::new(false));
            let (watched, fails) = (Arc::clone(&node), Arc::clone(&failed));
            tokio::spawn(async move {
                drop(watched.stopped().await);
                fails.store(true, Relaxed);
            });
            Ok(ServingNode { node, oracle, state, failed })
        };
        let starting = runtime.spawn(started);
        self.running = Some(NodeProcess {
            incarnation,
            process,
            engine,
            starting: Some(starting),
            serving: None,
            began: now,
            local: 0,
            disk_due: now,
            disk_ran: now,
            zero,
            runtime,
        });
        Ok(())
    }

    /// Makes its process run next: a message or a request has arrived.
    pub(crate) fn wake(&mut self) {
        self.runs_at = 0;
    }

    /// Ends its process, with all of its tasks.
    pub(crate) fn end(&mut self, network: &Network, ended: ExitCause) {
        if let Some(running) = self.running.take() {
            network.leave(running.incarnation, ended == ExitCause::PowerCut);
            let _inside = running.process.enter();
            drop(running);
        }
    }

    /// The term in which its node leads, and whether it has a lease, if its process ran at this
    /// time.
    pub(crate) fn led_at(&self, now: u64) -> Option<(u64, bool)> {
        let running = self.running.as_ref().filter(|_| self.ran_at == now)?;
        let node = &running.serving.as_ref().filter(|serving| serving.node.leads())?.node;
        let _inside = running.process.enter();
        let _in_runtime = running.runtime.enter();
        let leased = node.leased_term();
        Some((leased.unwrap_or_else(|| node.status().term), leased.is_some()))
    }

    /// Runs its process until this time. Returns the reason if it has ended.
    pub(crate) fn step(&mut self, now: u64) -> Option<ExitCause> {
        self.wall.now.store(START_TIME_NS + now * 1_000_000, Relaxed);
        if now < self.paused_until.max(self.runs_at) {
            return None;
        }
        (self.ran_at, self.runs_at) = (now, now + IDLE_RUN_INTERVAL_MS);
        let running = self.running.as_mut()?;
        let disk_runs = running.disk_due <= now;
        debug_assert!(now >= running.began, "a process runs after its start");
        let target = (now - running.began) * self.rate / 1000;
        if disk_runs || target > running.local {
            running.run(target, disk_runs.then_some(now));
        }
        if disk_runs {
            running.disk_due = now + 1 + self.random.below(self.disk_latency);
        }
        if running.starting.as_ref().is_some_and(JoinHandle::is_finished)
            && let Some(starting) = running.starting.take()
        {
            let _inside = running.process.enter();
            match running.runtime.block_on(starting) {
                Ok(Ok(serving)) => running.serving = Some(serving),
                _ => {
                    return Some(if self.disk.is_on() {
                        ExitCause::Stopped
                    } else {
                        ExitCause::PowerCut
                    });
                }
            }
        }
        if !self.disk.is_on() {
            return Some(ExitCause::PowerCut);
        }
        let serving = running.serving.as_ref();
        let failed = serving.is_some_and(|serving| serving.failed.load(Relaxed));
        failed.then_some(ExitCause::Stopped)
    }
}

impl NodeProcess {
    fn run(&mut self, target: u64, disk_runs: Option<u64>) {
        let _inside = self.process.enter();
        let jumps = target.saturating_sub(self.local) > 10;
        let (engine, end) = (self.engine.clone(), self.zero + Duration::from_millis(target));
        let queued = disk_runs.map(|now| Duration::from_millis(now - self.disk_ran));
        self.disk_ran = disk_runs.unwrap_or(self.disk_ran);
        self.local = target;
        self.runtime.block_on(async move {
            if let Some(elapsed) = queued {
                engine.advance(elapsed);
            }
            if jumps {
                // The process was suspended, and its clock was not.
                let by = end.saturating_duration_since(Instant::now());
                tokio::time::advance(by).await;
            }
            tokio::time::sleep_until(end).await;
        });
    }

    /// Starts a task in the process, if its node has started. Pushes its result to `results`.
    pub(crate) fn spawn<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        results: &Arc<Mutex<Vec<T>>>,
        work: impl FnOnce(ServingNode) -> F,
    ) -> bool {
        let Some(serving) = &self.serving else { return false };
        let (work, results) = (work(serving.clone()), Arc::clone(results));
        let _inside = self.process.enter();
        drop(self.runtime.spawn(async move {
            let result = work.await;
            results.lock().push(result);
        }));
        true
    }
}

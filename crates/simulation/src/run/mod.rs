//! A run: a cluster and its clients, from a seed.

mod injection;

use std::sync::Arc;
use std::time::Duration;

use esker_oracle::history::{check, in_milliseconds};
use esker_oracle::{LeaseReads, OracleState};
use esker_raft::NodeError;
use esker_testkit::{SplitMix64, mix};
use parking_lot::Mutex;

use crate::clients::Clients;
use crate::faults::Fault;
use crate::machine::{ExitCause, Machine};
use crate::network::{LinkConditions, Network};
use crate::options::{ClockFaults, LeaseMode, Options};
use crate::outcome::{Failure, Outcome};
use crate::sequence_callers::SequenceCallers;
use crate::trace::Trace;

/// The time in which the cluster has to start, and in which timestamps have to come after the last
/// fault, in milliseconds.
const START_TIMEOUT_MS: u64 = 20_000;
const RECOVERY_TIMEOUT_MS: u64 = 4_000;
/// The time in which replicas have to become equal, in milliseconds.
const REPLICATION_TIMEOUT_MS: u64 = 3_000;

/// The earliest epoch that no run may reach, in nanoseconds: 2201. Epochs follow no clock beyond
/// 2200, and rise on in real time where they are.
const EPOCH_LIMIT_NS: u64 = 231 * 31_557_600 * 1_000_000_000;

/// Runs a simulation.
///
/// # Errors
/// The violation that it found. The trace, if it is kept, is the second value in both cases.
pub fn run(options: Options) -> (Result<Outcome, Failure>, Vec<String>) {
    let trace = Trace::new(options.keeps_trace);
    let outcome = Cluster::new(options, trace.clone()).run();
    (outcome, trace.take_lines())
}

/// A cluster that is simulated.
struct Cluster {
    options: Options,
    trace: Trace,
    random: SplitMix64,
    network: Network,
    machines: Vec<Machine>,
    clients: Clients,
    sequences: SequenceCallers,
    now: u64,
    faults: u64,
    /// Set to switch leases on or off; `None` to leave them as they are.
    lease_reads: Option<bool>,
    switches_at: u64,
    /// The answers of changes that were requested.
    changes: Arc<Mutex<Vec<Result<(), NodeError>>>>,
    is_joining: bool,
    planned: Vec<(u64, Fault)>,
    /// The latest term in which a node led.
    led: u64,
    two_leaders: Option<Failure>,
}

impl Cluster {
    fn new(options: Options, trace: Trace) -> Self {
        let seed = |number| mix(options.seed, number);
        let machines = (1..=options.nodes).map(|id| Machine::new(id, seed(100 + id))).collect();
        Self {
            options,
            random: SplitMix64::new(seed(1)),
            network: Network::new(seed(2), trace.clone()),
            machines,
            clients: Clients::new(8, seed(3)),
            sequences: SequenceCallers::new(if options.sequences { 6 } else { 0 }, seed(4)),
            trace,
            now: 0,
            faults: 0,
            lease_reads: None,
            switches_at: 0,
            changes: Arc::default(),
            is_joining: false,
            planned: Vec::new(),
            led: 0,
            two_leaders: None,
        }
    }

    fn run(mut self) -> Result<Outcome, Failure> {
        if self.options.clocks == ClockFaults::Centuries {
            for _ in 0..self.options.nodes {
                self.fail_clock();
            }
        }
        self.form()?;
        self.lease_reads = match self.options.leases {
            LeaseMode::Off => None,
            LeaseMode::On | LeaseMode::Switched => Some(true),
        };
        let calm_until = self.now + self.options.calm_ms;
        while self.now < calm_until {
            self.step();
        }
        let faults_until = self.now + self.options.faults_ms;
        while self.now < faults_until {
            let next = self.now + 1 + self.random.below(400);
            while self.now < next {
                self.step();
            }
            self.fail();
        }
        let recovery_ms = self.recover()?;
        check(&self.clients.history).map_err(Failure::History)?;
        check(&in_milliseconds(&self.clients.history)).map_err(Failure::History)?;
        self.two_leaders.take().map_or(Ok(()), Err)?;
        self.compare()?;
        self.sequences.check().map_err(Failure::Sequence)?;
        let serving = self.serving();
        Ok(Outcome {
            simulated_ms: self.now,
            answered: self.clients.history.len() as u64,
            refused: self.clients.refused,
            numbered: self.sequences.answered(),
            recovery_ms,
            term: serving.iter().map(|node| node.status().term).max().unwrap_or_default(),
            faults: self.faults,
            events: self.trace.events(),
            fingerprint: self.trace.fingerprint(),
        })
    }

    fn serving(&self) -> Vec<Arc<esker_raft::Node>> {
        let running = self.machines.iter().filter_map(|machine| machine.running.as_ref());
        running.filter_map(|running| Some(Arc::clone(&running.serving.as_ref()?.node))).collect()
    }

    /// The first node founds the cluster, and adds the others.
    fn form(&mut self) -> Result<(), Failure> {
        for id in 1..=self.options.nodes {
            self.start(id);
        }
        let changes = Arc::clone(&self.changes);
        let mut next = 1;
        while self.now < START_TIMEOUT_MS {
            self.step();
            let done = std::mem::take(&mut *changes.lock());
            for change in done {
                self.is_joining = false;
                match change {
                    Ok(()) if next == self.options.nodes => return Ok(()),
                    Ok(()) => next += 1,
                    Err(_) => {}
                }
            }
            let founder = self.machines[0].running.as_ref();
            if let Some(founder) =
                founder.filter(|_| !self.is_joining && self.now.is_multiple_of(50))
            {
                let member = Machine::member(next);
                self.is_joining = founder.spawn(&changes, |serving| async move {
                    match next {
                        1 => serving.node.bootstrap(member).await,
                        id => serving.node.add(id, member, Duration::from_secs(5)).await,
                    }
                });
            }
        }
        Err(Failure::NotStarted(format!("node {next} is no member")))
    }

    fn start(&mut self, id: u64) {
        let (now, network) = (self.now, self.network.clone());
        let machine = self.machine(id);
        if let Err(error) = machine.start(&network, now) {
            self.trace.event(now, format_args!("node {id} does not start: {error}"));
        }
        self.trace.event(now, format_args!("node {id} starts"));
    }

    fn machine(&mut self, id: u64) -> &mut Machine {
        &mut self.machines[id as usize - 1]
    }

    /// Advances the simulation by a millisecond.
    fn step(&mut self) {
        self.now += 1;
        let (now, nodes) = (self.now, self.options.nodes);
        let machines = &mut self.machines;
        self.network.advance(now, |node| machines[node as usize - 1].wake());
        self.switch();
        self.follow_plan();
        for at in 0..self.machines.len() {
            let machine = &mut self.machines[at];
            let Some(running) = &machine.running else {
                self.clients.turn_away(machine.id, now, nodes);
                self.sequences.turn_away(machine.id, now, nodes);
                if machine.starts_at <= now {
                    self.start(at as u64 + 1);
                }
                continue;
            };
            if now >= machine.paused_until {
                let asks = self.clients.ask(running, now, nodes);
                if self.sequences.ask(running, now, nodes) || asks {
                    machine.wake();
                }
            }
            let ended = machine.step(now);
            if let Some((term, is_leased)) = machine.led_at(now) {
                let (node, later) = (machine.id, self.led);
                if is_leased && term < later {
                    let found = Failure::TwoLeaders { node, term, later };
                    self.trace.event(now, format_args!("{found}"));
                    self.two_leaders.get_or_insert(found);
                }
                self.led = later.max(term);
            }
            let answers = self.clients.take(now, nodes);
            self.sequences.take(now, nodes);
            let id = machine.id;
            if answers > 0 {
                let last = self.clients.history.last().map(|call| call.range.first);
                self.trace.event(now, format_args!("node {id}: {answers} answers, {last:?}"));
            }
            if let Some(ended) = ended {
                let operations = machine.disk.operations();
                self.trace.event(now, format_args!("node {id}: {ended:?} at {operations}"));
                self.end(id, ended);
            }
        }
    }

    fn end(&mut self, id: u64, ended: ExitCause) {
        let now = self.now;
        let (network, back_at) = (self.network.clone(), self.now + 1 + self.random.below(100));
        let machine = self.machine(id);
        machine.disk.kill();
        machine.disk.clear_faults();
        machine.disk.cancel_cut();
        machine.end(&network, ended);
        machine.paused_until = 0;
        if machine.starts_at <= now {
            machine.starts_at = back_at;
        }
    }

    /// Switches leases on the leader, if they are not as they should be.
    fn switch(&mut self) {
        let Some(on) = self.lease_reads.filter(|_| self.now >= self.switches_at) else { return };
        self.switches_at = self.now + 100;
        for machine in &self.machines {
            let Some(running) = &machine.running else { continue };
            let Some(serving) = &running.serving else { continue };
            if serving.node.leads()
                && serving.state.with(|state| state.epochs().lease_reads()) != on
            {
                let patience = Duration::from_secs(1);
                running.spawn(&self.changes, |serving| async move {
                    let switched = serving.node.propose(LeaseReads(on).encode(), patience).await;
                    switched.map(drop)
                });
            }
        }
    }

    /// Ends the faults. Returns the time until timestamps came.
    fn recover(&mut self) -> Result<u64, Failure> {
        let since = self.now;
        self.trace.event(since, format_args!("the faults end"));
        self.planned.clear();
        self.network.heal();
        self.network.set_conditions(LinkConditions::CALM);
        for machine in &mut self.machines {
            machine.disk.clear_faults();
            machine.disk.cancel_cut();
            machine.disk_latency = 2;
            machine.paused_until = 0;
            machine.starts_at = machine.starts_at.min(since);
            machine.round_trip = Duration::from_millis(10);
            machine.set_clock();
        }
        while self.clients.answered_at <= since {
            self.step();
            if self.now > since + RECOVERY_TIMEOUT_MS {
                return Err(Failure::NoTimestamps(RECOVERY_TIMEOUT_MS));
            }
        }
        let flows_after = self.now - since;
        let end = self.now + REPLICATION_TIMEOUT_MS;
        while self.now < end {
            self.step();
        }
        Ok(flows_after)
    }

    /// Checks that all replicas have the same state when nothing is proposed any more.
    fn compare(&mut self) -> Result<(), Failure> {
        self.clients.pause = u64::MAX;
        self.sequences.stop();
        let end = self.now + REPLICATION_TIMEOUT_MS;
        while self.now < end {
            self.step();
        }
        let running = self.machines.iter().filter_map(|machine| machine.running.as_ref());
        let serving = running.filter_map(|running| running.serving.as_ref());
        let states: Vec<_> = serving
            .map(|serving| (serving.node.status().applied, serving.state.with(OracleState::clone)))
            .collect();
        if states.len() as u64 != self.options.nodes
            || states.iter().any(|state| *state != states[0])
        {
            return Err(Failure::Replicas(format!("{states:?}")));
        }
        match states
            .iter()
            .map(|(_, state)| state.epochs().last())
            .find(|last| *last >= EPOCH_LIMIT_NS)
        {
            Some(epoch) => Err(Failure::EpochTooHigh(epoch)),
            None => Ok(()),
        }
    }
}

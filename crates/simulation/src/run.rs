//! A run: a cluster, its clients and its faults, from a seed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use esker_disk::sim::Persist;
use esker_oracle::history::{Violation, check, in_milliseconds};
use esker_oracle::{LeaseReads, OracleState};
use esker_raft::NodeError;
use esker_testkit::{SplitMix64, mix};
use parking_lot::Mutex;

use crate::clients::Clients;
use crate::faults::{Fault, ROUGH_CONDITIONS, failing_disk, power_cut_during};
use crate::machine::{ExitCause, Machine};
use crate::network::{LinkConditions, Network};
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

/// The mode of reads under a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseMode {
    /// Reads under a lease are never on.
    Off,
    /// Reads under a lease are on from the start.
    On,
    /// Reads under a lease are switched on and off during the run.
    Switched,
}

/// The range of faults of wall clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockFaults {
    /// Clocks step by an hour at most.
    Hours,
    /// Clocks are set to any time from 1960 to 2600, also before the cluster has its first epoch.
    Centuries,
}

/// The options of a run.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The seed, which determines all events.
    pub seed: u64,
    /// The number of nodes, 2 to 9.
    pub nodes: u64,
    /// The time in which faults happen, in milliseconds; 0 for no faults.
    pub faults_ms: u64,
    /// The time without faults before that, in milliseconds.
    pub calm_ms: u64,
    /// The mode of reads under a lease.
    pub leases: LeaseMode,
    /// The range of faults of wall clocks.
    pub clocks: ClockFaults,
    /// Set to have callers that take numbers of a sequence, too. Without them the events of a seed
    /// are others.
    pub sequences: bool,
    /// Set to keep the lines of the trace.
    pub keeps_trace: bool,
}

impl Options {
    /// The options of a run of three or five nodes with 20 s of faults, with leases off, on or
    /// switched.
    pub fn from_seed(seed: u64) -> Self {
        let mut random = SplitMix64::new(mix(seed, 0));
        Self {
            seed,
            nodes: random.pick(&[3, 3, 3, 5]),
            faults_ms: 20_000,
            calm_ms: 1_000,
            leases: random.pick(&[LeaseMode::Off, LeaseMode::On, LeaseMode::Switched]),
            clocks: ClockFaults::Hours,
            sequences: false,
            keeps_trace: false,
        }
    }
}

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Simulated milliseconds.
    pub simulated_ms: u64,
    /// Calls that got timestamps, and calls that were refused.
    pub answered: u64,
    /// Calls that were refused.
    pub refused: u64,
    /// Requests for numbers of a sequence that were answered.
    pub numbered: u64,
    /// The time from the last fault to the first timestamps, in milliseconds.
    pub recovery_ms: u64,
    /// The last term.
    pub term: u64,
    /// Faults that happened.
    pub faults: u64,
    /// Events in the trace, and its fingerprint.
    pub events: u64,
    /// The fingerprint of all events: two runs with the same seed have the same.
    pub fingerprint: u64,
}

/// A violation that a run found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The history of the clients is not that of one oracle.
    History(Violation),
    /// No timestamps came for this time without faults, in milliseconds.
    NoTimestamps(u64),
    /// The numbers of the sequence have a gap or a repeat, or a request is not answered.
    Sequence(String),
    /// Replicas that applied the same entries differ.
    Replicas(String),
    /// A node had a lease in a term after another one had led in a later term.
    TwoLeaders {
        /// The node with the lease, and its term.
        node: u64,
        /// The term of its lease.
        term: u64,
        /// The later term.
        later: u64,
    },
    /// The epoch is higher than any clock may bring it.
    EpochTooHigh(u64),
    /// The cluster did not start.
    NotStarted(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::History(violation) => violation.fmt(f),
            Self::NoTimestamps(ms) => write!(f, "no timestamps for {ms} ms without faults"),
            Self::Sequence(what) => write!(f, "the sequence is broken: {what}"),
            Self::Replicas(what) => write!(f, "replicas differ: {what}"),
            Self::TwoLeaders { node, term, later } => {
                write!(f, "node {node} had a lease in term {term} when a node had led in {later}")
            }
            Self::EpochTooHigh(epoch) => write!(f, "the epoch {epoch} is after 2200"),
            Self::NotStarted(why) => write!(f, "the cluster did not start: {why}"),
        }
    }
}

impl std::error::Error for Failure {}

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

    /// Lets a fault happen.
    fn fail(&mut self) {
        let nodes = self.options.nodes;
        if self.options.clocks == ClockFaults::Centuries && self.random.percent(40) {
            return self.fail_clock();
        }
        let switches = self.options.leases == LeaseMode::Switched;
        let fault = Fault::any(&mut self.random, nodes, switches);
        self.happen(fault);
    }

    fn fail_clock(&mut self) {
        let fault = Fault::any_clock_fault(&mut self.random, self.options.nodes);
        self.happen(fault);
    }

    /// Plans a fault.
    fn plan(&mut self, after: u64, fault: Fault) {
        self.planned.push((self.now + after, fault));
    }

    /// Lets the faults happen that are planned for now.
    fn follow_plan(&mut self) {
        let now = self.now;
        let due: Vec<_> = self.planned.extract_if(.., |(at, _)| *at <= now).collect();
        for (_, fault) in due {
            self.happen(fault);
        }
    }

    /// The first node that considers itself the leader.
    fn leader(&self) -> Option<u64> {
        let leads = |machine: &&Machine| {
            let serving = machine.running.as_ref().and_then(|running| running.serving.as_ref());
            serving.is_some_and(|serving| serving.node.leads())
        };
        self.machines.iter().find(leads).map(|machine| machine.id)
    }

    fn happen(&mut self, fault: Fault) {
        let (now, nodes) = (self.now, self.options.nodes);
        self.faults += 1;
        self.trace.event(now, format_args!("{fault:?}"));
        match fault {
            Fault::LateAnswers { by, until_cut } => self.delay_answers(by, until_cut),
            Fault::Restarts { until_restart, back_after } => {
                self.restart_followers(until_restart, back_after);
            }
            Fault::Kill { node, back_after } => {
                self.machine(node).starts_at = now + back_after;
                self.end(node, ExitCause::Killed);
            }
            Fault::PowerCut { node, persist, back_after } => {
                self.cut_power(node, persist, back_after);
            }
            Fault::PowerCutDuring { node, operation, back_after } => {
                let machine = self.machine(node);
                machine.starts_at = now + back_after;
                let at = power_cut_during(machine.disk.operations() + operation);
                machine.disk.cut_power_at(at, Persist::Random);
            }
            Fault::PowerCutOfAll { back_after } => {
                for node in 1..=nodes {
                    self.cut_power(node, Persist::Random, back_after);
                }
            }
            Fault::DiskFails { node, sync } => {
                self.machine(node).disk.inject(failing_disk(sync));
            }
            Fault::DiskIsSlow { node, latency } => self.machine(node).disk_latency = latency,
            Fault::Pause { node, time } => self.machine(node).paused_until = now + time,
            Fault::CutOff { node } => {
                for other in (1..=nodes).filter(|other| *other != node) {
                    self.network.cut(node, other);
                    self.network.cut(other, node);
                }
            }
            Fault::CutOneWay { from, to } => self.network.cut(from, to),
            Fault::SlowWay { from, to, by } => self.network.slow_down(from, to, by),
            Fault::Heal => self.network.heal(),
            Fault::Reset => self.network.reset_one(),
            Fault::Rough => self.network.set_conditions(ROUGH_CONDITIONS),
            Fault::Calm => self.network.set_conditions(LinkConditions::CALM),
            Fault::ClockSteps { node, by } => {
                let hit =
                    self.machines.iter().filter(|machine| node.is_none_or(|id| machine.id == id));
                hit.for_each(|machine| machine.step_clock(by));
            }
            Fault::ClockShows { node, at } => {
                let hit =
                    self.machines.iter().filter(|machine| node.is_none_or(|id| machine.id == id));
                hit.for_each(|machine| machine.show(at));
            }
            Fault::FollowClock => self.follow_clock(),
            Fault::RoundTrip { node, ms } => {
                self.machine(node).round_trip = Duration::from_millis(ms);
                self.end(node, ExitCause::Killed);
            }
            Fault::TransferAndCutOff { to, until_cut } => self.transfer_and_cut_off(to, until_cut),
            Fault::Transfer { to } => self.transfer(to),
            Fault::LeaseReads { on } => self.lease_reads = Some(on),
        }
    }

    /// Delays the answers to the leader, and then cuts it off.
    fn delay_answers(&mut self, by: u64, until_cut: u64) {
        let nodes = self.options.nodes;
        let Some(leader) = self.leader() else { return };
        for other in (1..=nodes).filter(|other| *other != leader) {
            self.network.slow_down(other, leader, by);
        }
        self.plan(until_cut, Fault::CutOff { node: leader });
        self.plan(until_cut + 500, Fault::Heal);
    }

    /// Restarts all followers but one while the leader is cut off from that one.
    fn restart_followers(&mut self, until_restart: u64, back_after: u64) {
        let nodes = self.options.nodes;
        let Some(leader) = self.leader() else { return };
        let candidate = 1 + leader % nodes;
        self.network.cut(leader, candidate);
        for node in (1..=nodes).filter(|node| *node != leader && *node != candidate) {
            self.plan(until_restart, Fault::Kill { node, back_after });
        }
        self.plan(until_restart, Fault::CutOff { node: leader });
        self.plan(until_restart + 300, Fault::Heal);
    }

    fn transfer_and_cut_off(&mut self, to: u64, until_cut: u64) {
        let Some(leader) = self.leader() else { return };
        self.plan(0, Fault::Transfer { to });
        self.plan(until_cut, Fault::CutOff { node: leader });
        self.plan(until_cut + 500, Fault::Heal);
    }

    fn transfer(&self, to: u64) {
        for machine in &self.machines {
            let Some(running) = &machine.running else { continue };
            if running.serving.as_ref().is_some_and(|serving| serving.node.leads()) {
                running.spawn(&self.changes, |serving| async move {
                    serving.node.transfer(to, Duration::from_secs(2)).await
                });
            }
        }
    }

    /// Requests of each node that epochs follow its clock: the leader does that. The outcome does
    /// not matter.
    fn follow_clock(&self) {
        let asked = Arc::default();
        for running in self.machines.iter().filter_map(|machine| machine.running.as_ref()) {
            running.spawn(&asked, |serving| async move {
                drop(serving.oracle.follow_clock().await);
            });
        }
    }

    fn cut_power(&mut self, node: u64, persist: Persist, back_after: u64) {
        let now = self.now;
        let machine = self.machine(node);
        machine.starts_at = now + back_after;
        machine.disk.power_cut(persist);
        self.end(node, ExitCause::PowerCut);
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

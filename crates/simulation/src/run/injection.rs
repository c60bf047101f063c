//! Faults of a run: which happens next, and how it is done to nodes, disks, network and clocks.

use std::sync::Arc;
use std::time::Duration;

use esker_disk::sim::Persist;

use crate::faults::{Fault, ROUGH_CONDITIONS, failing_disk, power_cut_during};
use crate::machine::{ExitCause, Machine};
use crate::network::LinkConditions;
use crate::options::{ClockFaults, LeaseMode};
use crate::run::Cluster;

impl Cluster {
    /// Lets a fault happen.
    pub(super) fn fail(&mut self) {
        let nodes = self.options.nodes;
        if self.options.clocks == ClockFaults::Centuries && self.random.percent(40) {
            return self.fail_clock();
        }
        let switches = self.options.leases == LeaseMode::Switched;
        let fault = Fault::any(&mut self.random, nodes, switches);
        self.happen(fault);
    }

    pub(super) fn fail_clock(&mut self) {
        let fault = Fault::any_clock_fault(&mut self.random, self.options.nodes);
        self.happen(fault);
    }

    /// Plans a fault.
    fn plan(&mut self, after: u64, fault: Fault) {
        self.planned.push((self.now + after, fault));
    }

    /// Lets the faults happen that are planned for now.
    pub(super) fn follow_plan(&mut self) {
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
}

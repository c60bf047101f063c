//! The simulation: groups with proposers of their own, acceptors and a learner that starts empty,
//! which serve all groups, and a network that loses, repeats and reorders. A proposer that chooses
//! a value reports it to the referee of its group, which has seen all of them.

use std::collections::BTreeMap;

use esker::consensus::{Mode, Slot};
use esker_testkit::SplitMix64;

use crate::acceptor::{Acceptor, Beside, Raise, Reaction};
use crate::message::{Body, Message, Request};
use crate::proposer::{Act, Proposer, Quorums};
use crate::snapshot::Snapshot;

/// Steps of one run.
const RUN_STEPS: u64 = 700;
/// Messages on their way for each group; more are lost.
const IN_FLIGHT: usize = 400;

/// The outcome of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    pub violations: u64,
    /// The first violation.
    pub first: Option<String>,
    pub chosen: u64,
    pub crashes: u64,
    /// Slots that the newcomer has at the end.
    pub caught_up: u64,
    /// Answers that were refused, because the floor passed what they had to list.
    pub refused: u64,
    /// Openings of logs that acceptors had closed to make room for those of other groups.
    pub openings: u64,
}

/// A group of Paxos: its slots and ballots are its own.
struct Group {
    proposers: Vec<Proposer>,
    chosen: BTreeMap<Slot, Vec<u8>>,
    /// The snapshot that truncation and `install` depend on.
    snapshot: Snapshot,
}

struct Cluster {
    rng: SplitMix64,
    /// The voters of all groups, followed by one acceptor that only learns.
    acceptors: Vec<Acceptor>,
    groups: Vec<Group>,
    voters: usize,
    quorums: Quorums,
    network: Vec<Message>,
    outcome: Outcome,
}

/// Runs one seed, with so many groups.
pub fn run(mode: Mode, groups: usize, seed: u64) -> Outcome {
    let mut rng = SplitMix64::new(seed);
    let quorums = [
        Quorums { acceptors: 3, first: 2, second: 2 },
        Quorums { acceptors: 3, first: 3, second: 1 },
        Quorums { acceptors: 5, first: 3, second: 3 },
        Quorums { acceptors: 5, first: 4, second: 2 },
    ][(seed % 4) as usize];
    let acceptors =
        (0..=quorums.acceptors as u64).map(|n| Acceptor::new(mode, rng.next() ^ n)).collect();
    let group = |group| Group {
        proposers: (1..=2).map(|n| Proposer::new(group, n, quorums)).collect(),
        chosen: BTreeMap::new(),
        snapshot: Snapshot::default(),
    };
    let mut cluster = Cluster {
        rng,
        acceptors,
        groups: (0..groups).map(group).collect(),
        voters: quorums.acceptors,
        quorums,
        network: Vec::new(),
        outcome: Outcome::default(),
    };
    cluster.live();
    cluster.finish();
    cluster.outcome
}

impl Cluster {
    fn live(&mut self) {
        for _ in 0..RUN_STEPS {
            match self.rng.below(100) {
                0..4 => {
                    let group = self.any_group();
                    self.campaign(group);
                }
                4..10 => self.crash(),
                10..20 => self.recover(),
                20..22 => self.truncate(),
                22..26 => self.catch_up(),
                26 => self.hand_over(),
                _ => self.deliver(),
            }
        }
    }

    fn any_group(&mut self) -> usize {
        self.rng.below(self.groups.len() as u64) as usize
    }

    /// Starts every acceptor and delivers every message. After one more reign, compares all logs.
    fn finish(&mut self) {
        for n in 0..self.acceptors.len() {
            self.acceptors[n].stay_up();
            if !self.acceptors[n].is_up() {
                self.open(n);
            }
        }
        for _ in 0..3 {
            (0..self.groups.len()).for_each(|group| self.campaign(group));
            self.deliver_where(|_, _| true);
        }
        (0..self.groups.len()).for_each(|group| self.compare(group));
        for acceptor in &self.acceptors {
            self.outcome.crashes += acceptor.crashes;
            self.outcome.openings += acceptor.openings;
        }
    }

    /// Lets the newcomer catch up, and compares the logs of a group with what was chosen.
    fn compare(&mut self, group: usize) {
        // The newcomer asks until no acceptor has more for it.
        let learner = self.voters;
        for turn in 0..200 {
            let from = self.acceptors[learner].next(group);
            let body = Body::Request(Request::Fetch { from, asks: learner });
            self.receive(Message { group, from: learner, to: turn % self.voters, body });
            self.network.reverse();
            self.deliver_where(|_, _| true);
        }
        self.outcome.caught_up += self.acceptors[learner].next(group).0;
        for n in 0..self.acceptors.len() {
            for entry in self.acceptors[n].committed(group, Slot(0)) {
                let chosen = self.groups[group].chosen.get(&entry.slot);
                if chosen.is_some_and(|value| *value != entry.value) {
                    let slot = entry.slot;
                    self.violation(format!(
                        "group {group}: a log has another value in slot {slot}"
                    ));
                }
            }
        }
        self.outcome.chosen += self.groups[group].chosen.len() as u64;
    }

    fn violation(&mut self, what: String) {
        self.outcome.violations += 1;
        self.outcome.first.get_or_insert(what);
    }

    fn campaign(&mut self, group: usize) {
        let n = self.rng.below(self.groups[group].proposers.len() as u64) as usize;
        // It starts after the slots that one acceptor knows to be decided, or at slot 0.
        let near = self.rng.below(self.voters as u64) as usize;
        let from = if self.rng.percent(50) { self.acceptors[near].next(group) } else { Slot(0) };
        self.campaign_of(group, n, from);
    }

    fn campaign_of(&mut self, group: usize, n: usize, from: Slot) {
        let act = self.groups[group].proposers[n].campaign(from);
        self.act(group, n, act);
    }

    /// Two reigns in a row whose quorums share a single acceptor. Only that one hears of the
    /// commits of the first reign, so the second depends on its answer alone. The groups take
    /// turns: what the shared acceptor accepted is in a log that was closed meanwhile.
    fn hand_over(&mut self) {
        for n in 0..self.voters {
            if !self.acceptors[n].is_up() {
                self.open(n);
            }
        }
        let shared = self.rng.below(self.voters as u64) as usize;
        let place = |n: usize| (n + self.voters - shared) % self.voters;
        let values: Vec<_> = (0..self.voters).map(|n| place(n) < self.quorums.second).collect();
        let answers: Vec<_> = (0..self.voters).map(|n| n == shared || !values[n]).collect();
        let first = self.rng.below(self.groups[0].proposers.len() as u64) as usize;
        self.network.clear();
        for group in 0..self.groups.len() {
            self.campaign_of(group, first, Slot(0));
            self.deliver_where(|to, request| match request {
                Request::Accept { .. } => values[to],
                Request::Commit { .. } => to == shared,
                _ => true,
            });
        }
        for group in 0..self.groups.len() {
            let second = (first + 1) % self.groups[group].proposers.len();
            self.campaign_of(group, second, Slot(0));
            self.deliver_where(|to, request| match request {
                Request::Prepare { .. } => answers[to],
                _ => true,
            });
        }
    }

    /// Delivers everything, and what comes of it, that these acceptors hear of; the rest is lost.
    fn deliver_where(&mut self, hears: impl Fn(usize, &Request) -> bool) {
        while let Some(message) = self.network.pop() {
            match &message.body {
                Body::Request(request) if !hears(message.to, request) => {}
                _ => self.receive(message),
            }
        }
    }

    fn crash(&mut self) {
        let n = self.rng.below(self.acceptors.len() as u64) as usize;
        if self.rng.percent(70) {
            self.acceptors[n].plan_crash(&mut self.rng);
        } else if self.acceptors[n].is_up() {
            self.acceptors[n].crash();
        }
    }

    fn recover(&mut self) {
        let n = self.rng.below(self.acceptors.len() as u64) as usize;
        if !self.acceptors[n].is_up() {
            self.open(n);
        }
    }

    fn open(&mut self, n: usize) {
        if let Err(what) = self.acceptors[n].recover() {
            self.violation(what);
        }
    }

    fn truncate(&mut self) {
        let group = self.any_group();
        let n = self.rng.below(self.acceptors.len() as u64) as usize;
        let keep = 4 + self.rng.below(12);
        if let Some(raise) = self.raise(group, n, keep) {
            let reaction = self.acceptors[n].raise(group, raise);
            self.react(group, n, n, reaction);
        }
    }

    /// A snapshot of what an acceptor has committed, and how far its floor, or that of one that
    /// lags, may be raised under it.
    fn raise(&mut self, group: usize, n: usize, keep: u64) -> Option<Raise> {
        let Group { chosen, snapshot, .. } = &mut self.groups[group];
        let committed = self.acceptors[n].committed(group, snapshot.next());
        let applied = snapshot.apply(committed, chosen);
        let start = snapshot.next().0.saturating_sub(keep);
        if let Err(what) = applied {
            self.violation(what);
        }
        if self.rng.percent(80) {
            Some(Raise::Truncate(Slot(start)))
        } else {
            start.checked_sub(1).map(Slot).map(Raise::Install)
        }
    }

    /// Draws the thread that runs beside a request that lists slots.
    fn beside(&mut self, group: usize, n: usize, request: &Request) -> Option<Beside> {
        let (percent, keep) = match request {
            Request::Prepare { .. } => (60, self.rng.below(2)),
            Request::Fetch { .. } => (10, self.rng.below(12)),
            _ => return None,
        };
        if !self.rng.percent(percent) {
            return None;
        }
        let after = 1 + self.rng.below(2) as usize;
        self.raise(group, n, keep).map(|raise| Beside { after, raise })
    }

    fn catch_up(&mut self) {
        let group = self.any_group();
        let asks = self.rng.below(self.acceptors.len() as u64) as usize;
        let to = self.rng.below(self.voters as u64) as usize;
        let from = self.acceptors[asks].next(group);
        let body = Body::Request(Request::Fetch { from, asks });
        self.send(Message { group, from: asks, to, body });
    }

    /// A message arrives, or is lost; it may arrive again.
    fn deliver(&mut self) {
        if self.network.is_empty() {
            return;
        }
        let n = self.rng.below(self.network.len() as u64) as usize;
        match self.rng.below(100) {
            0..8 => drop(self.network.swap_remove(n)),
            8..18 => {
                let message = self.network[n].clone();
                self.receive(message);
            }
            _ => {
                let message = self.network.swap_remove(n);
                self.receive(message);
            }
        }
    }

    fn send(&mut self, message: Message) {
        if self.network.len() < IN_FLIGHT * self.groups.len() {
            self.network.push(message);
        }
    }

    fn receive(&mut self, Message { group, from, to, body }: Message) {
        match body {
            Body::Request(request) => {
                let beside = self.beside(group, to, &request);
                let reaction = self.acceptors[to].handle(group, &request, beside);
                let listing = matches!(request, Request::Prepare { .. });
                if listing && matches!(reaction, Reaction::Refused) {
                    self.outcome.refused += 1;
                }
                let from = if let Request::Fetch { asks, .. } = request { asks } else { from };
                self.react(group, to, from, reaction);
            }
            Body::Answer(answer) => {
                for act in self.groups[group].proposers[to].hear(from, &answer) {
                    self.act(group, to, act);
                }
            }
        }
    }

    fn react(&mut self, group: usize, acceptor: usize, asks: usize, reaction: Reaction) {
        let to_asker = |body| Message { group, from: acceptor, to: asks, body };
        match reaction {
            Reaction::Nothing | Reaction::Refused => {}
            Reaction::Answers(answer) => self.send(to_asker(Body::Answer(answer))),
            Reaction::Passes(requests) => {
                for request in requests {
                    self.send(to_asker(Body::Request(request)));
                }
            }
            Reaction::Violation(what) => self.violation(what),
        }
    }

    fn act(&mut self, group: usize, proposer: usize, act: Act) {
        match act {
            Act::Sends(request) => {
                for to in 0..self.voters {
                    let body = Body::Request(request.clone());
                    self.send(Message { group, from: proposer, to, body });
                }
            }
            Act::Chose { slot, value } => {
                let chosen = &mut self.groups[group].chosen;
                let known = chosen.entry(slot).or_insert_with(|| value.clone());
                if *known != value {
                    self.violation(format!(
                        "group {group}: slot {slot} was chosen with two values"
                    ));
                }
            }
        }
    }
}

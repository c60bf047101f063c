//! The lab finds nothing in the shipped components, and finds what is planted.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use esker_disk::Disk;
use esker_disk::sim::SimDisk;
use esker_log::{Engine, Log};
use esker_testkit::SplitMix64;

use crate::faults::disk_faults;
use crate::kill::{Kills, Life, kills};
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::power::{power_cuts, runs};
use crate::program::{BoxError, Changes, Program, cut_power};
use crate::promise::Promise;
use crate::setting::Policies;
use crate::simulation::{Options, go_through};
use crate::subject::{Length, Subject};
use crate::survival::Survival;

#[test]
fn components_survive_and_lose_within_their_promises() {
    for cuts in power_cuts() {
        let setting = cuts.setting;
        // Bug of the lab: one of these runs counted an accept in memory as a durable one.
        let known = cuts.run(Options { first_seed: 9_100_169, runs: 1 }, &|_| {});
        assert_eq!(known.examples, [], "{} {}", setting.component, setting.policy);
        let crashed = cuts.run(Options { first_seed: 40, runs: 30 }, &|_| {});
        let name = format!("{} {}", setting.component, setting.policy);
        assert_eq!(crashed.examples, [], "{name}");
        let statistics = crashed.statistics;
        assert_eq!((statistics.runs, statistics.cuts), (30, 90), "{name}");
        assert!(statistics.durable > 0 && statistics.recovered >= statistics.durable, "{name}");
        let must_lose = setting.promise != Promise::NoLoss;
        assert_eq!(statistics.max_lost > 0, must_lose, "{name}: {statistics:?}");
    }
}

/// A manager with more keys than open logs, its registry, its snapshots and its backups.
#[test]
fn a_manager_keeps_its_keys_logs_and_snapshots() {
    for cuts in power_cuts() {
        let setting = cuts.setting;
        if setting.component != "manager" {
            continue;
        }
        // Bug of the lab: slots above a snapshot that was received were committed before.
        let known = cuts.run(Options { first_seed: 1199, runs: 1 }, &|_| {});
        assert_eq!(known.examples, [], "{}", setting.policy);
        let crashed = cuts.run(Options { first_seed: 3000, runs: 60 }, &|_| {});
        assert_eq!(crashed.examples, [], "{}", setting.policy);
        assert!(crashed.statistics.recoveries > 60, "{:?}", crashed.statistics);
    }
}

#[test]
fn nothing_durable_is_lost_on_disks_with_faults() {
    for simulation in disk_faults() {
        let setting = simulation.setting;
        let crashed = simulation.run(Options { first_seed: 1, runs: 12 }, &|_| {});
        assert_eq!(crashed.examples, [], "{setting:?}");
        assert_eq!(crashed.statistics.runs, 12);
    }
}

#[test]
fn a_run_follows_from_its_seed() {
    for cuts in power_cuts() {
        let component = cuts.setting.component;
        let some = cuts.run(Options { first_seed: 600, runs: 3 }, &|_| {});
        let again = cuts.run(Options { first_seed: 600, runs: 3 }, &|_| {});
        assert_eq!(some.statistics, again.statistics, "{component}");
        let alone = (600..603).map(|seed| {
            cuts.run(Options { first_seed: seed, runs: 1 }, &|_| {}).statistics.recovered
        });
        assert_eq!(alone.sum::<u64>(), some.statistics.recovered, "{component}");
    }
}

/// A component that loses more than it promises in some runs, and panics in others.
struct Faulty {
    disk: SimDisk,
    survivals: Vec<Survival>,
}

impl Subject for Faulty {
    type Policy = ();
    type Step = ();
    const POLICIES: Policies<()> = &[("faulty", (), Promise::Calls(3))];

    fn new((): (), _: u64) -> Self {
        Faulty { disk: SimDisk::new(1), survivals: Vec::new() }
    }

    fn program(&self, rng: &mut SplitMix64, _: Length) -> Vec<()> {
        vec![(); 1 + rng.index(3)]
    }

    fn disk(&self) -> &SimDisk {
        &self.disk
    }

    fn live_on(&mut self, _: &[()]) -> Result<(), String> {
        Ok(())
    }

    fn live_and_die(&mut self, steps: &[()], _: Plan) -> Result<(), String> {
        let lost_calls = 2 + steps.len() as u64 % 3;
        self.survivals.push(Survival {
            accepted: 9,
            recovered: 5,
            lost_calls,
            ..Default::default()
        });
        Ok(())
    }

    fn live_and_close(&mut self, steps: &[()]) -> Result<(), String> {
        assert_ne!(steps.len(), 3, "three steps");
        Ok(())
    }

    fn survivals(&self) -> &[Survival] {
        &self.survivals
    }
}

#[test]
fn every_run_counts_whatever_comes_of_it() {
    let runs_of = |seeds: &[u64]| runs::runs_of::<Faulty>(0, seeds);
    let options = Options { first_seed: 0, runs: 200 };
    let crashed = go_through(options, Promise::Calls(3), &runs_of, &|_| {});
    assert_eq!((crashed.statistics.runs, crashed.statistics.cuts), (200, 600));
    assert_eq!(crashed.statistics.recoveries, 600);
    assert_eq!(crashed.statistics.max_lost, 4);
    assert!(crashed.violations > 20 && crashed.violations < 200, "{}", crashed.violations);
    assert_eq!(crashed.examples.len(), 20);
    let found = |part: &str| crashed.examples.iter().any(|found| found.what.contains(part));
    assert!(found("4 calls were lost, and at most 3 may be"), "{:?}", crashed.examples);
    assert!(found("three steps"), "{:?}", crashed.examples);
}

/// A child that says what it likes of its writes, and writes nothing.
fn kill_a_liar(durable: u64) -> Outcome {
    let all = kills();
    let is_free = |kills: &&Kills| kills.setting.promise == Promise::Nothing;
    let kills = all.iter().find(is_free).unwrap();
    let dir = std::env::temp_dir().join(format!("esker-lab-{}-{durable}", std::process::id()));
    let spawn = |life: &Life| {
        let counts = [5000, 3001, durable].map(|count: u64| (life.from + count).to_le_bytes());
        let times = vec![0; 8 * 10_000];
        std::fs::write(&life.progress, [counts.concat(), times].concat())?;
        let mut child = std::process::Command::new("sleep");
        child.arg("60").spawn()
    };
    let outcome = kills.run(&dir, 3, 1, &spawn, &|| {});
    let is_left = std::fs::read_dir(&dir).unwrap().next().is_some();
    assert_eq!(is_left, outcome.violations > 0);
    let _ = std::fs::remove_dir_all(&dir);
    outcome
}

/// Also after it wrote enough: it may have panicked.
#[test]
fn a_writer_that_dies_by_itself_is_a_violation() {
    for (n, death) in ["exit 0", "exit 1", "kill -SEGV $$"].into_iter().enumerate() {
        let dir = std::env::temp_dir().join(format!("esker-lab-dies-{}-{n}", std::process::id()));
        let spawn = |life: &Life| {
            let counts = [5000, 3001, 0].map(|count: u64| (life.from + count).to_le_bytes());
            std::fs::write(&life.progress, [counts.concat(), vec![0; 80_000]].concat())?;
            let child = std::process::Command::new("sh").args(["-c", death]).spawn()?;
            // Dead for certain when it is killed.
            std::thread::sleep(std::time::Duration::from_millis(200));
            Ok(child)
        };
        let outcome = kills()[0].run(&dir, 3, 1, &spawn, &|| {});
        let _ = std::fs::remove_dir_all(&dir);
        assert_eq!(outcome.violations, 1, "{death}");
        assert!(outcome.examples[0].what.contains("ended by itself"), "{outcome:?}");
    }
}

/// A program that reports its changes as durable before they are, or reports none.
struct Careless {
    reports: bool,
}

impl Careless {
    fn open(disk: Arc<dyn Disk>) -> esker_log::Result<Log> {
        Log::builder("log")
            .disk(disk)
            .engine(Engine::manual())
            .segment_size(64 << 10)
            .open()
            .map_err(Into::into)
    }
}

impl Program for Careless {
    type State = u64;

    fn empty(&self) -> u64 {
        0
    }

    fn live(
        &self,
        disk: Arc<dyn Disk>,
        _: u64,
        changes: &mut Changes<u64>,
    ) -> Result<(), BoxError> {
        let log = Self::open(disk)?;
        for _ in 0..if self.reports { 9 } else { 0 } {
            changes.begin(changes.state() + 1);
            let ticket = log.append("one more")?;
            changes.durable();
            ticket.blocking_wait()?;
        }
        Ok(())
    }

    fn read(&self, disk: Arc<dyn Disk>) -> Result<u64, BoxError> {
        Ok(Self::open(disk)?.durable().0)
    }
}

/// A crash that breaks a promise is counted like every other one.
#[test]
fn what_a_violation_lost_is_in_the_statistics() {
    let outcome = cut_power(&Careless { reports: true }, Options { first_seed: 0, runs: 400 });
    assert!(outcome.violations > 0);
    let worst = outcome.crashes.iter().find(|(_, crash)| crash.recovered < crash.durable);
    assert!(worst.is_some() && outcome.statistics.max_lost > 0, "{:?}", outcome.statistics);
    let what = &outcome.examples[0].what;
    assert!(what.starts_with("after ") && what.contains("was durable"), "{what}");
}

#[test]
fn a_program_that_reports_nothing_is_refused() {
    let outcome = cut_power(&Careless { reports: false }, Options { first_seed: 0, runs: 3 });
    assert_eq!(outcome.violations, 3);
    assert!(outcome.examples[0].what.contains("reported no change"), "{outcome:?}");
}

#[test]
fn a_kill_that_loses_a_durable_write_is_a_violation() {
    let honest = kill_a_liar(0);
    assert_eq!((honest.violations, honest.statistics.max_lost), (0, 3001), "{honest:?}");
    let liar = kill_a_liar(1);
    assert_eq!(liar.violations, 1, "{liar:?}");
    assert!(liar.examples[0].what.contains("1 durable, and 0 recovered"), "{liar:?}");
}

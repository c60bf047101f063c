//! Users that ask three nodes for timestamps, in stages, and the mark that the nodes must reach.
//!
//! `stages` has the scenarios. `cluster` starts the nodes. `user` is one user, and `connection` its
//! connection. `tally` counts what all users saw, and `report` compares it with the mark.

mod cluster;
mod connection;
mod stages;
mod tally;
mod user;
mod user_report;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep_until;

use crate::programs;
use crate::run_dir::RunDir;
use cluster::Cluster;
use connection::Protocol;
use stages::{Plan, Scenario};
use tally::{StageTally, Tally};
use user::{Load, User};
use user_report::{Conditions, Outcome};

/// Files of a process that are not connections of users.
const OTHER_FILES: u64 = 512;
/// How often the run checks that the nodes still run.
const NODE_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Runs users that ask three nodes for timestamps, and exits with 1 if the mark is missed
#[derive(Debug, Args)]
pub struct Choice {
    scenario: Scenario,
    /// The number of users. Without it that of the scenario, or what the limit of open files leaves
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    users: Option<u32>,
    /// The mean time between an answer and the next request of a user, in milliseconds
    #[arg(long, value_name = "MS")]
    think: Option<u64>,
    /// All stages are so many times as long
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Only this protocol; without it all, one after the other
    #[arg(long)]
    protocol: Option<Protocol>,
    /// The most requests whose timestamps are compared. With more of them, a sample is
    #[arg(long, value_name = "N", default_value_t = 8_000_000)]
    checked: usize,
    /// The esker command; without it, that of the profile `dist`, which is built
    #[arg(long, value_name = "PATH")]
    esker: Option<PathBuf>,
    /// A directory for the data of the nodes; it must not be there. Without it, one in ./target
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// Runs what `choice` selects, and prints a result for each protocol. Returns 1 if one of them
/// missed the mark.
pub fn run(choice: &Choice) -> Result<ExitCode> {
    ensure!(
        choice.scale.is_finite() && choice.scale > 0.0 && choice.scale <= 100.0,
        "--scale must be above 0 and at most 100"
    );
    let files = raise_open_files();
    let most = u32::try_from(files.saturating_sub(OTHER_FILES)).unwrap_or(u32::MAX).max(1);
    let users = choice.users.unwrap_or(choice.scenario.users().min(most));
    ensure!(users <= most, "{users} users need more than {files} open files; see ulimit -n");
    let esker = match &choice.esker {
        Some(path) => std::path::absolute(path)?,
        None => programs::esker()?,
    };
    let run_dir = RunDir::create(choice.dir.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut code = ExitCode::SUCCESS;
    for protocol in Protocol::value_variants() {
        if choice.protocol.is_some_and(|wanted| wanted != *protocol) {
            continue;
        }
        let think = choice.think.map_or(choice.scenario.think(), Duration::from_millis);
        let conditions = Conditions {
            scenario: choice.scenario,
            protocol: *protocol,
            scale: choice.scale,
            think,
            files,
            elections: None,
            unserved_users: 0,
        };
        let dir = run_dir.0.join(protocol.name());
        let run = one(conditions, users, choice.checked, &esker, &dir);
        for reason in runtime.block_on(until_interrupted(run))? {
            eprintln!("missed the mark over {}: {reason}", protocol.name());
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

/// Ends early when the process is asked to end, so that the nodes end with it.
async fn until_interrupted<T>(run: impl Future<Output = Result<T>>) -> Result<T> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        done = run => done,
        _ = interrupt.recv() => bail!("interrupted"),
        _ = terminate.recv() => bail!("terminated"),
    }
}

/// Runs the scenario once, prints the result, and returns why the mark was missed.
async fn one(
    mut conditions: Conditions,
    users: u32,
    most_calls: usize,
    esker: &Path,
    dir: &Path,
) -> Result<Vec<String>> {
    let mut cluster = Cluster::start(esker, dir, users)?;
    let nodes = cluster.ready().await?;
    let term = cluster.term().await;
    eprintln!(
        "{}: {users} users over {}, each with a connection and {} ms between requests",
        conditions.scenario.name(),
        conditions.protocol.name(),
        conditions.think.as_millis(),
    );
    let plan = Plan::new(conditions.scenario, users, conditions.scale);
    let load = Arc::new(Load {
        protocol: conditions.protocol,
        tally: Tally::new(plan.stages.len(), most_calls),
        plan,
        think: conditions.think,
        nodes,
        begun: Instant::now(),
    });
    let users: Vec<_> =
        (0..users).map(|number| tokio::spawn(User::new(&load, number).run())).collect();
    let mut end = load.begun;
    for (number, stage) in load.plan.stages.iter().enumerate() {
        end += Duration::from_secs_f64(stage.seconds);
        while Instant::now() < end {
            cluster.check()?;
            sleep_until(end.min(Instant::now() + NODE_CHECK_INTERVAL).into()).await;
        }
        eprintln!("{}", user_report::line(&load.plan, number, &load.tally.stage(number)));
    }
    for user in users {
        if !user.await.context("a user failed")? {
            conditions.unserved_users += 1;
        }
    }
    cluster.check()?;
    conditions.elections =
        cluster.term().await.zip(term).map(|(after, before)| after.saturating_sub(before));
    drop(cluster);
    // Every user has ended, and with it its share.
    let Load { plan, tally, .. } = Arc::into_inner(load).context("a user still runs")?;
    let stages: Vec<StageTally> = (0..plan.stages.len()).map(|stage| tally.stage(stage)).collect();
    let mut all = StageTally::new();
    for seen in &stages {
        all.merge(seen);
    }
    let checked = tally.check();
    let outcome = Outcome::new(&conditions, &plan, &stages, &all, &checked);
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(outcome.missed())
}

/// Raises the limit of open files as far as it goes, and returns it. The nodes inherit it.
fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    current.unwrap_or(u64::MAX)
}

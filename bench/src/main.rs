//! Runs the same work on Esker and on its peers, and writes down what came out. Also runs the load
//! scenarios of the timestamp service.
//!
//! Modules import downwards. `job` and `job_result` cross to the child processes. `work` and
//! `systems` are the lists of what is done and by whom. `peer` is the interface of the logs under
//! test; `appends` runs their callers. `peers`, `slots` and `kv` are the systems, each in a child.
//! `run` starts the children, and `report` and `chart` write down their results. `users` runs the
//! load scenarios, without any peer.

mod appends;
mod awaited_log;
mod callers;
mod chart;
mod check;
mod child;
mod circumstances;
mod floor;
mod job;
mod job_result;
mod kv;
mod lock_file;
mod peer;
mod peers;
mod plan;
mod programs;
mod report;
mod run;
mod run_dir;
mod slots;
mod systems;
mod users;
mod work;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::job::{Job, Set, Shape};
use crate::job_result::JobResult;

#[derive(Debug, Parser)]
#[command(about, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    choice: run::Choice,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Does one job on one system of this program, and prints one line of JSON
    #[command(hide = true)]
    Child(Job),
    Users(users::Choice),
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    match arguments.command {
        Some(Command::Child(job)) if job.shape == Shape::Leave => slots::leave(&job)?,
        Some(Command::Child(job)) => {
            println!("{}", serde_json::to_string(&run_job(&job)?)?);
        }
        Some(Command::Users(choice)) => return users::run(&choice),
        None => run::run(&arguments.choice)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Does a job in this process: one result for each work that it does.
fn run_job(job: &Job) -> anyhow::Result<Vec<JobResult>> {
    match job.set {
        Set::Kv => kv::run(job),
        _ if job.shape.is_on_slots() => Ok(vec![slots::run(job)?]),
        _ => Ok(vec![appends::run(job, &peers::find(job)?)?]),
    }
}

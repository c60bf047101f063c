//! Runs the same work on Esker and on its peers, and writes down what came out. Also runs the load
//! scenarios of the timestamp service.

mod callers;
mod chart;
mod check;
mod child;
mod circumstances;
mod floor;
mod harness;
mod histogram;
mod job;
mod kv;
mod payload;
mod peers;
mod plan;
mod programs;
mod report;
mod run;
mod slots;
mod systems;
mod users;
mod work;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    Child(job::Job),
    Users(users::Choice),
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    match arguments.command {
        Some(Command::Child(job)) if job.shape == job::Shape::Leave => slots::leave(&job)?,
        Some(Command::Child(job)) => {
            println!("{}", serde_json::to_string(&harness::run(&job)?)?);
        }
        Some(Command::Users(choice)) => return users::run(&choice),
        None => run::run(&arguments.choice)?,
    }
    Ok(ExitCode::SUCCESS)
}

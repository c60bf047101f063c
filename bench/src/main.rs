//! Runs the same work on Esker and on its peers, and writes down what came out.

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
mod work;

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
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    match arguments.command {
        Some(Command::Child(job)) if job.shape == job::Shape::Leave => slots::leave(&job),
        Some(Command::Child(job)) => {
            println!("{}", serde_json::to_string(&harness::run(&job)?)?);
            Ok(())
        }
        None => run::run(&arguments.choice),
    }
}

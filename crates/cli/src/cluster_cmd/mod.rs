//! `esker cluster`: looking at a cluster, and changing it.

mod certs;
mod change;
mod clocks;
mod local;
mod status;

use clap::Subcommand;

use esker_command::exit::Outcome;
use esker_command::task_runtime::task_runtime;

/// The commands of `esker cluster`.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Show the nodes of a cluster, as each of them sees itself
    Status(status::StatusArguments),
    /// Give leadership to another node
    Transfer(change::TransferArguments),
    /// Tell the cluster where a member is; a new node joins with `esker serve --join`
    Add(change::AddArguments),
    /// Remove a node, for good: it comes back only under a new number, with new data
    Remove(change::RemoveArguments),
    /// Have epochs follow the leader's clock at once, however far ahead it is
    FollowClock(change::FollowClockArguments),
    /// Make the certificates with which the nodes of a cluster know each other
    Certs(certs::CertsArguments),
    /// Run three nodes in one folder until it is interrupted, for trying out
    Local(local::LocalArguments),
}

/// Runs a command of `esker cluster`.
pub fn run(command: ClusterCommand) -> Outcome {
    task_runtime()?.block_on(async {
        match command {
            ClusterCommand::Status(arguments) => status::run(&arguments).await,
            ClusterCommand::Transfer(arguments) => change::transfer(&arguments).await,
            ClusterCommand::Add(arguments) => change::add(&arguments).await,
            ClusterCommand::Remove(arguments) => change::remove(&arguments).await,
            ClusterCommand::FollowClock(arguments) => change::follow_clock(&arguments).await,
            ClusterCommand::Certs(arguments) => certs::run(&arguments),
            ClusterCommand::Local(arguments) => local::run(&arguments).await,
        }
    })
}

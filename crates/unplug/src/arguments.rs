//! The command line.

use std::ffi::OsString;

use clap::Parser;

/// Cut the power under a program: record what it does to its directory, build the directories that
/// a power cut could leave, and check each
///
/// PROGRAM runs in an empty directory, which it also finds in $UNPLUG_DIR. The check runs in each
/// directory that a power cut could leave; $UNPLUG_OUTPUT is a file with what PROGRAM had printed.
/// Without a check, unplug lists what PROGRAM could still lose when it printed a line or ended.
///
/// Exit status: 0 kept, 1 lost, 2 usage or refused by the system, 3 not measured or check broken.
#[derive(Debug, Parser)]
#[command(name = "unplug", version)]
pub struct Arguments {
    /// A shell command that fails on a directory in which something is lost
    #[arg(long, value_name = "CMD")]
    pub check: Option<String>,
    /// A shell command to run first; what it leaves counts as durable
    #[arg(long, value_name = "CMD")]
    pub setup: Option<String>,
    /// How many different states to check
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub states: usize,
    /// The seed of the states that are drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// How many checks run at once
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub jobs: usize,
    /// How long one check may take, in seconds
    #[arg(long, value_name = "S", default_value_t = 10)]
    pub check_timeout: u64,
    /// Print the answer as one JSON object
    #[arg(long)]
    pub json: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

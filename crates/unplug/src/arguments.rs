//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{NonEmptyStringValueParser, RangedU64ValueParser};
use clap::{Args, Parser, Subcommand};

use crate::fault::Fault;
use crate::outcome::OutcomeArguments;
use crate::record::recording::FileSystemModel;
use crate::search::candidates::Candidate;

pub const STATES_DEFAULT: usize = 10_000;
pub const SEED_DEFAULT: u64 = 1;
pub const JOBS_DEFAULT: usize = 2;
/// The most states of a run, and the most checks at once. More of either would fill the memory.
pub const STATES_MAX: usize = 10_000_000;
pub const JOBS_MAX: usize = 256;

/// Cut the power under a program: record what it does to its directory, build the directories that
/// a power cut could leave, and check each
///
/// PROGRAM runs in an empty directory, which it also finds in $UNPLUG_DIR. The check runs in each
/// directory that a power cut could leave; $UNPLUG_OUTPUT is a file with what PROGRAM had printed.
/// Without a check, unplug lists what PROGRAM could still lose when it printed a line or ended.
///
/// Exit status: 0 kept, 1 lost, 2 usage or refused by the system, 3 not measured or check broken.
#[derive(Debug, Parser)]
#[command(
    name = "unplug",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Option<Command>,
    /// A shell command to run first; what it leaves counts as durable
    #[arg(long, value_name = "CMD", value_parser = NonEmptyStringValueParser::new())]
    pub setup: Option<String>,
    /// A shell command to run beside PROGRAM, a server: what it prints acknowledges, and PROGRAM
    /// gets SIGTERM when it ends
    #[arg(long, value_name = "CMD", value_parser = NonEmptyStringValueParser::new())]
    pub drive: Option<String>,
    /// Count all before a line of output that begins with TEXT as durable: for sync and syncfs,
    /// which FUSE does not show
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub sync_is_durable_at: Option<String>,
    /// A fault to inject while PROGRAM runs: eio-on-fsync (one that --seed chooses),
    /// eio-on-fsync=N, enospc=BYTES (writes past these) or slow (100 ms each fsync); repeatable
    #[arg(long = "fault", value_name = "FAULT")]
    pub faults: Vec<Fault>,
    /// Write the recording to a file, for replay and explain
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    #[command(flatten)]
    pub check: CheckArguments,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check the states of a recording, or build one of them
    Replay(ReplayArguments),
    /// Cut here, for a program or client that unplug runs: the check gets the states of this moment
    /// first
    Cut {
        /// A name for the cut, which explain prints
        #[arg(default_value = "")]
        name: String,
    },
    /// Print the requests and the output of a recording, in their order
    Explain {
        /// The recording
        file: PathBuf,
    },
    /// Fail if a case of a baseline has no answer
    Baseline {
        /// The baseline
        file: PathBuf,
        /// Files with the answers of runs with --baseline and --json, one a line
        #[arg(required = true)]
        answers: Vec<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub struct ReplayArguments {
    /// The recording
    pub file: PathBuf,
    /// Build this state alone, and keep its directory
    #[arg(long, value_name = "ID")]
    pub state: Option<Candidate>,
    #[command(flatten)]
    pub check: CheckArguments,
}

/// The check, and which states it runs on.
#[derive(Debug, Args)]
pub struct CheckArguments {
    /// A shell command that fails on a directory in which something is lost
    #[arg(long, value_name = "CMD", value_parser = NonEmptyStringValueParser::new())]
    pub check: Option<String>,
    /// The promises of the file system: those of POSIX, or those of ext4 with its default options
    #[arg(long, value_enum, default_value_t)]
    pub model: FileSystemModel,
    /// Tear no sector: the disk writes each of 512 bytes whole or not at all, as many disks promise
    #[arg(long)]
    pub whole_sectors: bool,
    /// How many different states to check
    #[arg(
        long,
        value_name = "N",
        default_value_t = STATES_DEFAULT,
        value_parser = up_to(STATES_MAX)
    )]
    pub states: usize,
    /// The seed of the states that are drawn
    #[arg(long, value_name = "N", default_value_t = SEED_DEFAULT)]
    pub seed: u64,
    /// How many checks run at once
    #[arg(long, value_name = "N", default_value_t = JOBS_DEFAULT, value_parser = up_to(JOBS_MAX))]
    pub jobs: usize,
    /// How long one check may take, in seconds
    #[arg(long, value_name = "S", default_value_t = 10)]
    pub check_timeout: u64,
    #[command(flatten)]
    pub outcome: OutcomeArguments,
}

/// Parses a number from 1 on.
fn up_to(max: usize) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=max as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty check, such as that of an unset variable, passes on each state. Each line begins
    /// with an empty TEXT.
    #[test]
    fn no_flag_takes_an_empty_value() {
        for flag in ["--setup", "--drive", "--sync-is-durable-at", "--check"] {
            let parse = |value| Arguments::try_parse_from(["unplug", flag, value, "--", "program"]);
            assert!(parse("").is_err(), "{flag}");
            assert!(parse("text").is_ok(), "{flag}");
        }
    }

    /// As many threads as there are numbers, or a list of as many states, ended with a panic.
    #[test]
    fn numbers_have_a_bound() {
        for (flag, max) in [("--states", STATES_MAX), ("--jobs", JOBS_MAX)] {
            let parse = |number: usize| {
                let number = number.to_string();
                Arguments::try_parse_from(["unplug", flag, &number, "--", "program"]).is_ok()
            };
            assert!(parse(1) && parse(max), "{flag}");
            assert!(!parse(0) && !parse(max + 1) && !parse(usize::MAX), "{flag}");
        }
    }
}

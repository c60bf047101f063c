//! The command line arguments. Every command shows examples in its help.

use clap::{Parser, Subcommand};

use crate::cluster_cmd::ClusterCommand;
use crate::consensus_cmd::ConsensusCommand;
use crate::directory_cmd::backup::BackupArguments;
use crate::directory_cmd::repair::RepairArguments;
use crate::directory_cmd::restore::RestoreArguments;
use crate::directory_cmd::stat::StatArguments;
use crate::directory_cmd::verify::VerifyArguments;
use crate::kv_cmd::KvCommand;
use crate::log_cmd::LogCommand;
use esker_bench::machine::command::FloorArguments;

use crate::manual::{CompletionsArguments, ManArguments};
use crate::sequence_cmd::SequenceCommand;
use crate::serve_cmd::ServeArguments;
use crate::snapshot_cmd::SnapshotCommand;
use crate::tour_cmd::TourArguments;
use crate::ts_cmd::TsArguments;
use crate::up_cmd::UpArguments;

const EXAMPLES: &str = "\
Examples:
  # What Esker does, and how fast it is on this machine
  esker tour

  # Every line of a file becomes a durable record
  esker log append ./esker-data < README.md

  # Read it back, and follow the log as it grows
  esker log cat --follow ./esker-data

  # Check every byte of a log, a store, consensus logs or a node
  esker verify ./esker-data

  # The speed of this machine's disk
  esker bench floor

Exit status: 0 done, 1 failed, 2 wrong usage, 3 corrupt data, 4 locked by another process, 130 interrupted (SIGINT) before the end of the input.";

/// Esker: a durable log. Durable records survive a killed process, a kernel crash and a power cut.
#[derive(Debug, Parser)]
#[command(
    name = "esker",
    version,
    after_help = EXAMPLES,
    arg_required_else_help = true,
    max_term_width = 80
)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: EskerCommand,
}

/// The commands of `esker bench`.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure the hardware floor: the disk and memory of this machine without a log
    Floor(FloorArguments),
}

/// The commands of `esker`.
#[derive(Debug, Subcommand)]
pub enum EskerCommand {
    /// Append to a log, and read it
    #[command(subcommand)]
    Log(LogCommand),
    /// Print the slots of consensus logs; let a copy continue under a new number
    #[command(subcommand)]
    Consensus(ConsensusCommand),
    /// List, write, print and check the snapshots of a consensus log
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Put, get and scan keys in a store
    #[command(subcommand)]
    Kv(KvCommand),
    /// Summarize a log, a store, consensus logs or a node; needs no lock
    Stat(StatArguments),
    /// Read and check every byte and every record; exit status 3 on corruption
    Verify(VerifyArguments),
    /// Quarantine corrupt commit units and keep the rest
    Repair(RepairArguments),
    /// Copy a directory; again, of a log only what has changed
    Backup(BackupArguments),
    /// Make a directory of a backup
    Restore(RestoreArguments),
    /// Start a node of the timestamp service
    Serve(Box<ServeArguments>),
    /// Ask for timestamps, decode one
    Ts(Box<TsArguments>),
    /// Take numbers without gap or repeat; create, list and remove their sequences
    #[command(subcommand)]
    Sequence(SequenceCommand),
    /// Check whether a node of the timestamp service answers; for health checks
    Up(UpArguments),
    /// Look at a cluster of the timestamp service, and change it
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Measure this machine's disk
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Show what each component does on this machine
    Tour(TourArguments),
    /// Print the completions of commands and flags for a shell
    Completions(CompletionsArguments),
    /// Write manual pages, one for each command
    Man(ManArguments),
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::error::ErrorKind;
    use clap::{Arg, CommandFactory};
    use esker_command::{MAY_BE_EMPTY, parse_from};

    use super::*;

    fn check(command: &clap::Command, path: &str, checked: &mut usize) {
        let path = format!("{path} {}", command.get_name());
        let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines = examples.lines().filter(|line| line.starts_with("  "));
        for line in lines {
            assert!(line.chars().count() <= 80, "{path}: {line}");
            *checked += 1;
        }
        for command in command.get_subcommands() {
            check(command, &path, checked);
        }
    }

    fn check_headings(command: &clap::Command, checked: &mut usize) {
        const STORAGE: [&str; 8] = [
            "policy",
            "record_limit",
            "segment_size",
            "disk",
            "direct",
            "dsync",
            "readable_by",
            "queue_depth",
        ];
        for argument in command.get_arguments() {
            let id = argument.get_id().as_str();
            let heading = match id {
                _ if id.starts_with("retain_") => Some("Retention"),
                _ if STORAGE.contains(&id) => continue,
                _ => None,
            };
            assert_eq!(argument.get_help_heading(), heading, "{} {id}", command.get_name());
            *checked += 1;
        }
        command.get_subcommands().for_each(|command| check_headings(command, checked));
    }

    /// `--json` of `append` was below "Retention".
    #[test]
    fn no_heading_of_a_group_covers_what_follows_it() {
        let mut checked = 0;
        check_headings(&Arguments::command(), &mut checked);
        assert!(checked > 150, "{checked}");
    }

    /// Gives each flag of each command an empty value, beside what the command needs.
    fn check_empty_values(command: &clap::Command, path: &[OsString], checked: &mut usize) {
        let path = [path, &[command.get_name().into()]].concat();
        let is_needed = |argument: &&Arg| argument.is_required_set() || argument.is_positional();
        let words_of = |argument: &Arg| -> OsString {
            let choices = argument.get_possible_values();
            let value = choices.first().map_or("1", |choice| choice.get_name());
            argument.get_long().map_or(value.into(), |name| format!("--{name}={value}").into())
        };
        for flag in command.get_arguments() {
            let Some(name) = flag.get_long() else { continue };
            let is_allowed = MAY_BE_EMPTY.contains(&flag.get_id().as_str());
            if is_allowed || !flag.get_action().takes_values() {
                continue;
            }
            let needed = command.get_arguments().filter(is_needed);
            let needed = needed.filter(|other| other.get_id() != flag.get_id()).map(words_of);
            let empty = [format!("--{name}=").into()];
            let words = path.iter().cloned().chain(needed).chain(empty);
            let error = parse_from::<Arguments>(words).unwrap_err();
            let is_refused =
                matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation);
            assert!(is_refused && error.exit_code() == 2, "{path:?} {name}: {error}");
            assert!(error.to_string().contains(&format!("--{name}")), "{path:?} {name}: {error}");
            *checked += 1;
        }
        // They follow what this command needs.
        let needed = command.get_arguments().filter(is_needed);
        let path: Vec<OsString> = path.into_iter().chain(needed.map(words_of)).collect();
        let below = command.get_subcommands();
        below.for_each(|command| check_empty_values(command, &path, checked));
    }

    /// Bug: `kv del DIR --prefix "$UNSET"` deleted all keys.
    #[test]
    fn no_flag_takes_an_empty_value() {
        let mut checked = 0;
        check_empty_values(&Arguments::command(), &[], &mut checked);
        assert!(checked > 100, "{checked}");
    }

    /// Help is wrapped to 80 columns. A command in an example must not be.
    #[test]
    fn no_example_is_wrapped() {
        let mut checked = 0;
        check(&Arguments::command(), "", &mut checked);
        assert!(checked > 100, "{checked}");
    }
}

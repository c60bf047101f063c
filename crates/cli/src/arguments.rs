//! The command line arguments. Every command shows examples in its help.

use clap::{Parser, Subcommand};

use crate::bench::BenchCommand;
use crate::consensus_cmd::ConsensusCommand;
use crate::log_cmd::LogCommand;

const EXAMPLES: &str = "\
Examples:
  # Every line of a file becomes a durable record
  esker log append ./esker-data < README.md

  # Read it back, and go on as more is appended
  esker log cat --follow ./esker-data

  # What this machine's disk can do, and what the log makes of it
  esker bench floor
  esker log bench --writers 100 --size 900

Exit status: 0 done, 1 failed, 2 wrong usage, 3 damaged data, 4 locked by another process, 130 interrupted (SIGINT) before the end of the input.";

/// Esker: a durable log. What is durable survives a killed process, a crashed kernel and a power
/// cut.
#[derive(Debug, Parser)]
#[command(name = "esker", version, after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub face: Face,
}

/// The components of Esker.
#[derive(Debug, Subcommand)]
pub enum Face {
    /// Append records to a log, read, check and repair it, and measure it
    #[command(subcommand)]
    Log(LogCommand),
    /// Look at a consensus log, and measure one
    #[command(subcommand)]
    Consensus(ConsensusCommand),
    /// Measure this machine's disk
    #[command(subcommand)]
    Bench(BenchCommand),
}

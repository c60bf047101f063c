//! Checks of the project. `cargo xtask verify` has to pass for every change, locally and in CI;
//! `cargo xtask tidy` checks the rules of the project that a compiler does not know; `cargo xtask
//! mutate` shows that the tests fail when the mutation that they guard against is there.
//!
//! One command changes files of the tree: `cargo xtask experiment` writes the page, the picture and
//! the results of the experiment. Scratch goes under `target/`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]

mod counts;
mod dist;
mod experiment;
mod mutate;
mod mutations;
mod packages;
mod public_api;
mod soak;
mod steps;
mod tidy;
mod verify;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use steps::Step;

/// Esker's own gate.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run every step: fmt, clippy, test, selftest, features, doc, tidy, deny, book, packages
    Verify {
        /// Leave out the tests
        #[arg(long)]
        without_tests: bool,
    },
    /// Check the format
    Fmt,
    /// Run clippy; warnings are errors
    Clippy,
    /// Run the tests and add up their counts
    Test,
    /// Plant each bug of the crash lab, and demand that the lab catches it
    Selftest,
    /// Run the tests of the features that packages have and the default build has not
    Features,
    /// Check the API documentation, and the lists of the public API; warnings are errors
    Doc,
    /// Write the lists of the public API, crates/*/public-api.txt
    Api,
    /// Check the rules of the project
    Tidy,
    /// Check licences, advisories and sources with cargo-deny, where it is installed
    Deny,
    /// Build the book with mdbook, where it is installed
    Book,
    /// Check the unit, the chart, the alerts and the scripts of packages, where their tools are
    Packages,
    /// Apply the mutations of a crate's mutations.toml, one at a time, and demand that the tests
    /// catch them
    Mutate(mutate::Options),
    /// Write the page of the experiment from its recorded results, or record them first
    Experiment(experiment::Options),
    /// Build and pack a release, reproducibly, into target/dist
    Dist(dist::Options),
    /// Damage many directories, in release, and hold what the log says against what is known
    Soak(soak::Options),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let passed = match arguments.command {
        Command::Verify { without_tests: false } => verify::run(&Step::ALL),
        Command::Verify { without_tests: true } => verify::run(&Step::WITHOUT_TESTS),
        Command::Fmt => verify::run(&[Step::Fmt]),
        Command::Clippy => verify::run(&[Step::Clippy]),
        Command::Test => verify::run(&[Step::Test]),
        Command::Selftest => verify::run(&[Step::Selftest]),
        Command::Features => verify::run(&[Step::Features]),
        Command::Doc => verify::run(&[Step::Doc]),
        Command::Api => workspace::root().and_then(|root| public_api::write(&root)),
        Command::Tidy => verify::run(&[Step::Tidy]),
        Command::Deny => verify::run(&[Step::Deny]),
        Command::Book => verify::run(&[Step::Book]),
        Command::Packages => verify::run(&[Step::Packages]),
        Command::Mutate(options) => mutate::run(&options),
        Command::Experiment(options) => {
            workspace::root().and_then(|root| experiment::run(&root, &options))
        }
        Command::Dist(options) => dist::run(&options),
        Command::Soak(options) => soak::run(&options),
    };
    match passed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

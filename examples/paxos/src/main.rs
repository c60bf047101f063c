//! Multi-decree Paxos with flexible quorums on Esker's consensus log.
//!
//! Three or five acceptors, each with a log on a simulated disk of its own, crash at any operation
//! of that disk and come back; messages are lost, repeated and reordered; logs are truncated,
//! lagging acceptors catch up, and a newcomer starts empty. While an acceptor lists what it
//! accepted, another thread of it truncates or installs, under a verified snapshot: at a place in
//! the list that the seed fixes, so that each run can be repeated. A referee sees every value that
//! is chosen.
//!
//! In durable mode no slot ever has two chosen values. In volatile mode, where an acceptor answers
//! before its disk does, the same runs show how a chosen value is lost. The program succeeds only
//! if it saw both.
#![allow(clippy::print_stdout)]

mod acceptor;
mod cluster;
mod message;
mod proposer;
mod snapshot;

use std::process::ExitCode;

use clap::Parser;
use esker::consensus::Mode;
use serde_json::json;

/// Runs Paxos on consensus logs, in both modes.
#[derive(Debug, Parser)]
struct Arguments {
    /// Runs in each mode
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut violations = [0, 0];
    for (n, (name, mode)) in
        [("durable", Mode::Durable), ("volatile", Mode::Volatile)].into_iter().enumerate()
    {
        let mut total = cluster::Outcome::default();
        let mut bad = None;
        for seed in arguments.first..arguments.first.saturating_add(arguments.seeds) {
            let outcome = cluster::run(mode, seed);
            if outcome.violations > 0 {
                bad = bad.or(Some((seed, outcome.first)));
            }
            total.violations += outcome.violations;
            total.chosen += outcome.chosen;
            total.crashes += outcome.crashes;
            total.caught_up += outcome.caught_up;
            total.refused += outcome.refused;
        }
        violations[n] = total.violations;
        if arguments.json {
            let line = json!({
                "mode": name,
                "seeds": arguments.seeds,
                "violations": total.violations,
                "chosen": total.chosen,
                "crashes": total.crashes,
                "caught_up": total.caught_up,
                "refused": total.refused,
                "first_violation": bad.map(|(seed, what)| json!({ "seed": seed, "what": what })),
            });
            println!("{line}");
        } else {
            println!(
                "mode {name} seeds {} violations {} (slots chosen {}, crashes {}, slots the newcomers caught up {}, answers refused {})",
                arguments.seeds,
                total.violations,
                total.chosen,
                total.crashes,
                total.caught_up,
                total.refused
            );
        }
    }
    if violations[0] == 0 && violations[1] > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

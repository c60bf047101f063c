//! Multi-decree Paxos with flexible quorums on Esker's consensus log.
//!
//! Three or five acceptors, each with a manager of logs on a simulated disk of its own, crash at
//! any operation of that disk and come back; messages are lost, repeated and reordered; logs are
//! truncated, lagging acceptors catch up, and a newcomer starts empty. While an acceptor lists what
//! it accepted, another thread of it truncates or installs, under a verified snapshot: at a place
//! in the list that the seed fixes, so that each run can be repeated. A referee sees every value
//! that is chosen.
//!
//! In durable mode no slot ever has two chosen values. In volatile mode, where an acceptor answers
//! before its disk does, the same runs show how a chosen value is lost. The program succeeds only
//! if it saw both.
//!
//! One group has one log on each acceptor. Then three groups run at once, in durable mode: each
//! acceptor keeps two of its three logs open, and the manager closes and opens them all the time.
//! Volatile mode is shown with one group, because closing a log makes its accepts durable.
#![allow(clippy::print_stdout)]

mod acceptor;
mod cluster;
mod message;
mod proposer;
mod snapshot;

use std::process::ExitCode;

use clap::Parser;
use esker::consensus::Mode;
use esker_testkit::keep_freed_memory;
use serde_json::json;

/// Runs Paxos on consensus logs: one group in both modes, and several in durable mode.
#[derive(Debug, Parser)]
struct Arguments {
    /// Seeds of each run
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Groups of the last run; each acceptor keeps two logs open
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    groups: u8,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    keep_freed_memory();
    let arguments = Arguments::parse();
    let runs = [
        ("durable", Mode::Durable, 1),
        ("volatile", Mode::Volatile, 1),
        ("durable", Mode::Durable, arguments.groups),
    ];
    let mut as_promised = true;
    for (name, mode, groups) in runs {
        let mut total = cluster::Outcome::default();
        let mut bad = None;
        for seed in arguments.first..arguments.first.saturating_add(arguments.seeds) {
            let outcome = cluster::run(mode, groups.into(), seed);
            if outcome.violations > 0 {
                bad = bad.or(Some((seed, outcome.first)));
            }
            total.violations += outcome.violations;
            total.chosen += outcome.chosen;
            total.crashes += outcome.crashes;
            total.caught_up += outcome.caught_up;
            total.refused += outcome.refused;
            total.openings += outcome.openings;
        }
        as_promised &= (mode == Mode::Durable) == (total.violations == 0);
        if arguments.json {
            let line = json!({
                "mode": name,
                "groups": groups,
                "seeds": arguments.seeds,
                "violations": total.violations,
                "chosen": total.chosen,
                "crashes": total.crashes,
                "caught_up": total.caught_up,
                "refused": total.refused,
                "openings": total.openings,
                "first_violation": bad.map(|(seed, what)| json!({ "seed": seed, "what": what })),
            });
            println!("{line}");
        } else {
            let expected = match mode {
                Mode::Durable => "none is allowed",
                _ => "expected: a crash takes promises back",
            };
            println!(
                "mode {name} groups {groups} seeds {} violations {}, {expected} (slots chosen {}, crashes {}, slots the newcomers caught up {}, answers refused {}, logs closed and opened again {})",
                arguments.seeds,
                total.violations,
                total.chosen,
                total.crashes,
                total.caught_up,
                total.refused,
                total.openings
            );
        }
    }
    if as_promised { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

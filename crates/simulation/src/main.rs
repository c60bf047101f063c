//! Runs simulations of the timestamp service: `cargo run --release -p esker-simulation -- --help`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clap::Parser;
use esker_simulation::{Clocks, Options, run};

/// Simulates clusters of the timestamp service, one for each seed.
#[derive(Parser)]
struct Args {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// For how many seconds, instead of a number of seeds.
    #[arg(long, conflicts_with = "seeds")]
    seconds: Option<u64>,
    /// Set wall clocks to any time from 1960 to 2600, and have operators believe them.
    #[arg(long)]
    clocks: bool,
    /// Nodes, 2 to 9; otherwise it follows from the seed.
    #[arg(long, value_parser = clap::value_parser!(u64).range(2..=9))]
    nodes: Option<u64>,
    /// Seconds of faults in each run.
    #[arg(long, default_value_t = 20)]
    faults: u64,
    /// Seconds without faults in each run.
    #[arg(long, default_value_t = 1)]
    calm: u64,
    /// Threads, each with a run of its own.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Print what happened, event by event.
    #[arg(long)]
    trace: bool,
    /// Print what the nodes log, down to this level.
    #[arg(long)]
    log: Option<tracing::Level>,
    /// Print the outcome of each run.
    #[arg(long)]
    each: bool,
    /// Go on after a failure.
    #[arg(long)]
    all: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(level) = args.log {
        let lines = tracing_subscriber::fmt().with_max_level(level).without_time();
        lines.with_writer(std::io::stderr).with_ansi(false).init();
    }
    let (next, runs, failed, simulated, answered, slowest, fingerprint) = (
        AtomicU64::new(args.seed),
        AtomicU64::new(0),
        AtomicBool::new(false),
        AtomicU64::new(0),
        AtomicU64::new(0),
        AtomicU64::new(0),
        AtomicU64::new(0),
    );
    let begun = Instant::now();
    let is_done = |seed| match args.seconds {
        Some(seconds) => begun.elapsed() >= Duration::from_secs(seconds),
        None => seed >= args.seed + args.seeds,
    };
    let work = || {
        while args.all || !failed.load(Relaxed) {
            let seed = next.fetch_add(1, Relaxed);
            if is_done(seed) {
                return;
            }
            runs.fetch_add(1, Relaxed);
            let of_seed = Options::of(seed);
            let options = Options {
                nodes: args.nodes.unwrap_or(of_seed.nodes),
                faults_ms: args.faults * 1000,
                calm_ms: args.calm * 1000,
                clocks: if args.clocks { Clocks::Centuries } else { Clocks::Hours },
                keeps_trace: args.trace,
                ..of_seed
            };
            let (outcome, lines) = run(options);
            for line in lines {
                println!("{line}");
            }
            match outcome {
                Ok(outcome) => {
                    simulated.fetch_add(outcome.simulated_ms, Relaxed);
                    answered.fetch_add(outcome.answered, Relaxed);
                    fingerprint.fetch_xor(outcome.fingerprint, Relaxed);
                    slowest.fetch_max(outcome.flows_after_ms, Relaxed);
                    if args.each {
                        println!("seed {seed}: {outcome:?}");
                    }
                }
                Err(failure) => {
                    eprintln!("seed {seed}: {failure}");
                    failed.store(true, Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..args.threads {
            scope.spawn(work);
        }
        work();
    });
    let (seconds, simulated) =
        (begun.elapsed().as_secs_f64(), simulated.load(Relaxed) as f64 / 1000.0);
    println!(
        "{} runs, {simulated:.0} simulated seconds in {seconds:.1} s ({:.0} a second), {} calls \
         answered, timestamps at most {} ms after the last fault, fingerprint {:016x}",
        runs.load(Relaxed),
        simulated / seconds,
        answered.load(Relaxed),
        slowest.load(Relaxed),
        fingerprint.load(Relaxed)
    );
    if failed.load(Relaxed) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

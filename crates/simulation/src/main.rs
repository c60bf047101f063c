//! Runs simulations of the timestamp service: `cargo run --release -p esker-simulation -- --help`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clap::Parser;
use esker_simulation::{ClockFaults, Options, run};

/// Simulates clusters of the timestamp service, one for each seed.
#[derive(Parser)]
struct Args {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of seeds.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// Run for this many seconds, instead of a number of seeds.
    #[arg(long, conflicts_with = "seeds")]
    seconds: Option<u64>,
    /// Set wall clocks to any time from 1960 to 2600, and make operators believe them.
    #[arg(long)]
    clocks: bool,
    /// Have callers that take numbers of a sequence, too.
    #[arg(long)]
    sequences: bool,
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
    let begun = Instant::now();
    let totals = Totals::default();
    let work = || totals.add_runs(&args, begun);
    std::thread::scope(|scope| {
        for _ in 1..args.threads {
            scope.spawn(work);
        }
        work();
    });
    totals.print(begun.elapsed().as_secs_f64());
    if totals.failed.load(Relaxed) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The totals of all threads.
#[derive(Default)]
struct Totals {
    /// The number of seeds that were begun or passed over at the end.
    next: AtomicU64,
    runs: AtomicU64,
    failed: AtomicBool,
    simulated_ms: AtomicU64,
    answered: AtomicU64,
    slowest_ms: AtomicU64,
    fingerprint: AtomicU64,
}

impl Totals {
    /// Runs seeds until all are done or one fails.
    fn add_runs(&self, args: &Args, begun: Instant) {
        while args.all || !self.failed.load(Relaxed) {
            let next = self.next.fetch_add(1, Relaxed);
            let is_done = match args.seconds {
                Some(seconds) => begun.elapsed() >= Duration::from_secs(seconds),
                None => next >= args.seeds,
            };
            if is_done {
                return;
            }
            self.runs.fetch_add(1, Relaxed);
            self.add_run(args, args.seed + next);
        }
    }

    fn add_run(&self, args: &Args, seed: u64) {
        let of_seed = Options::from_seed(seed);
        let options = Options {
            nodes: args.nodes.unwrap_or(of_seed.nodes),
            faults_ms: args.faults * 1000,
            calm_ms: args.calm * 1000,
            clocks: if args.clocks { ClockFaults::Centuries } else { ClockFaults::Hours },
            sequences: args.sequences,
            keeps_trace: args.trace,
            ..of_seed
        };
        let (outcome, lines) = run(options);
        for line in lines {
            println!("{line}");
        }
        match outcome {
            Ok(outcome) => {
                self.simulated_ms.fetch_add(outcome.simulated_ms, Relaxed);
                self.answered.fetch_add(outcome.answered, Relaxed);
                self.fingerprint.fetch_xor(outcome.fingerprint, Relaxed);
                self.slowest_ms.fetch_max(outcome.recovery_ms, Relaxed);
                if args.each {
                    println!("seed {seed}: {outcome:?}");
                }
            }
            Err(failure) => {
                eprintln!("seed {seed}: {failure}");
                self.failed.store(true, Relaxed);
            }
        }
    }

    fn print(&self, seconds: f64) {
        let simulated = self.simulated_ms.load(Relaxed) as f64 / 1000.0;
        println!(
            "{} runs, {simulated:.0} simulated seconds in {seconds:.1} s ({:.0} a second), {} calls \
             answered, timestamps at most {} ms after the last fault, fingerprint {:016x}",
            self.runs.load(Relaxed),
            simulated / seconds,
            self.answered.load(Relaxed),
            self.slowest_ms.load(Relaxed),
            self.fingerprint.load(Relaxed)
        );
    }
}

//! `esker-lab power` and `esker-lab faults`.

use std::time::Instant;

use clap::Args;
use esker_lab::{Options, Simulation};

use crate::selection::Selection;
use crate::table::Table;
use esker_command::exit::Outcome;
use esker_command::progress;

/// Runs of each component and policy, when `--runs` is not given.
const DEFAULT_RUNS: u64 = 512;
/// As `DEFAULT_RUNS`, of disks with faults.
const FAULTY_RUNS: u64 = 48;

const EXAMPLES: &str = "\
Examples:
  # 1,536 cuts of each component under each policy
  esker-lab power

  # 100,000 runs of 3 cuts each of the log under Batch(5), with seeds that
  # were not used before
  esker-lab power --component log --policy batch_5 --runs 100000 \\
    --first-seed 7000000

  # The run that failed, alone
  esker-lab power --component kv --policy always --seed 1234

The disk is simulated: a cut loses any part of what was not synced, and tears a sector. The clock is \
simulated too, so that the age of a lost write is exact. A process that is killed keeps the page cache, \
which a power cut does not: see `esker-lab kill` for that.";

const FAULTS: &str = "\
Examples:
  # 48 runs of each kind of disk under each policy
  esker-lab faults

  # The run that failed, alone
  esker-lab faults --component log --policy always --seed 1234

A failing disk fails calls, once or for some time, and a crash follows. A stalled sync does not return \
before the power fails. A full disk must still delete, clean, close and open. A bit that flips must be \
reported.";

/// Arguments of `esker-lab power`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PowerArguments {
    #[command(flatten)]
    runs: Runs,
}

/// Arguments of `esker-lab faults`.
#[derive(Debug, Args)]
#[command(after_help = FAULTS)]
pub struct FaultsArguments {
    #[command(flatten)]
    runs: Runs,
}

#[derive(Debug, Args)]
struct Runs {
    #[command(flatten)]
    selection: Selection,
    /// Runs of each component and policy [default: 512, or 48 with faults]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    runs: Option<u64>,
    /// The seed of the first run; the next ones follow it
    #[arg(long, value_name = "N", default_value_t = 1)]
    first_seed: u64,
    /// Only the run with this seed
    #[arg(long, value_name = "N", conflicts_with_all = ["runs", "first_seed"])]
    seed: Option<u64>,
    /// One JSON object for each component and policy
    #[arg(long)]
    json: bool,
    /// With --json: what each of the first 300 crashes left, for `esker-lab report`
    #[arg(long, requires = "json")]
    each: bool,
    /// Plant this bug: see `esker-lab selftest`
    #[cfg(feature = "planted-bugs")]
    #[arg(long, value_name = "NAME")]
    bug: Option<String>,
}

/// Runs `esker-lab power`.
pub fn run(arguments: &PowerArguments) -> Outcome {
    let title = "Power cuts on a simulated disk";
    arguments.runs.go(esker_lab::power_cuts(), DEFAULT_RUNS, title)
}

/// Runs `esker-lab faults`.
pub fn faults(arguments: &FaultsArguments) -> Outcome {
    arguments.runs.go(esker_lab::disk_faults(), FAULTY_RUNS, "Simulated disks with faults")
}

impl Runs {
    fn go(&self, all: Vec<Simulation>, runs: u64, title: &str) -> Outcome {
        let all = self.selection.select(all, |simulation| simulation.setting)?;
        #[cfg(feature = "planted-bugs")]
        let _planted = self.bug.as_deref().map(crate::hunt::planted).transpose()?;
        let options = match self.seed {
            Some(first_seed) => Options { first_seed, runs: 1 },
            None => Options { first_seed: self.first_seed, runs: self.runs.unwrap_or(runs) },
        };
        let bar = progress::runs_bar(options.runs * all.len() as u64);
        let mut table = Table::begin(title, self.json, self.each)?;
        for simulation in &all {
            let start = Instant::now();
            let crashed = simulation.run(options, &|runs| bar.inc(runs));
            bar.suspend(|| {
                table.add(&simulation.setting, &crashed, start.elapsed().as_secs_f64())
            })?;
        }
        bar.finish_and_clear();
        table.end()
    }
}

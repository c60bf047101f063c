//! `esker crash power`.

use std::time::Instant;

use clap::Args;
use esker_lab::Options;

use super::selection::Selection;
use super::table::Table;
use crate::exit::Outcome;
use crate::progress;

/// Cuts of each component and policy, when `--runs` is not given.
const CUTS: u64 = 1536;

const EXAMPLES: &str = "\
Examples:
  # 1,536 cuts of each component under each policy
  esker crash power

  # 100,000 runs of 3 cuts each of the log under Batch(5), with seeds that were not used before
  esker crash power --component log --policy batch_5 --runs 100000 --first-seed 7000000

  # The run that failed, alone
  esker crash power --component kv --policy always --seed 1234

The disk is simulated: a cut loses any part of what was not synced, and tears a sector. The clock is \
simulated too, so that the age of a lost write is exact. A process that is killed keeps the page cache, \
which a power cut does not: see `esker crash kill` for that.";

/// Arguments of `esker crash power`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PowerArguments {
    #[command(flatten)]
    selection: Selection,
    /// Runs of each component and policy, with 3 cuts each [default: 512]
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
}

impl PowerArguments {
    fn options(&self) -> Options {
        match (self.seed, self.runs) {
            (Some(first_seed), _) => Options { first_seed, runs: 1 },
            (None, Some(runs)) => Options { first_seed: self.first_seed, runs },
            (None, None) => Options::cuts(self.first_seed, CUTS),
        }
    }
}

/// Runs `esker crash power`.
pub fn run(arguments: &PowerArguments) -> Outcome {
    let all = arguments.selection.of(esker_lab::power_cuts(), |cuts| cuts.setting)?;
    let options = arguments.options();
    let bar = progress::of_runs(options.runs * all.len() as u64);
    let mut table = Table::begin("power", "Power cuts on a simulated disk", arguments.json)?;
    for cuts in &all {
        let start = Instant::now();
        let crashed = cuts.run(options, &|runs| bar.inc(runs));
        bar.suspend(|| table.add(&cuts.setting, &crashed, start.elapsed().as_secs_f64()))?;
    }
    bar.finish_and_clear();
    table.end()
}

//! `esker bench floor`.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use esker_disk::BLOCK_BYTES;
use serde_json::json;

use crate::machine::floor::{Floor, IN_FLIGHT};
use crate::machine::raw::{self, RawArguments};
use crate::measure::figure::{Figure, Shape};
use crate::measure::resources::{self, ResourceUse, Snapshot};
use crate::workdir::Workdir;
use esker_command::exit::Outcome;
use esker_command::quantity;

const EXAMPLES: &str = "\
Examples:
  # The disk under the current directory
  esker bench floor

  # One writer and four readers of 2 MiB blocks, through io_uring with
  # registered buffers
  esker bench floor --raw --readers 4 --buffer-size 2M --disk uring --register

  # The disk under /data, sampled for ten seconds, JSON output
  esker bench floor --dir /data/floor --seconds 10 --json";

/// Arguments of `esker bench floor`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct FloorArguments {
    /// A directory on the disk to measure; created, and removed at the end
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// How long to sample
    #[arg(long, value_name = "N", default_value = "2", value_parser = quantity::seconds)]
    seconds: f64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    raw: RawArguments,
}

/// Measures the floor only.
pub fn run(arguments: &FloorArguments) -> Outcome {
    if arguments.raw.raw {
        let dir = arguments.dir.as_deref();
        return raw::run(&arguments.raw, dir, arguments.seconds, arguments.json);
    }
    let workdir = Workdir::make(arguments.dir.as_deref(), false)?;
    let mut floor = Floor::prepare(&workdir.floor())?;
    let (begin, snapshot) = (Instant::now(), Snapshot::now());
    floor.sample()?;
    while begin.elapsed().as_secs_f64() < arguments.seconds {
        floor.sample()?;
    }
    let used = ResourceUse { resident: resources::peak(), ..snapshot.used() };
    let medians = floor.medians();
    let (syncs, sync_time) = floor.syncs();
    let ops = syncs.count();
    Figure {
        params: json!({
            "seconds": arguments.seconds,
            "samples": medians.samples,
            "direct": floor.is_direct(),
            "in_flight": IN_FLIGHT,
            "operation": "overwrite 4 KiB of written blocks + fdatasync",
        }),
        latencies: syncs.clone(),
        floor: medians,
        used,
        ..Figure::new("floor", ops, ops * BLOCK_BYTES as u64, sync_time)
    }
    .print(arguments.json, Shape::Floor)
}

//! Consensus logs to corruption, what is known of them, and the rules that hold whatever the
//! corruption is.
#![allow(clippy::unwrap_used, clippy::panic)]

mod build;
mod check;
mod facts;
mod log_content;

use std::path::Path;
use std::sync::Arc;

use esker_consensus::Options;
use esker_disk::sim::SimDisk;
use esker_log::Engine;
use esker_testkit::{Changes, Component, Files, Rng, Source, read_files};

pub use build::Sample;

/// The directory of the log on a simulated disk.
pub const DIR: &str = "/consensus";

/// The consensus log, its recovery, and `repair` below it.
pub struct ConsensusComponent;

impl Component for ConsensusComponent {
    type Sample = Sample;

    fn sample(&self, seed: u64) -> Result<Sample, String> {
        build::sample(seed)
    }

    fn source<'a>(&self, sample: &'a Sample) -> &'a Source {
        &sample.source
    }

    fn check(
        &self,
        sample: &Sample,
        damaged: &Files,
        changes: &Changes,
        rng: &mut Rng,
    ) -> Result<&'static str, String> {
        check::check(sample, damaged, changes, rng)
    }
}

/// The files of the log on a disk.
fn files(disk: &SimDisk) -> Files {
    read_files(disk, Path::new(DIR)).unwrap()
}

fn options(disk: &SimDisk, engine: &Engine) -> Options {
    let mut options = Options::on(Arc::new(disk.process()));
    options.log.segment_size = 64 << 10;
    options.cache_size = 8 << 10;
    options.mutable_size = 1 << 20;
    options.log.engine = Some(engine.clone());
    options
}

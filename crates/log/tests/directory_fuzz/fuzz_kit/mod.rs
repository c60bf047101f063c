//! Logs to corruption, what is known of them, and the rules that hold whatever the corruption is.
#![allow(clippy::unwrap_used, clippy::panic)]

mod build;
mod check;
mod history;
mod location;
mod program;
#[path = "../../kit/corruption_kit/reading.rs"]
mod reading;
mod repaired;

use esker_testkit::{Changes, Component, Files, Rng, Source, read_files};

pub use build::Sample;

/// Where the log lives on a simulated disk.
pub const DIR: &str = "/log";

/// The log, its recovery, `verify` and `repair`.
pub struct LogComponent;

impl Component for LogComponent {
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
fn files(disk: &esker_disk::sim::SimDisk) -> Files {
    read_files(disk, std::path::Path::new(DIR)).unwrap()
}

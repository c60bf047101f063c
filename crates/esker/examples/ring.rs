//! Keeps the newest records only, in a bounded amount of disk space.
//!
//! ```text
//! cargo run --example ring -- ./esker-data
//! ```

use std::path::Path;

use esker::{Error, Log, Options, Retention};

/// Appends `count` records of a kilobyte and returns how many segments are left, at most three.
pub fn run(dir: &Path, count: u64) -> Result<usize, Error> {
    let mut options = Options::default();
    options.segment_size = 64 << 10;
    options.retention = Retention::NONE;
    options.retention.segments = Some(3);
    let log = Log::open(dir, options)?;
    for n in 0..count {
        drop(log.append(&format!("{n:01024}"))?);
    }
    log.close()?;
    let mut options = Options::default();
    options.segment_size = 64 << 10;
    let log = Log::open(dir, options)?;
    let segments = log.metadata().segments;
    log.close()?;
    Ok(segments)
}

#[allow(dead_code, clippy::print_stdout)]
fn main() -> Result<(), Error> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "./esker-data".into());
    println!("{} segments", run(Path::new(&dir), 1000)?);
    Ok(())
}

//! Keeps the newest records only, in a bounded amount of disk space.
//!
//! ```text
//! cargo run -p esker --example ring -- ./esker-data
//! ```

use std::path::Path;

use esker::{Error, Log};

/// Appends `count` records of a kilobyte and returns how many segments are left, at most three.
pub fn run(dir: &Path, count: u64) -> Result<usize, Error> {
    let log = Log::builder(dir).segment_size(64 << 10).retain_segments(3).open()?;
    for n in 0..count {
        drop(log.append(format!("{n:01024}"))?);
    }
    log.close()?;
    let log = Log::builder(dir).segment_size(64 << 10).open()?;
    let segments = log.storage().metadata().segments;
    log.close()?;
    Ok(segments)
}

#[allow(dead_code, clippy::print_stdout)]
fn main() -> Result<(), Error> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "./esker-data".into());
    println!("{} segments", run(Path::new(&dir), 1000)?);
    Ok(())
}

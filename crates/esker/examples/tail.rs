//! Prints the records of a log that another process writes, as they become durable.
//!
//! ```text
//! cargo run -p esker --example tail -- ./esker-data
//! ```

use std::path::Path;
use std::time::Duration;

use esker::log::ReadError;
use esker::{Error, ReadOnlyLog, Start};

/// Calls `each` with the payloads in `dir`, from the oldest on, until no record came for `idle`.
pub fn run(dir: &Path, idle: Duration, mut each: impl FnMut(&[u8])) -> Result<(), Error> {
    let reader = ReadOnlyLog::open(dir)?;
    let mut stream = reader.stream(Start::Oldest)?;
    loop {
        match stream.blocking_next_timeout(idle) {
            Ok(batch) => batch.iter().for_each(|record| each(record.payload)),
            Err(ReadError::Timeout) => return Ok(()),
            // Corrupt records were quarantined by a repair; the stream continues after them.
            Err(ReadError::Quarantined(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[allow(dead_code, clippy::print_stdout)]
fn main() -> Result<(), Error> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "./esker-data".into());
    run(Path::new(&dir), Duration::MAX, |payload| println!("{}", payload.escape_ascii()))
}

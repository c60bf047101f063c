//! Appends records, waits until they are durable, and reads them back.
//!
//! ```text
//! cargo run -p esker --example append -- ./esker-data
//! ```

use std::path::Path;

use esker::{Error, Log, Start};

/// Appends three records to the log in `dir` and returns all that it holds.
pub fn run(dir: &Path) -> Result<Vec<String>, Error> {
    let log = Log::open(dir)?;
    // Accepted: the record has its place in the order. Commits run meanwhile.
    for line in ["first", "second"] {
        drop(log.append(line)?);
    }
    // Durable: this record and all before it survive a power cut.
    log.append("third")?.blocking_wait()?;

    let mut stream = log.stream(Start::Oldest)?;
    let mut found = Vec::new();
    while let Some(batch) = stream.try_next()? {
        found.extend(
            batch.iter().map(|record| String::from_utf8_lossy(record.payload).into_owned()),
        );
    }
    log.close()?;
    Ok(found)
}

#[allow(dead_code, clippy::print_stdout)]
fn main() -> Result<(), Error> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "./esker-data".into());
    run(Path::new(&dir))?.iter().for_each(|line| println!("{line}"));
    Ok(())
}

//! A queue that survives a crash: each job is delivered at least once.
//!
//! ```text
//! cargo run -p esker --example durable_queue -- ./esker-data
//! ```

use std::path::Path;

use esker::{Error, Log, LogStream, Seq, Start};

/// Jobs in order. What is done is dropped from the log.
pub struct Queue {
    log: Log,
    stream: LogStream,
}

impl Queue {
    /// Opens the queue at its first job that was not marked as done.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let log = Log::open(dir)?;
        let stream = log.stream(Start::Oldest)?;
        Ok(Self { log, stream })
    }

    /// Adds a job. Durable when this returns.
    pub fn push(&self, job: &str) -> Result<(), Error> {
        self.log.append(job)?.blocking_wait()?;
        Ok(())
    }

    /// The next jobs with their numbers; empty when there are none.
    pub fn take(&mut self) -> Result<Vec<(Seq, String)>, Error> {
        let batch = self.stream.try_next()?;
        let jobs = batch.iter().flat_map(|batch| batch.iter());
        let text = |payload: &[u8]| String::from_utf8_lossy(payload).into_owned();
        Ok(jobs.map(|record| (record.seq, text(record.payload))).collect())
    }

    /// Marks all jobs through this one as done: they are not delivered again after a crash.
    pub fn done(&self, through: Seq) -> Result<(), Error> {
        self.log.retention().truncate_before(Seq(through.0 + 1)).map_err(Into::into)
    }
}

#[allow(dead_code, clippy::print_stdout)]
fn main() -> Result<(), Error> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "./esker-data".into());
    let mut queue = Queue::open(Path::new(&dir))?;
    queue.push("wash the dishes")?;
    for (seq, job) in queue.take()? {
        println!("{seq}: {job}");
        queue.done(seq)?;
    }
    Ok(())
}

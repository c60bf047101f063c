//! The follower process of a benchmark: it reads a log that another process writes. It
//! reads its goal from standard input and reports deliveries and their times on standard output.
//!
//! Times are read from the clock that all processes of the machine share.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use clap::Args;
use esker_log::{Batch, Error, LogStream, ReadOnlyLog, Start};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use crate::load::tail_readers::NO_GOAL;
use crate::measure::resources::{self, Snapshot};
use crate::records::payload::Recipe;
use crate::records::verify::{ExpectedRecords, Tally, Verify};
use esker_command::exit::{Failure, Outcome};
use esker_command::log_options::WritingArguments;
use esker_command::{output, quantity};

/// The interval between checks for the goal.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Arguments of the hidden command.
#[derive(Debug, Args)]
pub struct FollowArguments {
    dir: PathBuf,
    #[arg(long, value_parser = quantity::size_range)]
    size: std::ops::RangeInclusive<u32>,
    #[arg(long)]
    seed: u64,
    #[arg(long, value_enum)]
    verify: Verify,
    #[command(flatten)]
    writing: WritingArguments,
}

/// The clock that processes share.
pub fn shared_clock() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// Reads from the oldest record to the goal and reports what it read.
pub fn run(arguments: &FollowArguments) -> Outcome {
    let log_failure = |error: Error| Failure::from_log(&error, &arguments.dir);
    let goal = Arc::new(AtomicU64::new(NO_GOAL));
    let shared = Arc::clone(&goal);
    std::thread::spawn(move || read_goal(&shared));

    let begin = Instant::now();
    let reader = ReadOnlyLog::builder(&arguments.dir)
        .options(arguments.writing.options())
        .open()
        .map_err(|error| log_failure(error.into()))?;
    output::print(&format!("open {}\n", begin.elapsed().as_micros()))?;
    let recipe = Recipe::new(arguments.seed, arguments.size.clone());
    let mut follower = Follower {
        stream: reader.stream(Start::Oldest).map_err(|error| log_failure(error.into()))?,
        expected: ExpectedRecords::new(&recipe, arguments.verify),
        out: output::buffered()?,
        seen: 0,
        tally: Tally::default(),
    };

    resources::reset_peak();
    let (begin, snapshot) = (Instant::now(), Snapshot::now());
    while follower.seen < goal.load(SeqCst) {
        match follower.next() {
            Ok(batch) => follower.check(&batch)?,
            Err(Error::Timeout) => {}
            Err(error) => return Err(log_failure(error)),
        }
    }
    let (time, used, tally) = (begin.elapsed(), snapshot.used(), follower.tally);
    follower.flush()?;
    output::print_json(&json!({
        "records": tally.records,
        "bytes": tally.bytes,
        "touched": tally.touched,
        "seconds": time.as_secs_f64(),
        "cpu_seconds": used.cpu.as_secs_f64(),
        "rss": resources::peak(),
    }))
}

/// Reads the goal from standard input. Ends the process when its parent ends.
fn read_goal(goal: &AtomicU64) {
    let mut input = BufReader::new(std::io::stdin());
    let mut line = String::new();
    let last = input.read_line(&mut line).ok().and_then(|_| line.trim().parse().ok());
    if let Some(last) = last {
        goal.store(last, SeqCst);
        let _ = input.read_to_end(&mut Vec::new());
    }
    std::process::exit(esker_command::exit::Status::Failed as i32);
}

struct Follower<W: Write> {
    stream: LogStream,
    expected: ExpectedRecords,
    out: W,
    seen: u64,
    tally: Tally,
}

impl<W: Write> Follower<W> {
    /// Returns the next batch. Reports what was read before it waits.
    fn next(&mut self) -> esker_log::Result<Batch> {
        match self.stream.try_next()? {
            Some(batch) => Ok(batch),
            None => {
                let _ = self.out.flush();
                self.stream.blocking_next_timeout(POLL_INTERVAL).map_err(Into::into)
            }
        }
    }

    fn check(&mut self, batch: &Batch) -> Outcome {
        let delivered = shared_clock().as_nanos();
        self.tally = self.tally.and(self.expected.check(0, &mut self.seen, batch)?);
        let written = writeln!(self.out, "at {} {delivered}", self.seen);
        written.map_err(|error| Failure::from_io("report what was read", &error))
    }

    fn flush(&mut self) -> Outcome {
        self.out.flush().map_err(|error| Failure::from_io("report what was read", &error))
    }
}

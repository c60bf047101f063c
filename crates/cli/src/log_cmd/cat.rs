//! `esker log cat`: prints the durable records, in order, to standard output.
//!
//! It takes no lock and changes nothing, so it can run concurrently with a writer. A range
//! quarantined by `repair` is reported on standard error and skipped. Corruption that has not been
//! repaired ends the command.
//!
//! With `--follow` it waits for new records. A separate thread waits for a signal, or for the
//! reader of standard output to exit, and then closes the log reader.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use esker_log::{Batch, Error, LogStream, ReadOnlyLog, Record, Seq, Start};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::exit::{Failure, Outcome, complain};
use crate::output;
use crate::signals;

const EXAMPLES: &str = "\
Examples:
  # All durable records, one per line
  esker log cat ./esker-data

  # From record 1000 on, with numbers and positions, then new records as they become durable
  esker log cat ./esker-data --from 1000 --json --follow

  # The last records of a log that is being written
  esker log cat ./esker-data | tail -n 3

Without --follow it ends at the durable watermark that it read at its start. Exit status 3 on \
corruption, after printing the records before it. A range that `esker log repair` quarantined is \
reported in one line on standard error and is no failure.";

/// Arguments of `esker log cat`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CatArguments {
    /// The log's directory
    dir: PathBuf,
    /// Start with the first record at or above this number [default: the oldest]; fails if that
    /// record was truncated, and prints nothing if it is past the end
    #[arg(long, value_name = "N")]
    from: Option<u64>,
    /// Print new records as they become durable, until a signal or until standard output is closed
    #[arg(long)]
    follow: bool,
    /// One JSON object per record: seq, prev, position, and payload, or payload_b64 where it is not
    /// UTF-8 text
    #[arg(long)]
    json: bool,
}

/// Prints until the end of the log, corruption, or a signal.
pub fn run(arguments: &CatArguments) -> Outcome {
    let dir = &arguments.dir;
    let of_log = |error: Error| Failure::of_log(&error, dir);
    let reader = ReadOnlyLog::open(dir).map_err(of_log)?;
    let start = arguments.from.map_or(Start::Oldest, |from| Start::From(Seq(from)));
    let stream = reader.stream(start).map_err(of_log)?;
    let out = output::buffered().map_err(|e| Failure::of_io("open standard output", &e))?;
    let mut printer = Printer { stream, out, json: arguments.json, printed: None };

    if !arguments.follow {
        let end = printer.catch_up();
        if end.is_ok() {
            report_unrecovered_tail(&reader, dir);
        }
        return printer.end(end, arguments);
    }
    signals::close_at_end(reader, printer.out.get_ref())
        .map_err(|e| Failure::of_io("wait for signals", &e))?;
    let end = printer.follow();
    printer.end(end, arguments)
}

/// Reports data after the durable watermark, as left by a killed writer. While a writer is alive,
/// that data is its next commit and needs no message.
fn report_unrecovered_tail(reader: &ReadOnlyLog, dir: &Path) {
    let bytes = reader.unrecovered_bytes();
    if bytes > 0 && !writer_is_alive(dir) {
        complain(&format!(
            "note: {bytes} bytes after record {} are not known to be durable; the next writer to open {} \
             recovers them or cuts them off",
            reader.durable(),
            dir.display()
        ));
    }
}

/// Returns whether the process named in the file `lock` exists. It does not try the lock itself:
/// that could make a writer that opens the log at the same moment fail.
fn writer_is_alive(dir: &Path) -> bool {
    let pid = std::fs::read_to_string(dir.join("lock")).ok();
    let pid = pid.and_then(|text| text.trim().parse().ok().filter(|pid| *pid > 0));
    let pid = pid.and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// Why printing ended before the durable watermark.
enum End {
    Log(Error),
    Output(io::Error),
}

struct Printer {
    stream: LogStream,
    out: BufWriter<File>,
    json: bool,
    /// The last record printed.
    printed: Option<Seq>,
}

impl Printer {
    /// Prints everything up to the durable watermark.
    fn catch_up(&mut self) -> Result<(), End> {
        loop {
            match self.stream.try_next() {
                Ok(Some(batch)) => self.print_batch(&batch)?,
                Ok(None) => return self.out.flush().map_err(End::Output),
                Err(gap @ Error::Quarantined { .. }) => self.skip(&gap)?,
                Err(error) => return Err(End::Log(error)),
            }
        }
    }

    fn write(&mut self, batch: &Batch) -> io::Result<()> {
        for record in batch {
            if self.json {
                print_json(&mut self.out, &record)?;
            } else {
                self.out.write_all(record.payload)?;
            }
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }

    /// Prints existing and new records until the reader is closed.
    fn follow(&mut self) -> Result<(), End> {
        loop {
            let next = self.catch_up().and_then(|()| self.stream.blocking_next().map_err(End::Log));
            match next {
                Ok(batch) => self.print_batch(&batch)?,
                Err(End::Log(gap @ Error::Quarantined { .. })) => self.skip(&gap)?,
                Err(End::Log(Error::Closed)) => return Ok(()),
                Err(end) => return Err(end),
            }
        }
    }

    fn print_batch(&mut self, batch: &Batch) -> Result<(), End> {
        self.write(batch).map_err(End::Output)?;
        self.printed = batch.last().or(self.printed);
        Ok(())
    }

    fn skip(&mut self, gap: &Error) -> Result<(), End> {
        self.out.flush().map_err(End::Output)?;
        complain(&format!("note: {gap}"));
        Ok(())
    }

    /// Flushes what was printed, and returns the outcome.
    fn end(&mut self, end: Result<(), End>, arguments: &CatArguments) -> Outcome {
        let flushed = output::unless_closed(self.out.flush());
        match end {
            Ok(()) => flushed.map(|_| ()),
            Err(End::Output(error)) => output::unless_closed(Err(error)).map(|_| ()),
            Err(End::Log(error)) => {
                let failure = Failure::of_log(&error, &arguments.dir);
                Err(match self.printed {
                    Some(last) => failure.and(format_args!("printed through record {last}")),
                    None => failure.and(format_args!("nothing was printed")),
                })
            }
        }
    }
}

fn print_json(out: &mut impl Write, record: &Record<'_>) -> io::Result<()> {
    let Record { seq, prev, position, payload } = record;
    write!(out, "{{\"seq\":{seq},\"prev\":{prev},\"position\":{position},")?;
    match std::str::from_utf8(payload) {
        Ok(text) => {
            out.write_all(b"\"payload\":")?;
            serde_json::to_writer(&mut *out, text)?;
        }
        Err(_) => write!(out, "\"payload_b64\":\"{}\"", output::base64(payload))?,
    }
    out.write_all(b"}")
}

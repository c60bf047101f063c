//! `esker log append`: appends standard input to the log.
//!
//! Records are accepted as fast as they arrive, and commits run concurrently; the command does not
//! wait for each record. When the input pauses, the records read so far become durable, under every
//! policy. Input ends at end of file or at a signal; the command then calls `barrier`, closes the
//! log and prints the summary.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use esker_log::{Error, Log};
use indicatif::ProgressBar;

use super::summary::Summary;
use crate::choices::Framing;
use crate::exit::{Failure, Outcome, with_causes};
use crate::framing::{BadFraming, Framer};
use crate::input::{Event, Input};
use crate::log_options::{self, RetentionArguments, WritingArguments};
use crate::progress;

/// How long input must be absent to count as a pause.
const PAUSE: Duration = Duration::from_millis(20);

const EXAMPLES: &str = "\
Examples:
  # Every line of a file becomes a durable record
  esker log append ./esker-data < README.md

  # Keep the last gigabyte of a service's output, in segments of 16 MiB
  journalctl -f | esker log append ./journal --segment-size 16M --retain-bytes 1G

  # Binary records, each after a length of 4 bytes; a crash loses at most 99, or 199 during a commit
  my-producer | esker log append ./events --framing len32 --policy batch:100

The lock is taken before the first record is read; a second writer exits with status 4. SIGINT, \
SIGTERM and SIGHUP end the input: every record read is kept. SIGTERM and SIGHUP exit with status 0. \
SIGINT (Ctrl-C) before the end of the input exits with 130 and reports how much of it was read. A record \
over the limit or malformed framing exits with status 1; the records before it are kept.";

/// Arguments of `esker log append`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct AppendArguments {
    /// The log's directory; created if missing
    dir: PathBuf,
    /// How records are separated: lines or len32
    #[arg(long, value_enum, default_value_t, hide_possible_values = true, value_name = "FRAMING")]
    framing: Framing,
    #[command(flatten)]
    writing: WritingArguments,
    #[command(flatten)]
    retention: RetentionArguments,
    /// Print the summary as one JSON object
    #[arg(long)]
    json: bool,
}

/// Appends until the input ends.
pub fn run(arguments: &AppendArguments) -> Outcome {
    let dir = &arguments.dir;
    let mut options = arguments.writing.options();
    options.retention = arguments.retention.retention();
    let limit = options.record_limit;

    let input = Input::open().map_err(|e| Failure::of_io("catch signals", &e))?;
    let log = log_options::for_writing(dir, options)?;
    let progress = progress::of_input(input.size());
    let framer = Framer::new(arguments.framing, limit);
    let mut appending = Appending {
        log: &log,
        input,
        framer,
        summary: Summary::new(),
        progress,
        unresolved: false,
    };

    let begin = Instant::now();
    let outcome = appending.run();
    let ended = outcome.as_ref().ok().copied();
    appending.progress.finish_and_clear();
    let Appending { input, framer, mut summary, .. } = appending;
    let closed = log.close();
    summary.set_elapsed(begin.elapsed());
    summary.durable = log.durable().0;
    (summary.read_bytes, summary.input_bytes) = (input.bytes_read(), input.size());
    let outcome = match (outcome, closed) {
        (Ok(Ended::Input), Ok(())) => Ok(()),
        (Ok(Ended::Signal), Ok(())) => input.stopped(match framer.unfinished() {
            0 => String::new(),
            lost => format!("{lost} bytes of an unfinished record were not appended"),
        }),
        // The last durable record follows below, as of the close.
        (Ok(_), Err(error)) | (Err(End::Log(error)), _) => match error {
            Error::NoSpace { .. } => Err(Failure::failed(with_causes(&error))),
            error => Err(Failure::of_log(&error, dir)),
        },
        (Err(End::Input(error)), _) => Err(Failure::of_io("read standard input", &error)),
        (Err(End::Framing(bad)), _) => Err(Failure::failed(bad.to_string())),
    };
    summary.ended_by = match &outcome {
        Err(failure) if !failure.is_interrupt() => "error",
        _ if ended == Some(Ended::Signal) => "signal",
        _ => "end of input",
    };
    let printed = summary.print(arguments.json);
    outcome
        .map_err(|failure| {
            failure.and(format_args!("records through {} are durable", summary.durable))
        })
        .and(printed)
}

/// How reading the input ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Input,
    Signal,
}

/// Why appending failed before the end of the input.
enum End {
    Log(esker_log::Error),
    Input(io::Error),
    Framing(BadFraming),
}

struct Appending<'a> {
    log: &'a Log,
    input: Input,
    framer: Framer,
    summary: Summary,
    progress: ProgressBar,
    /// Whether records were accepted since the last barrier.
    unresolved: bool,
}

impl Appending<'_> {
    fn run(&mut self) -> Result<Ended, End> {
        loop {
            let timeout = self.unresolved.then_some(PAUSE);
            match self.input.wait(timeout).map_err(End::Input)? {
                Event::Input => {
                    let got = self.input.read(self.framer.room()).map_err(End::Input)?;
                    if got == 0 {
                        let last = self.framer.last().map_err(End::Framing)?;
                        self.accept(last.as_slice())?;
                        return self.resolve().map(|()| Ended::Input);
                    }
                    self.framer.filled(got);
                    self.accept_complete()?;
                    self.progress.inc(got as u64);
                }
                Event::Pause => self.resolve()?,
                // All input has been read already, so this is a normal end.
                Event::Stop if self.input.is_at_end() => {
                    let last = self.framer.last().map_err(End::Framing)?;
                    self.accept(last.as_slice())?;
                    return self.resolve().map(|()| Ended::Input);
                }
                Event::Stop => return self.resolve().map(|()| Ended::Signal),
            }
        }
    }

    /// Accepts all complete records. Records before a malformed one are kept.
    fn accept_complete(&mut self) -> Result<(), End> {
        let mut records = Vec::new();
        let framing = loop {
            match self.framer.next() {
                Ok(Some(record)) => records.push(record),
                Ok(None) => break Ok(()),
                Err(bad) => break Err(End::Framing(bad)),
            }
        };
        self.accept(&records)?;
        framing
    }

    fn accept(&mut self, records: &[Range<usize>]) -> Result<(), End> {
        if records.is_empty() {
            return Ok(());
        }
        let payloads: Vec<&[u8]> =
            records.iter().map(|record| self.framer.bytes(record.clone())).collect();
        let before = self.log.accepted().0;
        // Dropping the ticket requests the commit that the policy requires for these records.
        let appended = self.log.append_batch(&payloads).map(drop);
        // When the disk fills in the middle of a batch, a prefix of it is accepted.
        let accepted = payloads.len().min((self.log.accepted().0 - before) as usize);
        if accepted > 0 {
            let bytes = payloads[..accepted].iter().map(|payload| payload.len() as u64).sum();
            self.summary.add(accepted as u64, bytes, before + accepted as u64);
            self.unresolved = true;
        }
        appended.map_err(End::Log)
    }

    /// Makes the accepted records durable.
    fn resolve(&mut self) -> Result<(), End> {
        self.log.barrier().and_then(esker_log::Ticket::blocking_wait).map_err(End::Log)?;
        self.unresolved = false;
        Ok(())
    }
}

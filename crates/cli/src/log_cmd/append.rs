//! `esker log append`: appends standard input to the log.
//!
//! Records are accepted as fast as they arrive, and commits run concurrently; the command does not
//! wait for each record. When the input pauses, the records read so far become durable, under every
//! policy. Input ends at end of file or at a signal; the command then calls `barrier`, closes the
//! log and prints the summary.

use std::io;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use esker_log::{Append, Error, Log, Retention, Seq, SeqRange, Start, Ticket, WriteError};
use indicatif::ProgressBar;

use super::summary::Summary;
use esker_command::choices::ReadableBy;
use esker_command::exit::{Failure, Outcome, complain};
use esker_command::framing::{BadFraming, Framer, Framing};
use esker_command::input::{EndOfInput, Event, Input};
use esker_command::json_line::{self, JsonLine};
use esker_command::library_errors::with_causes;
use esker_command::log_options::{self, RetentionArguments, WritingArguments};
use esker_command::progress;
use esker_command::quantity;

/// How long input must be absent to count as a pause.
const INPUT_PAUSE: Duration = Duration::from_millis(20);
/// How far the newest record must be ahead of the clock to be noted.
const AHEAD_MIN: Duration = Duration::from_secs(2);

const EXAMPLES: &str = "\
Examples:
  # Every line of a file becomes a durable record
  esker log append ./esker-data < README.md

  # Keep the last gigabyte of a service's output, in segments of 16 MiB
  journalctl -f | esker log append ./journal \\
    --segment-size 16M --retain-bytes 1G

  # Binary records, each after a length of 4 bytes; a crash loses at most 99,
  # or 199 during a commit
  my-producer | esker log append ./events --framing len32 --policy batch:100

  # The records of another log, under their numbers
  esker log cat ./events --json \\
    | esker log append ./copy --framing json --keep-seq

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
    /// How records are separated: lines; len32, a length of 4 bytes, little-endian, before each; or
    /// json, the payload or payload_b64 of each line of `esker log cat --json`
    #[arg(long, value_enum, default_value_t, hide_possible_values = true, value_name = "FRAMING")]
    framing: Framing,
    /// With --framing json: records keep their seq, which must be above the last of the log.
    /// Numbers that the input lacks, by its prev, stay missing, with a line each on standard error
    #[arg(long)]
    keep_seq: bool,
    /// Print the summary as one JSON object
    #[arg(long)]
    json: bool,
    /// Space that is kept on the disk to open, close and truncate the log when it is full; at most
    /// 512M [default: 33M and 4K, or less on a small disk]
    #[arg(long, value_name = "BYTES", value_parser = quantity::bytes)]
    reserve: Option<u64>,
    // Last: what follows would be below their headings in the help.
    #[command(flatten)]
    writing: WritingArguments,
    #[command(flatten)]
    retention: RetentionArguments,
}

/// Appends until the input ends.
pub fn run(arguments: &AppendArguments) -> Outcome {
    let dir = &arguments.dir;
    if arguments.keep_seq && arguments.framing != Framing::Json {
        return Err(Failure::usage("--keep-seq needs --framing json: other input has no numbers"));
    }
    let mut options = arguments.writing.options();
    options.retention = arguments.retention.retention();
    options.reserve = arguments.reserve;
    let limit = options.record_limit;

    let input = Input::open()?;
    warn_of_kept_readers(dir, arguments.writing.io.readable_by);
    let log = log_options::for_writing(dir, options)?;
    warn_of_no_retention(&log);
    warn_of_times_ahead(&log, dir);
    Input::note_its_end("records");
    let progress = progress::input_bar(input.size());
    let framer = match arguments.framing {
        Framing::Json => Framer::new(Framing::Json, json_line::limit(limit)),
        framing => Framer::new(framing, limit),
    };
    let mut appending = AppendRun {
        log: &log,
        input,
        framer,
        summary: Summary::new(),
        progress,
        unresolved: false,
        framing: arguments.framing,
        keep_seq: arguments.keep_seq,
        lines: 0,
        last_seq: Some(log.accepted()).filter(|last| *last > Seq::ZERO),
    };

    let begin = Instant::now();
    let outcome = appending.run();
    let ended = outcome.as_ref().ok().copied();
    appending.progress.finish_and_clear();
    let AppendRun { input, framer, mut summary, .. } = appending;
    let closed = log.close();
    summary.set_elapsed(begin.elapsed());
    summary.durable = log.durable().0;
    (summary.read_bytes, summary.input_bytes) = (input.bytes_read(), input.size());
    let outcome = outcome_of(outcome, closed.map_err(Into::into), (&input, &framer), dir);
    summary.ended_by = match &outcome {
        Err(failure) if !failure.is_interrupt() => "error",
        _ if ended == Some(EndOfInput::Signal) => "signal",
        _ => "end of input",
    };
    let printed = summary.print(arguments.json);
    outcome
        .map_err(|failure| {
            failure.and(format_args!("records through {} are durable", summary.durable))
        })
        .and(printed)
}

/// How the command ends: `outcome` is how appending ended, and `closed` how the log was closed.
fn outcome_of(
    outcome: Result<EndOfInput, End>,
    closed: Result<(), Error>,
    (input, framer): (&Input, &Framer),
    dir: &Path,
) -> Outcome {
    match (outcome, closed) {
        (Ok(EndOfInput::Complete), Ok(())) => Ok(()),
        (Ok(EndOfInput::Signal), Ok(())) => input.stopped(match framer.unfinished() {
            0 => String::new(),
            lost => format!("{lost} bytes of an unfinished record were not appended"),
        }),
        // The last durable record follows below, as of the close.
        (Ok(_), Err(error)) | (Err(End::Log(error)), _) => match error {
            Error::NoSpace { .. } => Err(Failure::failed(with_causes(&error))),
            error => Err(Failure::from_log(&error, dir)),
        },
        (Err(End::Input(error)), _) => Err(Failure::from_io("read standard input", &error)),
        (Err(End::Framing(bad)), _) => Err(Failure::failed(bad.to_string())),
        (Err(End::Line(line, what)), _) => {
            Err(Failure::failed(format!("line {line} of the input: {what}")))
        }
    }
}

/// Notes that a log that is there keeps its readers: `--readable-by` holds for what is created.
fn warn_of_kept_readers(dir: &Path, readable_by: ReadableBy) {
    let Ok(manifest) = std::fs::metadata(dir.join("manifest")) else { return };
    let (wanted, change) = match readable_by {
        ReadableBy::Owner => return,
        ReadableBy::Group => (0o040, "g+rX"),
        ReadableBy::All => (0o004, "a+rX"),
    };
    if manifest.permissions().mode() & wanted == 0 {
        let dir = dir.display();
        complain(&format!(
            "note: {dir} exists and keeps its readers; `chmod -R {change} {dir}` lets others read \
             it, and what is added later"
        ));
    }
}

/// Notes that nothing is dropped from the log although an earlier run dropped old records: the
/// limits of one run do not hold for the next.
fn warn_of_no_retention(log: &Log) {
    let prior = log.storage().recovery().prior_retention;
    if log.retention().limits() != Retention::NONE || prior == Retention::NONE {
        return;
    }
    let limits = [
        prior.bytes.map(|bytes| format!("--retain-bytes {}", quantity::shown_bytes(bytes))),
        prior.segments.map(|segments| format!("--retain-segments {segments}")),
        prior.records.map(|records| format!("at most {records} records")),
        prior.age.map(|age| format!("--retain-age {}", quantity::shown_time(age))),
    ];
    let limits: Vec<_> = limits.into_iter().flatten().collect();
    complain(&format!(
        "note: an earlier run kept the log to {}, and nothing is dropped now: this run has no \
         --retain-bytes, --retain-segments or --retain-age",
        limits.join(" and ")
    ));
}

/// Notes that the newest record has a time ahead of the clock. A retention by age takes the time of
/// the opening for it, and drops the record only in a run that lasts as long as the age.
fn warn_of_times_ahead(log: &Log, dir: &Path) {
    if log.retention().limits().age.is_none() {
        return;
    }
    let newest = log.stream(Start::From(log.durable())).and_then(|mut stream| stream.try_next());
    let time = newest.ok().flatten().and_then(|batch| batch.iter().last()?.time());
    let ahead = time.and_then(|time| time.duration_since(SystemTime::now()).ok());
    let Some(ahead) = ahead.filter(|ahead| *ahead >= AHEAD_MIN) else { return };
    complain(&format!(
        "note: the newest record is {} ahead of the clock, and --retain-age counts such records as \
         new when a run begins: they are kept until one run lasts as long as that age; if the clock \
         is right, `esker log truncate {} --before {}` drops them, and times are right again",
        humantime::format_duration(Duration::from_secs(ahead.as_secs())),
        dir.display(),
        log.durable().next()
    ));
}

/// Why appending failed before the end of the input.
enum End {
    Log(esker_log::Error),
    Input(io::Error),
    Framing(BadFraming),
    /// A line of JSON, from 1, that is no record, and why.
    Line(u64, String),
}

struct AppendRun<'a> {
    log: &'a Log,
    input: Input,
    framer: Framer,
    summary: Summary,
    progress: ProgressBar,
    /// Whether records were accepted since the last barrier.
    unresolved: bool,
    framing: Framing,
    keep_seq: bool,
    /// The lines of JSON that were read.
    lines: u64,
    /// The last record, if numbers are kept; `None` in an empty log.
    last_seq: Option<Seq>,
}

impl AppendRun<'_> {
    fn run(&mut self) -> Result<EndOfInput, End> {
        loop {
            let timeout = self.unresolved.then_some(INPUT_PAUSE);
            match self.input.wait(timeout).map_err(End::Input)? {
                Event::Input => {
                    let got = self.input.read(self.framer.room()).map_err(End::Input)?;
                    if got == 0 {
                        let last = self.framer.last().map_err(End::Framing)?;
                        self.accept(last.as_slice())?;
                        return self.resolve().map(|()| EndOfInput::Complete);
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
                    return self.resolve().map(|()| EndOfInput::Complete);
                }
                Event::Stop => return self.resolve().map(|()| EndOfInput::Signal),
            }
        }
    }

    /// Accepts all complete records. Records before a malformed one are kept.
    fn accept_complete(&mut self) -> Result<(), End> {
        let mut records = Vec::new();
        let framing = loop {
            match self.framer.next_record() {
                Ok(Some(record)) => records.push(record),
                Ok(None) => break Ok(()),
                Err(bad) => break Err(End::Framing(bad)),
            }
        };
        self.accept(&records)?;
        framing
    }

    fn accept(&mut self, records: &[Range<usize>]) -> Result<(), End> {
        if self.framing == Framing::Json {
            return self.accept_lines(records);
        }
        let payloads: Vec<&[u8]> =
            records.iter().map(|record| self.framer.bytes(record.clone())).collect();
        if payloads.is_empty() {
            return Ok(());
        }
        let (accepted, appended) = append(self.log, &payloads);
        self.count(accepted);
        appended.map_err(End::Log)
    }

    /// Accepts the records of these lines, up to the first that is none.
    fn accept_lines(&mut self, records: &[Range<usize>]) -> Result<(), End> {
        let mut payloads: Vec<(Seq, Vec<u8>)> = Vec::new();
        let (mut prev, mut notes) = (None, Vec::new());
        let mut parsed = Ok(());
        for record in records {
            self.lines += 1;
            let bytes = self.framer.bytes(record.clone());
            if bytes.trim_ascii().is_empty() {
                continue;
            }
            let line = JsonLine::parse(bytes);
            let placed = line.and_then(|line| match self.keep_seq {
                true => Ok((Some(line.place(self.last_seq)?), line.payload)),
                false => Ok((None, line.payload)),
            });
            match placed {
                Ok((Some(place), payload)) => {
                    self.last_seq = Some(place.seq);
                    prev.get_or_insert(place.prev);
                    notes.extend(place.missing.map(|missing| (self.lines, missing)));
                    payloads.push((place.seq, payload));
                }
                Ok((None, payload)) => payloads.push((Seq::ZERO, payload)),
                Err(what) => {
                    parsed = Err(End::Line(self.lines, what));
                    break;
                }
            }
        }
        let accepted = match prev {
            _ if payloads.is_empty() => Ok(()),
            Some(prev) => {
                let written = self.log.write(Append::numbered(prev, &payloads));
                let lens = payloads.iter().map(|(_, payload)| payload.len());
                let (accepted, appended) = counted(payloads[0].0, lens, written);
                self.count(accepted);
                appended
            }
            None => {
                let payloads: Vec<_> = payloads.iter().map(|(_, payload)| payload).collect();
                let (accepted, appended) = append(self.log, &payloads);
                self.count(accepted);
                appended
            }
        };
        self.progress.suspend(|| {
            for (line, SeqRange { from, to }) in notes {
                complain(&format!(
                    "note: records above {from} up to {to} are missing before line {line} of the input"
                ));
            }
        });
        accepted.map_err(End::Log).and(parsed)
    }

    fn count(&mut self, accepted: AcceptedRecords) {
        let AcceptedRecords { records, bytes, first } = accepted;
        if records > 0 {
            self.summary.add(records, bytes, first, self.log.accepted().0);
            self.unresolved = true;
        }
    }

    /// Makes the accepted records durable.
    fn resolve(&mut self) -> Result<(), End> {
        self.log
            .barrier()
            .and_then(esker_log::Ticket::blocking_wait)
            .map_err(|error| End::Log(error.into()))?;
        self.unresolved = false;
        Ok(())
    }
}

/// The records of a batch that were accepted.
struct AcceptedRecords {
    records: u64,
    bytes: u64,
    /// The number of the first.
    first: u64,
}

/// Appends a batch. When the disk fills in the middle of it, a prefix of it is accepted.
fn append<P: AsRef<[u8]>>(log: &Log, payloads: &[P]) -> (AcceptedRecords, esker_log::Result<()>) {
    let first = log.accepted().next();
    let written = log.write(Append::records(payloads));
    counted(first, payloads.iter().map(|payload| payload.as_ref().len()), written)
}

/// Counts the accepted records of a write of payloads of these lengths.
fn counted(
    first: Seq,
    lens: impl ExactSizeIterator<Item = usize>,
    written: Result<Ticket, WriteError>,
) -> (AcceptedRecords, esker_log::Result<()>) {
    let (records, appended) = match written {
        // Dropping the ticket requests the commit that the policy requires for these records.
        Ok(_ticket) => (lens.len(), Ok(())),
        Err(WriteError { error, accepted, .. }) => (accepted, Err(error)),
    };
    let bytes = lens.take(records).map(|len| len as u64).sum();
    (
        AcceptedRecords { records: records as u64, bytes, first: first.0 },
        appended.map_err(Into::into),
    )
}

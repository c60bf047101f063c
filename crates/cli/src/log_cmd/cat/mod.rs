//! `esker log cat`: prints the durable records, in order, to standard output.
//!
//! It takes no lock and changes nothing, so it can run concurrently with a writer. A range
//! quarantined by `repair` is reported on standard error and skipped. Corruption that has not been
//! repaired ends the command.
//!
//! With `--follow` it waits for new records. A separate thread waits for a signal, or for the
//! reader of standard output to exit, and then closes the log reader.

mod printer;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use esker_log::{ConsumerError, Error, ReadOnlyLog, ReadOptions};

use crate::writer_process;
use esker_command::exit::{Failure, Outcome, complain};
use esker_command::framing::Framing;
use esker_command::output;
use esker_command::quantity;
use esker_command::signals::Stop;
use printer::{End, Printer};

use super::range::Range;
use super::salvage::{self, PrintCounts};

const EXAMPLES: &str = "\
Examples:
  # All durable records, one per line
  esker log cat ./esker-data

  # The last ten, then new records as they become durable
  esker log cat ./esker-data -n 10 -f

  # From record 1000 on, with numbers, positions and times
  esker log cat ./esker-data --from 1000 --json

  # What became durable in the last ten minutes
  esker log cat ./esker-data --since 10m

  # After the offset of a consumer
  esker log cat ./esker-data --consumer billing

  # To another log, records of any bytes
  esker log cat ./esker-data --framing len32 \\
    | esker log append ./copy --framing len32

  # What can be read of a corrupt log
  esker log cat ./esker-data --skip-corrupt

Without --follow it ends at the durable watermark that it read at its start. Exit status 3 on \
corruption, after printing the records before it. A range that `esker repair` quarantined is \
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
    /// End with the last record at or below this number
    #[arg(long, value_name = "N")]
    to: Option<u64>,
    /// Start with the last N records
    #[arg(short = 'n', long, value_name = "N", conflicts_with_all = ["from", "since"])]
    last: Option<u64>,
    /// Start with the first record that became durable so long ago or later: 90 (seconds), 10m, 2h,
    /// 7d
    #[arg(long, value_name = "TIME", value_parser = quantity::time, conflicts_with = "from")]
    since: Option<Duration>,
    /// Start after the offset of this consumer, or with the oldest record if it has none; fails if
    /// a record after it was dropped
    #[arg(long, value_name = "NAME", conflicts_with_all = ["from", "last", "since"])]
    consumer: Option<String>,
    /// End after N records
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print new records as they become durable, until a signal or until standard output is closed
    #[arg(short, long)]
    follow: bool,
    /// One JSON object per record: seq, prev, position, time, and payload, or payload_b64 where it
    /// is not UTF-8 text
    #[arg(long, conflicts_with = "framing")]
    json: bool,
    /// How records are separated: lines; len32, a length of 4 bytes, little-endian, before each; or
    /// json, as --json
    #[arg(long, value_enum, default_value_t, hide_possible_values = true, value_name = "FRAMING")]
    framing: Framing,
    /// Print every valid record, also of corrupt commits and those after them; what is skipped or
    /// missing is reported on standard error, with exit status 3; what a repair quarantined, with
    /// one line and exit status 0. For a log without a writer
    #[arg(long, conflicts_with_all = ["last", "since", "consumer", "follow"])]
    skip_corrupt: bool,
}

impl CatArguments {
    fn framing(&self) -> Framing {
        if self.json { Framing::Json } else { self.framing }
    }
}

/// Prints until the end of the log, corruption, or a signal.
pub fn run(arguments: &CatArguments) -> Outcome {
    let CatArguments { dir, from, to, last, since, consumer, limit, .. } = arguments;
    let log_failure = |error: Error| Failure::from_read(&error, dir);
    if arguments.skip_corrupt {
        return print_valid(arguments);
    }
    let no_signals = |e| Failure::from_io("wait for signals", &e);
    let stop = arguments.follow.then(Stop::on_signals).transpose().map_err(no_signals)?;
    let reader = ReadOnlyLog::open(dir).map_err(|error| log_failure(error.into()))?;
    let range = match (consumer, last, since) {
        (Some(name), _, _) => after_consumer(&reader, name, dir)?,
        (_, Some(last), _) => Range::last(&reader, *last).map_err(log_failure)?,
        (_, _, Some(since)) => Range::since(*since),
        (None, None, None) => Range::from(*from),
    };
    let range = range.to(*to).limit(*limit);
    let stream = reader.stream(range.start()).map_err(|error| log_failure(error.into()))?;
    let out = output::buffered()?;
    let mut printer = Printer::new(stream, out, arguments.framing(), range);

    let Some(stop) = stop else {
        let end = printer.catch_up();
        if end.is_ok() {
            report_unrecovered_tail(&reader, dir);
        }
        return ended(&mut printer, end, dir);
    };
    let stopped = stop.end_follower(printer.out(), move || reader.close()).map_err(no_signals)?;
    let end = printer.follow(&stopped);
    ended(&mut printer, end, dir)
}

/// The records after the offset of a consumer.
fn after_consumer(reader: &ReadOnlyLog, name: &str, dir: &Path) -> Outcome<Range> {
    let log_failure = |error: ConsumerError| Failure::from_log(&error.into(), dir);
    let shown = output::escaped(name);
    let Some(offset) = reader.consumers().get(name).map_err(log_failure)? else {
        complain(&format!("note: {shown} has no offset yet; this begins with the oldest record"));
        return Ok(Range::from(None));
    };
    let before = reader.oldest().0.saturating_sub(1);
    if offset.0 < before {
        return Err(Failure::failed(format!(
            "{shown} is at {offset}, and the records up to {before} were dropped; \
             `esker log offsets {} set {shown} {before}` lets it go on after them",
            dir.display()
        )));
    }
    if offset > reader.durable() {
        complain(&format!(
            "note: {shown} is at {offset}, and the last durable record is {}",
            reader.durable()
        ));
    }
    Ok(Range::after(offset))
}

/// Prints the valid records of a log that may be corrupt.
fn print_valid(arguments: &CatArguments) -> Outcome {
    let CatArguments { dir, from, to, limit, .. } = arguments;
    let salvage = esker_log::salvage_log(dir, ReadOptions::default());
    let salvage = salvage.map_err(|error| Failure::from_log(&error.into(), dir))?;
    let range = Range::from(*from).to(*to).limit(*limit);
    let manifest = salvage.manifest_corruption().cloned();
    if let Some(found) = &manifest {
        complain(&format!("{found}; records that were truncated may be printed, too"));
    }
    match salvage::print(salvage, arguments.framing(), range, dir)? {
        PrintCounts { is_partial, records } if is_partial || manifest.is_some() => {
            Err(Failure::corrupt(format!(
                "{} is corrupt; {records} valid records were printed",
                dir.display()
            )))
        }
        _ => Ok(()),
    }
}

/// Reports data after the durable watermark, as left by a killed writer. While a writer is alive,
/// that data is its next commit and needs no message.
fn report_unrecovered_tail(reader: &ReadOnlyLog, dir: &Path) {
    let bytes = reader.storage().unrecovered_bytes();
    if bytes == 0 || writer_process::find(dir).is_some() {
        return;
    }
    let (durable, had_writer) = (reader.durable(), writer_process::had_one(dir));
    let dir = dir.display();
    complain(&match had_writer {
        true => format!(
            "note: {bytes} bytes after record {durable} are not known to be durable; the next \
             writer to open {dir} recovers them or cuts them off"
        ),
        false => format!(
            "note: {bytes} bytes after record {durable} are of a backup that is running or was \
             interrupted; run the backup to {dir} again"
        ),
    });
}

/// Flushes what was printed, and returns the outcome.
fn ended(printer: &mut Printer, end: Result<(), End>, dir: &Path) -> Outcome {
    let flushed = output::unless_closed(printer.flush());
    match end {
        Ok(()) => flushed.map(|_| ()),
        Err(End::Output(error)) => output::unless_closed(Err(error)).map(|_| ()),
        Err(End::Log(error)) => {
            let failure = Failure::from_read(&error, dir);
            Err(match printer.printed() {
                Some(last) => failure.and(format_args!("printed through record {last}")),
                None => failure.and(format_args!("nothing was printed")),
            })
        }
    }
}

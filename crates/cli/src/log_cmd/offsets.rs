//! `esker log offsets`: shows and changes the named offsets of consumers.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use esker_log::{ConsumerError, Consumers, Error, ReadOnlyLog, Seq};
use serde_json::json;

use esker_command::exit::{Failure, Outcome, complain};
use esker_command::output;

const EXAMPLES: &str = "\
Examples:
  # The offset of every consumer, and how far it lags the last record
  esker log offsets ./esker-data list

  # Continue where a consumer stopped, and say how far it is now
  esker log cat ./esker-data --consumer billing
  esker log offsets ./esker-data set billing 1200

  # Only if no other process changed it meanwhile; `none` is a consumer
  # without an offset
  esker log offsets ./esker-data set billing 1300 --if 1200

  # For scripts: a name may have spaces and line breaks, which --json keeps
  esker log offsets ./esker-data list --json

An offset is the number of the last record that a consumer is done with. It keeps no records: \
retention drops them all the same. The lag counts the numbers after it that were not dropped. It works \
beside a live writer. `get` and `remove` of a consumer \
without an offset exit with 1, as does `set --if` when the offset is another.";

/// Arguments of `esker log offsets`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct OffsetsArguments {
    /// The log's directory
    dir: PathBuf,
    /// Print one JSON object, with `list` one per consumer
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: OffsetsCommand,
}

#[derive(Debug, Subcommand)]
enum OffsetsCommand {
    /// Print the offset and the lag of every consumer
    #[command(after_help = "Example:\n  esker log offsets ./esker-data list")]
    List,
    /// Print the offset of a consumer
    #[command(after_help = "Example:\n  esker log offsets ./esker-data get billing")]
    Get {
        /// The consumer: any text of 1 to 255 bytes
        name: String,
    },
    /// Set the offset of a consumer, durably
    #[command(after_help = "Example:\n  esker log offsets ./esker-data set billing 1200")]
    Set {
        /// The consumer: any text of 1 to 255 bytes
        name: String,
        /// The number of the last record that it is done with
        #[arg(allow_negative_numbers = true)]
        n: u64,
        /// Only if the offset is this; `none` if there is to be none
        #[arg(long = "if", value_name = "OLD", value_parser = expected)]
        expected: Option<ExpectedOffset>,
    },
    /// Remove a consumer, durably
    #[command(after_help = "Example:\n  esker log offsets ./esker-data remove billing")]
    Remove {
        /// The consumer: any text of 1 to 255 bytes
        name: String,
    },
}

/// The offset that is expected: a number, or none.
#[derive(Debug, Clone, Copy)]
struct ExpectedOffset(Option<Seq>);

fn expected(text: &str) -> Result<ExpectedOffset, String> {
    if text == "none" {
        return Ok(ExpectedOffset(None));
    }
    let number = text.parse().map_err(|_| "a number, or none")?;
    Ok(ExpectedOffset(Some(Seq(number))))
}

/// Runs a command of `esker log offsets`.
pub fn run(arguments: &OffsetsArguments) -> Outcome {
    let dir = &arguments.dir;
    let failed = |error: Error| match error {
        Error::OffsetChanged { .. } => Failure::failed(format!("{error}; nothing was changed")),
        error => Failure::from_log(&error, dir),
    };
    let log = ReadOnlyLog::open(dir).map_err(|error| failed(error.into()))?;
    // As for `append`: a component has a log for itself.
    if let found @ Some(_) = log.component().id().map_err(|error| failed(error.into()))? {
        return Err(failed(Error::WrongComponent { dir: dir.clone(), found, expected: None }));
    }
    let consumers = log.consumers();
    let changed = |error: ConsumerError| failed(error.into());
    let absent =
        |name: &str| Failure::failed(format!("{}: consumer {name} has no offset", dir.display()));
    let (name, offset) = match &arguments.command {
        OffsetsCommand::List => return list(dir, &log, &consumers, arguments.json),
        OffsetsCommand::Get { name } => {
            let offset = consumers.get(name).map_err(changed)?.ok_or_else(|| absent(name))?;
            if !arguments.json {
                return output::print(&format!("{offset}\n"));
            }
            (name, Some(offset))
        }
        OffsetsCommand::Set { name, n, expected } => {
            match expected {
                None => consumers.set(name, Seq(*n)).map(drop),
                Some(expected) => consumers.compare_and_set(name, expected.0, Seq(*n)).map(drop),
            }
            .map_err(changed)?;
            note_if_ahead(&log, name, Seq(*n));
            (name, Some(Seq(*n)))
        }
        OffsetsCommand::Remove { name } => {
            consumers.remove(name).map_err(changed)?.ok_or_else(|| absent(name))?;
            (name, None)
        }
    };
    match arguments.json {
        true => output::print_json(&json!({ "name": name, "offset": offset.map(|seq| seq.0) })),
        false => Ok(()),
    }
}

/// Notes an offset after the last record: the consumer will skip the records up to it.
fn note_if_ahead(log: &ReadOnlyLog, name: &str, offset: Seq) {
    let last = log.durable();
    if offset > last {
        let name = output::escaped(name);
        complain(&format!(
            "note: {name} is at {offset}, and the last durable record is {last}: the consumer skips \
             the records up to {offset}"
        ));
    }
}

fn list(dir: &Path, log: &ReadOnlyLog, consumers: &Consumers, json: bool) -> Outcome {
    let before = Seq(log.oldest().0.saturating_sub(1));
    for (name, offset) in consumers.list().map_err(|error| Failure::from_log(&error.into(), dir))? {
        let lag = log.durable().0.saturating_sub(offset.max(before).0);
        if json {
            let mut line = json!({ "name": name, "offset": offset.0, "lag": lag });
            if offset < before {
                line["dropped_to"] = json!(before.0);
            }
            output::print_json(&line)?;
        } else {
            let dropped = match offset < before {
                true => format!("; records up to {before} were dropped"),
                false => String::new(),
            };
            let name = output::escaped(&name);
            output::print(&format!("{name} {offset} (lag {lag}{dropped})\n"))?;
        }
    }
    // Records that it hides are in no lag.
    match log.storage().corruption() {
        Some(found) => Err(Failure::from_log(&Error::Corrupted(found), dir)
            .and("the lags count the records that can be read without a repair")),
        None => Ok(()),
    }
}

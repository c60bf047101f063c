//! `esker kv import`: puts the keys and values of standard input.
//!
//! The bytes that a read of the input returns are written at once, so they become durable while the
//! command waits for more. Input ends at end of file or at a signal.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::Args;
use esker_kv::{Batch, Error, KEY_LIMIT, Keyspace, Store, Ticket, VALUE_LIMIT};
use indicatif::ProgressBar;
use serde_json::json;

use super::entries::{self, Entry, Framing, FramingArgument};
use super::open;
use esker_command::exit::{Failure, Outcome};
use esker_command::framing::{self, BadFraming, Framer};
use esker_command::input::{EndOfInput, Event, Input};
use esker_command::output;
use esker_command::progress;

const EXAMPLES: &str = "\
Examples:
  esker kv export ./store --all-keyspaces | esker kv import ./copy
  printf '{\"key\":\"a\",\"value\":\"1\"}\\n' \\
    | esker kv import ./store --keyspace accounts

The store and the keyspaces are created where they are missing. A line goes to the keyspace that it \
names, one that names none to --keyspace. What was read becomes durable while the command waits for \
input, and is durable when it ends. SIGINT, SIGTERM and SIGHUP end the input: SIGTERM and SIGHUP exit \
with status 0, SIGINT (Ctrl-C) before the end of the input with 130. An invalid line ends the import; \
the entries before it are put.";

/// A batch is written when it has this many entries, or bytes.
const BATCH_ENTRIES: usize = 1000;
const BATCH_BYTES: usize = 4 << 20;
/// Batches in flight.
const IN_FLIGHT: usize = 8;
/// The longest line: a key and a value in base 64, or with escapes.
const LINE_LIMIT: u32 = ((KEY_LIMIT + VALUE_LIMIT) * 6 + 4096) as u32;

/// Arguments of `esker kv import`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ImportArguments {
    /// The store's directory
    dir: PathBuf,
    /// The keyspace; a line that names another is an error [default: what the line names, or
    /// default]
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
    #[command(flatten)]
    framing: FramingArgument,
    /// Print one JSON object at the end, also when it fails after it began
    #[arg(long)]
    json: bool,
}

/// Puts entries until the input ends.
pub fn run(arguments: &ImportArguments) -> Outcome {
    let ImportArguments { dir, keyspace, framing, json } = arguments;
    let framing = framing.framing;
    if let Some(name) = keyspace {
        open::check_name(name)?;
    }
    let input = Input::open()?;
    let store = open::store(dir, false)?;
    Input::note_its_end("entries");
    let progress = progress::input_bar(input.size());
    let framer = match framing {
        Framing::Json => Framer::new(framing::Framing::Lines, LINE_LIMIT),
        Framing::Len32 => Framer::new(framing::Framing::Len32, VALUE_LIMIT as u32),
    };
    let mut importing = ImportRun {
        dir,
        store: &store,
        keyspace: None,
        only: keyspace.as_deref(),
        framing,
        input,
        framer,
        progress,
        batch: Batch::new(),
        bytes: 0,
        tickets: VecDeque::new(),
        records: 0,
        key: None,
        count: 0,
    };
    let ended = importing.run();
    let durable = importing.finish();
    importing.progress.finish_and_clear();
    let ImportRun { input, framer, key, count, .. } = importing;
    let closed = store.close().map_err(|error| Failure::from_kv(error, dir));
    let outcome = ended.and_then(|ended| durable.and(closed).map(|()| ended));
    let outcome = outcome.and_then(|ended| {
        if ended == EndOfInput::Signal {
            let unfinished = framer.unfinished() + key.map_or(0, |key| key.len() + 4);
            input.stopped(match unfinished {
                0 => String::new(),
                lost => format!("{lost} bytes of an unfinished entry were not put"),
            })?;
        }
        Ok(ended)
    });
    let ended_by = match &outcome {
        Ok(EndOfInput::Complete) => "end of input",
        Ok(EndOfInput::Signal) => "signal",
        Err(failure) if failure.is_interrupt() => "signal",
        Err(_) => "error",
    };
    let printed = if *json {
        output::print_json(&json!({ "entries": count, "ended_by": ended_by }))
    } else {
        match &outcome {
            Ok(EndOfInput::Complete) => output::print(&format!("entries put: {count}\n")),
            Ok(EndOfInput::Signal) => {
                output::print(&format!("entries put: {count}; a signal ended the import\n"))
            }
            Err(_) => Ok(()),
        }
    };
    outcome.map_err(|failure| failure.and(format!("entries put: {count}"))).and(printed)
}

struct ImportRun<'a> {
    dir: &'a Path,
    store: &'a Store,
    /// The keyspace of the last entry.
    keyspace: Option<Keyspace>,
    /// The keyspace that the command line names.
    only: Option<&'a str>,
    framing: Framing,
    input: Input,
    framer: Framer,
    progress: ProgressBar,
    /// Entries that are not written yet, and their bytes.
    batch: Batch,
    bytes: usize,
    tickets: VecDeque<Ticket>,
    /// Lines, or frames, that were read.
    records: u64,
    /// A key whose value is the next frame.
    key: Option<Vec<u8>>,
    /// Entries that were put.
    count: u64,
}

impl ImportRun<'_> {
    fn run(&mut self) -> Outcome<EndOfInput> {
        if let Some(name) = self.only {
            self.select(name)?;
        }
        let failure = |error| Failure::from_io("read standard input", &error);
        loop {
            match self.input.wait(None).map_err(failure)? {
                Event::Input => match self.input.read(self.framer.room()).map_err(failure)? {
                    0 => return self.put_last().map(|()| EndOfInput::Complete),
                    got => {
                        self.framer.filled(got);
                        self.put_complete()?;
                        self.progress.inc(got as u64);
                    }
                },
                Event::Pause => {}
                // All input has been read already, so this is a normal end.
                Event::Stop if self.input.is_at_end() => {
                    return self.put_last().map(|()| EndOfInput::Complete);
                }
                Event::Stop => return Ok(EndOfInput::Signal),
            }
        }
    }

    /// Puts what the input has as complete entries.
    fn put_complete(&mut self) -> Outcome {
        while let Some(record) =
            self.framer.next_record().map_err(|bad| self.framing_failure(bad))?
        {
            self.put_record(record)?;
        }
        self.write()
    }

    fn put_last(&mut self) -> Outcome {
        if let Some(record) = self.framer.last().map_err(|bad| self.framing_failure(bad))? {
            self.put_record(record)?;
        }
        match self.key {
            Some(_) => Err(self.failure("the input ends after its key")),
            None => Ok(()),
        }
    }

    /// Puts a line, or a frame with the one before it.
    fn put_record(&mut self, record: Range<usize>) -> Outcome {
        self.records += 1;
        let bytes = self.framer.bytes(record);
        let entry = match self.framing {
            Framing::Json if bytes.iter().all(u8::is_ascii_whitespace) => return Ok(()),
            Framing::Json => entries::parse_json(bytes),
            Framing::Len32 => match self.key.take() {
                Some(key) => Ok(Entry { keyspace: None, pair: Some((key, bytes.to_vec())) }),
                None => {
                    self.key = Some(bytes.to_vec());
                    return Ok(());
                }
            },
        };
        let Entry { keyspace, pair } = entry.map_err(|what| self.failure(what))?;
        let name = match (self.only, keyspace) {
            (Some(only), Some(name)) if name != only => {
                return Err(self.failure(format!(
                    "it is of the keyspace {name:?}, and --keyspace names {only:?}"
                )));
            }
            (Some(only), _) => only.to_owned(),
            (None, name) => name.unwrap_or_else(|| open::DEFAULT.to_owned()),
        };
        let keyspace = self.select(&name)?;
        let Some((key, value)) = pair else { return Ok(()) };
        self.batch
            .put(&keyspace, &key, &value)
            .map_err(|error| self.store_failure(error.into()))?;
        self.bytes += key.len() + value.len();
        if self.batch.len() >= BATCH_ENTRIES || self.bytes >= BATCH_BYTES {
            self.write()?;
        }
        Ok(())
    }

    /// Returns the keyspace; creates it where it is missing.
    fn select(&mut self, name: &str) -> Outcome<Keyspace> {
        match &self.keyspace {
            Some(keyspace) if keyspace.name() == name => Ok(keyspace.clone()),
            _ => {
                let keyspace = self.store.create_keyspace(name);
                let keyspace = keyspace.map_err(|error| self.store_failure(error.into()))?;
                Ok(self.keyspace.insert(keyspace).clone())
            }
        }
    }

    /// Writes the batch. Its commit begins without a request.
    fn write(&mut self) -> Outcome {
        if self.batch.is_empty() {
            return Ok(());
        }
        let written = self.store.write(&self.batch);
        let entries = self.batch.len() as u64;
        self.batch.clear();
        self.bytes = 0;
        self.tickets.push_back(written.map_err(|error| Failure::from_kv(error, self.dir))?);
        self.count += entries;
        self.wait_until(IN_FLIGHT)
    }

    /// Writes the rest, and waits until everything is durable.
    fn finish(&mut self) -> Outcome {
        let written = self.write();
        self.wait_until(0).and(written)
    }

    fn wait_until(&mut self, in_flight: usize) -> Outcome {
        while self.tickets.len() > in_flight
            && let Some(ticket) = self.tickets.pop_front()
        {
            ticket.blocking_wait().map_err(|error| Failure::from_kv(error, self.dir))?;
        }
        Ok(())
    }

    /// Names the entry that is wrong.
    fn failure(&self, what: impl std::fmt::Display) -> Failure {
        self.failure_at(self.records, what)
    }

    fn failure_at(&self, record: u64, what: impl std::fmt::Display) -> Failure {
        Failure::failed(match self.framing {
            Framing::Json => format!("line {record} of the input: {what}"),
            Framing::Len32 => format!("entry {} of the input: {what}", record.div_ceil(2)),
        })
    }

    fn store_failure(&self, error: Error) -> Failure {
        match error {
            Error::KeyTooLarge { .. } | Error::ValueTooLarge { .. } | Error::InvalidName { .. } => {
                self.failure(error)
            }
            _ => Failure::from_kv(error, self.dir),
        }
    }

    fn framing_failure(&self, bad: BadFraming) -> Failure {
        match bad {
            BadFraming::TooLarge { record, length: None, limit } => {
                self.failure_at(record, format!("it has more than {limit} bytes"))
            }
            BadFraming::TooLarge { record, length: Some(length), limit } => self.failure_at(
                record,
                format!(
                    "a length of {length} bytes; the limit is {limit}, or the input is not framed \
                     as len32"
                ),
            ),
            BadFraming::Unfinished { record, .. } => {
                let what = if record % 2 == 1 { "key" } else { "value" };
                self.failure_at(record, format!("the input ends inside its {what}"))
            }
        }
    }
}

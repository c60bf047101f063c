//! `esker kv import` and `export`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::os::fd::AsFd;

use clap::{Args, ValueEnum};
use esker_kv::{Batch, KEY_LIMIT, Keyspace, KeyspaceReader, VALUE_LIMIT};
use indicatif::ProgressBar;
use serde_json::json;

use super::entries;
use super::open::{self, Place};
use crate::exit::{Failure, Outcome};
use crate::output;
use crate::progress;

const IMPORT_EXAMPLES: &str = "\
Examples:
  esker kv export ./store | esker kv import ./copy
  printf '{\"key\":\"a\",\"value\":\"1\"}\\n' | esker kv import ./store

The store and the keyspace are created where they are missing. Everything that was read is durable \
when the command ends. An invalid line ends the import; the entries before it are put.";

const EXPORT_EXAMPLES: &str = "\
Examples:
  esker kv export ./store > store.jsonl
  esker kv export ./store --framing len32 > store.bin

  # After `esker log repair` quarantined corrupt records: a new store of what is left
  esker kv export ./store --skip-corrupt | esker kv import ./copy

A line is an object with key and value, or key_b64 and value_b64 where the bytes are not text. With \
--framing len32, each key and each value follows its length in 4 bytes, little-endian.";

/// A batch is written when it has this many entries, or bytes.
const BATCH: usize = 1000;
const BATCH_BYTES: usize = 4 << 20;
/// The longest line: a key and a value in base 64.
const LINE_LIMIT: u64 = ((KEY_LIMIT + VALUE_LIMIT) * 6 + 1024) as u64;

/// How entries are separated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Framing {
    /// JSON lines
    #[default]
    Json,
    /// Lengths of 4 bytes, little-endian
    Len32,
}

/// The keyspace, and the form of its entries outside.
#[derive(Debug, Args)]
struct Form {
    #[command(flatten)]
    place: Place,
    /// JSON lines, or lengths and bytes
    #[arg(
        long,
        value_enum,
        default_value_t,
        hide_possible_values = true,
        value_name = "json|len32"
    )]
    framing: Framing,
}

/// Arguments of `esker kv import`.
#[derive(Debug, Args)]
#[command(after_help = IMPORT_EXAMPLES)]
pub struct ImportArguments {
    #[command(flatten)]
    form: Form,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
}

/// Arguments of `esker kv export`.
#[derive(Debug, Args)]
#[command(after_help = EXPORT_EXAMPLES)]
pub struct ExportArguments {
    #[command(flatten)]
    form: Form,
    /// Where `esker log repair` quarantined records, print the newest values that are left
    #[arg(long)]
    skip_corrupt: bool,
}

/// Prints all keys and values.
pub fn export(arguments: &ExportArguments) -> Outcome {
    let ExportArguments { form: Form { place, framing }, skip_corrupt } = arguments;
    let print = |keyspace: &KeyspaceReader| {
        let mut out =
            output::buffered().map_err(|error| Failure::of_io("standard output", &error))?;
        let scan = keyspace.scan::<[u8]>(..).map_err(|error| place.failure(&error))?;
        let bar = progress::of_keys(keyspace.len());
        for entry in bar.wrap_iter(scan) {
            let (key, value) = entry.map_err(|error| place.failure(&error))?;
            let written = match framing {
                Framing::Json => entries::write_json(&mut out, &key, &value),
                Framing::Len32 => entries::write_len32(&mut out, &key, &value),
            };
            if !output::unless_closed(written)? {
                return Ok(());
            }
        }
        output::unless_closed(out.flush()).map(drop)
    };
    if *skip_corrupt { place.read_what_is_left(print) } else { place.read(print) }
}

/// Puts the entries of standard input.
pub fn import(arguments: &ImportArguments) -> Outcome {
    let ImportArguments { form: Form { place, framing }, json } = arguments;
    let store = open::store(&place.dir, false)?;
    let keyspace = store.create_keyspace(&place.keyspace).map_err(|error| place.failure(&error))?;
    let mut count = 0;
    let bar = progress::of_input(input_size());
    let imported = import_all(place, &store, &keyspace, *framing, &bar, &mut count);
    bar.finish_and_clear();
    let closed = store.close().map_err(|error| place.failure(&error));
    imported.and(closed).map_err(|failure| failure.and(format!("entries put: {count}")))?;
    if *json {
        return output::print_json(&json!({ "entries": count }));
    }
    output::print(&format!("entries put: {count}\n"))
}

/// The bytes of standard input, where it is a file.
fn input_size() -> Option<u64> {
    let mut file = File::from(io::stdin().as_fd().try_clone_to_owned().ok()?);
    let data = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    Some(data.len().saturating_sub(file.stream_position().ok()?))
}

fn import_all(
    place: &Place,
    store: &esker_kv::Store,
    keyspace: &Keyspace,
    framing: Framing,
    bar: &ProgressBar,
    count: &mut u64,
) -> Outcome {
    let input = bar.wrap_read(io::stdin().lock());
    let mut input = BufReader::with_capacity(1 << 20, input);
    let mut batch = Batch::new();
    let mut bytes = 0;
    let mut tickets = std::collections::VecDeque::new();
    let mut ended = Ok(());
    loop {
        let entry = match framing {
            Framing::Json => next_json(&mut input),
            Framing::Len32 => next_len32(&mut input),
        };
        let entry = match entry {
            Ok(entry) => entry,
            Err(what) => {
                let number = *count + batch.len() as u64 + 1;
                ended = Err(Failure::failed(format!("entry {number} of the input: {what}")));
                None
            }
        };
        if let Some((key, value)) = &entry {
            let added = batch.put(keyspace, key, value);
            bytes += key.len() + value.len();
            if let Err(error) = added {
                ended = Err(place.failure(&error));
            }
        }
        let last = entry.is_none() || ended.is_err();
        if !batch.is_empty() && (last || batch.len() >= BATCH || bytes >= BATCH_BYTES) {
            let ticket = store.write(&batch).map_err(|error| place.failure(&error))?;
            *count += batch.len() as u64;
            tickets.push_back(ticket);
            (bytes, _) = (0, batch.clear());
            // A few batches in flight.
            if tickets.len() > 8
                && let Some(ticket) = tickets.pop_front()
            {
                ticket.blocking_wait().map_err(|error| place.failure(&error))?;
            }
        }
        if last {
            for ticket in tickets {
                ticket.blocking_wait().map_err(|error| place.failure(&error))?;
            }
            return ended;
        }
    }
}

type Entry = (Vec<u8>, Vec<u8>);

fn next_json(input: &mut impl BufRead) -> Result<Option<Entry>, String> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = input.by_ref().take(LINE_LIMIT + 1).read_until(b'\n', &mut line);
        match read.map_err(|error| format!("it cannot be read: {error}"))? {
            0 => return Ok(None),
            _ if line.len() as u64 > LINE_LIMIT => return Err("the line is too long".into()),
            _ if line.iter().all(u8::is_ascii_whitespace) => {}
            _ => return entries::parse_json(&line).map(Some),
        }
    }
}

fn next_len32(input: &mut impl BufRead) -> Result<Option<Entry>, String> {
    let key = match frame(input, KEY_LIMIT)? {
        Some(key) => key,
        None => return Ok(None),
    };
    match frame(input, VALUE_LIMIT)? {
        Some(value) => Ok(Some((key, value))),
        None => Err("the input ends after its key".into()),
    }
}

fn frame(input: &mut impl BufRead, limit: usize) -> Result<Option<Vec<u8>>, String> {
    let mut bytes = Vec::new();
    let mut read = |most: usize| {
        bytes.clear();
        let read = input.by_ref().take(most as u64).read_to_end(&mut bytes);
        read.map(|_| bytes.clone()).map_err(|error| format!("it cannot be read: {error}"))
    };
    let length = read(4)?;
    let length = match <[u8; 4]>::try_from(&length[..]) {
        Ok(length) => u32::from_le_bytes(length) as usize,
        Err(_) if length.is_empty() => return Ok(None),
        Err(_) => return Err("the input ends inside a length".into()),
    };
    if length > limit {
        return Err(format!("a length of {length} bytes; the limit is {limit}"));
    }
    let bytes = read(length)?;
    if bytes.len() < length {
        return Err("the input ends inside it".into());
    }
    Ok(Some(bytes))
}

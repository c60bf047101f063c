//! `esker kv put`, `get` and `del`: one key.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use esker_kv::VALUE_LIMIT;

use super::entries;
use super::open::KeyspaceSelection;
use super::scan::RangeArguments;
use esker_command::exit::{Failure, Outcome};
use esker_command::output;

const PUT_EXAMPLES: &str = "\
Examples:
  esker kv put ./store colour blue
  esker kv put ./store alice 100 --keyspace accounts
  esker kv put ./store photo - < photo.jpg

The store and the keyspace are created where they are missing. The value is durable when the command \
ends with exit status 0. A value of - is read from standard input, with every newline in it.";

const GET_EXAMPLES: &str = "\
Examples:
  esker kv get ./store colour
  esker kv get ./store alice --keyspace accounts
  esker kv get ./store colour --json

An absent key prints nothing and exits with 1. With --json it prints an object with key and value, or \
key_b64 and value_b64 where the bytes are not text.";

const DEL_EXAMPLES: &str = "\
Examples:
  esker kv del ./store colour
  esker kv del ./store --prefix session:
  esker kv del ./store --from a --to n

  # The whole keyspace
  esker kv del ./store --all --keyspace sessions

It prints how many keys it deleted, once that is durable. Deleting an absent key is no error. The keys of a \
range are deleted all or none. `keyspaces drop` deletes a keyspace with its keys.";

/// Arguments of `esker kv put`.
#[derive(Debug, Args)]
#[command(after_help = PUT_EXAMPLES)]
pub struct PutArguments {
    #[command(flatten)]
    place: KeyspaceSelection,
    /// The key
    key: OsString,
    /// The value; - reads it from standard input
    value: OsString,
}

/// Arguments of `esker kv get`.
#[derive(Debug, Args)]
#[command(after_help = GET_EXAMPLES)]
pub struct GetArguments {
    #[command(flatten)]
    place: KeyspaceSelection,
    /// The key
    key: OsString,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Arguments of `esker kv del`.
#[derive(Debug, Args)]
#[command(after_help = DEL_EXAMPLES)]
pub struct DelArguments {
    #[command(flatten)]
    place: KeyspaceSelection,
    /// The key
    key: Option<OsString>,
    #[command(flatten)]
    range: RangeArguments,
    /// All keys of the keyspace
    #[arg(long)]
    all: bool,
}

/// Puts a value.
pub fn put(arguments: &PutArguments) -> Outcome {
    let PutArguments { place, key, value } = arguments;
    // Read before the lock is taken.
    let value = match value.as_bytes() {
        b"-" => Cow::Owned(value_of_input()?),
        value => Cow::Borrowed(value),
    };
    place.write(|keyspace| {
        let ticket = keyspace.put(key.as_bytes(), &value);
        let ticket = ticket.map_err(|error| place.failure(error))?;
        ticket.blocking_wait().map(drop).map_err(|error| place.failure(error))
    })
}

fn value_of_input() -> Outcome<Vec<u8>> {
    let mut value = Vec::new();
    let read = io::stdin().lock().take(VALUE_LIMIT as u64 + 1).read_to_end(&mut value);
    read.map_err(|error| Failure::from_io("read standard input", &error))?;
    if value.len() > VALUE_LIMIT {
        return Err(Failure::failed(format!(
            "standard input has more than {VALUE_LIMIT} bytes, the limit of a value"
        )));
    }
    Ok(value)
}

/// Prints a value.
pub fn get(arguments: &GetArguments) -> Outcome {
    let GetArguments { place, key, json } = arguments;
    let value = place
        .read(|keyspace| keyspace.get(key.as_bytes()).map_err(|error| place.failure(error)))?;
    let Some(value) = value else { return Err(Failure::silent()) };
    let mut out = output::buffered()?;
    let written = match json {
        true => entries::write_json(&mut out, None, key.as_bytes(), &value),
        false => [&value[..], b"\n"].iter().try_for_each(|bytes| out.write_all(bytes)),
    };
    output::unless_closed(written.and_then(|()| out.flush())).map(drop)
}

/// Deletes a key or a range of keys, and prints how many.
pub fn delete(arguments: &DelArguments) -> Outcome {
    let DelArguments { place, key, range, all } = arguments;
    let ways = [key.is_some(), !range.is_everything(), *all];
    if ways.iter().filter(|is_given| **is_given).count() != 1 {
        return Err(Failure::usage(
            "name a key, a range of keys with --prefix, --from and --to, or all of them with --all",
        ));
    }
    let (deleted, is_whole) = place.change(|store, keyspace| {
        // No other process writes: the store is locked.
        let before = keyspace.len();
        let ticket = match key {
            Some(key) => keyspace.delete(key.as_bytes()),
            None => keyspace.delete_range(range.range()),
        };
        let ticket = ticket.map_err(|error| place.failure(error))?;
        ticket.blocking_wait().map_err(|error| place.failure(error))?;
        Ok((before.saturating_sub(keyspace.len()), store.quarantined().is_empty()))
    })?;
    output::print(&match is_whole {
        true => format!("keys deleted: {deleted}\n"),
        false => format!("keys deleted: at least {deleted} (some records are quarantined)\n"),
    })
}

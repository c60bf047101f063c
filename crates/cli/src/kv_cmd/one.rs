//! `esker kv put`, `get` and `del`: one key.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use clap::Args;

use super::open::Place;
use crate::exit::{Failure, Outcome};
use crate::output;

const PUT_EXAMPLES: &str = "\
Examples:
  esker kv put ./store colour blue
  esker kv put ./store alice 100 --keyspace accounts

The store and the keyspace are created where they are missing. The value is durable when the command \
ends with exit status 0.";

const GET_EXAMPLES: &str = "\
Examples:
  esker kv get ./store colour
  esker kv get ./store alice --keyspace accounts

An absent key prints nothing and exits with 1.";

const DEL_EXAMPLES: &str = "\
Examples:
  esker kv del ./store colour

Deleting an absent key is no error.";

/// Arguments of `esker kv put`.
#[derive(Debug, Args)]
#[command(after_help = PUT_EXAMPLES)]
pub struct PutArguments {
    #[command(flatten)]
    place: Place,
    /// The key
    key: OsString,
    /// The value
    value: OsString,
}

/// Arguments of `esker kv get`.
#[derive(Debug, Args)]
#[command(after_help = GET_EXAMPLES)]
pub struct GetArguments {
    #[command(flatten)]
    place: Place,
    /// The key
    key: OsString,
}

/// Arguments of `esker kv del`.
#[derive(Debug, Args)]
#[command(after_help = DEL_EXAMPLES)]
pub struct DelArguments {
    #[command(flatten)]
    place: Place,
    /// The key
    key: OsString,
}

/// Puts a value.
pub fn put(arguments: &PutArguments) -> Outcome {
    let PutArguments { place, key, value } = arguments;
    place.write(|keyspace| {
        let ticket = keyspace.put(key.as_bytes(), value.as_bytes());
        let durable = ticket.and_then(|ticket| ticket.blocking_wait());
        durable.map(drop).map_err(|error| place.failure(&error))
    })
}

/// Prints a value.
pub fn get(arguments: &GetArguments) -> Outcome {
    let GetArguments { place, key } = arguments;
    let value = place
        .read(|keyspace| keyspace.get(key.as_bytes()).map_err(|error| place.failure(&error)))?;
    let Some(value) = value else { return Err(Failure::silent()) };
    let write = || {
        let mut out = output::buffered()?;
        out.write_all(&value)?;
        out.write_all(b"\n")?;
        out.flush()
    };
    output::unless_closed(write()).map(drop)
}

/// Deletes a key.
pub fn delete(arguments: &DelArguments) -> Outcome {
    let DelArguments { place, key } = arguments;
    place.change(|keyspace| {
        let ticket = keyspace.delete(key.as_bytes());
        let durable = ticket.and_then(|ticket| ticket.blocking_wait());
        durable.map(drop).map_err(|error| place.failure(&error))
    })
}

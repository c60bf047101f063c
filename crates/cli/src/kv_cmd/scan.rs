//! `esker kv scan`: keys and values in order.

use std::ffi::OsString;
use std::io::Write;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use esker_kv::KeyRange;

use super::entries;
use super::open::KeyspaceSelection;
use esker_command::exit::Outcome;
use esker_command::output;

const EXAMPLES: &str = "\
Examples:
  esker kv scan ./store
  esker kv scan ./store --prefix user: --json
  esker kv scan ./store --from a --to n --reverse --limit 10

It prints a line for each key, with a tab before the value. With --json, a line is an object with key \
and value, or key_b64 and value_b64 where the bytes are not text.";

/// A range of keys.
#[derive(Debug, Args)]
pub struct RangeArguments {
    /// Only keys that begin with this
    #[arg(long, value_name = "P", conflicts_with_all = ["from", "to"])]
    prefix: Option<OsString>,
    /// Only keys at or above this one
    #[arg(long, value_name = "K")]
    from: Option<OsString>,
    /// Only keys below this one
    #[arg(long, value_name = "K")]
    to: Option<OsString>,
}

impl RangeArguments {
    /// Returns whether no flag narrows the range.
    pub fn is_everything(&self) -> bool {
        self.prefix.is_none() && self.from.is_none() && self.to.is_none()
    }

    /// Returns the range.
    pub fn range(&self) -> KeyRange {
        if let Some(prefix) = &self.prefix {
            return KeyRange::prefix(prefix.as_bytes());
        }
        let low = self.from.as_ref().map_or(Bound::Unbounded, |k| Bound::Included(k.as_bytes()));
        let high = self.to.as_ref().map_or(Bound::Unbounded, |k| Bound::Excluded(k.as_bytes()));
        KeyRange::from((low, high))
    }
}

/// Arguments of `esker kv scan`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ScanArguments {
    #[command(flatten)]
    place: KeyspaceSelection,
    #[command(flatten)]
    range: RangeArguments,
    /// In descending order
    #[arg(long)]
    reverse: bool,
    /// At most this many keys
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print JSON objects
    #[arg(long)]
    json: bool,
}

/// Prints the keys of a range.
pub fn run(arguments: &ScanArguments) -> Outcome {
    let ScanArguments { place, range, reverse, limit, json } = arguments;
    place.read(|keyspace| {
        let scan = keyspace.scan(range.range());
        let scan = scan.map_err(|error| place.failure(error))?;
        let scan = if *reverse { scan.rev() } else { scan };
        let most = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let mut out = output::buffered()?;
        for entry in scan.take(most) {
            let (key, value) = entry.map_err(|error| place.failure(error))?;
            let written = match json {
                true => entries::write_json(&mut out, None, &key, &value),
                false => [&key[..], b"\t", &value, b"\n"]
                    .iter()
                    .try_for_each(|bytes| out.write_all(bytes)),
            };
            if !output::unless_closed(written)? {
                return Ok(());
            }
        }
        output::unless_closed(out.flush()).map(drop)
    })
}

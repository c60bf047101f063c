//! `esker kv export`: prints keys and values for `esker kv import`.

use std::path::PathBuf;

use clap::Args;
use esker_kv::ReadOnlyStore;

use super::entries::{self, Framing, FramingArgument};
use super::open;
use esker_command::exit::{Failure, Outcome, complain};
use esker_command::output;
use esker_command::progress;

const EXAMPLES: &str = "\
Examples:
  esker kv export ./store > store.jsonl
  esker kv export ./store --framing len32 > store.bin

  # The whole store
  esker kv export ./store --all-keyspaces | esker kv import ./copy

  # After `esker repair` quarantined corrupt records: a new store of what
  # is left
  esker kv export ./store --all-keyspaces --skip-corrupt \\
    | esker kv import ./copy

A line is an object with key and value, or key_b64 and value_b64 where the bytes are not text. With \
--all-keyspaces it has keyspace, too, and an empty keyspace is a line with nothing else. With --framing \
len32, each key and each value follows its length in 4 bytes, little-endian; it has no place for keyspaces.";

/// Arguments of `esker kv export`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ExportArguments {
    /// The store's directory
    dir: PathBuf,
    /// The keyspace [default: default]
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
    /// All keyspaces, each line with the name of its keyspace
    #[arg(long, conflicts_with = "keyspace")]
    all_keyspaces: bool,
    #[command(flatten)]
    framing: FramingArgument,
    /// Where `esker repair` quarantined records, print the newest values that are left
    #[arg(long)]
    skip_corrupt: bool,
}

/// Prints all keys and values, as of one point in time.
pub fn run(arguments: &ExportArguments) -> Outcome {
    let ExportArguments { dir, keyspace, all_keyspaces, framing, skip_corrupt } = arguments;
    let framing = framing.framing;
    if *all_keyspaces && framing == Framing::Len32 {
        return Err(Failure::usage(
            "--framing len32 has no place for the name of a keyspace: use --framing json with \
             --all-keyspaces, or --keyspace NAME",
        ));
    }
    let store = ReadOnlyStore::builder(dir).skip_quarantined(*skip_corrupt).open();
    let store = store.map_err(|error| Failure::from_kv(error, dir))?;
    let names = match keyspace {
        _ if *all_keyspaces => store.keyspaces(),
        Some(name) => vec![name.clone()],
        None => vec![open::DEFAULT.to_owned()],
    };
    let mut keyspaces = Vec::new();
    for name in &names {
        keyspaces.push(store.find_keyspace(name).ok_or_else(|| open::not_found(dir, name))?);
    }
    let others = store.keyspaces().len() - keyspaces.len();
    if keyspace.is_none() && others > 0 {
        let what = if others == 1 { "another keyspace is" } else { "other keyspaces are" };
        complain(&format!("note: {what} left out; --all-keyspaces exports all"));
    }
    let snapshot = store.snapshot().map_err(|error| Failure::from_kv(error, dir))?;
    let bar = progress::keys_bar(keyspaces.iter().map(|keyspace| keyspace.len()).sum());
    let mut out = output::buffered()?;
    for keyspace in &keyspaces {
        let name = all_keyspaces.then(|| keyspace.name());
        let mut is_empty = true;
        let scan = snapshot.scan(keyspace, ..).map_err(|error| Failure::from_kv(error, dir))?;
        for entry in bar.wrap_iter(scan) {
            let (key, value) = entry.map_err(|error| Failure::from_kv(error, dir))?;
            is_empty = false;
            let written = match framing {
                Framing::Json => entries::write_json(&mut out, name, &key, &value),
                Framing::Len32 => entries::write_len32(&mut out, &key, &value),
            };
            if !output::unless_closed(written)? {
                return Ok(());
            }
        }
        // Every store has the default keyspace.
        if is_empty
            && let Some(name) = name.filter(|name| *name != open::DEFAULT)
            && !output::unless_closed(entries::write_keyspace(&mut out, name))?
        {
            return Ok(());
        }
    }
    output::unless_closed(std::io::Write::flush(&mut out)).map(drop)
}

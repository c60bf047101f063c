//! `esker kv compact`: reclaims the space of overwritten values and deleted keys.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::open;
use esker_command::exit::{Failure, Outcome};
use esker_command::output;

const EXAMPLES: &str = "\
Examples:
  esker kv compact ./store

It frees the oldest segments as long as at most half of their bytes are live.";

/// Arguments of `esker kv compact`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CompactArguments {
    /// The store's directory
    dir: PathBuf,
    /// Accepted as by the other commands; this one works on all keyspaces
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Reclaims space.
pub fn run(arguments: &CompactArguments) -> Outcome {
    let CompactArguments { dir, keyspace, json } = arguments;
    open::note_all_keyspaces("kv compact", keyspace.as_deref())?;
    let store = open::store(dir, true)?;
    let reclaimed = store.compact();
    let bytes = store.stats().disk_bytes;
    let done = reclaimed.map_err(|error| Failure::from_kv(error, dir))?;
    store.close().map_err(|error| Failure::from_kv(error, dir))?;
    if *json {
        return output::print_json(&json!({
            "segments": done.segments,
            "bytes_freed": done.bytes_freed,
            "records_copied": done.records_copied,
            "bytes_copied": done.bytes_copied,
            "disk_bytes": bytes,
        }));
    }
    output::print(&format!(
        "{} with {} bytes freed, {} bytes copied; {bytes} bytes in use\n",
        output::counted(done.segments as u64, "segment"),
        done.bytes_freed,
        done.bytes_copied
    ))
}

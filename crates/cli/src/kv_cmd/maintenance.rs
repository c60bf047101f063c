//! `esker kv compact`, `stat` and `verify`.

use std::path::{Path, PathBuf};

use clap::Args;
use esker_kv::ReadOnlyStore;
use esker_log::ReadOptions;
use serde_json::json;

use super::open;
use crate::log_cmd::verify;
use esker_command::exit::{Failure, Outcome};
use esker_command::output;

const COMPACT_EXAMPLES: &str = "\
Examples:
  esker kv compact ./store

It frees the oldest segments as long as at most half of their bytes are live.";

const STAT_EXAMPLES: &str = "\
Examples:
  esker kv stat ./store
  esker kv stat ./store --json | jq .keys
  esker kv stat ./store --keyspace accounts";

const VERIFY_EXAMPLES: &str = "\
Examples:
  esker kv verify ./store

It takes no lock and changes nothing. Exit status 3 when durable records are corrupt.";

/// Arguments of `esker kv compact`.
#[derive(Debug, Args)]
#[command(after_help = COMPACT_EXAMPLES)]
pub struct CompactArguments {
    #[command(flatten)]
    store: open::WholeStore,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Arguments of `esker kv stat`.
#[derive(Debug, Args)]
#[command(after_help = STAT_EXAMPLES)]
pub struct StatArguments {
    /// The store's directory
    dir: PathBuf,
    /// Only this keyspace [default: all]
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Arguments of `esker kv verify`.
#[derive(Debug, Args)]
#[command(after_help = VERIFY_EXAMPLES)]
pub struct VerifyArguments {
    #[command(flatten)]
    store: open::WholeStore,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Reclaims space.
pub fn compact(arguments: &CompactArguments) -> Outcome {
    let CompactArguments { store, json } = arguments;
    let dir = store.dir("compact")?;
    let failure = |error| Failure::of_kv(&error, dir);
    let store = open::store(dir, true)?;
    let reclaimed = store.compact();
    let bytes = store.stats().disk_bytes;
    let done = reclaimed.and_then(|done| store.close().map(|()| done)).map_err(failure)?;
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

/// Prints a summary.
pub fn stat(arguments: &StatArguments) -> Outcome {
    let StatArguments { dir, keyspace, json } = arguments;
    let store = open::read_only(dir)?;
    output::print(&match keyspace {
        Some(name) => summary_of_one(dir, &store, name, *json)?,
        None => summary(&store, *json),
    })
}

/// The numbers that a keyspace has of its own.
fn summary_of_one(dir: &Path, store: &ReadOnlyStore, name: &str, as_json: bool) -> Outcome<String> {
    let keyspace = store.find_keyspace(name).ok_or_else(|| open::not_found(dir, name))?;
    let (keys, durable) = (keyspace.len(), store.position());
    if as_json {
        return Ok(format!(
            "{}\n",
            json!({ "keyspace": name, "keys": keys, "durable": durable.0 })
        ));
    }
    let name = output::escaped(name);
    Ok(format!("keyspace     {name}\nkeys         {keys}\ndurable      {durable}\n"))
}

fn summary(store: &ReadOnlyStore, as_json: bool) -> String {
    let stats = store.stats();
    let keyspaces: Vec<_> = store
        .keyspaces()
        .into_iter()
        .filter_map(|name| store.find_keyspace(&name).map(|keyspace| (name, keyspace.len())))
        .collect();
    if as_json {
        let keyspaces: serde_json::Map<_, _> =
            keyspaces.into_iter().map(|(name, keys)| (name, keys.into())).collect();
        let object = json!({
            "keys": stats.keys,
            "keyspaces": keyspaces,
            "disk_bytes": stats.disk_bytes,
            "index_bytes": stats.index_bytes,
            "live_bytes": store.live_bytes(),
            "checkpoint_bytes": stats.checkpoint_bytes,
            "checkpoint_corrupt": stats.checkpoint_corrupt,
            "oldest": store.oldest().0,
            "replayed": stats.replayed,
            "durable": store.position().0,
            "quarantined": store
                .quarantined()
                .iter()
                .map(|range| json!({ "from": range.from.0, "to": range.to.0 }))
                .collect::<Vec<_>>(),
        });
        return format!("{object}\n");
    }
    let checkpoint = match stats.checkpoint_bytes {
        0 if stats.checkpoint_corrupt => {
            format!("corrupt; opening read {} records", stats.replayed)
        }
        0 => format!("none; opening read {} records", stats.replayed),
        bytes => format!("{bytes} bytes; opening read {} records after it", stats.replayed),
    };
    let mut text = format!(
        "keys         {}\ndisk bytes   {}\nlive bytes   {}\nindex bytes  {}\ncheckpoint   {checkpoint}\n\
         oldest       {}\ndurable      {}\n",
        stats.keys,
        stats.disk_bytes,
        store.live_bytes(),
        stats.index_bytes,
        store.oldest(),
        store.position()
    );
    for (name, keys) in keyspaces {
        text.push_str(&format!("keyspace     {}: {keys} keys\n", output::escaped(&name)));
    }
    for range in store.quarantined() {
        text.push_str(&format!("quarantined  {range}\n"));
    }
    text
}

/// Checks every byte of the log, and every record.
pub fn verify(arguments: &VerifyArguments) -> Outcome {
    let VerifyArguments { store, json } = arguments;
    let dir = store.dir("verify")?;
    let failure = |error: esker_log::Error| Failure::of_kv(&error.into(), dir);
    let report = esker_log::verify(dir, ReadOptions::default()).map_err(failure)?;
    if report.corruption.is_empty() {
        let log = open::log(dir)?;
        esker_kv::check_records(&log).map_err(|error| Failure::of_kv(&error, dir))?;
    }
    if *json {
        output::print_json(&verify::report_json(&report))?;
    } else {
        output::print(&verify::report_text(&report))?;
    }
    verify::refuse_corruption(&report, dir)
}

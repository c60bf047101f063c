//! The summary of a key-value store, or of one keyspace.

use std::path::Path;

use esker_kv::ReadOnlyStore;
use serde_json::json;

use super::component::Component;
use super::log_verify::ranges_json;
use super::shutdown::Shutdown;
use crate::kv_cmd::open;
use esker_command::exit::{Failure, Outcome};
use esker_command::output;

/// Prints a summary.
pub fn run(dir: &Path, keyspace: Option<&str>, as_json: bool) -> Outcome {
    let store = open::read_only(dir)?;
    output::print(&match keyspace {
        Some(name) => keyspace_summary(dir, &store, name, as_json)?,
        None => {
            let shutdown = Shutdown::find(dir);
            let shutdown = shutdown.map_err(|error| Failure::from_kv(error, dir))?;
            summary(&store, shutdown, as_json)
        }
    })
}

/// The summary of one keyspace.
fn keyspace_summary(
    dir: &Path,
    store: &ReadOnlyStore,
    name: &str,
    as_json: bool,
) -> Outcome<String> {
    let keyspace = store.find_keyspace(name).ok_or_else(|| open::not_found(dir, name))?;
    let (keys, durable) = (keyspace.len(), store.position());
    if as_json {
        let component = Component::Kv;
        let object =
            json!({ "component": component, "keyspace": name, "keys": keys, "durable": durable.0 });
        return Ok(format!("{object}\n"));
    }
    let name = output::escaped(name);
    Ok(format!("keyspace     {name}\nkeys         {keys}\ndurable      {durable}\n"))
}

fn summary(store: &ReadOnlyStore, shutdown: Shutdown, as_json: bool) -> String {
    let stats = store.stats();
    let keyspaces: Vec<_> = store
        .keyspaces()
        .into_iter()
        .filter_map(|name| store.find_keyspace(&name).map(|keyspace| (name, keyspace.len())))
        .collect();
    if as_json {
        let keyspaces: serde_json::Map<_, _> =
            keyspaces.into_iter().map(|(name, keys)| (name, keys.into())).collect();
        let mut object = json!({
            "component": Component::Kv,
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
            "quarantined": ranges_json(&store.quarantined()),
        });
        shutdown.add_to(&mut object);
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
    text + &format!("shutdown     {shutdown}\n")
}

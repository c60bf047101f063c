//! The stores under test, each behind the same small interface.

pub mod esker_store;
#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "sled")]
mod sled;
#[cfg(feature = "surrealkv")]
mod surrealkv;

use anyhow::{Result, bail};

use crate::kv::store::Kind;

/// The store that a system is.
pub fn find(system: &str) -> Result<Kind> {
    let (name, batched) = match system.strip_suffix("-batched") {
        Some(name) => (name, true),
        None => (system, false),
    };
    let kind = match name {
        "esker" => esker_store::AS_TASKS,
        "esker-threads" => esker_store::AS_THREADS,
        #[cfg(feature = "fjall")]
        "fjall" => fjall::KIND,
        #[cfg(feature = "redb")]
        "redb" => redb::KIND,
        #[cfg(feature = "rocksdb")]
        "rocksdb" => rocksdb::KIND,
        #[cfg(feature = "sled")]
        "sled" => sled::KIND,
        #[cfg(feature = "surrealkv")]
        "surrealkv" => surrealkv::KIND,
        _ => bail!("{name} was left out of this build"),
    };
    let puts = if batched { BATCHED } else { kind.puts };
    Ok(Kind { batched, puts, ..kind })
}

const BATCHED: &str = "a group committer in front of it writes what waits as one durable batch; callers \
                       are threads";

//! Applying a record of the log to the index, at opening and when another process wrote it.

use crate::index::entry::Version;
use crate::index::keyspace_keys::KeyspaceKeys;
use crate::index::table::{IndexError, Table};
use crate::record::{Change, Record};

/// Applies a record of this keyspace, with its number and offset. One thread at a time applies
/// records. With `may_be_newer`, the index may have a newer version of the key already.
pub(crate) fn apply_record(
    table: &Table,
    keys: &KeyspaceKeys,
    record: &Record<'_>,
    (seq, offset): (u64, u64),
    horizon: u64,
    may_be_newer: bool,
) -> Result<(), IndexError> {
    let Record { keyspace, key, change } = *record;
    debug_assert_eq!(keyspace, keys.id, "a record is applied to its own keyspace");
    let mut version = Version { seq, deleted: false, offset, len: 0 };
    match change {
        Change::Put { value, .. } => {
            version.len = value.len() as u32;
            let key = table.hash(keyspace, key);
            if may_be_newer && table.find(key).is_some_and(|found| found.version.seq >= seq) {
                return Ok(());
            }
            let change = table.set(key, version, 0, horizon)?;
            keys.register(table, change, version);
        }
        Change::Delete => {
            version.deleted = true;
            // The entry of a key that exists is never freed.
            let found = table.find(table.hash(keyspace, key));
            if let Some(found) = found.filter(|found| !found.version.deleted)
                && let Some(change) = table.delete_entry(found.id, version, horizon)
            {
                keys.register(table, change, version);
            }
        }
        Change::DeleteRange { end } => {
            version.deleted = true;
            keys.delete_range(table, key, end, version, horizon, |_| {});
        }
    }
    Ok(())
}

//! Reading the values of several keys before they are returned one by one.

use esker_log::component::RecordPlace;
use esker_log::{Payload, Position, Seq};

use crate::cache::value::Value;
use crate::index::table::CurrentVersion;
use crate::read::get::decode_put;
use crate::record::put_len;
use crate::state::store_state::StoreState;

/// The most bytes of records that are read ahead from files.
const AHEAD_BYTES_MAX: u64 = 1 << 20;

impl StoreState {
    /// Reads the values of these versions of keys of one keyspace that are in files, as far as they
    /// can be read together. Returns the number of each in the order given, and the value.
    pub(crate) fn read_ahead<'a>(
        &self,
        keyspace: u32,
        versions: impl Iterator<Item = (&'a [u8], &'a CurrentVersion)>,
    ) -> Vec<(usize, Value)> {
        let (mut cold, mut places) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        for (n, (key, current)) in versions.enumerate() {
            let CurrentVersion { version, cached, .. } = *current;
            if self.cache().may_have(cached) {
                continue;
            }
            let len = put_len(key.len(), version.len as usize);
            bytes += u64::from(len);
            if bytes > AHEAD_BYTES_MAX {
                break;
            }
            places.push(RecordPlace {
                seq: Seq(version.seq),
                position: Position(version.offset),
                len,
            });
            cold.push((n, key, current));
        }
        if places.len() > 1 { self.read_cold(keyspace, &cold, &places) } else { Vec::new() }
    }

    #[cold]
    fn read_cold(
        &self,
        keyspace: u32,
        cold: &[(usize, &[u8], &CurrentVersion)],
        places: &[RecordPlace],
    ) -> Vec<(usize, Value)> {
        // What cannot be read now is read alone later, and fails there.
        let read = self.records().read_placed_many(places).unwrap_or_default();
        debug_assert!(read.is_empty() || read.len() == places.len(), "a payload for each place");
        let value =
            |((n, key, current), payload): (&(usize, &[u8], &CurrentVersion), Option<Payload>)| {
                let payload = payload?;
                let (value, _) = decode_put(&payload, keyspace, key, current.version).ok()?;
                Some((*n, self.keep(current, value, &payload)))
            };
        cold.iter().zip(read).filter_map(value).collect()
    }
}

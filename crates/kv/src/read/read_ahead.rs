//! Reading the values of several keys before they are returned one by one.

use esker_log::{Payload, Place, Position, Seq};

use crate::cache::value::Value;
use crate::index::table::CurrentVersion;
use crate::read::get::decode_put;
use crate::record::put_len;
use crate::state::view::View;

/// The most bytes of records that are read from files ahead.
const AHEAD_BYTES_MAX: u64 = 1 << 20;

impl View {
    /// Reads the values of these versions that are in files, as far as they can be read together.
    /// Returns the number of each in the order given, and the value.
    pub(crate) fn read_ahead<'a>(
        &self,
        versions: impl Iterator<Item = (&'a [u8], &'a CurrentVersion)>,
    ) -> Vec<(usize, Value)> {
        let (mut cold, mut places) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        for (n, (key, current)) in versions.enumerate() {
            let CurrentVersion { version, cached, .. } = *current;
            if self.cache.may_have(cached) {
                continue;
            }
            let len = put_len(key.len(), version.len as usize);
            bytes += u64::from(len);
            if bytes > AHEAD_BYTES_MAX {
                break;
            }
            places.push(Place { seq: Seq(version.seq), position: Position(version.position), len });
            cold.push((n, key, current));
        }
        if places.len() > 1 { self.read_cold(&cold, &places) } else { Vec::new() }
    }

    #[cold]
    fn read_cold(
        &self,
        cold: &[(usize, &[u8], &CurrentVersion)],
        places: &[Place],
    ) -> Vec<(usize, Value)> {
        let read = self.records.read_placed_many(places).unwrap_or_default();
        let value =
            |((n, key, current), payload): (&(usize, &[u8], &CurrentVersion), Option<Payload>)| {
                let payload = payload?;
                let (value, _) = decode_put(&payload, key, current.version.seq).ok()?;
                Some((*n, self.keep(current, value, &payload)))
            };
        cold.iter().zip(read).filter_map(value).collect()
    }
}

//! Deleting a range of keys.

use esker_log::{Attempt, Refused};

use crate::base::error::{Error, Result, check_key, refuse_if_forked};
use crate::base::ticket::Ticket;
use crate::index::arena::Version;
use crate::index::keys::Keys;
use crate::read::key_range::KeyRange;
use crate::record::{Change, Record};
use crate::state::writer::Writer;

impl Writer {
    /// Deletes every key of a range with one record. All writers of the store wait while the keys
    /// are removed from the index, and so do commits.
    pub(crate) fn delete_range(&self, keys: &Keys, range: &KeyRange) -> Result<Ticket> {
        let payload = self.prepare_range(keys, range)?;
        let attempt = |log: &Attempt<'_>| self.attempt_range(log, keys, range, &payload);
        let ticket = self.log.append_locked(attempt)??;
        self.after_write(keys);
        Ok(ticket)
    }

    /// As [`Writer::delete_range`], but waits for room as a pending future.
    pub(crate) async fn delete_range_async(&self, keys: &Keys, range: &KeyRange) -> Result<Ticket> {
        let payload = self.prepare_range(keys, range)?;
        let attempt = |log: &Attempt<'_>| self.attempt_range(log, keys, range, &payload);
        let ticket = self.log.append_locked_async(attempt).await??;
        self.after_write(keys);
        Ok(ticket)
    }

    /// Returns the record that deletes the range.
    fn prepare_range(&self, keys: &Keys, range: &KeyRange) -> Result<Vec<u8>> {
        refuse_if_forked()?;
        // The key after the longest one is a byte longer.
        let bound = |key: &[u8]| check_key(key.strip_suffix(&[0]).unwrap_or(key));
        bound(range.low())?;
        range.high().map_or(Ok(()), bound)?;
        let mut payload = Vec::new();
        let change = Change::DeleteRange { end: range.high() };
        Record { keyspace: keys.id, key: range.low(), change }.encode(&mut payload);
        // Most new keys enter the order before the locks are taken.
        keys.put_in_order(&self.table, self.horizon());
        Ok(payload)
    }

    fn attempt_range(
        &self,
        log: &Attempt<'_>,
        keys: &Keys,
        range: &KeyRange,
        payload: &[u8],
    ) -> std::result::Result<Result<Ticket>, Refused> {
        let _orders = self.table.all_orders();
        if keys.is_dropped() {
            return Ok(Err(Error::KeyspaceDropped { name: keys.name().into() }));
        }
        let ticket = log.append_freeing(payload, |place| {
            let (seq, position) = (place.seq.0, place.position.0);
            let version = Version { seq, deleted: true, position, len: 0 };
            self.gap.decide(keys.id, range.low(), range.high(), seq);
            let (low, high) = (range.low(), range.high());
            let each = |changed| self.count_garbage(changed);
            keys.delete_range(&self.table, low, high, version, self.horizon(), each);
        })?;
        Ok(Ok(Ticket(ticket)))
    }
}

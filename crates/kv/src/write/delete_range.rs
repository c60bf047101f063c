//! Deleting a range of keys.

use esker_log::component::{AppendRefusal, LockedAppender, Purpose};

use crate::base::key_checks::check_key;
use crate::base::operation_errors::WriteError;
use crate::base::ticket::Ticket;
use crate::index::entry::Version;
use crate::index::keyspace_keys::KeyspaceKeys;
use crate::read::key_range::KeyRange;
use crate::record::{Change, Record};
use crate::state::store_writer::StoreWriter;
use crate::write::driver::{AttemptOutcome, Write};
use crate::write::scratch::Scratch;

/// A delete of every key of a range.
#[derive(Debug)]
struct RangeDelete<'a> {
    keys: &'a KeyspaceKeys,
    range: &'a KeyRange,
    /// The encoded record.
    payload: Scratch,
}

impl StoreWriter {
    /// Deletes every key of a range with one record. All writers of the store wait while the keys
    /// are removed from the index, and so do commits.
    pub(super) fn delete_range(
        &self,
        keys: &KeyspaceKeys,
        range: &KeyRange,
    ) -> Result<Ticket, WriteError> {
        self.run(RangeDelete::new(keys, range)?)
    }

    pub(super) async fn delete_range_async(
        &self,
        keys: &KeyspaceKeys,
        range: &KeyRange,
    ) -> Result<Ticket, WriteError> {
        self.run_async(RangeDelete::new(keys, range)?).await
    }
}

impl<'a> RangeDelete<'a> {
    fn new(keys: &'a KeyspaceKeys, range: &'a KeyRange) -> Result<Self, WriteError> {
        // The key after the longest one is a byte longer.
        let bound = |key: &[u8]| check_key(key.strip_suffix(&[0]).unwrap_or(key));
        bound(range.low())?;
        range.high().map_or(Ok(()), bound)?;
        let mut payload = Scratch::new();
        let change = Change::DeleteRange { end: range.high() };
        Record { keyspace: keys.id, key: range.low(), change }.encode(&mut payload);
        Ok(Self { keys, range, payload })
    }
}

impl Write for RangeDelete<'_> {
    fn is_throttled(&self) -> bool {
        false
    }

    /// Puts most new keys in their order before the locks are taken.
    fn prepare(&mut self, store: &StoreWriter) -> Result<(), WriteError> {
        self.keys.sort_waiting(store.state().table(), store.state().horizon());
        Ok(())
    }

    fn attempt(
        &self,
        store: &StoreWriter,
        log: &LockedAppender<'_>,
    ) -> Result<AttemptOutcome, AppendRefusal> {
        let Self { keys, range, ref payload } = *self;
        let state = store.state();
        // No writer waits for a range without keys.
        let _write_locks = (!range.is_empty()).then(|| state.table().lock_all_writes());
        if keys.is_dropped() {
            let name = keys.name().into();
            return Ok(AttemptOutcome::Refused(WriteError::KeyspaceDropped { name }));
        }
        if range.is_empty() {
            return Ok(AttemptOutcome::Written(None));
        }
        let payload = payload.as_slice();
        let ticket = log.append(Purpose::Freeing, payload, |place| {
            let (seq, offset) = (place.seq.0, place.position.0);
            let version = Version { seq, deleted: true, offset, len: 0 };
            state.gap().decide(keys.id, range.low(), range.high(), seq);
            let (low, high) = (range.low(), range.high());
            let each = |change| store.count_garbage(change);
            keys.delete_range(state.table(), low, high, version, state.horizon(), each);
        })?;
        Ok(AttemptOutcome::Written(Some(ticket)))
    }

    fn finish(&self, store: &StoreWriter) {
        store.after_write(self.keys);
    }
}

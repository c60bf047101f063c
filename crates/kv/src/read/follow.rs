//! Following a log that another process writes.
//!
//! # The argument
//!
//! Records are applied in the order of the log, in the batches of a stream. Such a batch has all
//! of an atomic batch of the store. Readers see versions up to the *applied* position, which moves
//! only when all of a batch is in the index. Versions that were replaced since then are kept. So
//! readers see a prefix of the durable writes, and batches whole.
//!
//! The writer's cleaning may drop records before they are applied. Everything live among them was
//! copied, and what replaced the others is durable. So the store is complete again when the
//! records from the oldest one on are applied, up to what is durable after that one was found
//! ([`crate::backup`] has the same rule). A key that has no record among them does not exist.
//! Until then the applied position stays. A version that was missed has no place in the index. So
//! the copy of one may seem to be a copy of another, and all snapshots expire.
//!
//! Applying a record again changes nothing. So an error needs no cleanup: the next call begins
//! after the applied position.

use std::sync::Arc;

use esker_log::{ReadOnlyLog, Seq, Start};

use crate::base::corrupted_record::CorruptedRecord;
use crate::base::operation_errors::ApplyError;
use crate::base::store_error::refuse_if_forked;
use crate::base::trim_retries::TrimRetries;
use crate::index::entry::Version;
use crate::index::keyspace_keys::KeyspaceKeys;
use crate::record::Record;
use crate::state::apply::apply_record;
use crate::state::keyspaces::{CATALOG_ID, CatalogChange, DEFAULT_ID};
use crate::state::log_follower::{CatchUp, FollowCursor, LogFollower};
use crate::state::records::Records;
use crate::state::store_state::StoreState;

/// A [`CatalogChange`] that is applied later: the name of a keyspace, and its number.
type PendingChange = (String, Option<u32>);

impl StoreState {
    /// Applies the records that became durable since the last call.
    pub(crate) fn refresh(&self) -> Result<(), ApplyError> {
        let Records::ReadOnly(log, follow) = self.records() else { return Ok(()) };
        refuse_if_forked()?;
        let mut cursor = follow.lock();
        self.refuse_if_closing()?;
        let outcome = self.follow_log(log, follow, &mut cursor);
        if outcome.is_err() {
            cursor.stream = None;
            cursor.catch_up = None;
        }
        outcome
    }

    fn follow_log(
        &self,
        log: &ReadOnlyLog,
        follow: &LogFollower,
        cursor: &mut FollowCursor,
    ) -> Result<(), ApplyError> {
        log.refresh()?;
        let mut trim_retries = TrimRetries::default();
        loop {
            match self.apply_stream(log, follow, cursor) {
                Err(ApplyError::Trimmed(trimmed)) => {
                    trim_retries.count(trimmed)?;
                    // In this order; see `backup`.
                    log.refresh()?;
                    cursor.stream = Some(log.stream(Start::Oldest)?);
                    log.refresh()?;
                    cursor.catch_up = Some(CatchUp { end: log.durable().0, oldest: None });
                }
                other => return other,
            }
        }
    }

    /// Applies what the stream has.
    fn apply_stream(
        &self,
        log: &ReadOnlyLog,
        follow: &LogFollower,
        cursor: &mut FollowCursor,
    ) -> Result<(), ApplyError> {
        let mut stream = match cursor.stream.take() {
            Some(stream) => stream,
            None => log.stream(Start::After(Seq(follow.applied())))?,
        };
        let mut changes = Vec::new();
        loop {
            self.refuse_if_closing()?;
            let Some(batch) = stream.try_next()? else { break };
            let mut last = follow.applied();
            for record in &batch {
                if let Some(catch_up) = &mut cursor.catch_up {
                    catch_up.oldest.get_or_insert(record.seq.0);
                }
                let invalid = |what| CorruptedRecord { seq: record.seq, what };
                let decoded = Record::decode(record.payload).map_err(invalid)?;
                let change = CatalogChange::from_record(&decoded).map_err(invalid)?;
                changes.extend(change.map(|change| (change.name.to_owned(), change.id)));
                self.gap().decide_by(&decoded, record.seq.0);
                self.apply(cursor, &decoded, (record.seq.0, record.position.0))?;
                last = record.seq.0;
            }
            self.health().check_invariants()?;
            let caught_up = cursor.catch_up.is_some_and(|catch_up| last >= catch_up.end);
            if cursor.catch_up.is_none() || caught_up {
                self.publish(follow, cursor, std::mem::take(&mut changes), last);
            }
        }
        if let Some(CatchUp { end, oldest }) = cursor.catch_up {
            // Nothing is left in the log.
            if oldest.is_some() {
                return Err(esker_log::Error::NotFound { seq: Seq(end) }.into());
            }
            self.publish(follow, cursor, changes, end);
        }
        cursor.stream = Some(stream);
        Ok(())
    }

    fn apply(
        &self,
        cursor: &mut FollowCursor,
        record: &Record<'_>,
        place: (u64, u64),
    ) -> Result<(), ApplyError> {
        let id = record.keyspace;
        let keys =
            cursor.keyspaces.entry(id).or_insert_with(|| Arc::new(KeyspaceKeys::new(id, "")));
        let horizon = self.horizon();
        // Only what readers see now is kept. So a key that is written often while the reader
        // catches up takes no more memory than one that is written once.
        self.table().set_visible(self.durable());
        apply_record(self.table(), keys, record, place, horizon, true)?;
        if keys.wants_sorting(horizon) {
            keys.sort_waiting(self.table(), horizon);
        }
        Ok(())
    }

    /// Makes what was applied visible, up to this record.
    fn publish(
        &self,
        follow: &LogFollower,
        cursor: &mut FollowCursor,
        changes: Vec<PendingChange>,
        last: u64,
    ) {
        let version = Version { seq: last, deleted: true, offset: 0, len: 0 };
        let catch_up = cursor.catch_up.take();
        if let Some(CatchUp { oldest, .. }) = catch_up {
            let oldest = oldest.unwrap_or(u64::MAX);
            for keys in cursor.keyspaces.values() {
                keys.delete_before(self.table(), oldest, version, self.horizon());
            }
        }
        for (name, id) in changes {
            self.name_keyspace(cursor, &name, id, version);
        }
        if catch_up.is_some() {
            self.drop_unnamed(cursor, version);
            self.snapshots().expire_all(|| follow.set_applied(last));
        } else {
            follow.set_applied(last);
        }
        self.keyspaces().remove_dropped(self.table(), self.horizon(), Seq(u64::MAX));
        if self.is_history_full() {
            self.limit_history();
        }
    }

    /// Creates a keyspace under a number, or drops it.
    fn name_keyspace(
        &self,
        cursor: &mut FollowCursor,
        name: &str,
        id: Option<u32>,
        version: Version,
    ) {
        let current = self.keyspaces().find(name);
        if current.as_ref().map(|keys| keys.id) == id {
            return;
        }
        if let Some(keys) = current {
            keys.delete_range(self.table(), b"", None, version, self.horizon(), |_| {});
            keys.set_dropped();
            self.keyspaces().remove(name, Seq(version.seq));
            cursor.keyspaces.remove(&keys.id);
        }
        if let Some(id) = id {
            let keys =
                cursor.keyspaces.entry(id).or_insert_with(|| Arc::new(KeyspaceKeys::new(id, "")));
            keys.set_name(name);
            self.keyspaces().insert(Arc::clone(keys));
        }
    }

    /// Drops the keyspaces that have no entry in the catalog. Some of their records may be left.
    fn drop_unnamed(&self, cursor: &mut FollowCursor, version: Version) {
        for keys in self.keyspaces().all().iter().filter(|keys| keys.id != DEFAULT_ID) {
            let entry = self.table().find(self.table().hash(CATALOG_ID, keys.name().as_bytes()));
            if entry.is_none_or(|entry| entry.version.deleted) {
                self.name_keyspace(cursor, keys.name(), None, version);
            }
        }
        let named: Vec<_> = self.keyspaces().all().iter().map(|keys| keys.id).collect();
        cursor.keyspaces.retain(|id, keys| {
            let keep = *id == CATALOG_ID || named.contains(id);
            if !keep {
                keys.delete_range(self.table(), b"", None, version, self.horizon(), |_| {});
                self.keyspaces().discard(Arc::clone(keys));
            }
            keep
        });
    }
}

//! Writing one key.

use std::cell::RefCell;

use crate::base::error::{Error, Result, check_value, refuse_if_forked};
use crate::base::ticket::Ticket;
use crate::index::keys::Keys;
use crate::record::{Change, Record};
use crate::state::writer::{OneWrite, Writer};

/// The most bytes that a thread keeps for encoding its next record.
const SCRATCH_BYTES_MAX: usize = 64 << 10;

thread_local! {
    static SCRATCH_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Encodes a record. The memory is used again by this thread.
fn encoded<T>(record: Record<'_>, write: impl FnOnce(&[u8]) -> T) -> T {
    SCRATCH_BUFFER.with(|cell| {
        let mut scratch = cell.take();
        scratch.clear();
        record.encode(&mut scratch);
        let outcome = write(&scratch);
        if scratch.capacity() <= SCRATCH_BYTES_MAX {
            cell.replace(scratch);
        }
        outcome
    })
}

impl Writer {
    pub(crate) fn put(&self, keys: &Keys, key: &[u8], value: &[u8]) -> Result<Ticket> {
        refuse_if_forked()?;
        self.cleaning.pace_writer();
        check_value(value)?;
        let hashed = self.key(keys, key)?;
        let record = Record { keyspace: keys.id, key, change: Change::Put { value, moved: false } };
        self.table.prefetch_slot(hashed);
        let ticket = encoded(record, |payload| {
            let cached = self.cache.insert(value);
            let write = OneWrite::put(keys, hashed, payload, cached, value.len());
            match self.log.append_locked(|log| self.attempt_one(log, &write)) {
                Ok(Err(Error::IndexFull)) => {
                    self.free_entries();
                    self.log.append_locked(|log| self.attempt_one(log, &write))
                }
                outcome => outcome,
            }
        });
        let written = ticket??;
        self.after_write(keys);
        self.written(written)
    }

    pub(crate) async fn put_async(&self, keys: &Keys, key: &[u8], value: &[u8]) -> Result<Ticket> {
        refuse_if_forked()?;
        self.cleaning.throttle.wait().await;
        check_value(value)?;
        let hashed = self.key(keys, key)?;
        let mut payload = Vec::new();
        let change = Change::Put { value, moved: false };
        Record { keyspace: keys.id, key, change }.encode(&mut payload);
        let cached = self.cache.insert(value);
        let write = OneWrite::put(keys, hashed, &payload, cached, value.len());
        let mut written = self.log.append_locked_async(|log| self.attempt_one(log, &write)).await?;
        if let Err(Error::IndexFull) = written {
            self.free_entries();
            written = self.log.append_locked_async(|log| self.attempt_one(log, &write)).await?;
        }
        let written = written?;
        self.after_write(keys);
        self.written(written)
    }

    pub(crate) fn delete(&self, keys: &Keys, key: &[u8]) -> Result<Ticket> {
        let hashed = self.key(keys, key)?;
        let record = Record { keyspace: keys.id, key, change: Change::Delete };
        let ticket = encoded(record, |payload| {
            let write = OneWrite::delete(keys, hashed, payload);
            self.log.append_locked(|log| self.attempt_one(log, &write))
        });
        let written = ticket??;
        self.after_write(keys);
        self.written(written)
    }

    pub(crate) async fn delete_async(&self, keys: &Keys, key: &[u8]) -> Result<Ticket> {
        let hashed = self.key(keys, key)?;
        let mut payload = Vec::new();
        Record { keyspace: keys.id, key, change: Change::Delete }.encode(&mut payload);
        let write = OneWrite::delete(keys, hashed, &payload);
        let written = self.log.append_locked_async(|log| self.attempt_one(log, &write)).await??;
        self.after_write(keys);
        self.written(written)
    }

    /// The ticket of a write; for one that changed nothing, a ticket for everything before it.
    fn written(&self, ticket: Option<Ticket>) -> Result<Ticket> {
        match ticket {
            Some(ticket) => Ok(ticket),
            None => Ok(Ticket(self.log.barrier()?)),
        }
    }
}

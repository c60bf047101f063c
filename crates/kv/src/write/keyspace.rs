//! The methods of a keyspace that write.

use crate::base::operation_errors::WriteError;
#[cfg(doc)]
use crate::base::store_error::StoreError;
use crate::base::ticket::Ticket;
use crate::read::key_range::KeyRange;
use crate::state::handle::Keyspace;

/// # Writing
impl Keyspace {
    /// Puts a value: it is accepted when this returns, and durable when the ticket resolves.
    ///
    /// Blocks while the staging memory is full or the policy allows no more writes at risk. While
    /// cleaning is behind, so that more space is used than twice the live bytes and four segments,
    /// writers together wait for its next step after each megabyte, 20 ms at most. A delete does
    /// not wait for cleaning.
    ///
    /// # Durability
    /// Accepted when it returns, and durable when the ticket resolves; the policy of the store may
    /// commit it earlier.
    ///
    /// # Errors
    /// [`WriteError`]. In [`WriteError::Store`], [`StoreError::NoSpace`] on a full disk, after
    /// which the store stays usable, or [`StoreError::Poisoned`].
    pub fn put(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<Ticket, WriteError> {
        let ticket = self.writer.put(&self.reader.keys, key.as_ref(), value.as_ref());
        self.writer.clean_after(ticket, WriteError::is_no_space)
    }

    /// As [`Keyspace::put`], but waits for room as a pending future instead of blocking. It waits
    /// for the next step of cleaning itself, without the bound of 20 ms.
    ///
    /// # Cancel safety
    /// Cancel-safe: a future that is dropped before it is ready has written nothing.
    ///
    /// # Errors
    /// [`WriteError`], as [`Keyspace::put`].
    pub async fn put_async(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<Ticket, WriteError> {
        let ticket = self.writer.put_async(&self.reader.keys, key.as_ref(), value.as_ref()).await;
        self.writer.clean_after(ticket, WriteError::is_no_space)
    }

    /// Deletes a key. Deleting a key that does not exist is no error. Succeeds on a full disk,
    /// within a quarter of what [`StoreBuilder::reserve`](crate::StoreBuilder::reserve) has for
    /// deletes and cleaning, at most 8 MiB. There, delete many keys before waiting: each commit
    /// takes a block.
    ///
    /// # Durability
    /// Accepted when it returns, and durable when the ticket resolves; the policy of the store may
    /// commit it earlier.
    ///
    /// # Errors
    /// [`WriteError`], as [`Keyspace::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<Ticket, WriteError> {
        let ticket = self.writer.delete(&self.reader.keys, key.as_ref());
        self.writer.clean_after(ticket, WriteError::is_no_space)
    }

    /// As [`Keyspace::delete`], but waits for room as a pending future instead of blocking.
    ///
    /// # Durability
    /// The delete is durable when the ticket resolves.
    ///
    /// # Cancel safety
    /// Cancel-safe: a future that is dropped before it is ready has deleted nothing.
    ///
    /// # Errors
    /// [`WriteError`], as [`Keyspace::put`].
    ///
    /// # Examples
    /// ```
    /// # async fn example(store: esker_kv::Store) -> esker_kv::Result<()> {
    /// let ticket = store.keyspace().delete_async("colour").await?; // accepted
    /// ticket.await?; // durable
    /// # Ok(())
    /// # }
    /// ```
    pub async fn delete_async(&self, key: impl AsRef<[u8]>) -> Result<Ticket, WriteError> {
        let ticket = self.writer.delete_async(&self.reader.keys, key.as_ref()).await;
        self.writer.clean_after(ticket, WriteError::is_no_space)
    }

    /// Deletes all keys of a range, atomically. All writers of the store wait while the keys are
    /// removed from the index. A range without keys, whose end is at or before its start, writes
    /// nothing: no watch delivers it.
    ///
    /// # Durability
    /// Accepted when it returns, and durable when the ticket resolves; the policy of the store may
    /// commit it earlier.
    ///
    /// # Errors
    /// [`WriteError`], as [`Keyspace::put`].
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = esker_kv::Store::open(dir.path().join("store"))?;
    /// let keys = store.keyspace();
    /// for key in ["a", "b", "c"] {
    ///     let _ = keys.put(key, key)?;
    /// }
    /// keys.delete_range("b"..)?.blocking_wait()?;
    /// assert_eq!(keys.len(), 1);
    /// keys.delete_range(..)?.blocking_wait()?;
    /// assert!(keys.is_empty());
    /// # Ok::<(), esker_kv::Error>(())
    /// ```
    pub fn delete_range(&self, range: impl Into<KeyRange>) -> Result<Ticket, WriteError> {
        let ticket = self.writer.delete_range(&self.reader.keys, &range.into());
        self.writer.clean_after_range(ticket)
    }

    /// As [`Keyspace::delete_range`], but waits for room as a pending future instead of blocking.
    /// It does not yield while the keys are removed from the index, which takes time for each key:
    /// call it in `spawn_blocking` or its like for a large range.
    ///
    /// # Durability
    /// The deletes are durable when the ticket resolves, all or none of them.
    ///
    /// # Cancel safety
    /// Cancel-safe: a future that is dropped before it is ready has deleted nothing.
    ///
    /// # Errors
    /// [`WriteError`], as [`Keyspace::put`].
    ///
    /// # Examples
    /// ```
    /// # async fn example(store: esker_kv::Store) -> esker_kv::Result<()> {
    /// use esker_kv::KeyRange;
    /// let sessions = store.keyspace().delete_range_async(KeyRange::prefix("session:")).await?;
    /// sessions.await?; // durable
    /// # Ok(())
    /// # }
    /// ```
    pub async fn delete_range_async(
        &self,
        range: impl Into<KeyRange>,
    ) -> Result<Ticket, WriteError> {
        let range = range.into();
        let ticket = self.writer.delete_range_async(&self.reader.keys, &range).await;
        self.writer.clean_after_range(ticket)
    }
}

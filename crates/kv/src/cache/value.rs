//! A value, with the memory that holds it.

use std::ops::Deref;
use std::sync::Arc;

use esker_log::Payload;

use crate::cache::chunk::Chunk;

/// A value that was read. It is a view of the memory that holds it, and dereferences to its bytes.
/// Cheap to clone, and can be sent to other threads.
///
/// It keeps up to two megabytes of memory until it is dropped; with a cache of more than 16 GiB, up
/// to a 4096th of that. Copy a small value to keep it for long. `bytes::Bytes::from_owner(value)`
/// makes it a `Bytes` without a copy.
///
/// It compares with bytes and with text.
///
/// # Examples
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = esker_kv::Store::open(dir.path().join("store"))?;
/// let keys = store.keyspace();
/// let _ = keys.put("colour", "blue")?;
/// let value = keys.get("colour")?.unwrap();
/// assert_eq!(value, "blue");
/// assert_eq!(value, b"blue");
/// assert!(keys.get("colour")?.is_some_and(|value| value == *b"blue"));
/// # Ok::<(), esker_kv::Error>(())
/// ```
#[derive(Clone)]
pub struct Value(ValueMemory);

#[derive(Clone)]
enum ValueMemory {
    /// The place of the value in a chunk, which is filled there.
    Cached { chunk: Arc<Chunk>, start: u32, len: u32 },
    /// A record that ends with the value.
    Stored { record: Payload, start: u32 },
}

impl Value {
    /// The bytes at a place in a chunk; `None` if they were never filled.
    #[inline]
    pub(super) fn cached(chunk: &Arc<Chunk>, start: usize, len: usize) -> Option<Self> {
        chunk.bytes(start, len)?;
        let (start, len) = (u32::try_from(start).ok()?, u32::try_from(len).ok()?);
        Some(Self(ValueMemory::Cached { chunk: Arc::clone(chunk), start, len }))
    }

    /// The value of this length at the end of a record.
    pub(crate) fn stored(record: Payload, len: usize) -> Self {
        assert!(len <= record.len(), "a record is not shorter than its value");
        let start = (record.len() - len) as u32;
        Self(ValueMemory::Stored { record, start })
    }
}

impl Deref for Value {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            ValueMemory::Cached { chunk, start, len } => {
                match chunk.bytes(*start as usize, *len as usize) {
                    Some(bytes) => bytes,
                    // An empty value instead would be a wrong answer.
                    None => unreachable!("a chunk is not filled again while a value is in it"),
                }
            }
            ValueMemory::Stored { record, start } => &record[*start as usize..],
        }
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Value {}

impl PartialEq<[u8]> for Value {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}

impl<const N: usize> PartialEq<[u8; N]> for Value {
    fn eq(&self, other: &[u8; N]) -> bool {
        **self == *other
    }
}

impl PartialEq<str> for Value {
    fn eq(&self, other: &str) -> bool {
        **self == *other.as_bytes()
    }
}

impl PartialEq<Vec<u8>> for Value {
    fn eq(&self, other: &Vec<u8>) -> bool {
        **self == **other
    }
}

impl PartialEq<bytes::Bytes> for Value {
    fn eq(&self, other: &bytes::Bytes) -> bool {
        **self == **other
    }
}

impl<T: ?Sized> PartialEq<&T> for Value
where
    Self: PartialEq<T>,
{
    fn eq(&self, other: &&T) -> bool {
        *self == **other
    }
}

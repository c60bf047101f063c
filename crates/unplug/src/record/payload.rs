//! The bytes of recorded writes: the first ones of a recording in memory, the others in a temporary
//! file.
//!
//! A read of that file that fails gives zeros, and the store keeps the failure. The answer for a
//! recording takes it into account at the end.

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The bytes of a write. A clone shares them.
#[derive(Clone)]
pub struct Payload(PayloadSource);

#[derive(Clone)]
enum PayloadSource {
    Memory(Arc<[u8]>),
    Spilled { file: Arc<SpillFile>, offset: u64, length: usize },
}

/// A temporary file without a name.
#[derive(Debug)]
struct SpillFile {
    file: File,
    /// The first read that failed.
    failure: OnceLock<io::Error>,
}

/// Keeps the bytes of a recording's writes.
#[derive(Debug)]
pub struct PayloadStore {
    /// The bytes of memory that are not used yet.
    memory_left: u64,
    spill: Option<Arc<SpillFile>>,
    /// The bytes in the file.
    spilled: u64,
}

impl PayloadStore {
    /// Creates a store that spills what exceeds `memory_bytes`.
    pub fn new(memory_bytes: u64) -> Self {
        Self { memory_left: memory_bytes, spill: None, spilled: 0 }
    }

    /// Keeps the bytes of a write.
    ///
    /// # Errors
    /// When the temporary file cannot be created or written.
    pub fn keep(&mut self, bytes: &[u8]) -> io::Result<Payload> {
        let length = bytes.len();
        if let Some(left) = self.memory_left.checked_sub(length as u64) {
            self.memory_left = left;
            return Ok(Payload::from(bytes));
        }
        let file = match &self.spill {
            Some(file) => Arc::clone(file),
            None => Arc::clone(self.spill.insert(SpillFile::new(tempfile::tempfile()?))),
        };
        let offset = self.spilled;
        file.file.write_all_at(bytes, offset)?;
        self.spilled += length as u64;
        Ok(Payload(PayloadSource::Spilled { file, offset, length }))
    }

    /// The first failure to read spilled bytes.
    pub fn failure(&self) -> Option<&io::Error> {
        self.spill.as_ref().and_then(|spill| spill.failure.get())
    }
}

/// The parts of a store that tests choose.
#[cfg(test)]
impl PayloadStore {
    /// A store that spills everything to this file.
    pub fn spilling_to(file: File) -> Self {
        Self { memory_left: 0, spill: Some(SpillFile::new(file)), spilled: 0 }
    }

    pub fn spilled(&self) -> u64 {
        self.spilled
    }
}

impl SpillFile {
    fn new(file: File) -> Arc<Self> {
        Arc::new(Self { file, failure: OnceLock::new() })
    }
}

impl Payload {
    pub fn len(&self) -> usize {
        match &self.0 {
            PayloadSource::Memory(bytes) => bytes.len(),
            PayloadSource::Spilled { length, .. } => *length,
        }
    }

    /// The bytes; zeros where they cannot be read.
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        match &self.0 {
            PayloadSource::Memory(bytes) => Cow::Borrowed(bytes),
            PayloadSource::Spilled { length, .. } => {
                let mut bytes = vec![0; *length];
                self.copy_to(0, &mut bytes);
                Cow::Owned(bytes)
            }
        }
    }

    /// Copies the bytes from `start` on; zeros where they cannot be read.
    pub fn copy_to(&self, start: usize, to: &mut [u8]) {
        if let Err((file, error)) = self.try_copy_to(start, to) {
            to.fill(0);
            // An earlier failure stays.
            let _ = file.failure.set(error);
        }
    }

    fn try_copy_to(&self, start: usize, to: &mut [u8]) -> Result<(), (&SpillFile, io::Error)> {
        match &self.0 {
            PayloadSource::Memory(bytes) => {
                to.copy_from_slice(&bytes[start..start + to.len()]);
                Ok(())
            }
            PayloadSource::Spilled { file, offset, .. } => {
                let read = file.file.read_exact_at(to, offset + start as u64);
                read.map_err(|error| (&**file, error))
            }
        }
    }
}

impl From<&[u8]> for Payload {
    fn from(bytes: &[u8]) -> Self {
        Self(PayloadSource::Memory(bytes.into()))
    }
}

/// Payloads are equal when their bytes are, wherever these are.
impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Payload {}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.bytes(), f)
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut bytes = vec![0; self.len()];
        let read = self.try_copy_to(0, &mut bytes);
        read.map_err(|(_, error)| <S::Error as serde::ser::Error>::custom(error))?;
        serializer.serialize_bytes(&bytes)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&[u8]>::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_the_same_in_memory_and_in_the_file() {
        let mut store = PayloadStore::new(100);
        let written: Vec<Vec<u8>> = (0..20_u8).map(|n| vec![n; usize::from(n) * 7 % 30]).collect();
        let kept: Vec<Payload> = written.iter().map(|bytes| store.keep(bytes).unwrap()).collect();
        let spilled = kept.iter().filter(|it| matches!(it.0, PayloadSource::Spilled { .. }));
        assert!((5..15).contains(&spilled.count()), "{store:?}");
        for (bytes, payload) in written.iter().zip(&kept) {
            assert_eq!((payload.len(), &*payload.bytes()), (bytes.len(), bytes.as_slice()));
            let mut end = vec![1; bytes.len() / 2];
            payload.copy_to(bytes.len() - end.len(), &mut end);
            assert!(end.iter().all(|byte| Some(byte) == bytes.first()));
        }
        assert!(store.failure().is_none());
    }

    #[test]
    fn read_that_fails_is_remembered() {
        let folder = tempfile::tempdir().unwrap();
        // Not open to read.
        let file = File::create(folder.path().join("spill")).unwrap();
        let mut store = PayloadStore::spilling_to(file);
        let payload = store.keep(b"bytes").unwrap();
        assert!(store.failure().is_none());
        assert!(postcard::to_stdvec(&payload).is_err());
        assert_eq!(*payload.bytes(), [0; 5]);
        assert!(store.failure().is_some());
    }
}

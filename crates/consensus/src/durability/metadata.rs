//! The app metadata that a consensus log keeps with the underlying log: the record of the last
//! checkpoint's root (8 bytes, 0 if there is none), and the label, if the log has one.

use std::path::Path;

use esker_log::{Component, Log, ReadOptions};

use crate::component;
use crate::errors::manager_errors::{OpenError, WrongLabel};
use crate::options::Options;
use crate::storage_error::StorageError;

/// Bytes before the label.
const ROOT_SEQ_BYTES: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Metadata {
    /// The record of the last checkpoint's root; 0 if there is none.
    pub(crate) root: u64,
    pub(crate) label: Vec<u8>,
}

impl Metadata {
    /// Decodes app metadata. A log that was only just created has none, and those of a component
    /// always begin with the root.
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        match bytes.split_first_chunk::<ROOT_SEQ_BYTES>() {
            Some((root, label)) => Self { root: u64::from_le_bytes(*root), label: label.to_vec() },
            None => Self::default(),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        [&self.root.to_le_bytes(), &*self.label].concat()
    }

    /// Reads those of an open log. The root is optional: without it the last checkpoint is ignored.
    ///
    /// Without a label in the options, metadata that are corrupt or cannot be read count as none.
    /// With one they are an error: the log would take that label, whichever it has. The directory
    /// of a manager's log is named after its key, so there two faults must meet before a log of
    /// another key answers: a directory in the wrong place, and corrupt metadata. It is refused all
    /// the same. A replica that is missing costs a group less than one that promises with the
    /// memory of another. An operator who knows whose log it is removes the file: a log that has
    /// none takes the label.
    pub(crate) fn read(
        log: &Log,
        component: Component,
        options: &Options,
    ) -> Result<Self, StorageError> {
        match log.component().app_metadata(component) {
            Ok(metadata) => Ok(metadata.map_or_else(Self::default, |bytes| Self::decode(&bytes))),
            Err(error) if !options.label.is_empty() => Err(StorageError::from_log(error)),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "checkpoint ignored");
                Ok(Self::default())
            }
        }
    }

    /// Compares the label with the one that the log is opened with, and stores that one, durably,
    /// if there is none.
    pub(crate) fn check_label(
        &mut self,
        log: &Log,
        component: Component,
        options: &Options,
    ) -> Result<(), OpenError> {
        let label = &options.label;
        if label.is_empty() || self.label == *label {
            return Ok(());
        }
        if !self.label.is_empty() {
            let (found, expected) = (self.label.clone(), label.clone());
            return Err(WrongLabel { found, expected }.into());
        }
        self.label.clone_from(label);
        let stored = log.component().put_app_metadata(component, &self.encode());
        Ok(stored.map_err(StorageError::from_log)?)
    }
}

/// The label of the consensus log in `dir`, which is empty if it was created without one; `None` if
/// no app metadata there are those of a consensus log. Needs no lock.
///
/// # Errors
/// [`StorageError::Log`] if the app metadata cannot be read or are corrupt.
pub fn label_in(dir: impl AsRef<Path>) -> Result<Option<Vec<u8>>, StorageError> {
    let metadata = component::app_metadata(dir.as_ref(), &ReadOptions::default())?;
    Ok(metadata.map(|bytes| Metadata::decode(&bytes).label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_round_trip() {
        for (root, label) in [(0, &b""[..]), (7, b""), (0, b"a"), (u64::MAX, &[0; 4096])] {
            let metadata = Metadata { root, label: label.to_vec() };
            assert_eq!(Metadata::decode(&metadata.encode()), metadata);
        }
        assert_eq!(Metadata::decode(b""), Metadata::default());
        assert_eq!(Metadata::decode(b"seven b"), Metadata::default());
    }
}

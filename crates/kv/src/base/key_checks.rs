//! The limits of keys and values, as a call checks them before it begins.

use crate::base::store_error::StoreError;
use crate::limits::{KEY_LIMIT, VALUE_LIMIT};

/// A key that exceeds [`KEY_LIMIT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyTooLarge {
    pub(crate) size: usize,
}

/// A value that exceeds [`VALUE_LIMIT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ValueTooLarge {
    pub(crate) size: usize,
}

/// The reason why a call for a key is refused, whatever it is to do.
#[derive(Debug)]
pub(crate) enum KeyRefusal {
    TooLarge(KeyTooLarge),
    KeyspaceDropped { name: String },
    Store(StoreError),
}

impl From<KeyTooLarge> for KeyRefusal {
    fn from(refusal: KeyTooLarge) -> Self {
        Self::TooLarge(refusal)
    }
}

impl From<StoreError> for KeyRefusal {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

pub(crate) fn check_key(key: &[u8]) -> Result<(), KeyTooLarge> {
    match key.len() {
        size if size > KEY_LIMIT => Err(KeyTooLarge { size }),
        _ => Ok(()),
    }
}

pub(crate) fn check_value(value: &[u8]) -> Result<(), ValueTooLarge> {
    match value.len() {
        size if size > VALUE_LIMIT => Err(ValueTooLarge { size }),
        _ => Ok(()),
    }
}

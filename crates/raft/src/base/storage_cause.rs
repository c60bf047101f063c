//! The error of a store, as openraft passes it on.

use std::error::Error;
use std::{fmt, iter};

use openraft::error::ErrorSource;
use serde::{Deserialize, Serialize};

/// The message of an error of a store, with those of its causes. openraft's own type puts the name
/// of a Rust type before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageCause(String);

impl fmt::Display for StorageCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for StorageCause {}

impl ErrorSource for StorageCause {
    fn from_error<E: Error + 'static>(error: &E) -> Self {
        let error: &(dyn Error + 'static) = error;
        let causes = iter::successors(Some(error), |error| (*error).source());
        Self(causes.map(ToString::to_string).collect::<Vec<_>>().join(": "))
    }

    fn from_string(message: impl ToString) -> Self {
        Self(message.to_string())
    }
}

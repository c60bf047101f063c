//! A store with one caller.

mod async_forms;
mod backup;
mod limits;
mod read_only;
mod snapshots;
mod space;
mod watch;

use esker_kv::{Error, StoreError};

/// Whether a call on a closed store was refused.
fn is_closed<T>(outcome: Result<T, impl Into<Error>>) -> bool {
    matches!(outcome.map_err(Into::into), Err(Error::Store(StoreError::Closed)))
}

//! A store with one caller.

mod async_forms;
mod backup;
mod limits;
mod read_only;
mod snapshots;
mod space;
mod watch;

/// Whether a call on a closed store was refused.
fn is_closed<T>(outcome: Result<T, impl Into<esker_kv::Error>>) -> bool {
    matches!(outcome.map_err(Into::into), Err(esker_kv::Error::Closed))
}

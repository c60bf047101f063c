//! The copy of a key-value store in a new directory. It takes no lock, so it can run beside a
//! writer.

use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;

use esker_kv::{BackupError, Store, StoreError, UNFINISHED_BACKUP, backup_log};
use serde_json::json;

use super::component::Component;
use super::destination::{CopyCommand, is_unfinished};
use crate::kv_cmd::open;
use esker_command::exit::{Failure, Outcome};
use esker_command::output;
use esker_command::remedies::no_space_for_copy;
use esker_command::signals;

/// Copies the store.
pub fn copy(dir: &Path, to: &Path, command: CopyCommand, as_json: bool) -> Outcome {
    let log = open::log(dir)?;
    let interrupted = signals::close_at_signal({
        let log = log.clone();
        move || log.close()
    })?;
    let position = backup_log(&log, Store::builder(to)).map_err(|error| match error {
        BackupError::Store(StoreError::Closed) => {
            command.ended_by_signal(interrupted.load(SeqCst))
        }
        BackupError::Store(StoreError::NoSpace { cause, .. }) => no_space_for_copy(&cause, to),
        BackupError::Trimmed(_) => Failure::failed(format!(
            "{}: the writer overwrites records faster than they are copied; try again when it writes less",
            dir.display()
        )),
        BackupError::NotEmpty { .. } if is_unfinished(to, UNFINISHED_BACKUP) => {
            command.unfinished(to, " of a key-value store")
        }
        BackupError::NotEmpty { .. } => Failure::failed(error.to_string()),
        BackupError::InvalidOption(_) | BackupError::Store(_) => Failure::from_kv(error, dir),
    })?;
    if as_json {
        let copied = json!({ "component": Component::Kv, "position": position.0 });
        return output::print_json(&copied);
    }
    output::print(&format!("{} everything up to position {position}\n", command.done()))
}

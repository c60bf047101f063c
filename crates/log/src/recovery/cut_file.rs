//! Cutting off what follows the records of a segment.

use esker_disk::{Dir, OpenMode};

use crate::base::error::Result;

/// Cuts off the bytes of a segment's file from `end` on, durably.
pub(super) fn cut_file(dir: &dyn Dir, name: &str, end: u64) -> Result<()> {
    let file = dir.open(name, OpenMode::write())?;
    file.set_len(end)?;
    Ok(file.sync_data()?)
}

//! Cutting off what follows the records of a segment.

use esker_disk::File;

use crate::base::error::Result;

/// Cuts off the bytes of a segment's file from `end` on, durably.
pub(super) fn cut_file(file: &dyn File, end: u64) -> Result<()> {
    file.set_len(end)?;
    Ok(file.sync_data()?)
}

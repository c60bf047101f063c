//! The files of an open log: contents, recovery and copies.

use crate::base::error::Result;
use crate::base::log_error::LogError;
use crate::log::Log;
use crate::read::metadata::{Metadata, SegmentInfo};
use crate::recovery::Recovery;
use crate::store::directory;

/// The files of an open log: their contents, the state in which they were found, and copies. From
/// [`Log::storage`].
#[derive(Debug, Clone, Copy)]
pub struct Storage<'a> {
    pub(crate) log: &'a Log,
}

impl Log {
    /// Returns what the log has on disk, the state in which it was found, and copies of it.
    pub fn storage(&self) -> Storage<'_> {
        Storage { log: self }
    }
}

impl<'a> Storage<'a> {
    /// Returns the state in which the log was found when it was opened, and what recovery did.
    pub fn recovery(self) -> &'a Recovery {
        &self.log.owner.recovery
    }

    /// Returns the segments that hold durable records, oldest first. No I/O.
    pub fn segments(self) -> Vec<SegmentInfo> {
        SegmentInfo::list(&self.log.read.segments, self.log.durable().0)
    }

    /// Returns whether `repair`, or an open with repair enabled, ever quarantined corrupt units of
    /// this log.
    ///
    /// # Errors
    /// [`LogError::Io`](crate::LogError::Io).
    pub fn was_repaired(self) -> Result<bool, LogError> {
        let was_repaired = directory::was_repaired(&*self.log.write.dir);
        was_repaired.map_err(|error| LogError::narrow(error, "a directory is listed"))
    }

    /// Returns what the log stores. No I/O.
    pub fn metadata(self) -> Metadata {
        let (id, session) = (self.log.write.id, self.recovery().session);
        Metadata::new(&*self.log.read, id, session, self.log.read.cache.bytes())
    }
}

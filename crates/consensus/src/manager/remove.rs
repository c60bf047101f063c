//! Removing the log of a key.

use std::sync::Arc;

use crate::component::COMPONENT;
use crate::manager::names;
use crate::manager::open::{Inner, LogManager};
use crate::manager::open_logs::Found;
use crate::outcome::{Error, Result};

impl LogManager {
    /// Removes the log of a key with everything in it, durably: **its promises and votes, too**. Do
    /// that only when no node will ever use this log again, as after its table was dropped. Its
    /// directory stays, empty. Returns whether there was a log. Blocks.
    ///
    /// Waits while a backup runs. After a crash the log is there as before, or the next opening completes the removal.
    ///
    /// # Errors
    /// [`Error::InUse`] while there are references to it; [`Error::ReadOnly`] for a log of which
    /// corrupt records were quarantined: remove its directory by hand; [`Error::Log`] when its
    /// files cannot be removed: call it again; [`Error::Closed`].
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        let _no_backup = self.inner.removals.read();
        loop {
            self.inner.close_log(key)?;
            match self.inner.logs.get_or_claim(key, || self.inner.refuse_if_closed())? {
                Found::Open(guard) => drop(guard),
                Found::Busy(busy) => busy.wait(),
                // No caller opens it meanwhile.
                Found::Claimed(claim) => {
                    if self.inner.registry.is_removing(key) {
                        // It failed before.
                        self.inner.complete_removal(&claim.key)?;
                        return Ok(true);
                    }
                    if !self.inner.registry.has(key)? {
                        return Ok(false);
                    }
                    self.inner.refuse_repaired(key)?;
                    self.inner.registry.begin_removal(key)?;
                    self.inner.complete_removal(&claim.key)?;
                    return Ok(true);
                }
            }
        }
    }
}

impl Inner {
    /// Refuses to remove what `repair` quarantined.
    fn refuse_repaired(&self, key: &[u8]) -> Result<()> {
        let name = names::directory_of(key);
        let names = self.disk.dir().open_dir(&name).and_then(|dir| dir.list());
        match names {
            Ok(names) if names.iter().any(|name| name == "quarantine") => Err(Error::ReadOnly),
            _ => Ok(()),
        }
    }

    /// Removes the files of a log whose removal was announced.
    pub(super) fn complete_removal(&self, key: &[u8]) -> Result<()> {
        let name = names::directory_of(key);
        let disk = Arc::new(self.disk.clone());
        match esker_log::discard(&name, COMPONENT, &*disk) {
            // There is no directory: a crash came before its creation.
            Ok(()) | Err(esker_log::Error::NotALog { .. }) => self.registry.end_removal(key),
            Err(error) => Err(Error::Log(error)),
        }
    }
}

//! The units that callers or the policy want committed.

#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Units up to these numbers are to be written, and made durable, without waiting for more
    /// records.
    write: u64,
    sync: u64,
    /// A caller waits for the units up to this one, or did.
    awaited: u64,
}

impl Requests {
    pub(super) fn write_through(&self) -> u64 {
        self.write
    }

    pub(super) fn sync_through(&self) -> u64 {
        self.sync
    }

    pub(super) fn awaited(&self) -> u64 {
        self.awaited
    }

    /// Requests that units up to this one are written.
    pub(super) fn request_write(&mut self, unit: u64) {
        self.write = self.write.max(unit);
    }

    /// Requests that units up to this one are written and made durable.
    pub(super) fn request_sync(&mut self, unit: u64) {
        self.sync = self.sync.max(unit);
        self.request_write(unit);
    }

    /// A caller waits for the units up to this one.
    pub(super) fn await_unit(&mut self, unit: u64) {
        self.awaited = self.awaited.max(unit);
    }

    /// A requested unit was begun, one to be synced is to be written, and so are sealed units.
    pub(super) fn check(&self, last_unit: u64, last_sealed: u64) {
        assert!(self.sync <= self.write, "a sync is requested without its write");
        assert!(self.write <= last_unit, "a unit is requested that was not begun");
        assert!(last_sealed <= self.write, "a sealed unit is not requested");
    }
}

//! Options of the simulated disk.

/// The unit that the disk writes whole, or tears.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Sector {
    /// 512 bytes: a 4096-byte block may be torn at any sector boundary.
    B512,
    /// 4096 bytes.
    #[default]
    B4096,
}

impl Sector {
    /// Returns the size in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::B512 => 512,
            Self::B4096 => 4096,
        }
    }
}

/// The content that ordinary reads return after a failed sync, for bytes that did not reach the
/// disk.
///
/// Either way the pages count as clean from then on: no later sync writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CacheAfterFailedSync {
    /// The new content, until a power cut or until a direct write replaces it. Direct reads return
    /// the old content. This is the behaviour of ext4 and xfs.
    #[default]
    NewStaysReadable,
    /// The old content, at once. This is the behaviour of btrfs.
    OldComesBack,
}

/// Options of a simulated disk. Start from [`SimOptions::new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimOptions {
    /// Determines every random decision of the disk.
    pub seed: u64,
    /// The unit that is written whole or torn. Default: 4096 bytes.
    pub sector: Sector,
    /// The content that ordinary reads return after a failed sync. Default: the new content.
    pub cache_after_failed_sync: CacheAfterFailedSync,
    /// Space for files in bytes, counted in pages of 4096. `None`, the default, is unlimited.
    pub capacity: Option<u64>,
    /// The percentage of power cuts with unsynced bytes that tear one sector. Default: 50.
    pub torn_percent: u8,
    /// Whether files can be opened with [`crate::OpenMode::direct`]. Default: yes.
    pub direct: bool,
    /// Whether files can be opened with [`crate::OpenMode::dsync`]. Default: yes.
    pub dsync: bool,
}

impl SimOptions {
    /// Returns the defaults with this seed.
    pub const fn new(seed: u64) -> Self {
        Self {
            seed,
            sector: Sector::B4096,
            cache_after_failed_sync: CacheAfterFailedSync::NewStaysReadable,
            capacity: None,
            torn_percent: 50,
            direct: true,
            dsync: true,
        }
    }

    /// Sets the unit that is written whole or torn.
    #[must_use]
    pub const fn sector(mut self, sector: Sector) -> Self {
        self.sector = sector;
        self
    }

    /// Sets what ordinary reads return after a failed sync.
    #[must_use]
    pub const fn cache_after_failed_sync(mut self, mode: CacheAfterFailedSync) -> Self {
        self.cache_after_failed_sync = mode;
        self
    }

    /// Sets the space for files in bytes.
    #[must_use]
    pub const fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = Some(bytes);
        self
    }

    /// Sets the percentage of power cuts that tear one sector.
    #[must_use]
    pub const fn torn_percent(mut self, percent: u8) -> Self {
        self.torn_percent = percent;
        self
    }

    /// Allows or rejects [`crate::OpenMode::direct`].
    #[must_use]
    pub const fn direct(mut self, on: bool) -> Self {
        self.direct = on;
        self
    }

    /// Allows or rejects [`crate::OpenMode::dsync`].
    #[must_use]
    pub const fn dsync(mut self, on: bool) -> Self {
        self.dsync = on;
        self
    }
}

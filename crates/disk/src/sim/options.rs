//! What kind of disk is simulated.

/// The unit that the disk writes whole, or tears.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Sector {
    /// 512 bytes: a 4096-byte block may be torn at eight borders.
    B512,
    /// 4096 bytes.
    #[default]
    B4096,
}

impl Sector {
    /// The size in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::B512 => 512,
            Self::B4096 => 4096,
        }
    }
}

/// What ordinary reads give after a failed sync, for bytes that did not reach the disk.
///
/// Either way the pages count as clean from then on: no later sync writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CacheAfterFailedSync {
    /// The new content, until the power goes or a direct write replaces it. Direct reads give the
    /// old content. This is ext4 and xfs.
    #[default]
    NewStaysReadable,
    /// The old content, at once. This is btrfs.
    OldComesBack,
}

/// What kind of disk is simulated. Start from [`SimOptions::new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimOptions {
    /// Fixes every decision that the disk takes by chance.
    pub seed: u64,
    /// The unit that is written whole or torn. Default: 4096 bytes.
    pub sector: Sector,
    /// What ordinary reads give after a failed sync. Default: the new content.
    pub cache_after_failed_sync: CacheAfterFailedSync,
    /// Space for files in bytes, counted in pages of 4096; `None` is without limit, the default.
    pub capacity: Option<u64>,
    /// In how many of a hundred power cuts with unsynced bytes one sector is torn. Default: 50.
    pub torn_percent: u8,
    /// Whether files can be opened with [`crate::Open::direct`]. Default: yes.
    pub direct: bool,
    /// Whether files can be opened with [`crate::Open::dsync`]. Default: yes.
    pub dsync: bool,
}

impl SimOptions {
    /// The defaults, with this seed.
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

    /// Sets what ordinary reads give after a failed sync.
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

    /// Sets in how many of a hundred power cuts one sector is torn.
    #[must_use]
    pub const fn torn_percent(mut self, percent: u8) -> Self {
        self.torn_percent = percent;
        self
    }

    /// Allows direct I/O or refuses it.
    #[must_use]
    pub const fn direct(mut self, on: bool) -> Self {
        self.direct = on;
        self
    }

    /// Allows durable writes or refuses them.
    #[must_use]
    pub const fn dsync(mut self, on: bool) -> Self {
        self.dsync = on;
        self
    }
}

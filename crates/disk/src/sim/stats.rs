//! Call counters of the disk.

use crate::file::OpenMode;

/// Counters since the disk was created. Failed calls count too; bytes are those transferred.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimStats {
    /// Read calls.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Write calls of all kinds.
    pub writes: u64,
    /// Bytes written by calls of all kinds.
    pub bytes_written: u64,
    /// Write calls on files opened with `dsync`.
    pub dsync_writes: u64,
    /// Bytes written on files opened with `dsync`.
    pub dsync_bytes: u64,
    /// Write calls on files opened with `direct`.
    pub direct_writes: u64,
    /// Bytes written on files opened with `direct`.
    pub direct_bytes: u64,
    /// Calls of `sync_data`.
    pub syncs: u64,
    /// Calls of `sync_dir`, and directory syncs inside `create_dir`.
    pub dir_syncs: u64,
    /// Files and directories created.
    pub creates: u64,
    /// Calls of `rename`.
    pub renames: u64,
    /// Calls of `unlink`.
    pub unlinks: u64,
    /// Calls of `set_len` and `preallocate`.
    pub resizes: u64,
    /// Power cuts.
    pub power_cuts: u64,
    /// Process deaths.
    pub kills: u64,
    /// Faults that struck.
    pub faults: u64,
}

impl SimStats {
    pub(super) fn wrote(&mut self, bytes: u64, how: OpenMode) {
        self.writes += 1;
        self.bytes_written += bytes;
        if how.dsync {
            self.dsync_writes += 1;
            self.dsync_bytes += bytes;
        }
        if how.direct {
            self.direct_writes += 1;
            self.direct_bytes += bytes;
        }
    }
}

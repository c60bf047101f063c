//! The purpose of a record.

/// The purpose of a record. It decides which disk space the record may use when the disk is full,
/// and whether [`Policy::Batch`](crate::Policy::Batch) counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Purpose {
    /// A record of a user. Uses nothing of the reserve.
    Ordinary,
    /// A record that frees no space by itself, but lets the component free some, such as a delete.
    /// May use a quarter of what the reserve has for internal records, at most 8 MiB.
    Freeing,
    /// A record that the component needs in order to free space: of a checkpoint, a trim point. May
    /// use the reserve, but for what is kept for opening.
    Internal,
    /// A copy of a live record, so that the segment of its original can be dropped; see
    /// [`reclaim`](crate::reclaim). Uses nothing of the reserve. Not counted by
    /// [`Policy::Batch`](crate::Policy::Batch), because the original is durable: wait for the
    /// ticket, or the copy may stay without a commit.
    Copy,
    /// As [`Purpose::Copy`], of one that may use the reserve as an internal record.
    CopyInReserve,
}

impl Purpose {
    /// Whether [`Policy::Batch`](crate::Policy::Batch) counts the record.
    pub(crate) fn counts(self) -> bool {
        !matches!(self, Self::Copy | Self::CopyInReserve)
    }
}

//! Bugs of a kind that real systems had, planted in Esker by the feature `planted-bugs`, one at a
//! time. The crash lab has to catch each of them. Without the feature [`is_planted`] is always
//! `false`, and the compiler removes what depends on it.

macro_rules! bugs {
    ($($(#[doc = $doc:literal])+ $bug:ident = $name:literal,)+) => {
        /// A bug that can be planted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Bug {
            $($(#[doc = $doc])+ $bug,)+
        }

        impl Bug {
            /// All of them.
            pub const ALL: &[Bug] = &[$(Bug::$bug),+];

            /// The name of the bug, as `esker-lab selftest` prints it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Bug::$bug => $name,)+
                }
            }
        }
    };
}

bugs! {
    /// A commit is reported as durable before its sync.
    DurableBeforeSync = "durable_before_sync",
    /// A full segment is not synced when the next one begins.
    SyncSkippedOnRotation = "sync_skipped_on_rotation",
    /// The directory is not synced after a segment was created.
    DirectoryNotSynced = "directory_not_synced",
    /// A sealed file gets its name before its content is synced.
    RenamedBeforeSync = "renamed_before_sync",
    /// The checksum of a commit covers its records and not its header.
    ChecksumOverPayloadOnly = "checksum_over_payload_only",
    /// The checksum of a commit does not cover its session.
    SessionNotInChecksum = "session_not_in_checksum",
    /// Recovery does not make durable where it cut off the tail.
    TailNotCutDurably = "tail_not_cut_durably",
    /// After a torn tail the next write does not begin at the new end.
    CursorAtOldEnd = "cursor_at_old_end",
    /// A sync that failed is tried again, and the second answer counts.
    FailedSyncRetried = "failed_sync_retried",
    /// Recovery takes for durable what it reads, which may be in the page cache only.
    PageCacheTrusted = "page_cache_trusted_after_failed_sync",
    /// The log ends at a hole, although a later commit says that more was durable.
    HoleTakenForEnd = "hole_taken_for_end",
    /// Blocks are prewritten from one before the end, which is durable.
    DurableBlockOverwritten = "durable_block_overwritten",
    /// A segment is cleared for its next use before the log durably begins after it.
    SegmentReusedTooEarly = "segment_reused_too_early",
    /// Ordinary appends take the space that is kept for cleaning, closing and opening.
    SpaceReserveNotKept = "space_reserve_not_kept",
    /// A sync that takes long counts as done.
    StalledSyncTakenForDone = "stalled_sync_taken_for_done",
    /// `Batch(n)` commits after twice as many calls.
    BatchWindowTooWide = "batch_window_too_wide",
    /// `Periodic(t)` commits after twice the time.
    PeriodTooLong = "period_too_long",
    /// Segments are dropped before the copies of their live records are durable.
    DropBeforeCopiesAreDurable = "drop_before_copies_are_durable",
    /// A checkpoint does not have the promise, whose record is then truncated.
    PromiseLostOnTruncation = "promise_lost_on_truncation",
    /// The answer to a promise passes over slots that are truncated meanwhile.
    AnswerSkipsTruncatedSlots = "promise_answer_skips_truncated_slots",
    /// A value is accepted under a lower ballot than the promised one.
    LowerBallotAccepted = "lower_ballot_accepted",
    /// A raised floor is shown before its record is durable.
    FloorShownBeforeSync = "floor_shown_before_sync",
    /// A truncation that finds its floor raised does not wait for the record that raised it.
    RepeatedRaiseNotAwaited = "repeated_raise_not_awaited",
    /// A copy of an accepted value replaces one that was accepted meanwhile.
    AcceptCopiedOverNewer = "accept_copied_over_newer",
    /// Cleaning appends a value again, although a newer one was put meanwhile.
    CleaningOverNewerValue = "cleaning_over_newer_value",
    /// Cleaning does not see the delete of a key, and appends its value again.
    TombstoneDroppedTooEarly = "tombstone_dropped_too_early",
    /// An opening uses a checkpoint from before records were dropped.
    StaleCheckpointUsed = "stale_checkpoint_used",
    /// A snapshot gets its name before its content is synced.
    SnapshotRenamedBeforeSync = "snapshot_renamed_before_sync",
    /// The directory is not synced after a snapshot got its name.
    SnapshotNameNotSynced = "snapshot_name_not_synced",
    /// A snapshot that is not whole counts as one of those that are kept.
    CorruptSnapshotCounts = "corrupt_snapshot_counts_as_kept",
    /// Entries are truncated under a snapshot that is not read back.
    CoveringSnapshotNotRead = "covering_snapshot_not_read",
    /// A snapshot that was received is published without a sync, and without being read back.
    ReceivedSnapshotNotSynced = "received_snapshot_not_synced",
    /// The log of a key is created before the key is added.
    KeyAddedAfterItsLog = "key_added_after_its_log",
    /// The addition of a key is acknowledged before it is durable.
    KeyNotDurable = "key_acknowledged_before_sync",
    /// The registry drops its records before those that replace them are durable.
    RegistryDroppedTooEarly = "registry_dropped_before_copies",
    /// The files of a log are removed before the removal is announced.
    RemovalNotAnnounced = "removal_before_announcement",
    /// A log that is closed to make room forgets what only memory had.
    MakingRoomForgets = "making_room_forgets_accepts",
    /// A backup reads the end of one log after the other, with commits in between.
    BackupOfManyMoments = "backup_of_many_moments",
    /// The registry of a backup is a manager's before the logs are copied.
    BackupRegistryTooEarly = "backup_registry_too_early",
}

#[cfg(feature = "planted-bugs")]
mod active {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::Duration;

    use super::Bug;
    use crate::{File, Result};

    const NO_BUG: usize = usize::MAX;

    static PLANTED: AtomicUsize = AtomicUsize::new(NO_BUG);

    /// Whether this bug is planted.
    pub fn is_planted(bug: Bug) -> bool {
        PLANTED.load(SeqCst) == bug as usize
    }

    /// A bug in the whole process, until this is dropped.
    #[derive(Debug)]
    pub struct Planted(());

    /// Plants a bug. One process has one at a time.
    pub fn plant(bug: Bug) -> Planted {
        PLANTED.store(bug as usize, SeqCst);
        Planted(())
    }

    impl Drop for Planted {
        fn drop(&mut self) {
            PLANTED.store(NO_BUG, SeqCst);
        }
    }

    /// Syncs a file, and takes it for done after a moment.
    ///
    /// # Errors
    /// The error of a sync that fails at once.
    pub fn sync_impatiently(file: &Arc<dyn File>) -> Result<()> {
        let (file, (done, wait)) = (Arc::clone(file), mpsc::channel());
        thread::spawn(move || done.send(file.sync_data()));
        wait.recv_timeout(Duration::from_millis(20)).unwrap_or(Ok(()))
    }
}

#[cfg(feature = "planted-bugs")]
pub use active::{Planted, is_planted, plant, sync_impatiently};

#[cfg(not(feature = "planted-bugs"))]
mod absent {
    use std::sync::Arc;

    use super::Bug;
    use crate::{File, Result};

    /// Whether this bug is planted.
    #[inline(always)]
    pub const fn is_planted(_: Bug) -> bool {
        false
    }

    /// Syncs a file.
    ///
    /// # Errors
    /// The error of the sync.
    pub fn sync_impatiently(file: &Arc<dyn File>) -> Result<()> {
        file.sync_data()
    }
}

#[cfg(not(feature = "planted-bugs"))]
pub use absent::{is_planted, sync_impatiently};

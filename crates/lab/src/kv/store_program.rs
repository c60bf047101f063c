//! Programs: what is done to a store, one step after the other.

use std::num::NonZeroU64;
use std::time::Duration;

use esker_kv::Policy;
use esker_testkit::SplitMix64;

pub(super) const KEY_COUNT: u64 = 14;
/// The `n` of `Batch(n)`.
pub(super) const BATCH_RECORDS: u64 = 5;
/// The time of `Periodic(t)`.
pub(super) const SYNC_PERIOD: Duration = Duration::from_millis(10);
pub(super) const KEYSPACES: [&str; 3] = ["default", "left", "right"];

/// A step of a program.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    Put {
        keyspace: usize,
        key: u64,
        len: usize,
    },
    Delete {
        keyspace: usize,
        key: u64,
    },
    DeleteRange {
        keyspace: usize,
        from: u64,
        to: u64,
    },
    /// Deletes the range without bounds.
    DeleteAll {
        keyspace: usize,
    },
    /// Some puts and deletes in two keyspaces.
    Batch {
        seed: u64,
    },
    /// A batch whose condition holds, or not.
    CompareAndSet {
        key: u64,
        holds: bool,
    },
    CreateKeyspace(usize),
    DropKeyspace(usize),
    Wait,
    Sync,
    Compact,
    /// Cleaning, with puts and deletes meanwhile.
    CompactInterleaved {
        seed: u64,
    },
    Checkpoint,
    /// A checkpoint, with puts and deletes meanwhile.
    CheckpointInterleaved {
        seed: u64,
    },
    Snapshot,
    CheckSnapshot,
    Reopen,
    /// The clock advances by so many milliseconds.
    Advance(u64),
}

/// A random program.
pub fn program(len: usize, rng: &mut SplitMix64) -> Vec<Step> {
    let step = |rng: &mut SplitMix64| {
        let (keyspace, key) = (rng.index(KEYSPACES.len()), rng.below(KEY_COUNT));
        match rng.below(34) {
            0..=13 => Step::Put { keyspace, key, len: rng.pick(&[0, 10, 300, 9000, 30_000]) },
            14..=16 => Step::Delete { keyspace, key },
            17 if key == 0 => Step::DeleteAll { keyspace },
            17 => Step::DeleteRange { keyspace, from: key, to: rng.below(KEY_COUNT) },
            18..=20 => Step::Batch { seed: rng.next() },
            21 => Step::CompareAndSet { key, holds: rng.percent(70) },
            22 => Step::CreateKeyspace(1 + rng.index(2)),
            23 => Step::DropKeyspace(1 + rng.index(2)),
            24 => Step::Wait,
            25 => Step::Sync,
            26 => Step::Compact,
            27 => Step::CompactInterleaved { seed: rng.next() },
            28 => Step::Snapshot,
            29 => Step::CheckSnapshot,
            30 => Step::Reopen,
            31 => Step::Checkpoint,
            32 => Step::CheckpointInterleaved { seed: rng.next() },
            _ => Step::Advance(20),
        }
    };
    (0..len).map(|_| step(rng)).collect()
}

/// The policies that stores are opened with.
pub const POLICIES: [Policy; 4] = [
    Policy::Always,
    Policy::Batch(NonZeroU64::MIN.saturating_add(BATCH_RECORDS - 1)),
    Policy::Periodic(SYNC_PERIOD),
    Policy::OsBuffered,
];

/// The bytes of a key.
pub(super) fn key(n: u64) -> Vec<u8> {
    // Keys of all lengths, also none; some with a common prefix.
    match n % 3 {
        _ if n == 0 => Vec::new(),
        0 => format!("key-{n:020}").into_bytes(),
        1 => vec![n as u8],
        _ => vec![0xff; n as usize],
    }
}

//! The settings of openraft that the stores need, and those that make an election safe and short.

use std::time::Duration;

use openraft::{Config, SnapshotPolicy};

/// Entries between two snapshots, and entries that are kept before the newest.
const SNAPSHOT_INTERVAL_ENTRIES: u64 = 10_000;
const ENTRIES_KEPT_BEFORE_SNAPSHOT: u64 = 1_000;

/// Tenths of a round trip: between two heartbeats, and from the end of a leader's lease to an
/// election. The lease is the longest of these, from the last heartbeat.
const HEARTBEAT_TENTHS: u64 = 20;
const ELECTION_MIN_TENTHS: u64 = 45;
const ELECTION_MAX_TENTHS: u64 = 80;

const _: () = assert!(ENTRIES_KEPT_BEFORE_SNAPSHOT < SNAPSHOT_INTERVAL_ENTRIES);
// A follower that misses three heartbeats in a row does not end the lease.
const _: () = assert!(3 * HEARTBEAT_TENTHS < ELECTION_MAX_TENTHS);
const _: () = assert!(ELECTION_MIN_TENTHS < ELECTION_MAX_TENTHS);

/// Returns openraft's configuration for a cluster with this round-trip time, at least 1 ms.
///
/// A heartbeat is sent every two round trips. Without one a leader's lease ends after 8, and a
/// follower campaigns 4.5 to 8 after that. Before it does, it asks whether it would win (pre-vote),
/// so that a node that was cut off does not depose a leader. A node that restarts never continues
/// to lead in a term of its earlier life: it may have sent entries that it has not stored. A leader
/// that no quorum acknowledges sends no heartbeats for 20 round trips, so that a voter that hears
/// only this leader votes for another, and then sends them for 20, in turn. A follower whose log
/// was reverted is sent the entries again: until it has them, a quorum that lacks them can elect a
/// leader.
///
/// # Examples
/// ```
/// let config = esker_raft::config(std::time::Duration::from_millis(10));
/// assert_eq!((config.heartbeat_interval, config.election_timeout_min), (20, 45));
/// assert_eq!(config.enable_leader_restore, Some(false));
/// assert!(config.validate().is_ok());
/// ```
pub fn config(round_trip: Duration) -> Config {
    let ms = |tenths: u64| {
        let unit = u64::try_from(round_trip.as_millis()).unwrap_or(u64::MAX).clamp(1, 60_000);
        (unit * tenths).div_ceil(10)
    };
    let config = Config {
        heartbeat_interval: ms(HEARTBEAT_TENTHS),
        election_timeout_min: ms(ELECTION_MIN_TENTHS),
        election_timeout_max: ms(ELECTION_MAX_TENTHS),
        install_snapshot_timeout: ms(1000).max(1000),
        // A node that is back gets entries within a lease. A single time would double to a second.
        backoff: format!("{}ms {}ms ...{}ms", ms(10), ms(20), ms(ELECTION_MAX_TENTHS)),
        snapshot_policy: SnapshotPolicy::LogsSinceLast(SNAPSHOT_INTERVAL_ENTRIES),
        max_in_snapshot_log_to_keep: ENTRIES_KEPT_BEFORE_SNAPSHOT,
        enable_pre_vote: Some(true),
        quorum_loss_probe_interval: Some(ms(200)),
        enable_leader_restore: Some(false),
        allow_log_reversion: Some(true),
        ..Config::default()
    };
    debug_assert!(config.clone().validate().is_ok(), "openraft accepts these settings");
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node that was away for a while is sent entries within a lease.
    #[test]
    fn pauses_end_at_a_lease() {
        for round_trip in [1, 10, 300] {
            let config = config(Duration::from_millis(round_trip));
            let lease = Duration::from_millis(config.election_timeout_max);
            let pauses: Vec<_> = config.build_backoff().take(20).collect();
            assert!(pauses.is_sorted() && pauses.iter().all(|pause| *pause <= lease), "{pauses:?}");
            assert_eq!((pauses[0], pauses[19]), (Duration::from_millis(round_trip), lease));
        }
    }
}

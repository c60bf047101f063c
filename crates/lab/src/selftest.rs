//! The self-test of the lab: each planted bug has to be caught.
//!
//! The gate looks for each bug under the setting that is known to catch it soonest. The whole
//! self-test goes through all settings.

use esker_disk::planted::{Bug, Planted, plant};

use crate::faults::disk_faults;
use crate::power::power_cuts;
use crate::setting::Setting;
use crate::simulation::{Options, Simulation};

/// Runs of each simulation in the first round. Each further round has twice as many.
const FIRST_ROUND_RUNS: u64 = 8;
/// Rounds until a bug counts as escaped.
const ROUNDS_MAX: u32 = 8;

/// The settings in which a bug is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The setting that is known to catch it.
    Known,
    /// All settings.
    All,
}

/// The setting that is known to catch each bug: instrument, component and policy.
const KNOWN: [(Bug, [&str; 3]); 39] = [
    (Bug::DurableBeforeSync, ["power", "log", "always"]),
    (Bug::SyncSkippedOnRotation, ["power", "log", "os"]),
    (Bug::DirectoryNotSynced, ["power", "log", "always"]),
    (Bug::RenamedBeforeSync, ["power", "log", "always"]),
    (Bug::ChecksumOverPayloadOnly, ["bit_flips", "log", "always"]),
    (Bug::SessionNotInChecksum, ["bit_flips", "log", "always"]),
    (Bug::TailNotCutDurably, ["power", "log", "always"]),
    (Bug::CursorAtOldEnd, ["power", "log", "os"]),
    (Bug::FailedSyncRetried, ["failing_disk", "log", "always"]),
    (Bug::PageCacheTrusted, ["failing_disk", "log", "always"]),
    (Bug::HoleTakenForEnd, ["bit_flips", "log", "always"]),
    (Bug::DurableBlockOverwritten, ["power", "log", "always"]),
    (Bug::SegmentReusedTooEarly, ["power", "log", "always"]),
    (Bug::SpaceReserveNotKept, ["full_disk", "kv", "batch_5"]),
    (Bug::StalledSyncTakenForDone, ["stalled_sync", "log", "always"]),
    (Bug::BatchWindowTooWide, ["power", "log", "batch_5"]),
    (Bug::PeriodTooLong, ["power", "log", "periodic_10ms"]),
    (Bug::DropBeforeCopiesAreDurable, ["power", "kv", "always"]),
    (Bug::PromiseLostOnTruncation, ["power", "consensus", "durable"]),
    (Bug::AnswerSkipsTruncatedSlots, ["power", "consensus", "durable"]),
    (Bug::LowerBallotAccepted, ["power", "consensus", "durable"]),
    (Bug::FloorShownBeforeSync, ["power", "consensus", "durable"]),
    (Bug::RepeatedRaiseNotAwaited, ["power", "consensus", "durable"]),
    (Bug::AcceptCopiedOverNewer, ["power", "consensus", "durable"]),
    (Bug::CleaningOverNewerValue, ["power", "kv", "batch_5"]),
    (Bug::TombstoneDroppedTooEarly, ["power", "kv", "always"]),
    (Bug::StaleCheckpointUsed, ["full_disk", "kv", "batch_5"]),
    (Bug::SnapshotRenamedBeforeSync, ["power", "manager", "durable"]),
    (Bug::SnapshotNameNotSynced, ["power", "manager", "durable"]),
    (Bug::CorruptSnapshotCounts, ["power", "manager", "durable"]),
    (Bug::CoveringSnapshotNotRead, ["power", "manager", "durable"]),
    (Bug::ReceivedSnapshotNotSynced, ["power", "manager", "volatile"]),
    (Bug::KeyAddedAfterItsLog, ["power", "manager", "durable"]),
    (Bug::KeyNotDurable, ["power", "manager", "durable"]),
    (Bug::RegistryDroppedTooEarly, ["power", "manager", "durable"]),
    (Bug::RemovalNotAnnounced, ["power", "manager", "volatile"]),
    (Bug::MakingRoomForgets, ["power", "manager", "volatile"]),
    (Bug::BackupOfManyMoments, ["power", "manager", "durable"]),
    (Bug::BackupRegistryTooEarly, ["power", "manager", "durable"]),
];

/// The outcome of the hunt for a planted bug.
#[derive(Debug, Clone)]
pub struct HuntResult {
    /// The name of the bug.
    pub bug: &'static str,
    /// Power cuts made until it was caught, those of instruments that did not see it too.
    pub cuts: u64,
    /// Runs made until then.
    pub runs: u64,
    /// The run that caught it; `None` if it escaped, or if the run that failed fails without it,
    /// too.
    pub by: Option<Catch>,
}

/// How a bug was caught.
#[derive(Debug, Clone)]
pub struct Catch {
    /// Instrument, component and policy.
    pub setting: Setting,
    /// The seed of the run.
    pub seed: u64,
    /// The promise that was broken.
    pub what: String,
}

/// The names of all bugs that can be planted.
pub fn bugs() -> Vec<&'static str> {
    Bug::ALL.iter().map(|bug| bug.name()).collect()
}

fn named(name: &str) -> Option<Bug> {
    Bug::ALL.iter().find(|bug| bug.name() == name).copied()
}

/// Plants a bug in this process until what this returns is dropped. `None` if no bug has this name.
pub fn planted(name: &str) -> Option<Planted> {
    named(name).map(plant)
}

/// Plants a bug and goes through the settings of the scope, in rounds, until one catches it. `None`
/// if no bug has this name.
///
/// The bug is in the whole process: no other thread may use the components meanwhile.
pub fn hunt(name: &str, scope: Scope) -> Option<HuntResult> {
    let bug = named(name)?;
    let is_known = |simulation: &Simulation| {
        let Setting { instrument, component, policy, .. } = simulation.setting;
        KNOWN.contains(&(bug, [instrument, component, policy]))
    };
    let instruments = power_cuts().into_iter().chain(disk_faults());
    let instruments: Vec<Simulation> =
        instruments.filter(|one| scope == Scope::All || is_known(one)).collect();
    let planted = plant(bug);
    let mut found = HuntResult { bug: bug.name(), cuts: 0, runs: 0, by: None };
    let (mut first_seed, mut runs) = (1, FIRST_ROUND_RUNS);
    for _ in 0..ROUNDS_MAX {
        for simulation in &instruments {
            // Its syncs are held for some time.
            let is_slow = simulation.setting.instrument == "stalled_sync";
            let runs = if is_slow { FIRST_ROUND_RUNS / 4 } else { runs };
            let outcome = simulation.run(Options { first_seed, runs }, &|_| {});
            found.cuts += outcome.statistics.cuts;
            found.runs += outcome.statistics.runs;
            if let Some(violation) = outcome.examples.into_iter().next() {
                // What fails without the bug, too, says nothing about it.
                drop(planted);
                let alone = Options { first_seed: violation.seed, runs: 1 };
                let is_caught = simulation.run(alone, &|_| {}).violations == 0;
                found.by = is_caught.then_some(Catch {
                    setting: simulation.setting,
                    seed: violation.seed,
                    what: violation.what,
                });
                return Some(found);
            }
        }
        // Seeds that are far apart begin with other programs.
        (first_seed, runs) = (first_seed + 4096, 2 * runs);
    }
    Some(found)
}

//! Disks that fail, stall, fill up or lie, under the components. What holds whatever the disk
//! does: nothing that was reported as durable is lost without a report, and no value is another.

mod bit_flips;
mod failing_disk;
mod full_disk;
mod stalled_sync;
mod trial;

use crate::setting::settings;
use crate::simulation::{RunsOf, Simulation};
use trial::{POLICIES, runs_of};

/// Returns the disks with faults, each under every policy of the component.
pub fn disk_faults() -> Vec<Simulation> {
    let instruments: [(_, _, RunsOf); 4] = [
        ("failing_disk", "log", runs_of::<failing_disk::FailingDisk>),
        ("stalled_sync", "log", runs_of::<stalled_sync::StalledSync>),
        ("bit_flips", "log", runs_of::<bit_flips::BitFlips>),
        ("full_disk", "kv", runs_of::<full_disk::FullDisk>),
    ];
    let simulations = |(instrument, component, runs_of)| {
        settings(instrument, component, POLICIES)
            .map(move |setting| Simulation { setting, runs_of })
    };
    instruments.into_iter().flat_map(simulations).collect()
}

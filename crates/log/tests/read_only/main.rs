//! Readers beside the writer, in this process or another.

#[path = "../kit/fixture.rs"]
mod fixture;

mod backup;
mod backup_lineage;
mod consumers;
mod dropped_records;
mod lagging_reader;
mod metrics;
mod placed;
mod restore;
mod verify_during_writes;
mod waiting;
mod watermark;

//! openraft's own test suite for stores, on a simulated disk and on a real one.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use esker_consensus::ConsensusLog;
use esker_disk::sim::SimDisk;
use esker_raft::openraft::StorageError;
use esker_raft::openraft::testing::log::{StoreBuilder, Suite};
use esker_raft::{LogStore, MachineStore};

use super::strings::{Lengths, Strings, log_on, stores};

struct Simulated;

impl StoreBuilder<Strings, LogStore<Strings>, MachineStore<Strings, Lengths>, SimDisk>
    for Simulated
{
    async fn build(
        &self,
    ) -> Result<(SimDisk, LogStore<Strings>, MachineStore<Strings, Lengths>), StorageError<Strings>>
    {
        let disk = SimDisk::new(1);
        let (log, machine) = stores(log_on(&disk).unwrap());
        Ok((disk, log, machine))
    }
}

struct OnDisk;

impl StoreBuilder<Strings, LogStore<Strings>, MachineStore<Strings, Lengths>, tempfile::TempDir>
    for OnDisk
{
    async fn build(
        &self,
    ) -> Result<
        (tempfile::TempDir, LogStore<Strings>, MachineStore<Strings, Lengths>),
        StorageError<Strings>,
    > {
        let dir = tempfile::tempdir().unwrap();
        let path: &Path = &dir.path().join("raft");
        let (log, machine) = stores(ConsensusLog::open(path).unwrap());
        Ok((dir, log, machine))
    }
}

#[tokio::test]
async fn openrafts_suite_passes_on_a_simulated_disk() {
    Suite::test_all(Simulated).await.unwrap();
}

#[tokio::test]
async fn openrafts_suite_passes_on_a_real_disk() {
    Suite::test_all(OnDisk).await.unwrap();
}

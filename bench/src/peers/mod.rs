//! The logs under test that run in this process.

pub mod consensus;
mod esker;
#[cfg(feature = "okaywal")]
mod okaywal;
mod plain;
#[cfg(feature = "raft-engine")]
mod raft_engine;

use anyhow::{Result, bail};

use crate::job::{Job, Set};
use crate::peer::Peer;

/// Finds the log that a job is for.
pub fn find(job: &Job) -> Result<Peer> {
    let system = job.system.as_str();
    Ok(match (job.set, system) {
        (Set::Log, "esker") => esker::AS_TASKS,
        (Set::Log, "esker-threads") => esker::AS_THREADS,
        (Set::Consensus, "esker") => consensus::AS_TASKS,
        (Set::Consensus, "esker-threads") => consensus::AS_THREADS,
        (Set::Consensus, "esker-commit") => consensus::COMMIT,
        (Set::Consensus, "esker-commit-threads") => consensus::COMMIT_THREADS,
        (_, "plain") => plain::PEER,
        #[cfg(feature = "okaywal")]
        (_, "okaywal") => okaywal::PEER,
        #[cfg(feature = "raft-engine")]
        (_, "raft-engine") => raft_engine::PEER,
        _ => bail!("{system} was left out of this build"),
    })
}

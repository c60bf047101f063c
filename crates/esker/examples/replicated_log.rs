//! One value, chosen by three acceptors with a consensus log each: the two phases of Paxos.
//!
//! ```text
//! cargo run -p esker --example replicated_log --features consensus -- ./esker-data
//! ```
//!
//! `examples/paxos` in the repository is the whole protocol, with lost messages and crashes.

use std::ops::ControlFlow;
use std::path::Path;

use esker::consensus::{Ballot, ConsensusLog, Error, Slot};

const SLOT: Slot = Slot(0);
const MAJORITY_NODES: usize = 2;

/// Proposes a value under a ballot. Returns the chosen one, which may be that of an earlier
/// proposer.
pub fn propose(nodes: &[ConsensusLog], ballot: Ballot, value: &[u8]) -> Result<Vec<u8>, Error> {
    // Phase 1: a majority promises, and says what it has accepted.
    let mut accepted: Option<(Ballot, Vec<u8>)> = None;
    let mut promises = 0;
    for node in nodes {
        let Ok(ticket) = node.promise(ballot, SLOT) else { continue };
        let promised = ticket.blocking_wait()?;
        let visited = promised.for_each(|entry| {
            if accepted.as_ref().is_none_or(|(highest, _)| entry.ballot() > *highest) {
                accepted = Some((entry.ballot(), entry.value().to_vec()));
            }
            ControlFlow::Continue(())
        })?;
        assert!(visited.is_continue(), "the whole answer was visited");
        promises += 1;
    }
    assert!(promises >= MAJORITY_NODES, "no majority promised");

    // Phase 2: a majority accepts the value of the highest ballot, or ours.
    let value = accepted.map_or_else(|| value.to_vec(), |(_, value)| value);
    let mut accepts = 0;
    for node in nodes {
        let Ok(ticket) = node.accept(SLOT, ballot, &value) else { continue };
        ticket.blocking_wait()?;
        accepts += 1;
    }
    assert!(accepts >= MAJORITY_NODES, "no majority accepted");
    for node in nodes {
        node.commit(SLOT, ballot)?.blocking_wait()?;
    }
    Ok(value)
}

/// Opens three nodes in `dir`, and has two proposers compete for a slot.
pub fn run(dir: &Path) -> Result<[Vec<u8>; 2], Error> {
    let open = |n: u64| ConsensusLog::open(dir.join(format!("node-{n}")));
    let nodes = [open(1)?, open(2)?, open(3)?];
    let first = propose(&nodes, Ballot { number: 1, node: 1 }, b"the first proposal")?;
    let second = propose(&nodes, Ballot { number: 2, node: 2 }, b"the second proposal")?;
    for node in &nodes {
        node.close()?;
    }
    Ok([first, second])
}

#[allow(dead_code, clippy::print_stdout)]
fn main() -> Result<(), Error> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "./esker-data".into());
    for chosen in run(Path::new(&dir))? {
        println!("{}", chosen.escape_ascii());
    }
    Ok(())
}

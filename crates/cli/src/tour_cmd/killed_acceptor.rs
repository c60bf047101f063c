//! Kills an acceptor of Paxos, and has a new proposer go on with its slots.

use std::io::{BufRead, BufReader};
use std::path::Path;

use esker_consensus::{AcceptError, Ballot, ConsensusLog, OpenError, Slot};

use super::step::{Figure, StepResult, ensure, kill_process, record, start, timed};
use esker_command::output::print_while_open;

const FIRST: Ballot = Ballot { number: 1, node: 1 };
const SECOND: Ballot = Ballot { number: 2, node: 2 };
/// Acknowledged slots after which it is killed; the last are not committed.
const ACKNOWLEDGED_MIN: u64 = 300;
const UNCOMMITTED_SLOTS: u64 = 5;

pub fn run(dir: &Path) -> StepResult<Vec<Figure>> {
    let mut acceptor = start(&["tour", "--acceptor"], dir)?;
    let lines = BufReader::new(acceptor.stdout.take().ok_or("no output")?).lines();
    let mut counts = lines.map_while(|line| line.ok()?.parse::<u64>().ok());
    let count = counts.find(|count| *count == ACKNOWLEDGED_MIN);
    kill_process(acceptor)?;
    // It may have written more by then.
    let slots = counts.last().or(count).ok_or("the acceptor acknowledged too few slots")?;
    let (log, open_ms) = timed(|| open(dir))?;
    for slot in 0..slots {
        let guard = log.pin();
        let found = log.read(Slot(slot), &guard)?;
        let is_kept = found.is_committed() || slot + UNCOMMITTED_SLOTS >= slots;
        let is_right = is_kept && found.value() == record(slot).as_bytes();
        ensure!(is_right, "slot {slot} was acknowledged, and is now {found:?}");
    }
    let promised = log.promise(SECOND, Slot(0))?.blocking_wait()?;
    let late = log.accept(Slot(slots + 1), FIRST, b"late");
    let is_refused = matches!(late, Err(AcceptError::StaleBallot { .. }));
    ensure!(is_refused, "the old proposer was not refused");
    for entry in promised.uncommitted() {
        log.accept(entry.slot(), SECOND, entry.value())?.blocking_wait()?;
        log.commit(entry.slot(), SECOND)?.blocking_wait()?;
    }
    ensure!(log.frontier() >= Some(Slot(slots - 1)), "not all of {slots} slots are committed");
    log.close()?;
    Ok(vec![
        ("acknowledged", slots as f64, "{} acknowledged slots are there"),
        ("adopted", promised.uncommitted().len() as f64, "a new proposer committed the last {}"),
        ("open_ms", open_ms, "opened in {} ms"),
    ])
}

fn open(dir: &Path) -> Result<ConsensusLog, OpenError> {
    ConsensusLog::builder(dir).segment_size(8 << 20).reserve(1 << 20).open()
}

/// Accepts slot after slot, and prints how many are durable, until it is killed.
pub fn accept(dir: &Path) -> StepResult<()> {
    let (log, mut slot) = (open(dir)?, 0);
    log.promise(FIRST, Slot(0))?.blocking_wait()?;
    while print_while_open(&format!("{slot}\n")).unwrap_or(false) {
        log.accept(Slot(slot), FIRST, record(slot).as_bytes())?.blocking_wait()?;
        if slot >= UNCOMMITTED_SLOTS {
            log.commit(Slot(slot - UNCOMMITTED_SLOTS), FIRST)?.blocking_wait()?;
        }
        slot += 1;
    }
    Ok(log.close()?)
}

//! Commands that read a whole log run in memory that does not grow with it.
//!
//! Bug: `esker stat`, `dump` and `verify` held some 100 bytes for each slot of the log.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use esker_consensus::{Ballot, ConsensusLog, Slot};

use crate::esker::{CommandOutput, run, workdir};

/// More slots than are held at a time, seven times over. 100 bytes for each exceed the limit.
const SLOTS: u64 = 1_000_000;
/// The limit of a command's data, in KiB: code and files do not count.
const LIMIT: &str = "81920";

/// Runs a command under the limit.
fn limited(words: &[&str], dir: &Path) -> CommandOutput {
    let mut shell = Command::new("sh");
    let script = "ulimit -d \"$0\"; exec \"$@\"";
    shell.args([OsStr::new("-c"), script.as_ref(), LIMIT.as_ref()]);
    shell.arg(env!("CARGO_BIN_EXE_esker")).args(words).arg(dir);
    run(shell, b"")
}

#[test]
fn consensus_commands_hold_a_bounded_number_of_slots() {
    let (_guard, dir) = workdir();
    let log = ConsensusLog::open(&dir).unwrap();
    let ballot = Ballot { number: 1, node: 1 };
    for slot in 0..SLOTS {
        let ticket = log.learn(Slot(slot), ballot, &slot.to_le_bytes()).unwrap();
        if slot % 4096 == 0 {
            ticket.blocking_wait().unwrap();
        }
    }
    log.close().unwrap();
    let stat = limited(&["stat", "--json"], &dir).ok().json();
    assert_eq!((&stat["committed"], &stat["frontier"]), (&SLOTS.into(), &(SLOTS - 1).into()));
    let verify = limited(&["verify", "--json"], &dir).ok().json();
    assert_eq!((&verify["slots"], &verify["sound"]), (&SLOTS.into(), &true.into()));
    let from = SLOTS - 300_000;
    let dump = limited(&["consensus", "dump", "--from", &from.to_string()], &dir).ok();
    let slots = dump.text().lines().map(|line| line.split(' ').next().unwrap());
    assert!(slots.eq((from..SLOTS).map(|slot| slot.to_string())), "the dump lacks slots");
}

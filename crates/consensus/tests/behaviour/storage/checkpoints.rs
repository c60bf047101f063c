//! Automatic checkpoints: when they start, and on which thread.
#![allow(clippy::unwrap_used, clippy::panic)]

use esker_consensus::{Ballot, Mode, Slot};

use crate::fixture::log_with;

/// Guards against a log that only promises, and replays all of its promises when it opens.
#[test]
fn promises_alone_trigger_checkpoints() {
    let s = log_with(Mode::Durable, |options| options.checkpoint_every = 1024);
    for number in 1..=5000 {
        drop(s.log.promise(Ballot { number, node: 1 }, Slot(0)).unwrap());
        assert!(s.log.stats().since_checkpoint <= 1024, "promise {number}");
    }
    let s = s.kill(Mode::Durable);
    assert!(s.log.stats().since_checkpoint <= 2048);
    assert_eq!(s.log.stats().background_failures, 0);
}

//! Any interleaving of promise, accept, commit, learn, truncation, install and checkpoint, and any
//! end of each life, against the model: what breaks one comes back with as few steps as will do.
//!
//! Guards, beside what the programs of `random_programs` and `crash_every_boundary` guard: an order
//! of operations that no directed test has; a batch that is refused in its middle; a ticket that
//! no caller waits for and whose record counts all the same; a full value budget that takes or
//! refuses the wrong value; a commit without a sync that is promised more than it may be; records
//! that say something else than the checkpoint that sums them up.
//!
//! `ESKER_SOAK=n` goes through n cases, of longer lives.
#![allow(clippy::panic)]

use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::strategy::case;

#[test]
fn any_interleaving_keeps_acknowledged_operations() {
    let soak = std::env::var("ESKER_SOAK").ok().and_then(|text| text.parse().ok());
    let (lives, steps) = if soak.is_some() { (9, 80) } else { (5, 40) };
    let config = Config {
        cases: soak.unwrap_or(512),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    let ran = TestRunner::new(config)
        .run(&case(lives, steps), |case| case.run().map_err(TestCaseError::fail));
    if let Err(error) = ran {
        panic!("{error}");
    }
}

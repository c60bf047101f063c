//! The examples do what they say.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

#[path = "../examples/append.rs"]
mod append;
#[path = "../examples/durable_queue.rs"]
mod durable_queue;
#[path = "../examples/event_sourced.rs"]
mod event_sourced;
#[cfg(feature = "kv")]
#[path = "../examples/minimal_lsm.rs"]
mod minimal_lsm;
#[cfg(feature = "consensus")]
#[path = "../examples/replicated_log.rs"]
mod replicated_log;
#[path = "../examples/ring.rs"]
mod ring;
#[path = "../examples/tail.rs"]
mod tail;

#[test]
fn append_reads_back_what_it_appended() {
    let dir = tempfile::tempdir().unwrap();
    let found = append::run(&dir.path().join("log")).unwrap();
    assert_eq!(found, ["first", "second", "third"]);
}

#[test]
fn tail_prints_all_records_of_another_writer() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("log");
    append::run(&dir).unwrap();
    let mut found = Vec::new();
    tail::run(&dir, Duration::from_millis(50), |payload| found.push(payload.to_vec())).unwrap();
    assert_eq!(found, [&b"first"[..], b"second", b"third"]);
}

#[test]
fn ring_keeps_three_segments() {
    let dir = tempfile::tempdir().unwrap();
    let segments = ring::run(&dir.path().join("log"), 1000).unwrap();
    assert!((1..=3).contains(&segments), "{segments} segments");
}

#[test]
fn queue_delivers_again_what_was_not_done() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("log");
    {
        let mut queue = durable_queue::Queue::open(&dir).unwrap();
        ["one", "two", "three"].iter().for_each(|job| queue.push(job).unwrap());
        let mut jobs = Vec::new();
        while jobs.len() < 3 {
            jobs.extend(queue.take().unwrap());
        }
        queue.done(jobs[0].0).unwrap();
    }
    let mut queue = durable_queue::Queue::open(&dir).unwrap();
    let again: Vec<_> = queue.take().unwrap().into_iter().map(|(_, job)| job).collect();
    assert_eq!(again[0], "two");
}

#[test]
fn accounts_are_what_their_events_add_up_to() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("log");
    for round in 1..3 {
        let mut accounts = event_sourced::Accounts::open(&dir).unwrap();
        accounts.add("ada", 100).unwrap();
        accounts.transfer("ada", "grace", 30).unwrap();
        assert_eq!((accounts.balance("ada"), accounts.balance("grace")), (70 * round, 30 * round));
    }
}

#[cfg(feature = "consensus")]
#[test]
fn a_later_proposer_finds_the_chosen_value() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = replicated_log::run(dir.path()).unwrap();
    assert_eq!((&*first, &*second), (&b"the first proposal"[..], &b"the first proposal"[..]));
}

/// The demo runs to its end in every mode.
#[cfg(feature = "kv")]
#[test]
fn minimal_lsm_measures_three_policies() {
    let dir = tempfile::tempdir().unwrap();
    let measured = minimal_lsm::run(dir.path()).unwrap();
    let policies: Vec<_> = measured.iter().map(|mode| format!("{:?}", mode.policy)).collect();
    assert_eq!(policies, ["Always", "Batch(100)", "Periodic(10ms)"]);
    for mode in measured {
        assert!(mode.recovered == 1000 && mode.per_s > 0.0, "{mode:?}");
        assert!((mode.per_s * mode.time.as_secs_f64() - 1000.0).abs() < 0.01, "{mode:?}");
    }
}

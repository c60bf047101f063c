//! The examples do what they say.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

#[cfg(feature = "kv")]
#[path = "../examples/account_events.rs"]
mod account_events;
#[path = "../examples/append.rs"]
mod append;
#[path = "../examples/durable_queue.rs"]
mod durable_queue;
#[path = "../examples/event_sourced.rs"]
mod event_sourced;
#[cfg(feature = "consensus")]
#[path = "../examples/replicated_log.rs"]
mod replicated_log;
#[path = "../examples/ring.rs"]
mod ring;
#[cfg(feature = "kv")]
#[path = "../examples/sessions.rs"]
mod sessions;
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

/// A balance has each event once, also where the last run had applied some of them.
#[cfg(feature = "kv")]
#[test]
fn balances_follow_the_events_of_accounts() {
    let dir = tempfile::tempdir().unwrap();
    let (of_events, of_balances) = (dir.path().join("events"), dir.path().join("balances"));
    for round in 0..3 {
        let events = account_events::Events::open(&of_events).unwrap();
        let mut balances = account_events::Balances::open(&of_balances, &events).unwrap();
        assert_eq!(balances.balance("ada").unwrap(), 70 * i64::from(round));
        assert_eq!(events.count("ada").unwrap(), 2 * round);
        assert!(events.add("ada", 2 * round, 100).unwrap());
        assert!(!events.add("ada", 2 * round, 100).unwrap(), "another caller was faster");
        balances.follow().unwrap();
        assert!(events.add("ada", 2 * round + 1, -30).unwrap());
        assert!(events.add("grace", round, 5).unwrap());
        balances.follow().unwrap();
        balances.follow().unwrap();
    }
    let events = account_events::Events::open(&of_events).unwrap();
    let balances = account_events::Balances::open(&of_balances, &events).unwrap();
    assert_eq!((balances.balance("ada").unwrap(), balances.balance("grace").unwrap()), (210, 15));
}

#[cfg(feature = "kv")]
#[test]
fn sessions_expire_unless_they_got_another_end() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("store");
    {
        let sessions = sessions::Sessions::open(&dir).unwrap();
        sessions.put("one", "ada", 10).unwrap();
        sessions.put("two", "grace", 10).unwrap();
        sessions.put("three", "mary", 11).unwrap();
        sessions.put("two", "grace", 20).unwrap();
        assert_eq!(sessions.user("one", 9).unwrap().as_deref(), Some("ada"));
        assert_eq!(sessions.user("one", 10).unwrap(), None);
    }
    let sessions = sessions::Sessions::open(&dir).unwrap();
    assert_eq!(sessions.expire(9).unwrap(), 0);
    assert_eq!((sessions.expire(10).unwrap(), sessions.count()), (1, 2));
    assert_eq!(sessions.user("two", 10).unwrap().as_deref(), Some("grace"));
    assert_eq!(sessions.user("three", 10).unwrap().as_deref(), Some("mary"));
    assert_eq!((sessions.expire(20).unwrap(), sessions.count()), (2, 0));
}

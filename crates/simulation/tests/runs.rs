//! Runs of the simulation that are part of `cargo test`. Thousands of seeds run by hand: see the
//! chapter about testing.
#![allow(clippy::unwrap_used, clippy::panic)]

use esker_simulation::{ClockFaults, LeaseMode, Options, run};

/// The seeds of runs that found mutations: a leader that proves nothing, a lease that is kept
/// across a transfer, one that is counted from the answer; a voter that votes within a lease of
/// its restart; a snapshot that is not restored; and a node that continues when its log has failed.
const MUTATION_SEEDS: [u64; 4] = [3, 15, 79, 3987];

fn short(seed: u64) -> Options {
    Options { faults_ms: 6_000, ..Options::from_seed(seed) }
}

/// Uniqueness, real-time order, equal replicas, and timestamps soon after the last fault.
#[test]
fn clients_get_the_timestamps_of_one_oracle() {
    let mut answered = [0; 3];
    for seed in 1..=12 {
        let options = short(seed);
        let outcome = run(options).0.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        assert!(outcome.faults > 10 && outcome.answered > 100, "seed {seed}: {outcome:?}");
        answered[options.leases as usize] += outcome.answered;
    }
    for leases in [LeaseMode::Off, LeaseMode::On, LeaseMode::Switched] {
        assert!(answered[leases as usize] > 0, "no run with leases {leases:?}");
    }
}

/// No gap, no repeat, and each request is answered once the faults have ended.
#[test]
fn numbers_of_a_sequence_have_no_gap_and_no_repeat() {
    for seed in 1..=8 {
        let options = Options { sequences: true, ..short(seed) };
        let outcome = run(options).0.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        assert!(outcome.faults > 10 && outcome.numbered > 100, "seed {seed}: {outcome:?}");
    }
}

/// A clock after 2554, once, made the last epoch that there is: no timestamp came after it, for
/// good. Clocks are anywhere from 1960 to 2600 here, also before the first epoch, and operators
/// have epochs follow them.
#[test]
fn clocks_that_are_centuries_wrong_stop_no_cluster() {
    for seed in 1..=8 {
        let options = Options { clocks: ClockFaults::Centuries, ..short(seed) };
        let outcome = run(options).0.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        assert!(outcome.faults > 10 && outcome.answered > 0, "seed {seed}: {outcome:?}");
    }
}

/// The seeds run with the default length of faults.
#[test]
fn what_was_found_once_stays_mended() {
    for seed in MUTATION_SEEDS {
        run(Options::from_seed(seed)).0.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    }
}

/// A seed gives the same events in the same order, whatever else the process does.
#[test]
fn a_seed_determines_all_that_happens() {
    for seed in [3, 4, 100] {
        let options = Options { keeps_trace: true, ..short(seed) };
        let (outcome, trace) = run(options);
        assert!(trace.len() > 1_000, "{}", trace.len());
        // Beside another run, so that numbers of tasks and addresses are others.
        let again = std::thread::scope(|scope| {
            let other = scope.spawn(|| run(short(seed + 1)).0);
            let again = run(options);
            other.join().unwrap().unwrap();
            again
        });
        let differs = trace.iter().zip(&again.1).position(|(one, other)| one != other);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!((outcome, trace.len()), (again.0, again.1.len()), "seed {seed}");
    }
}

/// A cluster without faults keeps its leader.
#[test]
fn nothing_happens_without_faults() {
    let options = Options { faults_ms: 0, calm_ms: 10_000, ..Options::from_seed(7) };
    let outcome = run(options).0.unwrap();
    assert_eq!((outcome.term, outcome.faults), (1, 0), "{outcome:?}");
    assert!(outcome.answered > 1_000, "{outcome:?}");
}

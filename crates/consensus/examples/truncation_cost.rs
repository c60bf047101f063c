//! Measures the cost of truncation: one JSON object a figure.
//!
//! ```sh
//! cargo run --release -p esker-consensus --example truncation_cost -- raft /data/raft
//! cargo run --release -p esker-consensus --example truncation_cost -- large /data/large
//! ```
//!
//! `raft` appends 1,000 entries of 100 bytes, commits them and keeps the newest 1,000, for a
//! million entries. `large` truncates half of 4 million slots while one caller accepts, durably,
//! and compares its latencies with those of the same caller alone. The directory must not exist.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use esker_consensus::{Ballot, ConsensusLog, Slot};

const BALLOT: Ballot = Ballot { number: 1, node: 1 };
const VALUE: [u8; 100] = [7; 100];
/// The bytes of an entry in the log.
const RECORD_BYTES: u64 = 144;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> Outcome {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let number = |at: usize, default| match arguments.get(at) {
        Some(text) => text.parse(),
        None => Ok(default),
    };
    match (arguments.first().map(String::as_str), arguments.get(1)) {
        (Some("raft"), Some(dir)) => raft(dir, number(2, 1_000_000)?),
        (Some("large"), Some(dir)) => large(dir, number(2, 4_000_000)?),
        _ => {
            eprintln!("usage: truncation raft|large DIR [ENTRIES]");
            std::process::exit(2);
        }
    }
}

fn fill(log: &ConsensusLog, slots: std::ops::Range<u64>) -> Outcome {
    let values: Vec<_> = slots.map(|slot| (Slot(slot), &VALUE[..])).collect();
    for values in values.chunks(1000) {
        log.accept_batch(BALLOT, values)?.blocking_wait()?;
        log.commit_through(values.last().map_or(Slot(0), |(slot, _)| *slot))?.blocking_wait()?;
    }
    Ok(())
}

fn raft(dir: &str, entries: u64) -> Outcome {
    let log = ConsensusLog::open(dir)?;
    let begin = Instant::now();
    let (mut slowest, mut most) = (Duration::ZERO, 0);
    for first in (0..entries).step_by(1000) {
        fill(&log, first..first + 1000)?;
        let begin = Instant::now();
        log.truncate_before(Slot(first))?.blocking_wait()?;
        slowest = slowest.max(begin.elapsed());
        most = most.max(log.stats().log.disk_bytes);
    }
    let seconds = begin.elapsed().as_secs_f64();
    let stats = log.stats();
    let copied = stats.reclaimed.bytes_copied;
    println!(
        "{{\"name\":\"raft\",\"entries\":{entries},\"seconds\":{seconds:.3},\"bytes_copied\":{copied},\
         \"copied_per_byte\":{:.4},\"bytes_freed\":{},\"most_disk_bytes\":{most},\
         \"slowest_truncate_ms\":{:.3},\"background_failures\":{}}}",
        copied as f64 / (entries * RECORD_BYTES) as f64,
        stats.reclaimed.bytes_freed,
        slowest.as_secs_f64() * 1e3,
        stats.background_failures,
    );
    Ok(log.close()?)
}

/// Microseconds: p50, p99, the largest, and how many there were.
fn percentiles(mut times: Vec<Duration>) -> (String, f64) {
    times.sort_unstable();
    let at = |part: f64| {
        let place = ((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1));
        times.get(place).map_or(0.0, |time| time.as_secs_f64() * 1e6)
    };
    let text = format!(
        "{{\"accepts\":{},\"p50_us\":{:.1},\"p99_us\":{:.1},\"max_us\":{:.1}}}",
        times.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
    (text, at(0.99))
}

/// Accepts one after another, durably, until `stop` is set.
fn accepts(log: &ConsensusLog, from: u64, stop: &AtomicBool) -> Outcome<(Vec<Duration>, u64)> {
    let (mut times, mut slot) = (Vec::new(), from);
    while !stop.load(Relaxed) {
        let begin = Instant::now();
        log.accept(Slot(slot), BALLOT, &VALUE)?.blocking_wait()?;
        times.push(begin.elapsed());
        slot += 1;
    }
    Ok((times, slot))
}

fn large(dir: &str, slots: u64) -> Outcome {
    let log = ConsensusLog::open(dir)?;
    for first in (0..slots).step_by(100_000) {
        fill(&log, first..(first + 100_000).min(slots))?;
    }
    log.maintenance().checkpoint()?;
    let beside = |from: u64, work: &mut dyn FnMut() -> Outcome| -> Outcome<(Vec<Duration>, u64)> {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let caller = scope.spawn(|| accepts(&log, from, &stop).map_err(|e| e.to_string()));
            let done = work();
            stop.store(true, Relaxed);
            let times = caller.join().map_err(|_| "the caller panicked")?;
            done?;
            Ok(times?)
        })
    };
    let (alone, next) = beside(slots, &mut || {
        std::thread::sleep(Duration::from_secs(3));
        Ok(())
    })?;
    let (mut raised, mut reclaimed) = (Duration::ZERO, Duration::ZERO);
    let (during, _) = beside(next, &mut || {
        let begin = Instant::now();
        log.truncate_before(Slot(slots / 2))?.blocking_wait()?;
        raised = begin.elapsed();
        // Until nothing has been dropped for a while.
        let mut seen = log.stats().reclaimed.segments;
        reclaimed = raised;
        let mut last = Instant::now();
        while last.elapsed() < Duration::from_millis(500) {
            std::thread::sleep(Duration::from_millis(1));
            let now = log.stats().reclaimed.segments;
            if now != seen {
                (seen, reclaimed, last) = (now, begin.elapsed(), Instant::now());
            }
        }
        Ok(())
    })?;
    let stats = log.stats();
    let ((alone, before), (during, after)) = (percentiles(alone), percentiles(during));
    println!(
        "{{\"name\":\"large\",\"slots\":{slots},\"raised_ms\":{:.3},\"reclaimed_ms\":{:.3},\
         \"segments\":{},\"bytes_freed\":{},\"bytes_copied\":{},\"alone\":{alone},\
         \"beside\":{during},\"p99_ratio\":{:.2},\"background_failures\":{}}}",
        raised.as_secs_f64() * 1e3,
        reclaimed.as_secs_f64() * 1e3,
        stats.reclaimed.segments,
        stats.reclaimed.bytes_freed,
        stats.reclaimed.bytes_copied,
        after / before,
        stats.background_failures,
    );
    Ok(log.close()?)
}

//! The real thing: a writer is killed with SIGKILL at random moments, fifty times on one directory,
//! while a follower of another process prints what is durable. Then the same, fewer times, with
//! writers that go through io_uring.
//!
//! Every line carries its round, its count in the round, and a checksum. In the end each round's
//! lines are a run from its first one on, in order; what the follower printed is all there, in
//! order; and each run continued exactly where the one before it stopped.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_testkit::SplitMix64;

use crate::esker::{self, command, end, follow, log, workdir};

const ROUNDS: u64 = 50;
const ROUNDS_URING: u64 = 20;
const POLICIES: [&str; 4] = ["always", "batch:64", "periodic:2", "os"];

/// A line that can be checked: "round count checksum filling".
fn line(round: u64, count: u64) -> String {
    let sum = SplitMix64::new(round << 40 | count).next();
    let filling = "~".repeat((sum % 300) as usize);
    format!("{round} {count} {sum:016x} {filling}\n")
}

fn start_writer(dir: &std::path::Path, policy: &str, disk: &str) -> Child {
    command(&["log", "append", "--segment-size", "256K", "--policy", policy, "--disk", disk])
        .arg(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Feeds lines of a round until the writer is gone; how many were fed, the last perhaps in part.
fn feed(mut input: impl Write, round: u64, mut random: SplitMix64) -> u64 {
    let mut count = 0;
    loop {
        let mut chunk = String::new();
        for _ in 0..=random.below(100) {
            chunk += &line(round, count);
            count += 1;
        }
        if input.write_all(chunk.as_bytes()).is_err() {
            return count;
        }
        std::thread::sleep(Duration::from_micros(random.below(500)));
    }
}

#[test]
fn every_record_a_follower_saw_survives_kills() {
    rounds("std", ROUNDS);
}

#[test]
fn every_record_a_follower_saw_survives_kills_with_io_uring() {
    rounds("uring", ROUNDS_URING);
}

fn rounds(disk: &str, rounds: u64) {
    let seed = std::env::var("ESKER_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("the pauses follow from ESKER_SEED={seed}; the moments are the machine's");
    let mut random = SplitMix64::new(seed);
    let (_guard, dir) = workdir();
    log("append", &dir, &[], b"").ok();

    let mut follower = follow(&dir);
    let seen_bytes = Arc::new(AtomicU64::new(0));
    let mut out = follower.stdout.take().unwrap();
    let counter = Arc::clone(&seen_bytes);
    let collector = std::thread::spawn(move || {
        let mut seen = Vec::new();
        let mut piece = vec![0; 64 << 10];
        loop {
            let got = out.read(&mut piece).unwrap();
            if got == 0 {
                return seen;
            }
            seen.extend_from_slice(&piece[..got]);
            counter.store(seen.len() as u64, Ordering::SeqCst);
        }
    });

    let mut fed = Vec::new();
    for round in 0..rounds {
        // Every second writer is killed when the follower has seen it at work; the others at any
        // moment, also before they have opened the log, and under every policy.
        let at_work = round % 2 == 1;
        let policies = if at_work { POLICIES.len() - 1 } else { POLICIES.len() };
        let policy = POLICIES[random.below(policies as u64) as usize];
        let before = seen_bytes.load(Ordering::SeqCst);
        let mut writer = start_writer(&dir, policy, disk);
        let input = writer.stdin.take().unwrap();
        let pauses = SplitMix64::new(random.next());
        let feeder = std::thread::spawn(move || feed(input, round, pauses));
        if at_work {
            esker::until("the follower moves on", || seen_bytes.load(Ordering::SeqCst) > before);
        }
        std::thread::sleep(Duration::from_micros(random.below(40_000)));
        writer.kill().unwrap();
        writer.wait().unwrap();
        fed.push(feeder.join().unwrap());
        if let Some(status) = follower.try_wait().unwrap() {
            panic!("the follower ended in round {round} with {status}: {}", end(follower).err);
        }
        if round % 10 == 9 {
            // Without a writer, a reader goes as far as something vouches for.
            log("cat", &dir, &[], b"").ok();
            log("stat", &dir, &[], b"").ok();
        }
    }

    log("append", &dir, &[], b"the end\n").ok();
    let all = log("cat", &dir, &[], b"").ok();
    let size = all.out.len() as u64;
    esker::until("the follower has it all", || seen_bytes.load(Ordering::SeqCst) >= size);
    esker::signal(&follower, "TERM");
    assert_eq!(end(follower).ok().err, "");
    let seen = collector.join().unwrap();
    assert!(seen == all.out, "the follower printed something else than what is there");
    log("verify", &dir, &[], b"").ok();

    check_rounds(all.text(), &fed);
}

/// Each round is a run from its first line on, no longer than what was fed, and rounds are in
/// order.
fn check_rounds(text: &str, fed: &[u64]) {
    let mut at = (0, 0);
    let mut lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.pop(), Some("the end"));
    for (number, found) in lines.iter().enumerate() {
        let round: u64 = found.split(' ').next().unwrap().parse().unwrap();
        assert!(round >= at.0, "line {number} is of round {round}, after round {}", at.0);
        if round > at.0 {
            at = (round, 0);
        }
        assert_eq!(format!("{found}\n"), line(round, at.1), "line {number}");
        assert!(at.1 < fed[round as usize], "line {number} was never fed");
        at.1 += 1;
    }
    assert!(lines.len() > 1000, "only {} lines", lines.len());
}

//! Many open logs of one manager: what they take, and how long one accept to each takes.
//!
//! `cargo run --release -p esker-consensus --example many_logs -- DIR [LOGS]`

#![allow(clippy::print_stdout)]

use std::path::PathBuf;
use std::time::Instant;

use esker_consensus::{Ballot, LogManager, Slot};

const BALLOT: Ballot = Ballot { number: 1, node: 1 };

fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().unwrap_or("/tmp/many-logs".into()));
    let logs: u64 = arguments.next().map_or(Ok(1000), |logs| logs.parse())?;
    let manager = LogManager::builder(&dir).max_open(usize::MAX).open()?;
    let (rss, fds) = (status("VmRSS:"), descriptors());
    let begun = Instant::now();
    let open: Vec<_> =
        (0..logs).map(|log| manager.get(log.to_le_bytes())).collect::<Result<_, _>>()?;
    println!("opened {logs} in {:.2?}", begun.elapsed());
    println!(
        "rss {} KiB each, {} fds each",
        (status("VmRSS:") - rss) / logs,
        (descriptors() - fds) as u64 / logs
    );
    let value = [7; 100];
    for round in 0..3 {
        let begun = Instant::now();
        let mut first = None;
        let tickets: Vec<_> = open
            .iter()
            .map(|log| log.accept(Slot(round), BALLOT, &value))
            .collect::<Result<_, _>>()?;
        let submitted = begun.elapsed();
        for ticket in tickets {
            ticket.blocking_wait()?;
            first.get_or_insert_with(|| begun.elapsed());
        }
        println!(
            "round {round}: one accept to each in {:.2?} (submitted {submitted:.2?}, first {:.2?})",
            begun.elapsed(),
            first.unwrap_or_default()
        );
        println!(
            "  rss {} KiB each, {} fds each",
            (status("VmRSS:").saturating_sub(rss)) / logs,
            (descriptors() - fds) as u64 / logs
        );
    }
    let key = 0u64.to_le_bytes();
    let begun = Instant::now();
    for _ in 0..5_000_000 {
        std::hint::black_box(manager.get(std::hint::black_box(&key))?);
    }
    println!("lookup {:.1} ns", begun.elapsed().as_nanos() as f64 / 5e6);
    drop(open);
    let begun = Instant::now();
    manager.close_all()?;
    println!("closed in {:.2?}", begun.elapsed());
    Ok(())
}

//! Esker with a planted bug, as a program that another tool finds it in: `unplug`, which sees its
//! files and its standard output alone.
//!
//! `planted run log durable_before_sync` writes to a component in the current directory, and prints
//! each write that is durable. `planted check log` opens what a power cut left, and compares.
#![allow(clippy::print_stdout, reason = "a printed line acknowledges a write")]

use std::io::Read;

use esker_disk::planted::{Bug, plant};
use esker_kv::Store;
use esker_log::{Log, Start};

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

const USAGE: &str =
    "planted run log|store|snapshots BUG|none, or planted check log|store|snapshots";
const SEGMENT_BYTES: u32 = 64 << 10;
const WRITE_COUNT: u64 = 48;
const KEY_COUNT: u64 = 5;
/// Writes that stay when a log is truncated.
const LOG_RECORDS_KEPT: u64 = 8;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["run", component, name] => {
            let bug = Bug::ALL.iter().find(|bug| bug.name() == name);
            require(bug.is_some() || name == "none", format!("there is no bug {name}"))?;
            let _planted = bug.map(|bug| plant(*bug));
            match component {
                "log" => run_log(),
                "store" => run_store(),
                "snapshots" => run_snapshots(),
                _ => Err(USAGE.into()),
            }
        }
        ["check", component] => {
            let output = std::fs::read_to_string(std::env::var("UNPLUG_OUTPUT")?)?;
            let acknowledged = output.lines().filter(|line| line.starts_with("durable")).count();
            match component {
                "log" => check_log(acknowledged as u64),
                "store" => check_store(acknowledged as u64),
                "snapshots" => check_snapshots(acknowledged as u64),
                _ => Err(USAGE.into()),
            }
        }
        _ => Err(USAGE.into()),
    }
}

/// The value of a write: its number, and bytes that depend on it.
fn value(n: u64) -> Vec<u8> {
    let mut value = n.to_le_bytes().to_vec();
    value.resize(8 + (n * 997 % 6000) as usize, n as u8);
    value
}

fn require(holds: bool, what: impl std::fmt::Display) -> Result<()> {
    if holds { Ok(()) } else { Err(what.to_string().into()) }
}

fn open_log() -> Result<Log> {
    Ok(Log::builder("log").segment_size(SEGMENT_BYTES).open()?)
}

fn run_log() -> Result<()> {
    let log = open_log()?;
    for n in 1..=WRITE_COUNT {
        let ticket = log.append(value(n))?;
        // As soon as anyone may take it for durable.
        while log.durable() < ticket.seq() {
            std::thread::yield_now();
        }
        println!("durable {n}");
        ticket.blocking_wait()?;
        if n % LOG_RECORDS_KEPT == 0 {
            log.retention().truncate_before(n + 1 - LOG_RECORDS_KEPT)?;
        }
    }
    Ok(log.close()?)
}

fn check_log(acknowledged: u64) -> Result<()> {
    let log = open_log()?;
    let mut stream = log.stream(Start::Oldest)?;
    let mut found = Vec::new();
    while let Some(batch) = stream.try_next()? {
        for record in batch.iter() {
            require(*record.payload == *value(record.seq.0), "a record has another value")?;
            found.push(record.seq.0);
        }
    }
    let kept = acknowledged.saturating_sub(LOG_RECORDS_KEPT - 1).max(1);
    require((kept..=acknowledged).all(|n| found.contains(&n)), "a durable record is gone")
}

fn open_store() -> Result<Store> {
    Ok(Store::builder("store").segment_size(SEGMENT_BYTES).open()?)
}

fn run_store() -> Result<()> {
    let store = open_store()?;
    for n in 1..=WRITE_COUNT {
        store.keyspace().put(format!("k{}", n % KEY_COUNT), value(n))?.blocking_wait()?;
        println!("durable {n}");
        if n % 12 == 0 {
            store.compact()?;
            store.checkpoint()?;
        }
    }
    Ok(store.close()?)
}

fn check_store(acknowledged: u64) -> Result<()> {
    let store = open_store()?;
    let oldest = acknowledged.saturating_sub(KEY_COUNT - 1).max(1);
    for n in oldest..=acknowledged {
        let found = store.keyspace().get(format!("k{}", n % KEY_COUNT))?.ok_or("a key is gone")?;
        let number = u64::from_le_bytes(*found.first_chunk().ok_or("a value is cut")?);
        require(number >= n, "an older value is there")?;
        require(*found == *value(number), "a key has another value")?;
    }
    Ok(())
}

/// Opens a log that drops old records; a snapshot has the state after each record.
fn open_snapshots() -> Result<Log> {
    Ok(Log::builder("log").segment_size(SEGMENT_BYTES).retain_segments(2).open()?)
}

fn run_snapshots() -> Result<()> {
    let log = open_snapshots()?;
    for n in 1..=WRITE_COUNT {
        log.append(value(n))?.blocking_wait()?;
        log.snapshots().put(n, &*value(n))?;
        println!("durable {n}");
        log.snapshots().remove(n - 1)?;
    }
    Ok(log.close()?)
}

fn check_snapshots(acknowledged: u64) -> Result<()> {
    let log = open_snapshots()?;
    let Some(mut snapshot) = log.snapshots().newest()? else {
        return require(acknowledged == 0, "the snapshot is gone");
    };
    require(snapshot.at() >= acknowledged, "the newest snapshot is an older one")?;
    let mut state = Vec::new();
    snapshot.read_to_end(&mut state)?;
    require(state == value(snapshot.at()), "a snapshot has another state")
}

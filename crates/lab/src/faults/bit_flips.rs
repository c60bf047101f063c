//! A bit of a segment flips. After a clean close it is reported wherever it is. After a crash it
//! is before the newest commits, which nothing distinguishes from a torn tail, and is reported or
//! costs nothing: recovery copies the newest segment, and writes its headers again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_disk::BLOCK_BYTES;
use esker_disk::sim::{Persist, SimDisk};
use esker_log::{Engine, Error, Log, OpenCheck, Policy, Retention, SegmentInfo, Start};
use esker_testkit::{SplitMix64, mix};

use super::trial::Trial;
use crate::log::DIR;
use crate::log::config::Config;
use crate::outcome::Run;

/// Commits after those in which a bit flips. They say that the earlier ones are durable.
const LATER_COMMITS: u64 = 3;
/// The bytes at the start of a block that may be those of a header.
const HEADER_BYTES: u64 = 96;

pub(super) struct BitFlips;

impl Trial for BitFlips {
    fn lives(policy: Policy, run: &mut Run) -> Result<(), String> {
        let mut rng = SplitMix64::new(mix(run.seed, 79));
        let config = Config {
            policy,
            retention: Retention::NONE,
            validate: OpenCheck::Full,
            ..Config::any(&mut rng)
        };
        let disk = config.disk(run.seed);
        let mut values: Vec<Vec<u8>> = Vec::new();
        let engine = Engine::manual();
        let log = open(&config, &disk, &engine).map_err(text)?;
        let mut append = |rng: &mut SplitMix64, len: usize| {
            values.push((0..len).map(|_| rng.next() as u8).collect());
            let ticket = log.append(&values[values.len() - 1]).map_err(text)?;
            ticket.blocking_wait().map(drop).map_err(text)
        };
        for _ in 0..4 + rng.below(40) {
            let len = rng.pick(&[0, 5, 100, 3000, 9000]);
            append(&mut rng, len)?;
        }
        let segments = log.storage().segments();
        for _ in 0..LATER_COMMITS {
            append(&mut rng, 20)?;
        }
        let closed = rng.percent(50);
        if closed {
            log.close().map_err(text)?;
        } else {
            disk.power_cut(Persist::Nothing);
            run.cuts += 1;
        }
        engine.stop();
        drop(log);
        disk.power_on();
        let (name, bit) = any_bit(&mut rng, &disk, &segments)?;
        check_flip(&config, &disk, (&name, bit), &values, closed)
    }
}

/// The file of one of `segments`, and a bit in it.
fn any_bit(
    rng: &mut SplitMix64,
    disk: &SimDisk,
    segments: &[SegmentInfo],
) -> Result<(String, u64), String> {
    let mut names = disk.files(Path::new(DIR)).map_err(|error| error.to_string())?;
    names.retain(|name| name.ends_with(".seg"));
    names.sort();
    let segment = rng.index(segments.len().min(names.len()));
    let byte = match rng.below(segments[segment].bytes) {
        // More often where each bit means something.
        byte if rng.percent(50) => {
            byte / BLOCK_BYTES as u64 * BLOCK_BYTES as u64 + rng.below(HEADER_BYTES)
        }
        byte => byte,
    };
    Ok((names.swap_remove(segment), 8 * byte + rng.below(8)))
}

/// Reads the log with the bit flipped, and again with it flipped back.
fn check_flip(
    config: &Config,
    disk: &SimDisk,
    (name, bit): (&str, u64),
    values: &[Vec<u8>],
    closed: bool,
) -> Result<(), String> {
    let file = PathBuf::from(DIR).join(name);
    let flip = || disk.flip_bit(&file, bit).map_err(|error| error.to_string());
    flip()?;
    match found(config, disk) {
        Err(Error::Corrupted(_)) => {}
        Ok(found) if found == values && !closed => return Ok(()),
        Ok(found) if found == values => {
            return Err(format!("bit {bit} of {} flipped unseen", name));
        }
        Ok(found) => {
            let (found, written) = (found.len(), values.len());
            return Err(format!(
                "bit {bit} of {} flipped, and {found} of {written} records were found, or \
                 others",
                name
            ));
        }
        Err(error) => return Err(text(error)),
    }
    // What was refused was left as it is.
    flip()?;
    match found(config, disk) {
        Ok(found) if found == values => Ok(()),
        other => Err(format!("with the bit flipped back: {:?}", other.map(|all| all.len()))),
    }
}

fn open(config: &Config, disk: &SimDisk, engine: &Engine) -> Result<Log, Error> {
    Log::builder(DIR)
        .options(config.options(Arc::new(disk.process()), engine))
        .open()
        .map_err(Into::into)
}

/// All records.
fn found(config: &Config, disk: &SimDisk) -> Result<Vec<Vec<u8>>, Error> {
    let engine = Engine::manual();
    let read = || {
        let log = open(config, disk, &engine)?;
        let mut stream = log.stream(Start::Oldest)?;
        let mut all = Vec::new();
        while let Some(batch) = stream.try_next()? {
            all.extend(batch.iter().map(|record| record.payload.to_vec()));
        }
        log.close()?;
        Ok(all)
    };
    let all = read();
    engine.stop();
    all
}

fn text(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

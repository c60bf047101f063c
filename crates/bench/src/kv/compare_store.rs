//! Reading everything back, after the figures are measured.
//!
//! The store is opened again, so that what is compared was recovered. Values of neighbouring keys
//! are all over the log, and one read each is slow. So the segments are read in order into the page
//! cache first, where memory has room, and several threads scan a part of the keys each.

use std::path::Path;

use esker_disk::StdDisk;
use esker_kv::{Options, Store};
use esker_log::Direct;

use super::entry::Entries;
use crate::page_cache::read_raw;
use esker_command::exit::{Failure, Outcome};

/// The threads where each read goes to the device.
const COLD_THREADS: usize = 32;

/// Opens the closed store, compares every value with what was put, and closes it. It has to have
/// this many keys.
pub fn compare(entries: &Entries, dir: &Path, options: &Options, keys: u64) -> Outcome {
    let (fits, cores) = (fits_into_memory(dir), std::thread::available_parallelism());
    let mut options = options.clone();
    options.log.disk = std::sync::Arc::new(StdDisk::new());
    options.clean = false;
    let threads = if fits {
        options.log.direct = Direct::Off;
        read_raw(dir, false)
            .map_err(|error| Failure::failed(esker_command::library_errors::with_causes(&error)))?;
        cores.map_or(1, usize::from)
    } else {
        COLD_THREADS
    };
    let store = Store::builder(dir)
        .options(options)
        .open()
        .map_err(|error| Failure::from_kv(error, dir))?;
    let part = entries.count().div_ceil(threads as u64).max(1);
    let found: Outcome<u64> = std::thread::scope(|scope| {
        let parts = (0..threads as u64).map(|n| n * part..(n + 1) * part);
        let scans: Vec<_> = parts
            .map(|part| {
                scope.spawn(|| {
                    compare_part(entries, &store, part)
                        .map_err(|error| Failure::from_kv(error, dir))?
                })
            })
            .collect();
        let join = |scan: std::thread::ScopedJoinHandle<'_, Outcome<u64>>| {
            scan.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        scans.into_iter().map(join).sum()
    });
    let found = found?;
    if found != keys {
        return Err(Failure::corrupt(format!("{keys} keys were put, and {found} were read back")));
    }
    store.close().map_err(|error| Failure::from_kv(error, dir))
}

/// Compares the keys with these numbers, and returns how many there are.
fn compare_part(
    entries: &Entries,
    store: &Store,
    numbers: std::ops::Range<u64>,
) -> esker_kv::Result<Outcome<u64>> {
    let (mut low, mut high) = (Vec::new(), Vec::new());
    entries.key(numbers.start, &mut low);
    entries.key(numbers.end, &mut high);
    let mut found = 0;
    for entry in store.keyspace().scan(low..high)? {
        let (key, value) = entry?;
        if !entries.matches(&key, &value) {
            let what = format!("the value of key {key:?} is not the one put");
            return Ok(Err(Failure::corrupt(what)));
        }
        found += 1;
    }
    Ok(Ok(found))
}

/// Whether the files of a directory take at most half of the memory that is available.
fn fits_into_memory(dir: &Path) -> bool {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let bytes: u64 = files.filter_map(|file| Some(file.metadata().ok()?.len())).sum();
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = info.lines().find_map(|line| {
        line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    kib.is_some_and(|kib| bytes < kib * 512)
}

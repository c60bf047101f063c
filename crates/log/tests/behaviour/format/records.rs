//! Any records come back as they were given, from the places that their lengths say, and any byte
//! of one that changes is seen.
//!
//! Guards: a length that is stored rounded, or off by its padding; a record that takes its
//! neighbour's payload or number; a byte that no checksum covers; owned and borrowed payloads
//! stored differently.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use esker_disk::Disk;
use esker_disk::sim::SimDisk;
use esker_log::{Append, Engine, Log, OpenError, ReadError, Start};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::corruption_kit::DIR;
use crate::corruption_kit::edits::put;
use crate::corruption_kit::format::manifest;
use crate::corruption_kit::map::{in_dir, segment_path};
use crate::corruption_kit::sample::options;

const HEADER: u64 = 16;

/// An empty log that is the same each time.
fn begin() -> SimDisk {
    let disk = SimDisk::new(1);
    disk.create_dir(Path::new(DIR)).unwrap();
    put(&disk, &in_dir("manifest"), &manifest([3; 16], 0, 0, 0));
    disk
}

fn open(disk: &SimDisk) -> Log {
    Log::builder(DIR).options(options(disk, &Engine::manual())).open().unwrap()
}

/// Lengths around the borders of padding, of blocks and of nothing.
fn payloads() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let len = prop_oneof![0..40usize, 3990..4100usize, 0..3000usize];
    vec(len.prop_flat_map(|len| vec(any::<u8>(), len)), 1..12)
}

/// Appends all as one commit, and gives the position of each.
fn append(disk: &SimDisk, payloads: &[Vec<u8>]) -> Vec<u64> {
    let log = open(disk);
    let slices: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
    log.write(Append::records(&slices).atomic()).unwrap().blocking_wait().unwrap();
    let mut stream = log.stream(Start::Oldest).unwrap();
    let batch = stream.try_next().unwrap().unwrap();
    let positions = batch.iter().map(|record| record.position.0).collect();
    log.close().unwrap();
    positions
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn records_are_read_back_unchanged(payloads in payloads()) {
        let disk = begin();
        let positions = append(&disk, &payloads);
        let log = open(&disk);
        let mut stream = log.stream(Start::Oldest).unwrap();
        let mut seen = Vec::new();
        while let Some(batch) = stream.try_next().unwrap() {
            // A batch can be gone through as often as wanted, and says the same.
            prop_assert!(batch.iter().eq(&batch));
            seen.extend(batch.iter().map(|record| {
                (record.seq.0, record.prev.0, record.position.0, record.payload.to_vec())
            }));
        }
        prop_assert_eq!(seen.len(), payloads.len());
        for (n, (seq, prev, position, payload)) in seen.iter().enumerate() {
            prop_assert_eq!((*seq, *prev, *position), (n as u64 + 1, n as u64, positions[n]));
            prop_assert_eq!(payload, &payloads[n]);
            prop_assert_eq!(&*log.read(*seq).unwrap(), &payload[..]);
            if let Some(next) = positions.get(n + 1) {
                let stored = (HEADER + payload.len() as u64).next_multiple_of(8);
                prop_assert_eq!(next - position, stored);
            }
        }
    }

    #[test]
    fn owned_and_borrowed_payloads_are_stored_alike(payloads in payloads()) {
        let contents = [false, true].map(|owned| {
            let disk = begin();
            let log = open(&disk);
            for payload in &payloads {
                let ticket = match owned {
                    true => log.append(payload.clone().into_boxed_slice()),
                    false => log.append(payload.as_slice()),
                };
                ticket.unwrap().blocking_wait().unwrap();
            }
            log.close().unwrap();
            disk.contents(&segment_path(1)).unwrap()
        });
        prop_assert_eq!(&contents[0], &contents[1]);
    }

    #[test]
    fn changed_byte_of_a_record_is_refused(
        payloads in payloads(),
        which in any::<Index>(),
        byte in any::<Index>(),
        change in 1..=255u8,
    ) {
        let disk = begin();
        let positions = append(&disk, &payloads);
        let n = which.index(payloads.len());
        let stored = (HEADER as usize + payloads[n].len()).next_multiple_of(8);
        let at = positions[n] as usize + byte.index(stored);
        let file = segment_path(1);
        let was = disk.contents(&file).unwrap()[at];
        let engine = Engine::manual();
        // Under a log that is open, and before it is opened.
        let alive = disk.fork(1);
        let log = open(&alive);
        alive.overwrite(&file, at as u64, &[was ^ change]).unwrap();
        let read = log.read(n as u64 + 1);
        prop_assert!(matches!(read, Err(ReadError::Corrupted(_))), "{:?}", read);
        disk.overwrite(&file, at as u64, &[was ^ change]).unwrap();
        let opened = Log::builder(DIR).options(options(&disk, &engine)).open();
        prop_assert!(matches!(opened, Err(OpenError::Corrupted(_))), "{:?}", opened);
    }
}

//! Bytes that look like a part of a segment, in the payloads of corrupt files.
//!
//! Guards: valid records after bytes that look like a footer; a search whose reads grow with the
//! square of the bytes.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use esker_disk::Op;
use esker_disk::sim::SimDisk;
use esker_log::{Log, ReadOptions, Salvaged, repair, salvage, salvage_log};
use esker_testkit::{Call, Hook, HookedDisk};

use crate::corruption_kit::format::{self, BLOCK, RECORD_HEADER, Salt, UNIT_HEADER, seal_record};
use crate::corruption_kit::map::segment_path;
use crate::fixture::{DIR, ReadRecord, all, append, driven, payload};

const FOOTER: u32 = 0xE5CE_F007;
const MIB: usize = 1 << 20;

fn options(disk: &SimDisk) -> ReadOptions {
    ReadOptions::from(driven(disk).0)
}

fn records(found: esker_log::Salvage) -> Vec<ReadRecord> {
    let records = found.map(Result::unwrap).filter_map(|found| match found {
        Salvaged::Record(record) => Some((record.seq.0, record.payload)),
        _ => None,
    });
    records.collect()
}

fn put(bytes: &mut [u8], at: usize, words: &[u32]) {
    for (n, word) in words.iter().enumerate() {
        bytes[at + 4 * n..at + 4 * n + 4].copy_from_slice(&word.to_le_bytes());
    }
}

/// A log of one segment, closed.
fn written(first: &[u8]) -> (SimDisk, PathBuf, Vec<ReadRecord>) {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(driven(&disk).0).record_limit(8 << 20).open().unwrap();
    log.append(first).unwrap().blocking_wait().unwrap();
    append(&log, 10);
    let written = all(&log);
    log.close().unwrap();
    (disk, segment_path(1), written)
}

#[test]
fn records_after_what_looks_like_a_footer_are_found() {
    // The first record begins here.
    let start = BLOCK + UNIT_HEADER + RECORD_HEADER;
    for entries in [0, 1, 200, u32::MAX] {
        let mut first = vec![b'A'; 9000];
        for at in [2 * BLOCK, 3 * BLOCK] {
            put(&mut first, at - start, &[FOOTER, 0, entries, at as u32]);
        }
        let (disk, file, written) = written(&first);
        disk.flip_bit(&file, (start as u64 + 5) * 8).unwrap();
        let in_log = records(salvage_log(DIR, options(&disk)).unwrap());
        assert!(in_log == written[1..], "{entries} entries: {} of 10", in_log.len());
        let in_file = records(salvage(&file, options(&disk)).unwrap());
        assert!(in_file == written[1..], "{entries} entries: {} of 10", in_file.len());
    }
}

#[test]
fn what_looks_like_records_is_not_read_whole() {
    search_among_lookalikes(false);
}

#[test]
fn what_looks_like_footers_is_not_read_whole() {
    search_among_lookalikes(true);
}

/// Long ranges of corrupt bytes, of which many look like the start of a long record or of a footer.
/// Between them are valid records of all sizes, which no unit header announces.
fn search_among_lookalikes(has_footers: bool) {
    let (disk, file, written) = written(b"first");
    let mut bytes = disk.contents(&file).unwrap();
    let salt = Salt::new(&bytes[16..32], 1);
    let end = format::segment(&bytes).unwrap().end;
    bytes.truncate(end);
    bytes.resize(4 * MIB, 0);
    for at in (end..4 * MIB).step_by(8) {
        // Some have 16 bytes to 1.5 MiB. The others end a step after the one before, so that each
        // of them that is read moves the buffer.
        let size = match at % 2048 {
            0 => ((at * 7919) % (MIB + MIB / 2)).max(16),
            _ => MIB + MIB / 4,
        };
        let size = size as u32;
        put(&mut bytes, at, &[size, 0x0102_0304]);
    }
    let blocks = (end..4 * MIB - BLOCK).step_by(BLOCK).filter(|at| at % (16 * BLOCK) != 0);
    for at in blocks.filter(|_| has_footers) {
        let entries = 50_000.min(at as u32 / 16);
        put(&mut bytes, at, &[FOOTER, 1, entries, at as u32]);
    }
    let mut expected = written.clone();
    for (n, len) in [0, 5, 4096, 8170, 8200, 12_345, 600_000, 1_000_003].into_iter().enumerate() {
        let (seq, at) = (100 + n as u64, end + 4104 + n * (MIB / 4 + 8 * n));
        let at = if n == 7 { 2 * MIB + MIB / 2 + 2000 } else { at };
        let mut payload = payload(seq).repeat(len / 64 + 1);
        payload.resize(len, 7);
        put(&mut bytes, at, &[(RECORD_HEADER + len) as u32, 0, seq as u32, 0]);
        bytes[at + RECORD_HEADER..at + RECORD_HEADER + len].copy_from_slice(&payload);
        seal_record(&mut bytes, salt, at);
        expected.push((seq, payload));
    }
    disk.overwrite(&file, 0, &bytes).unwrap();
    let (options, read) = counted(&disk);
    let found = records(salvage(&file, options).unwrap());
    let numbers: Vec<u64> = found.iter().map(|(seq, _)| *seq).collect();
    assert!(found == expected, "{numbers:?}");
    // If each of them were read, these would be more than a gigabyte.
    assert!(read.load(SeqCst) <= 16 * bytes.len() as u64, "{read:?} bytes");
}

/// Options whose disk counts the bytes that are read from segments.
fn counted(disk: &SimDisk) -> (ReadOptions, Arc<AtomicU64>) {
    struct Count(Arc<AtomicU64>);
    impl Hook for Count {
        fn after(&self, call: &Call<'_>, outcome: Result<usize, &esker_disk::Error>) {
            if call.op == Op::Read && call.path.extension().is_some_and(|end| end == "seg") {
                self.0.fetch_add(outcome.unwrap_or(0) as u64, SeqCst);
            }
        }
    }
    let read = Arc::new(AtomicU64::new(0));
    let mut options = options(disk);
    options.disk = Arc::new(HookedDisk::new(options.disk, Count(Arc::clone(&read))));
    (options, read)
}

/// A segment lost its header, and the footer tells where it starts. Each block of the payload looks
/// like another footer, of which each ends a block after the one before.
#[test]
fn repair_reads_a_few_times_the_bytes_of_what_looks_like_footers() {
    // The record is alone in the first segment, and begins here.
    let start = BLOCK + UNIT_HEADER + RECORD_HEADER;
    let mut payload = vec![b'A'; 4 * MIB];
    for at in (2 * BLOCK..4 * MIB).step_by(BLOCK) {
        put(&mut payload, at - start, &[FOOTER, 0, entries(at), at as u32]);
    }
    let (disk, file, written) = written(&payload);
    let len = disk.contents(&file).unwrap().len();
    disk.flip_bit(&file, 40 * 8).unwrap();
    let (options, read) = counted(&disk);
    let repaired = repair(DIR, options).unwrap();
    assert!(read.load(SeqCst) <= 24 * len as u64, "{read:?} bytes of {len}: {repaired:?}");
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert!(all(&log) == written, "{repaired:?}");
}

/// The entries of a footer that takes a quarter more than a megabyte, or what fits in a file.
fn entries(at: usize) -> u32 {
    (at / 16).min((4 * MIB - at).saturating_sub(64) / 24).min(5 * MIB / 4 / 24) as u32
}

/// Footers with valid checksums and entries that no writer makes.
#[test]
fn repair_reads_a_few_times_the_bytes_of_footers_that_are_none() {
    let (disk, file, _) = written(b"first");
    let mut bytes = disk.contents(&file).unwrap();
    let salt = Salt::new(&bytes[16..32], 1);
    let end = format::segment(&bytes).unwrap().end;
    bytes.resize(4 * MIB, 7);
    for at in (end..4 * MIB).step_by(2 * BLOCK).rev() {
        put(&mut bytes, at, &[FOOTER, 0, entries(at), at as u32]);
        format::seal_footer(&mut bytes, salt, at);
    }
    bytes[40] ^= 1;
    disk.put(&file, &bytes).unwrap();
    let (options, read) = counted(&disk);
    let repaired = repair(DIR, options).unwrap();
    assert!(read.load(SeqCst) <= 24 * bytes.len() as u64, "{read:?} bytes: {repaired:?}");
}

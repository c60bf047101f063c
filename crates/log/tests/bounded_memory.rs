//! Lengths, counts, offsets and numbers that cannot be, under checksums that are right.
//!
//! Guards: a length that is allocated before it is compared with the size of the file; an
//! addition that overflows; a loop over a range that a corrupted or hostile file made endless. A
//! checksum keeps such values out by all likelihood, but a bug elsewhere can write one.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "kit/corruption_kit/mod.rs"]
mod corruption_kit;

use std::path::PathBuf;

use corruption_kit::DIR;
use corruption_kit::cases::Cases;
use corruption_kit::edits::replace;
use corruption_kit::format::{
    Salt, VERSION, seal_footer, seal_mark, seal_record, seal_unit, set_sealed_version,
    set_segment_version,
};
use corruption_kit::map::{in_dir, segment_path};
use corruption_kit::reading;
use corruption_kit::sample::{self, Sample, options};
use esker_disk::sim::SimDisk;
use esker_log::fuzzing::{decode_file, decode_segment};
use esker_log::{
    Engine, Log, LogError, OnCorruption, OpenCheck, OpenError, Position, ReadOnlyLog, Start,
    repair, verify,
};

/// More than anything here should need, and far less than the lengths claim.
const LIMIT: u64 = 48 << 20;

const WORDS: [u32; 7] = [0, 15, 4096, 1 << 27, 1 << 31, 0xFFFF_F000, u32::MAX];
const LONGS: [u64; 5] = [0, 1, 1 << 32, u64::MAX - 4096, u64::MAX];

type Seal = Box<dyn Fn(&mut Vec<u8>)>;

/// A structure in a file: the offsets of its fields, and what computes its checksum.
struct Structure {
    file: PathBuf,
    words: Vec<usize>,
    longs: Vec<usize>,
    seal: Seal,
}

fn structures(sample: &Sample) -> Vec<Structure> {
    let mut all = vec![
        Structure {
            file: in_dir("manifest"),
            words: vec![60, 64, 84],
            longs: vec![36, 44, 52, 68, 76, 92],
            seal: Box::new(|bytes| set_sealed_version(bytes, VERSION)),
        },
        Structure {
            file: in_dir("mark"),
            words: vec![],
            longs: vec![24, 32, 40, 48, 56, 4096 + 24, 4096 + 32, 4096 + 40, 4096 + 48, 4096 + 56],
            seal: Box::new(|bytes| seal_mark(bytes)),
        },
    ];
    let (oldest, newest) = (&sample.map.segments[0], sample.map.newest());
    for segment in [oldest, newest] {
        let file = segment_path(segment.number);
        let salt = Salt::new(&segment.log, segment.number);
        all.push(Structure {
            file: file.clone(),
            words: vec![88, 92, 96, 100],
            longs: vec![32, 40, 48, 56, 64, 72, 80],
            seal: Box::new(|bytes| set_segment_version(bytes, VERSION)),
        });
        let ends = segment.units.first().into_iter().chain(segment.units.last());
        for unit in ends {
            let at = unit.at.start;
            all.push(Structure {
                file: file.clone(),
                words: vec![at, at + 8, at + 12, at + 64],
                longs: [16, 24, 32, 40, 48, 56].map(|field| at + field).to_vec(),
                seal: Box::new(move |bytes| seal_unit(bytes, salt, at)),
            });
            if let Some(record) = unit.records.first() {
                let here = record.at.start;
                all.push(Structure {
                    file: file.clone(),
                    words: vec![here],
                    longs: vec![here + 8],
                    seal: Box::new(move |bytes| {
                        seal_record(bytes, salt, here);
                        seal_unit(bytes, salt, at);
                    }),
                });
            }
        }
        if let Some(footer) = &segment.footer {
            let at = footer.start;
            all.push(Structure {
                file: file.clone(),
                words: vec![at + 8, at + 12, at + 56, at + 80, at + 84],
                longs: [16, 24, 32, 40, 48, 64, 72].map(|field| at + field).to_vec(),
                seal: Box::new(move |bytes| seal_footer(bytes, salt, at)),
            });
        }
    }
    all
}

/// Whatever the answer, it comes. A reader without the lock takes its time, so not each case asks
/// one.
fn comes_back(disk: &SimDisk, with_reader: bool) -> Result<(), String> {
    let engine = Engine::manual();
    if with_reader
        && let Ok(reader) = ReadOnlyLog::builder(DIR).options(options(disk, &engine)).open()
    {
        reading::of_reader(&reader, 0)?;
    }
    drop(verify(DIR, options(disk, &engine)));
    for (validate, on_corruption) in [
        (OpenCheck::Quick, OnCorruption::Fail),
        (OpenCheck::Full, OnCorruption::Quarantine),
        (OpenCheck::Full, OnCorruption::Truncate),
    ] {
        let mut options = options(&disk.fork(1), &engine);
        (options.check, options.on_corruption) = (validate, on_corruption);
        let log = match Log::builder(DIR).options(options).open() {
            Ok(log) => log,
            Err(OpenError::Log(LogError::Io(cause))) => return Err(format!("{cause:?}")),
            Err(_) => continue,
        };
        reading::of_log(&log, Start::Oldest)?;
        for seq in 0..50 {
            drop(log.read(seq));
            drop(log.read_at(Position(seq * 4096 + 72)));
        }
        drop(log.append(b"on").map(|ticket| ticket.blocking_wait()));
        drop(log.retention().truncate_before(3));
        drop(log.close());
    }
    drop(repair(DIR, options(&disk.fork(2), &engine)));
    Ok(())
}

/// The most address space that this process has had, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[test]
fn memory_is_bounded_for_nonsense_with_a_valid_checksum() {
    let mut cases = Cases::default();
    for sample in [sample::closed(), sample::killed()] {
        comes_back(&sample.disk.fork(1), true).unwrap();
        let usual = peak();
        for structure in structures(&sample) {
            let content = sample.disk.contents(&structure.file).unwrap();
            let words = structure
                .words
                .iter()
                .flat_map(|at| WORDS.iter().map(move |value| (*at, value.to_le_bytes().to_vec())));
            let longs = structure
                .longs
                .iter()
                .flat_map(|at| LONGS.iter().map(move |value| (*at, value.to_le_bytes().to_vec())));
            for (at, value) in words.chain(longs) {
                let mut bytes = content.clone();
                bytes[at..at + value.len()].copy_from_slice(&value);
                (structure.seal)(&mut bytes);
                let (disk, _) = replace(&sample, &structure.file, &bytes);
                let name = structure.file.file_name().unwrap_or_default().display();
                let with_reader = cases.is_one_in(20);
                cases.run(format!("{}, {name}, byte {at}: {value:x?}", sample.name), || {
                    decode_segment(&bytes);
                    decode_file(&bytes);
                    comes_back(&disk, with_reader)?;
                    let grown = peak().saturating_sub(usual);
                    if grown > LIMIT { Err(format!("{grown} bytes of memory")) } else { Ok(()) }
                });
            }
        }
    }
    cases.finish(800);
}

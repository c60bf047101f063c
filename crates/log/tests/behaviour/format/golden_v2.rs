//! Format version 2, as it was written once and for all.
//!
//! Guards: an unnoticed change of the format, so that logs of the day before cannot be read, or
//! are read wrongly. The fixtures under `golden/v2` are logs that an earlier
//! Esker wrote; the hexadecimal ones are single structures, byte for byte. Neither may change: what
//! has to be written otherwise is format version 3.
//!
//! `cargo test -p esker-log --test behaviour -- --ignored regenerate` writes the fixtures again:
//! only before version 2 is released, or to add one.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use esker_disk::Disk;
use esker_disk::sim::SimDisk;
use esker_log::{
    Append, Engine, Log, OnCorruption, OpenCheck, PriorShutdown, ReadOnlyLog, Start, repair,
};

use crate::corruption_kit::edits::put;
use crate::corruption_kit::format::{self, BLOCK, crc, manifest};
use crate::corruption_kit::map::{Map, in_dir, segment_path};
use crate::corruption_kit::reading::{self, Item};
use crate::corruption_kit::repairs::{
    Loss, check_log, continues, open, quarantined_bytes, verifies,
};
use crate::corruption_kit::sample::{Building, Sample, options};
use crate::corruption_kit::{self, DIR};

/// The id of the logs, so that it is the same each time.
const ID: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
const EXPECTED: &str = "expected.txt";

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v2")
}

fn names() -> Vec<String> {
    let all = std::fs::read_dir(fixtures()).unwrap();
    let mut names: Vec<_> =
        all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A simulated disk with the fixture on it, and what has to be read from it.
fn load(name: &str) -> (SimDisk, Vec<String>) {
    let disk = SimDisk::new(1);
    disk.create_dir(Path::new(DIR)).unwrap();
    copy_in(&disk, &fixtures().join(name), Path::new(DIR));
    let expected = std::fs::read_to_string(fixtures().join(name).join(EXPECTED)).unwrap();
    (disk, expected.lines().map(str::to_owned).collect())
}

fn copy_in(disk: &SimDisk, from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            disk.create_dir(&to).unwrap();
            copy_in(disk, &entry.path(), &to);
        } else if entry.file_name() != EXPECTED {
            put(disk, &to, &std::fs::read(entry.path()).unwrap());
        }
    }
}

/// One line for each item.
fn lines(items: &[Item]) -> Vec<String> {
    let line = |item: &Item| match item {
        Item::Record { seq, prev, payload } => {
            format!("record {seq} behind {prev}: {} bytes, crc {:08x}", payload.len(), crc(payload))
        }
        Item::Gap(from, to) => format!("gap from {from} to {to}"),
    };
    items.iter().map(line).collect()
}

fn all(log: &Log) -> Vec<Item> {
    let read = reading::of_log(log, Start::Oldest).unwrap();
    assert!(read.error.is_none(), "{:?}", read.error);
    read.items
}

#[test]
fn fixtures_are_read_back() {
    assert_eq!(names(), ["abandoned", "clean", "quarantined", "torn"]);
    for name in names() {
        let (disk, expected) = load(&name);
        let engine = Engine::manual();
        let reader = ReadOnlyLog::builder(DIR).options(options(&disk, &engine)).open().unwrap();
        let read = reading::of_reader(&reader, 0).unwrap();
        assert!(read.error.is_none(), "{name}: {:?}", read.error);
        assert_eq!(lines(&read.items), expected[..read.items.len()], "{name}");
        assert!(read.items.len() == expected.len() || name == "torn", "{name}");
        Map::read(&disk);

        let log = open(&disk, OnCorruption::Fail).unwrap();
        let clean = name == "clean" || name == "quarantined";
        assert_eq!(
            log.storage().recovery().prior_shutdown == PriorShutdown::Clean,
            clean,
            "{name}"
        );
        assert_eq!(log.storage().recovery().truncated_tail.is_some(), name == "torn", "{name}");
        assert_eq!(log.storage().metadata().id.0, ID, "{name}");
        let items = all(&log);
        assert_eq!(lines(&items), expected, "{name}");
        check_log(&log, &items).unwrap();
        drop(log);
        verifies(&disk, &items).unwrap();
    }
}

#[test]
fn fixtures_accept_new_records() {
    for name in names() {
        let (disk, _) = load(&name);
        let log = open(&disk, OnCorruption::Fail).unwrap();
        let items = all(&log);
        drop(log);
        let map = Map::read(&disk);
        let sample =
            Sample { name: "golden", disk: disk.clone(), items: items.clone(), clean: true, map };
        continues(&sample, disk, items).unwrap();
    }
}

#[test]
fn fixtures_are_read_from_a_real_directory() {
    for name in names() {
        let dir = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(fixtures().join(&name)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() && entry.file_name() != EXPECTED {
                std::fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
            }
        }
        let (_, expected) = load(&name);
        let log = Log::open(dir.path()).unwrap();
        assert_eq!(lines(&all(&log)), expected, "{name}");
    }
}

/// The footers of the fixtures are of before footers had the bytes of the payloads.
#[test]
fn a_footer_without_payload_bytes_is_read_and_they_are_not_known() {
    let (disk, expected) = load("clean");
    let open = |check| {
        let mut options = options(&disk, &Engine::manual());
        options.check = check;
        ReadOnlyLog::builder(DIR).options(options).open().unwrap()
    };
    let quick = open(OpenCheck::Quick);
    assert_eq!(quick.storage().stored().unwrap().records, expected.len() as u64);
    assert_eq!(
        (quick.storage().stored().unwrap().payload_bytes, quick.storage().metadata().payload_bytes),
        (None, None)
    );
    let whole = open(OpenCheck::Full);
    let payload = |item: &Item| match item {
        Item::Record { payload, .. } => payload.len() as u64,
        Item::Gap(..) => 0,
    };
    let items = reading::of_reader(&whole, 0).unwrap().items;
    assert_eq!(
        whole.storage().stored().unwrap().payload_bytes,
        Some(items.iter().map(payload).sum())
    );
}

/// A footer without that field does not say either whether there is a gap.
#[test]
fn gaps_are_listed_where_a_footer_does_not_say_that_there_is_one() {
    let (disk, expected) = load("quarantined");
    let options = options(&disk, &Engine::manual());
    let stored =
        ReadOnlyLog::builder(DIR).options(options).open().unwrap().storage().stored().unwrap();
    let gaps = stored.quarantined.iter();
    let gaps: Vec<_> = gaps.map(|gap| format!("gap from {} to {}", gap.from, gap.to)).collect();
    let expected: Vec<_> = expected.into_iter().filter(|line| line.starts_with("gap")).collect();
    assert_eq!(gaps, expected);
}

/// A log that was begun with a known id.
fn begin(name: &'static str) -> Building {
    let log = Building::new(name);
    log.disk.create_dir(Path::new(DIR)).unwrap();
    put(&log.disk, &in_dir("manifest"), &manifest(ID, 0, 0, 0));
    log
}

#[test]
fn structures_are_those_of_version_2_byte_for_byte() {
    let disk = begin("bytes").disk;
    let engine = Engine::manual();
    engine.advance(Duration::from_millis(0x0123_4567));
    let mut options = options(&disk, &engine);
    options.segment_records = Some(3);
    options.index_records = 2;
    let log = Log::builder(DIR).options(options).open().unwrap();
    log.write(Append::records(&["ridge", "", "under the ice"]).atomic())
        .unwrap()
        .blocking_wait()
        .unwrap();
    log.append(b"esker").unwrap().blocking_wait().unwrap();
    engine.run();
    log.close().unwrap();

    let first = disk.contents(&segment_path(1)).unwrap();
    let second = disk.contents(&segment_path(2)).unwrap();
    assert_eq!(hex(&first[..104]), HEADER);
    assert_eq!(hex(&first[BLOCK..BLOCK + 144]), UNIT);
    assert_eq!(hex(&first[2 * BLOCK..2 * BLOCK + 112]), FOOTER);
    assert_eq!(hex(&second[..104]), SECOND_HEADER);
    let sealed = disk.contents(&in_dir("manifest")).unwrap();
    assert_eq!((hex(&sealed[..100]), sealed.len()), (MANIFEST.into(), BLOCK));
    let mark = disk.contents(&in_dir("mark")).unwrap();
    assert_eq!((hex(&mark[..64]), mark.len()), (WATERMARK_PAGE.into(), 2 * BLOCK));
    let zeros = [
        &sealed[100..],
        &first[104..BLOCK],
        &first[BLOCK + 144..2 * BLOCK],
        &first[2 * BLOCK + 112..],
    ];
    assert!(zeros.into_iter().flatten().all(|&byte| byte == 0));
    // And what the book says of the format is so.
    assert_eq!(format::reported(&disk.contents(&in_dir("mark")).unwrap()), Some(4));
    assert_eq!(
        format::clean_end(&disk.contents(&in_dir("manifest")).unwrap()),
        Some((2, 2 * BLOCK, 4))
    );
    let (first, second) = (format::segment(&first).unwrap(), format::segment(&second).unwrap());
    assert_eq!((first.end, first.units[0].used, second.base), (2 * BLOCK, 144, 2 * BLOCK as u64));
}

#[test]
fn a_gap_is_that_of_version_2_byte_for_byte() {
    let disk = begin("gap").disk;
    let engine = Engine::manual();
    let log = Log::builder(DIR).options(options(&disk, &engine)).open().unwrap();
    for payload in ["one", "two", "three"] {
        log.append(payload).unwrap().blocking_wait().unwrap();
    }
    log.close().unwrap();
    disk.flip_bit(&segment_path(1), (2 * BLOCK as u64 + 80) * 8).unwrap();
    repair(DIR, options(&disk, &engine)).unwrap();
    let segment = disk.contents(&segment_path(1)).unwrap();
    assert_eq!(hex(&segment[2 * BLOCK..2 * BLOCK + 72]), GAP);
}

/// Lines of 16 bytes.
fn hex(bytes: &[u8]) -> String {
    bytes.chunks(16).fold(String::new(), |mut text, line| {
        for byte in line {
            let _ = write!(text, "{byte:02x}");
        }
        text.push('\n');
        text
    })
}

const HEADER: &str = "\
45534b455253454702000000f2ed830a
000102030405060708090a0b0c0d0e0f
01000000000000000100000000000000
00000000000000000000000000000000
00000000000000000000000000000000
67452301000000000000000000100000
0100000000000000
";
const UNIT: &str = "\
011dcee5b2cde2089000000003000000
8d773b56010000000000000000000000
03000000000000000000000000000000
01000000000000006745230100000000
f2ed830a000000001500000018e580bd
01000000000000007269646765000000
10000000063f067e0200000000000000
1d0000006f53b41a0300000000000000
756e6465722074686520696365000000
";
const FOOTER: &str = "\
07f0cee5e9c356580200000000200000
03000000000000000000000000000000
03000000000000000100000000000000
6745230100000000b2cde20813000000
01000000000000000000000000000000
00100000481000000300000000000000
02000000000000000010000070100000
";
const SECOND_HEADER: &str = "\
45534b455253454702000000a03e9d2f
000102030405060708090a0b0c0d0e0f
02000000000000000100000000000000
00200000000000000100000000000000
03000000000000000300000000000000
6745230100000000b2cde20800100000
0000000000000000
";
const MANIFEST: &str = "\
45534b45524d414e02000000a15c0caf
50000080000102030405060708090a0b
0c0d0e0f010000000000000001000000
00000000000000000000000001000000
00200000020000000000000004000000
00000000fc949e190701000004000000
00000000
";
const WATERMARK_PAGE: &str = "\
4c3acee577a2bc530001020304050607
08090a0b0c0d0e0f0100000000000000
00400000000000000400000000000000
02000000000000000000000000000000
";
const GAP: &str = "\
021dcee55a4fe4fe0010000000000000
c1379a38000000000100000000000000
02000000000000000200000000000000
01000000000000000000000000000000
9aa8133100000000
";

fn clean() -> Sample {
    let mut log = begin("golden clean");
    log.open(5);
    log.one(40).several(&[30, 0, 16]).one(4500).run();
    log.far(10, 100).close();
    log.open(5).several(&[7, 496]).close();
    log.done(true)
}

fn abandoned() -> Sample {
    let mut log = begin("golden abandoned");
    log.open(3);
    log.several(&[100, 0, 16]).one(20).kill();
    log.open(3).one(24).several(&[900, 1]).run().several(&[48, 3]).one(4500).kill();
    log.done(false)
}

fn torn() -> Sample {
    let mut log = begin("golden torn");
    log.open(9).one(40).several(&[48, 3]).one(900).cut_power_during(15000);
    let sample = log.done(false);
    let newest = sample.map.newest();
    let content = sample.disk.contents(&segment_path(newest.number)).unwrap();
    assert!(content[newest.end..].iter().any(|&byte| byte != 0), "nothing is torn");
    sample
}

fn quarantined() -> Sample {
    let mut log = begin("golden quarantined");
    log.open(4).close();
    log.open(4).one(40).several(&[30, 0]).one(16).run().one(200).several(&[1, 2]).one(90).close();
    let before = log.done(true);
    let corrupted = &before.map.segments[0].units[1];
    let lost = Loss {
        segment: 1,
        bytes: corrupted.at.clone(),
        records: (corrupted.prev_seq, corrupted.last_seq),
    };
    let disk = before.disk.fork(1);
    disk.flip_bit(&segment_path(1), corrupted.at.start as u64 * 8 + 700).unwrap();
    // No other file knows the session of this header: the rebuilt one has another checksum, and
    // names the one to which the first unit is chained.
    disk.overwrite(&segment_path(1), 0, &[0; BLOCK]).unwrap();
    let corrupted = disk.fork(2);
    repair(DIR, options(&disk, &Engine::manual())).unwrap();
    let header = disk.contents(&segment_path(1)).unwrap();
    assert_ne!(format::word(&header, 100), 0, "the header is as it was");
    quarantined_bytes(&corrupted, &disk, std::slice::from_ref(&lost)).unwrap();
    let items = corruption_kit::repairs::without(&before.items, &[lost.records]);
    let mut log = Building::on("golden quarantined", disk, items);
    log.open(4).one(7).close();
    log.done(true)
}

#[test]
#[ignore = "writes the fixtures again"]
fn regenerate() {
    let all = [
        ("clean", clean()),
        ("abandoned", abandoned()),
        ("torn", torn()),
        ("quarantined", quarantined()),
    ];
    for (name, sample) in all {
        let to = fixtures().join(name);
        let _ = std::fs::remove_dir_all(&to);
        copy_out(&sample.disk, Path::new(DIR), &to);
        std::fs::write(to.join(EXPECTED), lines(&sample.items).join("\n") + "\n").unwrap();
    }
}

/// Files without the zeros that end them.
fn copy_out(disk: &SimDisk, from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    let mut size = 0;
    for name in disk.files(from).unwrap() {
        if name == "lock" {
            continue;
        }
        let (from, to) = (from.join(&name), to.join(&name));
        let Ok(mut content) = disk.contents(&from) else {
            copy_out(disk, &from, &to);
            continue;
        };
        if name.ends_with(".seg") {
            let said = content.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            content.truncate(said.next_multiple_of(BLOCK));
        }
        size += content.len();
        std::fs::write(to, content).unwrap();
    }
    assert!(size < 64 << 10, "{size} bytes");
}

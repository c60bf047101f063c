//! Options are checked at opening, by name; what is accepted works; and none has to stay the same
//! from one opening to the next.
//!
//! Guards: a buffer smaller than a record with which reading makes no progress; another ring size
//! that loses or breaks a log; a ring of 0 or 1 segments.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::time::Duration;

use esker_disk::sim::{SimDisk, SimOptions};
use esker_log::{
    Direct, InvalidOption, Log, LogError, OnCorruption, OpenCheck, OpenError, Options, Policy,
    PriorShutdown, ReadOnlyLog, Seq, Sink, Start,
};

use crate::fixture::{self, DIR, all, append, driven, payload, payloads, read_from};

/// The option that is refused.
fn refused(set: impl FnOnce(&mut Options)) -> &'static str {
    let disk = SimDisk::new(1);
    let before = disk.fingerprint();
    let (mut options, _) = driven(&disk);
    set(&mut options);
    let Err(OpenError::InvalidOption(InvalidOption { option, rule })) =
        Log::builder(DIR).options(options.clone()).open()
    else {
        panic!("accepted: {options:?}");
    };
    assert!(!rule.is_empty());
    assert_eq!(disk.fingerprint(), before, "{option}: nothing may be opened");
    option
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    assert_eq!(refused(|o| o.record_limit = (64 << 20) + (4 << 10) + 1), "record_limit");
    for size in [0, 4096, 60 << 10, (64 << 10) + 1, (1 << 30) + 4096, u32::MAX] {
        assert_eq!(refused(|o| o.segment_size = size), "segment_size", "{size}");
    }
    assert_eq!(refused(|o| o.segment_records = Some(0)), "segment_records");
    for size in [0, 4096, 8193, (64 << 20) + 4096] {
        assert_eq!(refused(|o| o.buffer_size = size), "buffer_size", "{size}");
    }
    for buffers in [0, 1, 1025] {
        assert_eq!(refused(|o| o.buffers = buffers), "buffers", "{buffers}");
    }
    for bytes in [0, 4095, (512 << 10) + 1] {
        assert_eq!(refused(|o| o.index_bytes = bytes), "index_bytes", "{bytes}");
    }
    assert_eq!(refused(|o| o.index_records = 0), "index_records");
    assert_eq!(refused(|o| o.policy = Policy::Periodic(Duration::ZERO)), "policy");
    assert_eq!(refused(|o| o.retention.records = Some(0)), "retention.records");
    assert_eq!(refused(|o| o.retention.bytes = Some(0)), "retention.bytes");
    assert_eq!(refused(|o| o.retention.bytes = Some((128 << 10) - 1)), "retention.bytes");
    let direct_cache = |o: &mut Options| {
        o.policy = Policy::OsBuffered;
        o.direct = Direct::On;
    };
    assert_eq!(refused(direct_cache), "direct");
}

#[test]
fn ring_of_zero_or_one_segment_is_refused() {
    assert_eq!(refused(|o| o.retention.segments = Some(0)), "retention.segments");
    assert_eq!(refused(|o| o.retention.segments = Some(1)), "retention.segments");
}

#[test]
fn readers_check_their_options_too() {
    let disk = SimDisk::new(1);
    let (mut options, _) = driven(&disk);
    options.index_records = 0;
    let refused = ReadOnlyLog::builder(DIR).options(options).open().unwrap_err();
    assert!(
        matches!(refused, OpenError::InvalidOption(InvalidOption { option: "index_records", .. })),
        "{refused:?}"
    );
}

#[test]
fn an_option_error_says_what_to_do() {
    let (mut options, _) = driven(&SimDisk::new(1));
    options.buffers = 1;
    let reported = Log::builder(DIR).options(options).open().unwrap_err().to_string();
    assert_eq!(reported, "option buffers must be from 2 to 1024");
}

/// Records of all sizes go through buffers that are smaller than any of them, and every way of
/// reading gets on.
#[test]
fn a_buffer_smaller_than_a_record_makes_no_difference() {
    let disk = SimDisk::new(1);
    let (mut options, _) = driven(&disk);
    options.index_bytes = 512 << 10;
    let log = Log::builder(DIR).options(options).open().unwrap();
    let sizes = [100_000, 10, 30_000, 1 << 20, 8_150];
    for (n, size) in sizes.into_iter().enumerate() {
        log.append(vec![n as u8; size]).unwrap().blocking_wait().unwrap();
    }
    for seq in 1..=5 {
        let from = read_from(&log, Start::From(Seq(seq))).unwrap();
        assert_eq!(from.len() as u64, 6 - seq);
        assert_eq!(from[0].1.len(), sizes[seq as usize - 1]);
        assert_eq!(log.read(seq).unwrap().len(), sizes[seq as usize - 1]);
    }
    log.close().unwrap();
}

/// A small log, as other programs document one, with the names that its options have here.
#[test]
fn the_small_example_works() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.retention.segments = Some(4);
    options.buffers = 4;
    options.buffer_size = 2 << 20;
    options.segment_records = Some(100_000);
    options.segment_size = 4 << 20;
    options.index_bytes = 16 << 10;
    options.index_records = 100;
    options.policy = Policy::Always;
    let open = || Log::builder(dir.path().join("log")).options(options.clone()).open().unwrap();
    let log = open();
    let mut sink = Sink::new(&log).unwrap();
    for seq in 1..=30_000 {
        sink.blocking_append(payload(seq)).unwrap();
    }
    sink.blocking_flush().unwrap();
    fixture::until("four segments are left", || log.storage().metadata().segments <= 4);
    let oldest = log.oldest().0;
    assert!(oldest > 1 && log.storage().metadata().disk_bytes <= 16 << 20);
    assert!(all(&log) == payloads(oldest..=30_000));
    log.close().unwrap();
    let log = open();
    assert_eq!(
        (log.storage().recovery().prior_shutdown, log.durable()),
        (PriorShutdown::Clean, Seq(30_000))
    );
    log.close().unwrap();
}

/// A log continues under any other options, after a close and after a crash.
#[test]
fn options_may_change_from_one_opening_to_the_next() {
    let disk = SimDisk::new(1);
    let changes: [fn(&mut Options); 12] = [
        |_| {},
        |o| o.segment_size = 1 << 20,
        |o| o.buffer_size = 64 << 10,
        |o| o.policy = Policy::OsBuffered,
        |o| o.direct = Direct::Off,
        |o| o.dsync = false,
        |o| (o.index_records, o.index_bytes) = (1, 4096),
        |o| o.segment_records = Some(2),
        |o| o.check = OpenCheck::Full,
        |o| o.on_corruption = OnCorruption::Quarantine,
        |o| o.tail_cache = 1 << 20,
        |o| o.record_limit = 2000,
    ];
    let mut last = 0;
    for (n, change) in changes.into_iter().cycle().take(24).enumerate() {
        let (mut options, engine) = driven(&disk);
        change(&mut options);
        let log = Log::builder(DIR).options(options).open().unwrap();
        assert_eq!(all(&log), payloads(1..=last), "opening {n}");
        append(&log, 20);
        last += 20;
        if n % 2 == 0 {
            log.close().unwrap();
        } else {
            disk.kill();
            disk.power_on();
            engine.stop();
        }
    }
}

/// A smaller ring drops from the old end and breaks nothing; a larger one loses nothing.
#[test]
fn the_ring_may_change_its_size() {
    let disk = SimDisk::new(1);
    let mut oldest = 1;
    let mut last = 0;
    for segments in [Some(6), Some(3), Some(8), None, Some(2), Some(12)] {
        let (mut options, engine) = driven(&disk);
        options.retention.segments = segments;
        let log = Log::builder(DIR).options(options).open().unwrap();
        engine.run();
        let kept = all(&log);
        assert_eq!(kept, payloads(log.oldest().0..=last), "{segments:?}");
        if segments.is_none_or(|segments| segments >= 6) {
            assert_eq!(log.oldest().0, oldest, "{segments:?} lost records");
        }
        append(&log, 100);
        engine.run();
        last += 100;
        oldest = log.oldest().0;
        assert!(segments.is_none_or(|most| log.storage().metadata().segments as u64 <= most));
        assert!(
            segments.is_none_or(|most| log.storage().metadata().segments as u64 >= most.min(6))
        );
        log.close().unwrap();
    }
}

/// Where the disk can do less, commits take the other way, and `metadata` says which.
#[test]
fn unsupported_disk_features_are_replaced_and_reported() {
    for (direct, dsync) in [(true, true), (true, false), (false, true), (false, false)] {
        let disk = SimDisk::with(SimOptions::new(1).direct(direct).dsync(dsync));
        let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
        append(&log, 40);
        let stats = log.stats();
        assert_eq!((stats.direct, stats.dsync, stats.disk), (direct, dsync, "sim"));
        assert_eq!(all(&log), payloads(1..=40));
        log.close().unwrap();
    }
    let disk = SimDisk::with(SimOptions::new(1).direct(false));
    let (mut options, _) = driven(&disk);
    options.direct = Direct::On;
    let refused = Log::builder(DIR).options(options).open().unwrap_err();
    assert!(matches!(refused, OpenError::Log(LogError::Io(_))), "{refused:?}");
}

//! The one limit on a record: it counts payload bytes, it is inclusive, and everything up to it
//! fits, whatever the buffers and segments are.

use esker_disk::sim::SimDisk;
use esker_log::{AppendError, InvalidOption, Log, OpenError, RECORD_LIMIT_MAX, Seq};

use crate::fixture::{DIR, all, driven, log};

#[test]
fn a_record_of_the_limit_is_taken_and_one_byte_more_refused() {
    let (log, ..) = log();
    let limit = 1 << 20;
    log.append(vec![1; limit]).unwrap().blocking_wait().unwrap();
    let error = log.append(vec![2; limit + 1]).unwrap_err();
    let AppendError::TooLarge { size, limit: reported } = error else { panic!("{error:?}") };
    assert_eq!((size, reported), (limit as u64 + 1, limit as u64));
    assert_eq!(log.accepted(), Seq(1));
    assert_eq!(log.read(1).unwrap().payload(), vec![1; limit]);
    log.close().unwrap();
}

#[test]
fn the_limit_can_be_set_up_to_64_mib() {
    let disk = SimDisk::new(1);
    let (mut options, _) = driven(&disk);
    options.record_limit = 100;
    let log = Log::builder(DIR).options(options.clone()).open().unwrap();
    log.append([1; 100]).unwrap().blocking_wait().unwrap();
    assert!(matches!(log.append([1; 101]), Err(AppendError::TooLarge { size: 101, limit: 100 })));
    log.close().unwrap();

    options.record_limit = RECORD_LIMIT_MAX;
    let log = Log::builder(DIR).options(options.clone()).open().unwrap();
    let large = vec![9; 64 << 20];
    log.append(&large).unwrap().blocking_wait().unwrap();
    assert_eq!(log.read(2).unwrap().payload(), large);
    log.close().unwrap();

    options.record_limit = RECORD_LIMIT_MAX + 1;
    let refused = Log::builder(DIR).options(options).open().unwrap_err();
    assert!(
        matches!(refused, OpenError::InvalidOption(InvalidOption { option: "record_limit", .. })),
        "{refused:?}"
    );
}

/// A buffer is 8 KiB and a segment 64 KiB.
#[test]
fn a_record_may_be_larger_than_a_buffer_and_a_segment() {
    let (log, disk, _) = log();
    let sizes = [9_000, 100, 70_000, 0, 200_000, 8_192, 65_536];
    for (n, size) in sizes.into_iter().enumerate() {
        log.append(vec![n as u8; size]).unwrap().blocking_wait().unwrap();
    }
    let expected: Vec<_> =
        (1..).zip(sizes).map(|(seq, size)| (seq, vec![seq as u8 - 1; size])).collect();
    assert!(all(&log) == expected);
    log.close().unwrap();
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert!(all(&log) == expected);
    for (seq, payload) in &expected {
        assert!(log.read(*seq).unwrap().payload() == payload, "record {seq}");
    }
    log.close().unwrap();
}

#[test]
fn an_empty_record_is_a_record() {
    let (log, disk, _) = log();
    for _ in 0..3 {
        log.append(b"").unwrap().blocking_wait().unwrap();
    }
    let expected: Vec<_> = (1..=3).map(|seq| (seq, Vec::new())).collect();
    assert_eq!(all(&log), expected);
    assert_eq!(log.read(2).unwrap().payload(), b"");
    log.close().unwrap();
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!(all(&log), expected);
    log.close().unwrap();
}

//! Reading a record at its known place: accepted, handed to the operating system, durable in memory
//! or in a file, moved by recovery, or gone.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use esker_disk::sim::{Persist, SimDisk};
use esker_log::component::RecordPlace;
use esker_log::{Log, LogError, Policy, Position, ReadError, Seq, Trimmed};

use crate::fixture::{DIR, driven, payload};

/// Appends the record that follows. Returns its place; the ticket is dropped.
fn append(log: &Log) -> RecordPlace {
    let next = log.accepted().0 + 1;
    let payload = payload(next);
    let ticket = log.append(&payload).unwrap();
    RecordPlace { seq: ticket.seq(), position: ticket.position(), len: payload.len() as u32 }
}

fn check(log: &Log, places: &[RecordPlace]) {
    for place in places {
        let found = log.component().read_placed(*place).unwrap();
        assert_eq!(&*found, payload(place.seq.0), "record {}", place.seq);
    }
}

#[test]
fn a_record_is_read_from_acceptance_on() {
    for policy in [Policy::Always, Policy::OsBuffered] {
        let disk = SimDisk::new(1);
        let (mut options, engine) = driven(&disk);
        (options.policy, options.tail_cache) = (policy, 0);
        let log = Log::builder(DIR).options(options.clone()).open().unwrap();
        let mut places: Vec<_> = (0..20).map(|_| append(&log)).collect();
        check(&log, &places);
        // Under OsBuffered these are in the file now, and not durable.
        engine.run();
        places.extend((0..20).map(|_| append(&log)));
        check(&log, &places);
        log.barrier().unwrap().blocking_wait().unwrap();
        // Several segments, and no buffer of the first ones.
        places.extend((0..3000).map(|_| append(&log)));
        log.barrier().unwrap().blocking_wait().unwrap();
        assert!(log.storage().segments().len() > 2);
        check(&log, &places);
        log.close().unwrap();
        let log = Log::builder(DIR).options(options).open().unwrap();
        check(&log, &places);
        log.close().unwrap();
        assert!(matches!(
            log.component().read_placed(places[0]),
            Err(ReadError::Log(LogError::Closed))
        ));
    }
}

/// One read of the blocks of the record, and nothing else.
#[test]
fn only_the_blocks_of_the_record_are_read() {
    let disk = SimDisk::new(1);
    let (mut options, _engine) = driven(&disk);
    (options.segment_size, options.tail_cache) = (1 << 20, 0);
    let log = Log::builder(DIR).options(options.clone()).open().unwrap();
    let places: Vec<_> = (0..4000).map(|_| append(&log)).collect();
    log.close().unwrap();
    let log = Log::builder(DIR).options(options).open().unwrap();
    for place in places.iter().step_by(97) {
        let before = disk.reads();
        check(&log, &[*place]);
        assert_eq!(disk.reads(), before + 1);
    }
    log.close().unwrap();
}

#[test]
fn records_that_are_near_are_read_together() {
    let disk = SimDisk::new(1);
    let (mut options, _engine) = driven(&disk);
    (options.segment_size, options.tail_cache) = (1 << 20, 0);
    let log = Log::builder(DIR).options(options.clone()).open().unwrap();
    let places: Vec<_> = (0..20_000).map(|_| append(&log)).collect();
    assert!(log.storage().segments().len() > 2, "of several segments");
    log.close().unwrap();
    let log = Log::builder(DIR).options(options).open().unwrap();
    let before = disk.reads();
    // In any order; one more than once, one elsewhere, one of another record, one that is nowhere.
    let mut wanted: Vec<_> = places.iter().copied().step_by(3).collect();
    wanted.reverse();
    wanted.push(places[3]);
    wanted.push(RecordPlace { seq: Seq(5), ..places[7] });
    wanted.push(RecordPlace { len: 1, ..places[8] });
    wanted.push(RecordPlace { position: Position(1 << 40), ..places[9] });
    let found = log.component().read_placed_many(&wanted).unwrap();
    let (none, some) = (found.len() - 3, &found[..found.len() - 3]);
    for (place, found) in wanted.iter().zip(some) {
        assert_eq!(found.as_deref(), Some(&*payload(place.seq.0)), "record {}", place.seq);
    }
    assert!(found[none..].iter().all(Option::is_none));
    let bytes = log.storage().metadata().disk_bytes;
    assert!(disk.reads() - before <= bytes / (200 << 10) + 8, "{}", disk.reads() - before);
    assert!(log.component().read_placed_many(&[]).unwrap().is_empty());
    log.close().unwrap();
}

/// A record that cannot be read does not fail the others.
#[test]
fn a_corrupt_record_among_many_is_left_out() {
    let disk = SimDisk::new(1);
    let (mut options, _engine) = driven(&disk);
    options.tail_cache = 0;
    let log = Log::builder(DIR).options(options.clone()).open().unwrap();
    let places: Vec<_> = (0..50).map(|_| append(&log)).collect();
    log.close().unwrap();
    let log = Log::builder(DIR).options(options).open().unwrap();
    let dir = std::path::Path::new(DIR);
    let files = disk.files(dir).unwrap();
    let segment = files.iter().find(|name| name.ends_with(".seg")).unwrap();
    disk.flip_bit(&dir.join(segment), (places[20].position.0 + 20) * 8).unwrap();
    let found = log.component().read_placed_many(&places).unwrap();
    for (place, found) in places.iter().zip(&found) {
        let intact = place.seq != places[20].seq;
        assert_eq!(found.as_deref(), intact.then(|| payload(place.seq.0)).as_deref());
    }
    log.close().unwrap();
}

#[test]
fn a_place_that_holds_another_record_is_not_believed() {
    let disk = SimDisk::new(1);
    let (options, _engine) = driven(&disk);
    let log = Log::builder(DIR).options(options).open().unwrap();
    let mut places: Vec<_> = (0..6).map(|_| append(&log)).collect();
    let staged = RecordPlace { position: places[3].position, ..places[4] };
    // Accepted records are found only at their place.
    assert!(matches!(
        log.component().read_placed(staged),
        Err(ReadError::NotFound { seq: Seq(5) })
    ));
    places.extend((6..50).map(|_| append(&log)));
    log.barrier().unwrap().blocking_wait().unwrap();
    // Durable ones also by their number.
    check(&log, &[staged]);
    check(&log, &[RecordPlace { position: Position(u64::MAX), ..places[4] }]);
    check(&log, &[RecordPlace { position: Position(places[4].position.0 + 1), ..places[4] }]);
    for len in [0, 1, places[4].len - 1, places[4].len + 1, u32::MAX >> 4] {
        let place = RecordPlace { len, ..places[4] };
        assert!(
            matches!(log.component().read_placed(place), Err(ReadError::NotFound { seq: Seq(5) })),
            "{len}"
        );
    }
    let absent = RecordPlace { seq: Seq(51), ..places[4] };
    assert!(matches!(
        log.component().read_placed(absent),
        Err(ReadError::NotFound { seq: Seq(51) })
    ));
    log.retention().truncate_before(places[10].seq).unwrap();
    let gone = log.component().read_placed(RecordPlace { position: Position(0), ..places[4] });
    assert!(matches!(gone, Err(ReadError::Trimmed(Trimmed { oldest: Seq(11) }))), "{gone:?}");
    log.close().unwrap();
}

#[test]
fn a_record_that_recovery_moved_is_found() {
    let disk = SimDisk::new(1);
    let (options, engine) = driven(&disk);
    let log = Log::builder(DIR).options(options.clone()).open().unwrap();
    let mut places = Vec::new();
    for _ in 0..20 {
        places.push(append(&log));
        log.barrier().unwrap().blocking_wait().unwrap();
    }
    disk.power_cut(Persist::Nothing);
    engine.stop();
    drop(log);
    disk.power_on();
    let (options, _engine) = driven(&disk);
    let log = Log::builder(DIR).options(options).open().unwrap();
    let last = places[19];
    let moved = log.read(last.seq).unwrap().record().position != last.position;
    assert!(moved, "recovery copies the last record to another segment");
    check(&log, &places);
    log.close().unwrap();
}

/// Retention drops segments, so that a known place is below the first one.
#[test]
fn a_place_in_no_segment_is_not_believed() {
    let disk = SimDisk::new(1);
    let (options, _engine) = driven(&disk);
    let log = Log::builder(DIR).options(options).open().unwrap();
    let places: Vec<_> = (0..3000).map(|_| append(&log)).collect();
    log.barrier().unwrap().blocking_wait().unwrap();
    let last = places[2999];
    log.retention().truncate_before(last.seq).unwrap();
    let first = log.storage().segments()[0].after.0;
    assert!(first > 100, "segments were dropped");
    for gone in [0, 1, 100] {
        check(&log, &[RecordPlace { position: places[gone].position, ..last }]);
        let dropped = log.component().read_placed(places[gone]);
        assert!(matches!(dropped, Err(ReadError::Trimmed(_))), "{dropped:?}");
    }
    log.close().unwrap();
}

/// The trim point is inside a segment, so that the segment of a dropped record is still there.
#[test]
fn a_record_below_the_trim_point_is_trimmed_while_its_segment_is_there() {
    let disk = SimDisk::new(1);
    let (options, _engine) = driven(&disk);
    let log = Log::builder(DIR).options(options).open().unwrap();
    let places: Vec<_> = (0..20).map(|_| append(&log)).collect();
    log.barrier().unwrap().blocking_wait().unwrap();
    let segments = log.storage().segments().len();
    log.retention().truncate_before(places[10].seq).unwrap();
    assert_eq!(log.storage().segments().len(), segments, "no segment was dropped");
    for place in &places[..10] {
        let dropped = log.component().read_placed(*place);
        assert!(
            matches!(dropped, Err(ReadError::Trimmed(Trimmed { oldest: Seq(11) }))),
            "{dropped:?}"
        );
    }
    check(&log, &places[10..]);
    log.close().unwrap();
}

#[test]
fn a_corrupt_record_is_an_error() {
    let disk = SimDisk::new(1);
    let (mut options, _engine) = driven(&disk);
    options.tail_cache = 0;
    let log = Log::builder(DIR).options(options.clone()).open().unwrap();
    let places: Vec<_> = (0..50).map(|_| append(&log)).collect();
    log.close().unwrap();
    let log = Log::builder(DIR).options(options).open().unwrap();
    let files = disk.files(std::path::Path::new(DIR)).unwrap();
    let segment = files.iter().find(|name| name.ends_with(".seg")).unwrap();
    disk.flip_bit(&std::path::Path::new(DIR).join(segment), (places[20].position.0 + 20) * 8)
        .unwrap();
    assert!(matches!(log.component().read_placed(places[20]), Err(ReadError::Corrupted(_))));
    check(&log, &places[..20]);
    check(&log, &places[21..]);
    log.close().unwrap();
}

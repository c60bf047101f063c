//! Repair of logs of which headers, whole segments or the manifest are gone.
//!
//! Guards: an oldest segment that vanishes without a gap, sound units that go with the headers of
//! their neighbours, truncated records that come back in silence with a manifest made anew, and a
//! directory with nothing but a watermark page that is taken for a new log.
#![allow(clippy::unwrap_used, clippy::panic)]

mod damage_kit;

use std::path::Path;

use damage_kit::DIR;
use damage_kit::cases::Cases;
use damage_kit::harm::{delete, unlink};
use damage_kit::healing::{Loss, Repairing, quarantine};
use damage_kit::map::{in_dir, segment_path};
use damage_kit::sample::{self, Sample, options, payload};
use esker_disk::sim::SimDisk;
use esker_log::{Engine, Error, Log, OnDamage, Reader, Seq, Start, repair, verify};

/// The claims that are left without these segments and without the headers of those.
fn claim_left(sample: &Sample, gone: &[u64], headless: &[u64]) -> u64 {
    let is = |file: &Path, numbers: &[u64]| numbers.iter().any(|n| segment_path(*n) == file);
    let left = sample.map.claims.iter().filter(|claim| {
        let in_a_header = claim.at.start == 0 && is(&claim.file, headless);
        !is(&claim.file, gone) && !in_a_header
    });
    left.map(|claim| claim.seq).max().unwrap_or(0)
}

/// Any set of headers is corrupt, and at most one segment is missing.
#[test]
fn any_headers_and_one_segment() {
    let mut cases = Cases::default();
    for sample in [sample::closed(), sample::killed()] {
        let numbers: Vec<u64> = sample.map.segments.iter().map(|segment| segment.number).collect();
        let missing = numbers.iter().map(|number| vec![*number]).chain([vec![]]);
        for gone in missing {
            for set in 0u32..1 << numbers.len() {
                let headless: Vec<u64> = numbers
                    .iter()
                    .enumerate()
                    .filter(|(n, number)| set >> n & 1 == 1 && !gone.contains(number))
                    .map(|(_, number)| *number)
                    .collect();
                if headless.len() + gone.len() == numbers.len()
                    || claim_left(&sample, &gone, &headless) < sample.last()
                {
                    continue;
                }
                let disk = sample.disk.fork(1);
                for number in &headless {
                    disk.flip_bit(&segment_path(*number), 60 * 8).unwrap();
                }
                let mut losses = Vec::new();
                for number in &gone {
                    unlink(&disk, &segment_path(*number));
                    let of = sample.map.segments.iter().find(|s| s.number == *number).unwrap();
                    let last = of.units.last().map_or(of.prev_seq, |unit| unit.last_seq);
                    losses.push(Loss {
                        segment: *number,
                        bytes: 0..0,
                        records: (of.prev_seq, last),
                    });
                }
                let name = format!("{}, headers {headless:?}, missing {gone:?}", sample.name);
                cases.run(name, || {
                    let engine = Engine::manual();
                    let sound = headless.is_empty() && gone.is_empty();
                    let report = verify(DIR, &options(&disk, &engine));
                    let report = report.map_err(|error| format!("{error:?}"))?;
                    if report.damage.is_empty() != sound {
                        return Err(format!("verify finds {:?}", report.damage));
                    }
                    match Log::open(DIR, options(&disk.fork(3), &engine)) {
                        Ok(_) if !sound => return Err("it opens".into()),
                        Err(Error::Damaged(_)) | Ok(_) => {}
                        Err(other) => return Err(format!("{other:?}")),
                    }
                    quarantine(&sample, &disk, &losses, Repairing::Function)
                });
            }
        }
    }
    cases.finish(60);
}

/// A log of one segment, truncated inside it.
fn truncated(at: u64) -> SimDisk {
    let disk = SimDisk::new(1);
    let engine = Engine::manual();
    let log = Log::open(DIR, options(&disk, &engine)).unwrap();
    for seq in 1..=12 {
        log.append(&payload("truncated", seq, 100)).unwrap().wait().unwrap();
    }
    if at > 0 {
        log.truncate_before(at).unwrap();
    }
    log.close().unwrap();
    disk
}

fn readable(disk: &SimDisk) -> (u64, u64) {
    let engine = Engine::manual();
    let log = Log::open(DIR, options(disk, &engine)).unwrap();
    (log.oldest().0, log.durable().0)
}

#[test]
fn a_manifest_made_anew_keeps_the_trim_point() {
    let disk = truncated(8);
    unlink(&disk, &in_dir("manifest"));
    let repaired = repair(DIR, &options(&disk, &Engine::manual())).unwrap();
    assert!(repaired.manifest);
    assert_eq!(repaired.may_be_truncated, None, "the page proves it");
    assert_eq!(readable(&disk), (8, 12));
}

#[test]
fn without_the_page_it_says_what_may_have_been_truncated() {
    for at in [0, 8] {
        let disk = truncated(at);
        unlink(&disk, &in_dir("manifest"));
        unlink(&disk, &in_dir("mark"));
        let repaired = repair(DIR, &options(&disk, &Engine::manual())).unwrap();
        assert_eq!(repaired.may_be_truncated, Some((Seq(0), Seq(12))), "truncated before {at}");
        assert_eq!(readable(&disk), (1, 12));
    }
    let disk = truncated(0);
    unlink(&disk, &in_dir("manifest"));
    let repaired = repair(DIR, &options(&disk, &Engine::manual())).unwrap();
    assert_eq!(repaired.may_be_truncated, None, "nothing was");
}

#[test]
fn nothing_but_a_watermark_page_is_not_a_new_log() {
    let disk = truncated(8);
    for name in ["manifest", "00000000000000000001.seg"] {
        unlink(&disk, &in_dir(name));
    }
    let engine = Engine::manual();
    let before = disk.fingerprint();
    let is_damaged = |error: Error| assert!(matches!(error, Error::Damaged(_)), "{error:?}");
    is_damaged(Log::open(DIR, options(&disk, &engine)).unwrap_err());
    is_damaged(Reader::open(DIR, options(&disk, &engine)).unwrap_err());
    is_damaged(verify(DIR, &options(&disk, &engine)).unwrap_err());
    assert_eq!(disk.fingerprint(), before);
    let repaired = repair(DIR, &options(&disk, &engine)).unwrap();
    assert!(repaired.manifest);
    let log = Log::open(DIR, options(&disk, &engine)).unwrap();
    let told = log.stream(Start::Oldest).unwrap().try_next().unwrap_err();
    assert!(matches!(told, Error::Quarantined { from: Seq(7), to: Seq(12) }), "{told:?}");
    assert_eq!(log.append(b"on").unwrap().wait().unwrap().seq, Seq(13));
}

/// Without a sound header the page says whose log it is.
#[test]
fn all_headers_and_the_manifest() {
    for sample in [sample::closed(), sample::killed()] {
        let (disk, _) = delete(&sample, &in_dir("manifest"));
        for segment in &sample.map.segments {
            disk.flip_bit(&segment_path(segment.number), 60 * 8).unwrap();
        }
        quarantine(&sample, &disk, &[], Repairing::Function).unwrap();
    }
}

/// A truncating repair below the trim point: what is appended then can be read.
#[test]
fn cutting_below_the_trim_point() {
    let disk = truncated(8);
    disk.flip_bit(&segment_path(1), (4096 + 80) * 8).unwrap();
    let engine = Engine::manual();
    let mut options = options(&disk, &engine);
    options.validate = esker_log::Validate::Full;
    options.on_damage = OnDamage::Truncate;
    let log = Log::open(DIR, options).unwrap();
    let seq = log.append(b"on").unwrap().wait().unwrap().seq;
    assert_eq!(&*log.read(seq).unwrap(), b"on");
    assert_eq!(log.oldest(), seq);
}

#[test]
fn a_dead_segment_of_another_log_is_not_removed() {
    let (sample, other) = (sample::closed(), sample::killed());
    let manifest = other.disk.contents(&in_dir("manifest")).unwrap();
    let mut manifest = manifest;
    manifest[44..52].copy_from_slice(&99u64.to_le_bytes());
    damage_kit::format::set_sealed_version(&mut manifest, damage_kit::format::VERSION);
    let (disk, _) = damage_kit::harm::replace(&sample, &in_dir("manifest"), &manifest);
    let before = disk.files(Path::new(DIR)).unwrap();
    match Log::open(DIR, options(&disk, &Engine::manual())) {
        Err(Error::Foreign { .. }) => {}
        other => panic!("{other:?}"),
    }
    let told = verify(DIR, &options(&disk, &Engine::manual())).unwrap_err();
    assert!(matches!(told, Error::Foreign { .. }), "{told:?}");
    assert_eq!(disk.files(Path::new(DIR)).unwrap(), before);
}

//! Logs are opened again with other options than they were written with.
//!
//! Guards: an option that has to be the same the next time and is not kept anywhere: segment and
//! buffer sizes, the density of the index, policy, direct I/O, a smaller ring.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::num::NonZeroU64;
use std::time::Duration;

use esker_log::{Direct, Engine, Log, OpenCheck, Options, Policy, ReadError};

use crate::corruption_kit::DIR;
use crate::corruption_kit::cases::Cases;
use crate::corruption_kit::reading::Item;
use crate::corruption_kit::repairs::{check_log, continues};
use crate::corruption_kit::sample::{self, options};

type Change = (&'static str, fn(&mut Options));

const CHANGES: [Change; 12] = [
    ("large segments", |options| options.segment_size = 8 << 20),
    ("one record to a segment", |options| options.segment_records = Some(1)),
    ("a small buffer", |options| (options.buffer_size, options.buffers) = (8 << 10, 2)),
    ("a large buffer", |options| options.buffer_size = 4 << 20),
    ("a dense index", |options| options.index_records = 1),
    ("a sparse index", |options| (options.index_bytes, options.index_records) = (512 << 10, 9999)),
    ("through the cache", |options| (options.direct, options.dsync) = (Direct::Off, false)),
    ("in batches", |options| options.policy = Policy::Batch(NonZeroU64::MIN.saturating_add(4))),
    ("in periods", |options| options.policy = Policy::Periodic(Duration::from_millis(5))),
    ("with the system's buffers", |options| options.policy = Policy::OsBuffered),
    ("small records", |options| options.record_limit = 10),
    ("a full check", |options| options.check = OpenCheck::Full),
];

#[test]
fn log_reopens_with_any_other_options() {
    let mut cases = Cases::default();
    for sample in [sample::closed(), sample::killed(), sample::torn(), sample::quarantined()] {
        for (name, change) in CHANGES {
            cases.run(format!("{}, {name}", sample.name), || {
                let disk = sample.disk.fork(1);
                let engine = Engine::manual();
                let mut options = options(&disk, &engine);
                change(&mut options);
                let log = Log::builder(DIR)
                    .options(options)
                    .open()
                    .map_err(|error| format!("{error:?}"))?;
                check_log(&log, &sample.items)?;
                let mut items = sample.items.clone();
                for n in 0..3u8 {
                    let prev = log.accepted().0;
                    let ticket = log.append([n; 5]).and_then(|ticket| Ok(ticket.blocking_wait()?));
                    let seq = ticket.map_err(|error| format!("{error:?}"))?.seq.0;
                    items.push(Item::Record { seq, prev, payload: vec![n; 5] });
                }
                engine.run();
                check_log(&log, &items)?;
                log.close().map_err(|error| format!("{error:?}"))?;
                continues(&sample, disk, items)
            });
        }
    }
    cases.finish(48);
}

#[test]
fn smaller_ring_drops_and_reports_the_oldest_segments() {
    let mut cases = Cases::default();
    for sample in [sample::closed(), sample::killed(), sample::quarantined()] {
        cases.run(sample.name, || {
            let disk = sample.disk.fork(1);
            let engine = Engine::manual();
            let mut options = options(&disk, &engine);
            options.retention.segments = Some(2);
            let log =
                Log::builder(DIR).options(options).open().map_err(|error| format!("{error:?}"))?;
            log.append(b"on")
                .and_then(|ticket| Ok(ticket.blocking_wait()?))
                .map_err(|e| format!("{e:?}"))?;
            engine.run();
            let after = log.storage().metadata().after.0;
            if after == 0 || log.storage().metadata().segments > 2 {
                return Err(format!("{:?}", log.storage().metadata()));
            }
            for item in &sample.items {
                let Item::Record { seq, payload, .. } = item else { continue };
                match log.read(*seq) {
                    Err(ReadError::Trimmed(_)) if *seq <= after => {}
                    Ok(view) if *seq > after && *view == **payload => {}
                    other => return Err(format!("floor {after}, read({seq}) says {other:?}")),
                }
            }
            Ok(())
        });
    }
    cases.finish(3);
}

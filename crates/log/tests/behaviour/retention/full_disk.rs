//! Reclaiming space on a full disk, for a component with the simplest of indexes.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use esker_disk::sim::SimDisk;
use esker_log::component::Purpose;
use esker_log::reclaim::{self, Effort, Live, Owner, Reclaimed, stored_size};
use esker_log::{Engine, Error, Log, Record, Seq, Ticket};

use crate::fixture::{DIR, driven};

const MIB: u64 = 1 << 20;
const LEN: usize = 20_000;

/// The newest record of each key. The first 8 bytes of a record are its key.
struct Index<'a> {
    log: &'a Log,
    engine: &'a Engine,
    newest: RefCell<BTreeMap<u64, Seq>>,
}

impl Index<'_> {
    fn put(&self, key: u64) -> Result<(), Error> {
        let mut payload = key.to_le_bytes().to_vec();
        payload.resize(LEN, key as u8);
        let seq = self.log.append(payload)?.blocking_wait()?.seq;
        self.newest.borrow_mut().insert(key, seq);
        Ok(())
    }
}

impl Owner for Index<'_> {
    type Error = Error;
    type Key = u64;
    const CHECKPOINT_GROWS: bool = false;

    fn barrier(&self) -> Result<(), Error> {
        Ok(())
    }

    fn each_live(&self, visit: &mut dyn FnMut(Live)) -> Result<(), Error> {
        self.newest.borrow().values().for_each(|seq| visit(Live::copied(*seq, stored_size(LEN))));
        Ok(())
    }

    fn append_again(
        &self,
        record: &Record<'_>,
        purpose: Purpose,
    ) -> Result<Option<(u64, Ticket)>, Error> {
        let key = u64::from_le_bytes(record.payload[..8].try_into().unwrap());
        if self.newest.borrow().get(&key) != Some(&record.seq) {
            return Ok(None);
        }
        Ok(Some((key, self.log.component().append(purpose, record.payload)?)))
    }

    fn is_no_space(error: &Error) -> bool {
        error.is_no_space()
    }

    fn moved(&self, key: u64, from: Seq, to: Seq) -> Result<(), Error> {
        let old = self.newest.borrow_mut().insert(key, to);
        assert_eq!(old, Some(from));
        Ok(())
    }

    fn before_drop(&self, _: Seq) -> Result<(), Error> {
        Ok(())
    }

    fn pace(&self, _: Duration) -> Result<(), Error> {
        // Reads that are queued keep their files open.
        self.engine.run();
        Ok(())
    }
}

fn open() -> (SimDisk, Log, Engine) {
    let disk = SimDisk::new(1);
    disk.set_capacity(Some(14 * MIB));
    let (mut options, engine) = driven(&disk);
    options.segment_size = MIB as u32;
    options.reserve = Some(4 * MIB);
    (disk, Log::builder(DIR).options(options).open().unwrap(), engine)
}

/// Bug: one call moved one live segment away, which makes no room, and left the dead segments
/// behind it to a later call.
#[test]
fn one_call_reaches_the_dead_segments_behind_live_ones() {
    let (_disk, log, engine) = open();
    let index = Index { log: &log, engine: &engine, newest: RefCell::default() };
    // Four segments stay live. What follows is one key.
    let live = 4 * MIB / LEN as u64;
    for n in 0.. {
        if let Err(error) = index.put(n.min(live)) {
            assert!(error.is_no_space(), "{error:?}");
            break;
        }
    }
    let segments = log.storage().segments().len() as u64;
    assert!(segments >= 8, "{segments} segments");
    let done = reclaim::run(&log, &index, Effort::FullDisk).unwrap();
    let Reclaimed { bytes_freed, bytes_copied, .. } = done;
    assert!(bytes_copied > 3 * MIB && bytes_freed > bytes_copied + 2 * MIB, "{done:?}");
    for n in 0..100 {
        index.put(live + 1 + n % 2).unwrap();
    }
    for (key, seq) in &*index.newest.borrow() {
        assert_eq!(log.read(*seq).unwrap()[..8], key.to_le_bytes());
    }
    // The first segments are live again, and nothing is worth copying.
    let again = reclaim::run(&log, &index, Effort::FullDisk).unwrap();
    assert!(again.segments == 0 || again.gained() > 0, "{again:?}");
    log.close().unwrap();
}

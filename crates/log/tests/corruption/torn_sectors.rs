//! A commit of several blocks is torn at every sector: of its sectors of 512 bytes, any are the new
//! ones, and the others what was stored there before.
//!
//! Guards: a torn unit taken for a whole one, or for none, so that it is not reported; durable
//! records that are lost with it; a torn unit that is made whole, or built on, by what is appended
//! later.
#![allow(clippy::unwrap_used, clippy::panic)]

use esker_disk::sim::SimDisk;
use esker_log::{Engine, OnCorruption, repair};

use crate::corruption_kit::DIR;
use crate::corruption_kit::cases::Cases;
use crate::corruption_kit::map::segment_path;
use crate::corruption_kit::reading::Item;
use crate::corruption_kit::repairs::{check_log, continues, open};
use crate::corruption_kit::sample::{self, Building, Sample, options};

const SECTOR: usize = 512;

/// A killed log before its last commit, the blocks of that commit in the segment file, and what
/// they hold when it is whole.
struct Torn {
    before: Sample,
    after: Sample,
    new: Vec<u8>,
    old: Vec<u8>,
    at: usize,
}

/// `records` of the last commit; what they leave of the last block decides what padding is torn.
fn commit(lens: &[usize], recycled: bool) -> Torn {
    let mut log = Building::new("torn at a sector");
    log.open(100).one(40).several(&[30, 0]).one(3000);
    let before = SimDisk::fork(&log.disk, 1);
    let items = log.items.clone();
    log.several(lens).kill();
    let after = log.done(false);
    before.kill();
    before.power_on();
    let before = Building::on("torn at a sector", before, items).done(false);
    let unit = after.map.newest().units.last().unwrap().at.clone();
    let file = segment_path(1);
    let new = after.disk.contents(&file).unwrap()[unit.clone()].to_vec();
    let old = match recycled {
        true => sample::payload("an earlier life", 1, new.len()),
        false => vec![0; new.len()],
    };
    Torn { before, after, new, old, at: unit.start }
}

impl Torn {
    /// The disk on which the sectors that `is_new` picks made it.
    fn disk(&self, is_new: impl Fn(usize) -> bool) -> SimDisk {
        let disk = self.before.disk.fork(1);
        let mut bytes = self.old.clone();
        for (n, sector) in bytes.chunks_mut(SECTOR).enumerate() {
            if is_new(n) {
                sector.copy_from_slice(&self.new[n * SECTOR..(n + 1) * SECTOR]);
            }
        }
        disk.overwrite(&segment_path(1), self.at as u64, &bytes).unwrap();
        disk
    }

    fn check(&self, disk: &SimDisk, whole: bool) -> Result<(), String> {
        let items: &[Item] = if whole { &self.after.items } else { &self.before.items };
        // A repair, which the torn tail does not need, loses nothing either.
        let repaired = disk.fork(2);
        let engine = Engine::manual();
        repair(DIR, options(&repaired, &engine)).map_err(|error| format!("{error:?}"))?;
        for disk in [disk.fork(3), repaired] {
            let log = open(&disk, OnCorruption::Fail)?;
            check_log(&log, items)?;
            if !whole && log.storage().recovery().truncated_tail.is_none() {
                return Err("the cut was not reported".into());
            }
            drop(log);
            continues(&self.before, disk, items.to_vec())?;
        }
        Ok(())
    }
}

/// Whether a sector is new.
type Pick = Box<dyn Fn(usize) -> bool>;

fn tear_everywhere(torn: &Torn) -> Cases {
    let mut cases = Cases::default();
    let sectors = torn.new.len() / SECTOR;
    // Sectors that hold the same before and after make no difference.
    let says = |n: usize| {
        let sector = n * SECTOR..(n + 1) * SECTOR;
        torn.new[sector.clone()] != torn.old[sector]
    };
    for n in 0..sectors {
        let ways: [(&str, Pick); 4] = [
            ("the first ones up to", Box::new(move |sector| sector <= n)),
            ("those from", Box::new(move |sector| sector >= n)),
            ("all but", Box::new(move |sector| sector != n)),
            ("none but", Box::new(move |sector| sector == n)),
        ];
        for (name, is_new) in ways {
            let whole = (0..sectors).all(|sector| is_new(sector) || !says(sector));
            let nothing = (0..sectors).all(|sector| !is_new(sector) || !says(sector));
            if nothing && torn.old.iter().all(|&byte| byte == 0) {
                continue;
            }
            let disk = torn.disk(is_new);
            cases.run(format!("{name} {n} of {sectors}"), || torn.check(&disk, whole));
        }
    }
    cases
}

/// The torn unit is cut and reported, or is whole; every durable record is kept.
#[test]
fn torn_sectors_over_unwritten_blocks() {
    tear_everywhere(&commit(&[100, 0, 5000, 16], false)).finish(50);
}

/// The same where the blocks have the units of an earlier use of the file.
#[test]
fn torn_sectors_over_recycled_blocks() {
    tear_everywhere(&commit(&[100, 0, 5000, 16], true)).finish(50);
}

#[test]
fn torn_sectors_with_records_that_end_on_block_borders() {
    // Unit header 72, record header 16: the records end at 512, 1024 and 4096.
    let lens = [512 - 72 - 16, 512 - 16, 4096 - 1024 - 16, 4096 - 16];
    tear_everywhere(&commit(&lens, false)).finish(50);
}

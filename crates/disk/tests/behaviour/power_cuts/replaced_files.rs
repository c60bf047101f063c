//! A file that is replaced is the old one or the new one after every power cut.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_disk::{Disk, replace_file};

const OLD: &[u8] = &[1; 9000];
const NEW: &[u8] = &[2; 5000];

#[test]
fn a_replaced_file_is_the_old_one_or_the_new_one() {
    let root = Path::new("/");
    let prepared = |seed| {
        let disk = SimDisk::new(seed);
        replace_file(&*disk.open_dir(root).unwrap(), "a", OLD).unwrap();
        disk
    };
    let whole = prepared(1);
    let before = whole.operations();
    replace_file(&*whole.open_dir(root).unwrap(), "a", NEW).unwrap();
    let after = whole.operations();
    assert_eq!(whole.contents(Path::new("/a")).unwrap(), NEW);
    let mut kept = [false; 2];
    for at in before..after {
        for persist in [Persist::Nothing, Persist::Random, Persist::Everything] {
            for point in [CutPoint::Before(at), CutPoint::During(at)] {
                for seed in 0..4 {
                    let disk = prepared(seed);
                    disk.cut_power_at(point, persist);
                    replace_file(&*disk.open_dir(root).unwrap(), "a", NEW).unwrap_err();
                    disk.power_on();
                    let found = disk.contents(Path::new("/a")).unwrap();
                    assert!(found == OLD || found == NEW, "{point:?}, {persist:?}, seed {seed}");
                    kept[usize::from(found == NEW)] = true;
                    // What was left on the way does no harm.
                    replace_file(&*disk.open_dir(root).unwrap(), "a", NEW).unwrap();
                    assert_eq!(disk.contents(Path::new("/a")).unwrap(), NEW);
                }
            }
        }
    }
    assert_eq!(kept, [true; 2]);
    // And durable when the call returns.
    whole.power_cut(Persist::Nothing);
    whole.power_on();
    assert_eq!(whole.contents(Path::new("/a")).unwrap(), NEW);
}

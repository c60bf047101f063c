//! Names are durable after their directory is synced. Before that a power cut keeps any subset of
//! the changes, each whole.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;

use esker_disk::sim::{Persist, Replay, SimDisk, seed_from_env};
use esker_disk::{Disk, OpenMode, write_all_at};

use crate::by_path::ByPath;

fn create(disk: &SimDisk, path: &str, byte: u8) {
    let file = disk.open(Path::new(path), OpenMode::create_new()).unwrap();
    write_all_at(&*file, &[byte], 0).unwrap();
    file.sync_data().unwrap();
}

/// The names of `/d` with the byte of each, over many seeds of one history.
fn outcomes(test: &str, history: impl Fn(&SimDisk)) -> BTreeSet<String> {
    let first = seed_from_env("ESKER_SEED", 1);
    let outcome = |seed| {
        let _replay = Replay::new(test, seed);
        let disk = SimDisk::new(seed);
        disk.create_dir(Path::new("/d")).unwrap();
        history(&disk);
        disk.power_cut(Persist::Random);
        disk.power_on();
        let names = disk.list(Path::new("/d")).unwrap();
        let show = |name: &String| {
            let path = Path::new("/d").join(name);
            match disk.contents(&path) {
                Ok(bytes) => format!("{name}{}", bytes[0]),
                Err(_) => format!("{name}{:?}", disk.list(&path).unwrap()),
            }
        };
        names.iter().map(show).collect::<Vec<_>>().join(" ")
    };
    (first..first + 300).map(outcome).collect()
}

fn set<const N: usize>(cases: [&str; N]) -> BTreeSet<String> {
    cases.map(str::to_owned).into()
}

#[test]
fn any_subset_of_independent_creates_stays() {
    let found = outcomes("any_subset_of_independent_creates_stays", |disk| {
        create(disk, "/d/a", 1);
        create(disk, "/d/b", 2);
    });
    assert_eq!(found, set(["", "a1", "b2", "a1 b2"]), "also the later without the earlier");
}

#[test]
fn a_rename_is_the_old_or_the_new_and_never_neither() {
    let found = outcomes("a_rename_is_the_old_or_the_new", |disk| {
        create(disk, "/d/a", 1);
        create(disk, "/d/b", 2);
        disk.sync_dir(Path::new("/d")).unwrap();
        disk.rename(Path::new("/d/a"), Path::new("/d/b")).unwrap();
    });
    assert_eq!(found, set(["a1 b2", "b1"]));
}

#[test]
fn an_exchange_is_both_names_or_neither() {
    let found = outcomes("an_exchange_is_both_names_or_neither", |disk| {
        create(disk, "/d/a", 1);
        create(disk, "/d/b", 2);
        let dir = disk.open_dir(Path::new("/d")).unwrap();
        dir.sync().unwrap();
        dir.exchange("a", "b").unwrap();
    });
    assert_eq!(found, set(["a1 b2", "a2 b1"]));
}

#[test]
fn operations_that_depend_on_an_exchange_are_lost_with_it() {
    let found = outcomes("operations_that_depend_on_an_exchange_are_lost_with_it", |disk| {
        create(disk, "/d/a", 1);
        create(disk, "/d/b", 2);
        let dir = disk.open_dir(Path::new("/d")).unwrap();
        dir.sync().unwrap();
        dir.exchange("a", "b").unwrap();
        dir.unlink("b").unwrap();
    });
    assert_eq!(found, set(["a1 b2", "a2 b1", "a2"]));
}

#[test]
fn a_synced_exchange_stays() {
    let found = outcomes("a_synced_exchange_stays", |disk| {
        create(disk, "/d/a", 1);
        create(disk, "/d/b", 2);
        let dir = disk.open_dir(Path::new("/d")).unwrap();
        dir.exchange("a", "b").unwrap();
        dir.sync().unwrap();
    });
    assert_eq!(found, set(["a2 b1"]));
}

#[test]
fn changes_of_one_file_keep_their_order() {
    let found = outcomes("changes_of_one_file_keep_their_order", |disk| {
        create(disk, "/d/a", 1);
        disk.sync_dir(Path::new("/d")).unwrap();
        disk.rename(Path::new("/d/a"), Path::new("/d/b")).unwrap();
        disk.rename(Path::new("/d/b"), Path::new("/d/c")).unwrap();
    });
    assert_eq!(found, set(["a1", "b1", "c1"]), "one name at any time");
}

#[test]
fn synced_rename_across_directories_keeps_what_it_depends_on() {
    for synced in ["/d", "/e"] {
        let found = outcomes("a_rename_across_directories", |disk| {
            disk.create_dir(Path::new("/e")).unwrap();
            create(disk, "/e/a", 1);
            disk.mv(Path::new("/e/a"), Path::new("/d/a")).unwrap();
            disk.rename(Path::new("/d/a"), Path::new("/d/b")).unwrap();
            disk.sync_dir(Path::new(synced)).unwrap();
            disk.mv(Path::new("/e"), Path::new("/d/e")).unwrap();
            disk.sync_dir(Path::new("/")).unwrap();
        });
        let both = set(["a1 e[]", "b1 e[]"]);
        assert!(found.is_subset(&both), "{synced}: {found:?}");
        assert_eq!(found.len() == 1, synced == "/d", "{found:?}");
    }
}

#[test]
fn an_unlink_may_come_back() {
    let found = outcomes("an_unlink_may_come_back", |disk| {
        create(disk, "/d/a", 1);
        disk.sync_dir(Path::new("/d")).unwrap();
        disk.unlink(Path::new("/d/a")).unwrap();
        create(disk, "/d/a", 3);
    });
    assert_eq!(found, set(["a1", "", "a3"]));
}

#[test]
fn a_synced_directory_keeps_its_names_and_no_others() {
    let found = outcomes("a_synced_directory_keeps_its_names", |disk| {
        disk.create_dir(Path::new("/e")).unwrap();
        create(disk, "/d/a", 1);
        create(disk, "/d/b", 2);
        create(disk, "/e/c", 4);
        disk.unlink(Path::new("/d/b")).unwrap();
        disk.mv(Path::new("/e/c"), Path::new("/d/c")).unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        create(disk, "/d/x", 5);
    });
    assert_eq!(found, set(["a1 c4", "a1 c4 x5"]));
}

#[test]
fn syncing_a_file_does_not_keep_its_name() {
    let found = outcomes("syncing_a_file_does_not_keep_its_name", |disk| create(disk, "/d/a", 1));
    assert!(found.contains(""));
}

#[test]
fn created_directories_are_durable_at_once() {
    let disk = SimDisk::new(1);
    disk.create_dir(Path::new("/x/y/z")).unwrap();
    disk.power_cut(Persist::Nothing);
    disk.power_on();
    assert!(disk.list(Path::new("/x/y/z")).unwrap().is_empty());
}

#[test]
fn a_directory_that_a_dead_process_made_is_made_durable_by_the_next() {
    let disk = SimDisk::new(1);
    disk.kill_at(esker_disk::sim::CutPoint::Before(1));
    disk.create_dir(Path::new("/x")).unwrap_err();
    disk.power_on();
    assert_eq!(disk.files(Path::new("/")).unwrap(), ["x"], "made, and its parent not synced");
    disk.create_dir(Path::new("/x")).unwrap();
    disk.power_cut(Persist::Nothing);
    assert_eq!(disk.files(Path::new("/")).unwrap(), ["x"]);
}

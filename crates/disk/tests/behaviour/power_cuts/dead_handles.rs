//! Handles that were open when the power went or the process died never work again.

use std::io::ErrorKind;
use std::path::Path;

use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_disk::{Disk, OpenMode, write_all_at};

use crate::by_path::ByPath;

fn ends() -> [fn(&SimDisk); 2] {
    [|disk| disk.power_cut(Persist::Random), |disk| disk.kill()]
}

#[test]
fn while_the_power_is_off_everything_fails() {
    for end in ends() {
        let disk = SimDisk::new(1);
        let file = disk.open(Path::new("/a"), OpenMode::create()).unwrap();
        let lock = disk.lock(Path::new("/")).unwrap();
        let dir = disk.open_dir(Path::new("/")).unwrap();
        end(&disk);
        let path = Path::new("/a");
        let operations = disk.operations();
        for error in [
            file.read_at(&mut [0], 0).unwrap_err(),
            file.write_at(&[0], 0).unwrap_err(),
            file.sync_data().unwrap_err(),
            file.len().unwrap_err(),
            file.set_len(1).unwrap_err(),
            file.preallocate(0, 1).unwrap_err(),
            disk.open(path, OpenMode::create()).unwrap_err(),
            disk.create_dir(path).unwrap_err(),
            disk.rename(path, path).unwrap_err(),
            disk.unlink(path).unwrap_err(),
            disk.sync_dir(path).unwrap_err(),
            disk.list(path).unwrap_err(),
            disk.open_dir(path).unwrap_err(),
            dir.open("a", OpenMode::create()).unwrap_err(),
            dir.rename("a", "b").unwrap_err(),
            dir.exchange("a", "a").unwrap_err(),
            dir.unlink("a").unwrap_err(),
            dir.sync().unwrap_err(),
            dir.list().unwrap_err(),
            dir.open_dir("a").unwrap_err(),
            dir.create_dir("d").unwrap_err(),
            dir.lock().unwrap_err(),
            dir.facts().unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{error}");
        }
        assert_eq!(disk.operations(), operations, "nothing happened");
        drop(lock);
    }
}

#[test]
fn locks_are_free_and_old_handles_fail_after_a_power_cut() {
    for end in ends() {
        let disk = SimDisk::new(1);
        let file = disk.open(Path::new("/a"), OpenMode::create()).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let old = disk.lock(Path::new("/")).unwrap();
        end(&disk);
        disk.power_on();
        let _new = disk.lock(Path::new("/")).unwrap();
        drop(old);
        disk.lock(Path::new("/")).unwrap_err();
        assert_eq!(write_all_at(&*file, b"late", 0).unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert!(disk.contents(Path::new("/a")).unwrap().is_empty());
    }
}

#[test]
fn dropping_an_old_handle_closes_no_new_one() {
    let disk = SimDisk::new(1);
    let old = disk.open(Path::new("/a"), OpenMode::create()).unwrap();
    disk.kill();
    disk.power_on();
    let new = disk.open(Path::new("/a"), OpenMode::write()).unwrap();
    disk.unlink(Path::new("/a")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    drop(old);
    disk.sync_dir(Path::new("/")).unwrap();
    write_all_at(&*new, b"open", 0).unwrap();
}

#[test]
fn disk_handle_of_a_dead_process_fails() {
    for end in ends() {
        let machine = SimDisk::new(1);
        let old = machine.process();
        old.open(Path::new("/a"), OpenMode::create()).unwrap();
        end(&machine);
        machine.power_on();
        let late = old.open(Path::new("/late"), OpenMode::create()).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::BrokenPipe);
        machine.process().open(Path::new("/new"), OpenMode::create()).unwrap();
        assert!(!machine.files(Path::new("/")).unwrap().contains(&"late".to_owned()));
    }
}

#[test]
fn a_kill_keeps_what_was_written_and_a_later_power_cut_does_not() {
    let disk = SimDisk::new(1);
    let file = disk.open(Path::new("/a"), OpenMode::create()).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    write_all_at(&*file, b"cached", 0).unwrap();
    disk.kill_at(CutPoint::During(disk.operations()));
    write_all_at(&*file, b" bytes", 6).unwrap_err();
    disk.power_on();
    assert_eq!(disk.contents(Path::new("/a")).unwrap(), b"cached bytes");
    disk.power_cut(Persist::Nothing);
    assert_eq!(disk.contents(Path::new("/a")).unwrap(), b"");
    assert_eq!((disk.stats().kills, disk.stats().power_cuts), (1, 1));
}

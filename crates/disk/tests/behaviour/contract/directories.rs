//! A directory is opened once. What is done through it reaches that directory, wherever it is
//! moved, and nothing but regular files of its own.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use esker_disk::sim::{Persist, SimDisk};
use esker_disk::{Dir, Disk, Op, OpenMode, Refusal, StdDisk, read_full_at, write_all_at};

use crate::on_each;

fn put(dir: &dyn Dir, name: &str, bytes: &[u8]) {
    let file = dir.open(name, OpenMode::create()).unwrap();
    write_all_at(&*file, bytes, 0).unwrap();
}

fn get(dir: &dyn Dir, name: &str) -> Vec<u8> {
    let file = dir.open(name, OpenMode::read()).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    read_full_at(&*file, &mut bytes, 0).unwrap();
    bytes
}

#[test]
fn open_directory_follows_a_move() {
    on_each::disk(|disk, root| {
        let above = disk.open_dir(root).unwrap();
        let dir = disk.create_dir(&root.join("log")).unwrap();
        put(&*dir, "a", b"before");
        let lock = dir.lock().unwrap();
        assert_eq!(
            dir.lock().unwrap_err().kind(),
            ErrorKind::WouldBlock,
            "once for each handle, too"
        );
        above.rename("log", "moved").unwrap();
        let other = disk.create_dir(&root.join("log")).unwrap();

        put(&*dir, "b", b"after");
        dir.rename("a", "c").unwrap();
        dir.create_dir("deep").unwrap().sync().unwrap();
        dir.sync().unwrap();
        assert_eq!(dir.list().unwrap(), ["b", "c", "deep"]);
        assert!(other.list().unwrap().is_empty(), "nothing reaches what took its place");
        let moved = disk.open_dir(&root.join("moved")).unwrap();
        assert_eq!((get(&*moved, "c"), get(&*dir, "b")), (b"before".into(), b"after".into()));
        dir.unlink("b").unwrap();
        assert_eq!(moved.list().unwrap(), ["c", "deep"]);

        // The lock went with the directory.
        assert_eq!(moved.lock().unwrap_err().kind(), ErrorKind::WouldBlock);
        let _free = other.lock().unwrap();
        drop(lock);
        let _again = moved.lock().unwrap();
        assert_eq!(dir.lock().unwrap_err().kind(), ErrorKind::WouldBlock);
        // For messages the path is the old one.
        assert_eq!((dir.path(), dir.path_of("c")), (&*root.join("log"), root.join("log/c")));
    });
}

#[test]
fn removed_files_do_not_end_the_lock() {
    on_each::disk(|disk, root| {
        let dir = disk.open_dir(root).unwrap();
        put(&*dir, "lock", b"1\n");
        let _lock = dir.lock().unwrap();
        dir.unlink("lock").unwrap();
        put(&*dir, "lock", b"2\n");
        let error = disk.open_dir(root).unwrap().lock().unwrap_err();
        assert_eq!((error.op(), error.kind()), (Op::Lock, ErrorKind::WouldBlock));
    });
}

#[test]
fn a_directory_that_lost_its_name_takes_nothing_in() {
    on_each::disk(|disk, root| {
        let above = disk.open_dir(root).unwrap();
        let gone = disk.create_dir(&root.join("a")).unwrap();
        disk.create_dir(&root.join("b")).unwrap();
        above.rename("b", "a").unwrap();
        assert_eq!(gone.open("x", OpenMode::create()).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(gone.list().unwrap().is_empty());
        assert!(disk.open_dir(&root.join("a")).unwrap().list().unwrap().is_empty());
    });
}

#[test]
fn a_name_is_one_component() {
    on_each::disk(|disk, root| {
        let dir = disk.open_dir(root).unwrap();
        put(&*dir, "a", b"a");
        dir.create_dir("d").unwrap();
        for name in ["", ".", "..", "/", "d/a", "../a", "/a", "a/", "a\0b"] {
            let errors = [
                (Op::Open, dir.open(name, OpenMode::create()).unwrap_err()),
                (Op::Rename, dir.rename(name, "b").unwrap_err()),
                (Op::Rename, dir.rename("a", name).unwrap_err()),
                (Op::Exchange, dir.exchange(name, "a").unwrap_err()),
                (Op::Exchange, dir.exchange("a", name).unwrap_err()),
                (Op::Unlink, dir.unlink(name).unwrap_err()),
                (Op::OpenDir, dir.open_dir(name).unwrap_err()),
                (Op::CreateDir, dir.create_dir(name).unwrap_err()),
            ];
            for (op, error) in errors {
                assert_eq!((error.op(), error.refusal()), (op, Some(Refusal::Name)), "{name:?}");
                assert_eq!(error.kind(), ErrorKind::InvalidInput);
            }
        }
        assert_eq!(dir.list().unwrap(), ["a", "d"]);
    });
}

#[test]
fn an_exchange_gives_each_the_other_s_name() {
    on_each::disk(|disk, root| {
        let dir = disk.open_dir(root).unwrap();
        put(&*dir, "a", b"first");
        put(&*dir, "b", b"second");
        let open = dir.open("a", OpenMode::read()).unwrap();
        match dir.exchange("a", "b") {
            Err(error) if error.refusal() == Some(Refusal::Exchange) => {
                return on_each::skip(disk, root, "an exchange");
            }
            done => done.unwrap(),
        }
        assert_eq!((get(&*dir, "a"), get(&*dir, "b")), (b"second".into(), b"first".into()));
        assert_eq!(open.len().unwrap(), 5, "an open file stays what it is");
        dir.exchange("a", "a").unwrap();
        let error = dir.exchange("a", "missing").unwrap_err();
        assert_eq!((error.op(), error.kind()), (Op::Exchange, ErrorKind::NotFound));
        assert_eq!(dir.exchange("missing", "a").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(dir.list().unwrap(), ["a", "b"]);
    });
}

/// A removed directory has no name, and takes nothing in. One of the same name is another one.
#[test]
fn only_an_empty_directory_is_removed() {
    on_each::disk(|disk, root| {
        let dir = disk.create_dir(root).unwrap();
        let gone = dir.create_dir("d").unwrap();
        put(&*gone, "file", b"a");
        for (name, kind) in [
            ("d", ErrorKind::DirectoryNotEmpty),
            ("none", ErrorKind::NotFound),
            (".", ErrorKind::InvalidInput),
        ] {
            assert_eq!(dir.remove_dir(name).unwrap_err().kind(), kind, "{name}");
        }
        assert_eq!(gone.remove_dir("file").unwrap_err().kind(), ErrorKind::NotADirectory);
        gone.unlink("file").unwrap();
        dir.remove_dir("d").unwrap();
        assert_eq!(dir.list().unwrap(), [""; 0]);
        assert!(gone.open("file", OpenMode::create_new()).is_err());
        put(&*dir.create_dir("d").unwrap(), "file", b"b");
        assert_eq!(get(&*dir.open_dir("d").unwrap(), "file"), b"b");
    });
}

#[test]
fn a_directory_is_no_file_and_a_file_no_directory() {
    on_each::disk(|disk, root| {
        let dir = disk.open_dir(root).unwrap();
        put(&*dir, "file", b"");
        dir.create_dir("d").unwrap();
        for how in [OpenMode::read(), OpenMode::write(), OpenMode::create()] {
            assert_eq!(dir.open("d", how).unwrap_err().kind(), ErrorKind::IsADirectory);
        }
        assert_eq!(dir.unlink("d").unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(dir.open_dir("file").unwrap_err().kind(), ErrorKind::NotADirectory);
        assert_eq!(dir.create_dir("file").unwrap_err().kind(), ErrorKind::NotADirectory);
        assert_eq!(dir.open_dir("missing").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(disk.open_dir(&root.join("file")).unwrap_err().op(), Op::OpenDir);
    });
}

/// Opens a name in another thread, which a FIFO would hold for ever.
#[cfg(unix)]
fn in_time(dir: &Arc<dyn Dir>, name: &'static str, how: OpenMode) -> esker_disk::Error {
    let (dir, (send, receive)) = (Arc::clone(dir), std::sync::mpsc::channel());
    std::thread::spawn(move || send.send(dir.open(name, how).map(drop)));
    let opened = receive.recv_timeout(std::time::Duration::from_secs(20));
    opened.unwrap_or_else(|_| panic!("opening {name} hangs")).unwrap_err()
}

#[cfg(unix)]
#[test]
fn special_files_are_refused_without_blocking() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::os::unix::fs::symlink;

    let mut disks: Vec<Arc<dyn Disk>> = vec![Arc::new(StdDisk::new())];
    #[cfg(target_os = "linux")]
    if let Ok(disk) = esker_disk::uring::UringDisk::new(Default::default()) {
        disks.push(Arc::new(disk));
    }
    for disk in disks {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        std::fs::write(at("elsewhere"), b"mine").unwrap();
        symlink("elsewhere", at("link")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        symlink(".", at("link to a directory")).unwrap();
        mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let dir = disk.open_dir(place.path()).unwrap();
        let names = dir.list().unwrap();
        for (name, found) in [
            ("link", "a symbolic link"),
            ("dangling", "a symbolic link"),
            ("link to a directory", "a symbolic link"),
            ("fifo", "a FIFO"),
            ("socket", "a socket"),
        ] {
            let direct = OpenMode::read().direct(cfg!(target_os = "linux"));
            for how in [OpenMode::read(), OpenMode::write(), OpenMode::create(), direct] {
                let error = in_time(&dir, name, how);
                assert_eq!(error.refusal(), Some(Refusal::NotAFile { found }), "{name}: {error}");
                assert_eq!((error.op(), error.path()), (Op::Open, at(name)));
                let cause = std::error::Error::source(&error).unwrap();
                assert!(cause.to_string().contains(found), "{cause}");
            }
        }
        let followed = dir.open_dir("link to a directory").unwrap_err();
        assert_eq!(followed.kind(), ErrorKind::NotADirectory);
        assert_eq!(dir.list().unwrap(), names, "nothing was made through a link");
        assert_eq!(std::fs::read(at("elsewhere")).unwrap(), b"mine");
        // A path that leads to the directory may hold links: they are the user's.
        let through = disk.open_dir(&at("link to a directory")).unwrap();
        assert_eq!(get(&*through, "elsewhere"), b"mine");
    }
    let Ok(dev) = StdDisk::new().open_dir(Path::new("/dev")) else { return };
    let error = in_time(&dev, "null", OpenMode::write());
    assert_eq!(error.refusal(), Some(Refusal::NotAFile { found: "a device" }));
}

#[test]
fn a_moved_directory_of_the_simulated_disk_keeps_what_was_synced_in_it() {
    for moved_stays in [false, true] {
        let disk = SimDisk::new(1);
        let dir = disk.create_dir(Path::new("/log")).unwrap();
        disk.mv(Path::new("/log"), Path::new("/moved")).unwrap();
        put(&*dir, "a", b"1");
        dir.open("a", OpenMode::write()).unwrap().sync_data().unwrap();
        dir.sync().unwrap();
        put(&*dir, "b", b"never synced");
        if moved_stays {
            disk.open_dir(Path::new("/")).unwrap().sync().unwrap();
        }
        disk.power_cut(Persist::Nothing);
        disk.power_on();
        let path = Path::new(if moved_stays { "/moved" } else { "/log" });
        assert_eq!(disk.files(path).unwrap(), ["a"], "the move itself was never synced");
        assert_eq!(disk.contents(&path.join("a")).unwrap(), b"1");
        assert_eq!(dir.list().unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
}

//! A real file system that is full: written until `NoSpace`, closed, reopened, killed, read,
//! truncated, and appended to again, with every value compared.
//!
//! Guards what a simulated disk takes for granted: that a failed `fallocate` gives back what it
//! took, that reserved ranges can be written, and that the files of a log are enough to get out of
//! it. Needs leave to mount; where that is missing it says SKIPPED. The images are mounted in a
//! mount namespace of the test's own process, which goes with it, so that nothing stays mounted
//! however the test ends.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // A test says what it skipped.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

use esker_log::component::Purpose;
use esker_log::{Error, Log, Options, Seq, Start};

/// The variable that gives this binary's child its task and its directory.
const INSIDE: &str = "ESKER_FULL_DISK";
const DIES: &str = "ESKER_FULL_DISK_DIES";

fn payload(seq: u64) -> Vec<u8> {
    let len = 1000 + (seq * 7919 % 60_000) as usize;
    (0..len as u64).map(|at| (seq * 31 + at * 7) as u8).collect()
}

/// A record that does not fit in what was reserved when the disk was full.
fn large() -> Vec<u8> {
    vec![0; 1 << 20]
}

fn options() -> Options {
    Options::default()
}

/// Appends until the disk is full; the error.
fn fill(log: &Log) -> Error {
    loop {
        let mut tickets = Vec::new();
        for _ in 0..50 {
            match log.append(payload(log.accepted().0 + 1)) {
                Ok(ticket) => tickets.push(ticket),
                Err(error) => {
                    log.barrier().unwrap().blocking_wait().unwrap();
                    return error.into();
                }
            }
        }
        tickets.pop().unwrap().blocking_wait().unwrap();
    }
}

/// Every value from `first` to `last`, and no other.
fn check(log: &Log, first: u64, last: u64) {
    let mut stream = log.stream(Start::Oldest).unwrap();
    let mut next = first;
    while let Some(batch) = stream.try_next().unwrap() {
        for record in &batch {
            assert_eq!(record.seq, Seq(next));
            assert!(record.payload == payload(next), "another value under {next}");
            next += 1;
        }
    }
    assert_eq!(next, last + 1);
}

fn is_no_space(error: impl Into<Error>) -> bool {
    matches!(error.into(), Error::NoSpace { .. })
}

/// The life of a log on a full disk; `at` is where the file system is mounted.
fn live(at: &Path) {
    let dir = at.join("log");
    let log = Log::builder(&dir).options(options()).open().unwrap();
    let error = fill(&log);
    assert!(is_no_space(error.clone()), "{error:?}");
    let mut last = log.durable().0;
    assert!(last > 100, "only {last} records on the disk");
    assert!(is_no_space(log.append(large()).unwrap_err()));
    check(&log, 1, last);
    // Another program takes whatever is left.
    let rest = at.join("rest");
    hog(&rest);
    log.close().unwrap();
    // A closed log keeps its files open until it is dropped.
    drop(log);
    hog(&at.join("rest of closing"));

    for _ in 0..3 {
        let log = Log::builder(&dir).options(options()).open().unwrap();
        check(&log, 1, last);
        assert!(is_no_space(log.append(large()).unwrap_err()));
        log.close().unwrap();
    }
    for _ in 0..3 {
        let died = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "full_file_system::child_in_the_mount_namespace", "--nocapture"])
            .env(INSIDE, at)
            .env(DIES, "1")
            .stderr(std::process::Stdio::null())
            .status();
        assert_eq!(died.unwrap().signal(), Some(libc::SIGABRT));
        let log = Log::builder(&dir).options(options()).open().unwrap();
        let now = log.durable().0;
        assert!(now >= last);
        check(&log, 1, now);
        last = now;
        log.close().unwrap();
        hog(&at.join("rest of closing"));
    }

    let log = Log::builder(&dir).options(options()).open().unwrap();
    let internal = log
        .component()
        .append(Purpose::Internal, payload(last + 1))
        .unwrap()
        .blocking_wait()
        .unwrap();
    assert_eq!(internal.seq, Seq(last + 1));
    log.retention().truncate_before(last - 20).unwrap();
    check(&log, last - 20, last + 1);
    log.close().unwrap();
    drop(log);
    for name in ["rest", "rest of closing"] {
        match std::fs::remove_file(at.join(name)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            removed => removed.unwrap(),
        }
    }
    let log = Log::builder(&dir).options(options()).open().unwrap();
    check(&log, last - 20, last + 1);
    // The files took little. What is free belongs to the reserve, until the largest segment goes.
    log.retention().truncate_before(last + 1).unwrap();
    for seq in last + 2..last + 100 {
        assert_eq!(log.append(payload(seq)).unwrap().blocking_wait().unwrap().seq, Seq(seq));
    }
    check(&log, last + 1, last + 99);
    log.close().unwrap();
}

/// Fills the disk with a file, if there is room for one: xfs needs some for its name.
fn hog(path: &Path) {
    use std::io::Write;
    let mut file = match std::fs::File::options().create(true).append(true).open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::StorageFull => return,
        file => file.unwrap(),
    };
    for size in [1 << 20, 64 << 10, 4 << 10, 512] {
        while file.write_all(&vec![0xA5; size]).and_then(|()| file.sync_data()).is_ok() {}
    }
}

/// Opens the log on the full disk, appends what there is room for, and dies.
fn die(at: &Path) {
    let log = Log::builder(at.join("log")).options(options()).open().unwrap();
    let error = fill(&log);
    assert!(is_no_space(error.clone()), "{error:?}");
    std::process::abort();
}

fn run_inside(kind: &str) {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("mounted");
    std::fs::create_dir(&at).unwrap();
    let image = dir.path().join("image");
    let (image, mounted) = (image.display(), at.display());
    let mount = match kind {
        "tmpfs" => format!("mount -t tmpfs -o size=55m esker-test '{mounted}'"),
        kind => {
            let size = if kind == "xfs" { "320M" } else { "55M" };
            format!(
                "truncate -s {size} '{image}' && mkfs.{kind} -q '{image}' && \
                 mount -o loop '{image}' '{mounted}'"
            )
        }
    };
    let test = std::env::current_exe().unwrap();
    // 77: it could not be mounted. The namespace takes its mounts with it.
    let script = format!(
        "({mount}) 2>/dev/null >&2 || exit 77; exec '{}' --exact full_file_system::child_in_the_mount_namespace --nocapture",
        test.display()
    );
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
    let ended = unshare.env(INSIDE, &at).output();
    let ran = |ended: &Output| String::from_utf8_lossy(&ended.stdout).contains("1 passed");
    match ended.as_ref().map(|ended| ended.status.code()) {
        Ok(Some(0)) => assert!(ended.as_ref().is_ok_and(ran), "{kind}: nothing ran: {ended:?}"),
        Ok(Some(77)) => println!("SKIPPED: {kind} cannot be made or mounted here"),
        // A test that fails is another status.
        Ok(Some(1)) | Err(_) => println!("SKIPPED: {kind}: no mount namespace here"),
        _ => panic!("{kind}: {ended:?}"),
    }
}

/// The process that the other tests run in a mount namespace.
#[test]
fn child_in_the_mount_namespace() {
    if let Some(at) = std::env::var_os(INSIDE) {
        match std::env::var_os(DIES) {
            None => live(Path::new(&at)),
            Some(_) => die(Path::new(&at)),
        }
    }
}

#[test]
fn ext4() {
    run_inside("ext4");
}

#[test]
fn xfs() {
    run_inside("xfs");
}

#[test]
fn tmpfs() {
    run_inside("tmpfs");
}

//! The mount behaves as an ordinary file system: random calls on it and on one in memory have the
//! same results and leave the same files.

mod attributes;
mod call;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use call::{Call, Caller};

use crate::support::{answer_of, unplug};

const STEPS: &str = "UNPLUG_TEST_STEPS";
const THREADS: &str = "UNPLUG_TEST_THREADS";

#[test]
fn random_calls_have_the_results_of_another_file_system() {
    run_random_calls(3_000, 1);
}

/// Takes minutes, and gigabytes of memory: `cargo test -p unplug soak -- --ignored`.
#[test]
#[ignore = "a soak"]
fn soak_of_random_calls_in_threads() {
    run_random_calls(100_000, 4);
}

fn run_random_calls(steps: u64, threads: u64) {
    let Some(answer) = run_recorded(
        "file_operations::random_calls_in_the_recorded_directory",
        &[(STEPS, &steps.to_string()), (THREADS, &threads.to_string())],
    ) else {
        return;
    };
    assert!(!answer.contains("the program failed"), "{answer}");
}

/// Runs a test of this file as the program of unplug; `None` where a mount is refused.
fn run_recorded(test: &str, variables: &[(&str, &str)]) -> Option<String> {
    let this = std::env::current_exe().expect("a path");
    let mut command = unplug(&["--"]);
    command.arg(this).args(["--exact", test, "--nocapture"]).envs(variables.iter().copied());
    let output = command.output().expect("unplug starts");
    answer_of(&output).map(|(_, answer)| answer)
}

/// The program of the tests above: does nothing when it runs as a test. Each thread has folders of
/// its own, since the order between threads differs from one file system to the other.
#[test]
fn random_calls_in_the_recorded_directory() {
    let number = |name| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let Some(steps) = number(STEPS) else { return };
    let threads = number(THREADS).unwrap_or(1);
    let recorded = PathBuf::from(std::env::var("UNPLUG_DIR").expect("set by unplug"));
    let plain = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (recorded, plain) = (recorded.clone(), plain.path());
            scope.spawn(move || {
                let name = thread.to_string();
                let (recorded, plain) = (recorded.join(&name), plain.join(&name));
                fs::create_dir(&recorded).expect("is made");
                fs::create_dir(&plain).expect("is made");
                compare(&recorded, &plain, thread, steps / threads);
            });
        }
    });
}

fn compare(recorded: &Path, plain: &Path, seed: u64, steps: u64) {
    let mut rng = 0x1234_5678 + seed;
    let (mut on_plain, mut on_recorded) = (Caller::new(plain), Caller::new(recorded));
    for step in 0..steps {
        let call = Call::draw(&mut rng);
        let expected = on_plain.run(&call).map_err(|error| error.raw_os_error());
        let found = on_recorded.run(&call).map_err(|error| error.raw_os_error());
        assert_eq!(found, expected, "seed {seed}, step {step}: {call:?}");
        let different = difference(recorded, plain).expect("both are read");
        assert_eq!(different, None, "seed {seed}, after step {step}: {call:?}");
    }
}

/// The first path at which two directories differ.
fn difference(one: &Path, other: &Path) -> io::Result<Option<PathBuf>> {
    let names = names(one)?;
    if names != self::names(other)? {
        return Ok(Some(one.to_owned()));
    }
    for name in names {
        let (one, other) = (one.join(&name), other.join(&name));
        let (metadata, expected) = (fs::symlink_metadata(&one)?, fs::symlink_metadata(&other)?);
        let mut equal = metadata.file_type() == expected.file_type()
            && metadata.nlink() == expected.nlink()
            && metadata.mode() == expected.mode();
        if !equal {
            return Ok(Some(one));
        }
        if metadata.is_dir() {
            if let Some(different) = difference(&one, &other)? {
                return Ok(Some(different));
            }
        } else if metadata.is_symlink() {
            equal = fs::read_link(&one)? == fs::read_link(&other)?;
        } else {
            equal = metadata.len() == expected.len() && fs::read(&one)? == fs::read(&other)?;
        }
        if !equal {
            return Ok(Some(one));
        }
    }
    Ok(None)
}

fn names(dir: &Path) -> io::Result<Vec<std::ffi::OsString>> {
    let names: io::Result<Vec<_>> =
        fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.file_name())).collect();
    let mut names = names?;
    names.sort();
    Ok(names)
}

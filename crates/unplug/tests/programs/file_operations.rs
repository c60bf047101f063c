//! The mount behaves as an ordinary file system: random calls on it and on one in memory have the
//! same results and leave the same files.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FallocateFlags, RenameFlags, fallocate, renameat_with};

use crate::support::{answer_of, unplug};

const STEPS: &str = "UNPLUG_TEST_STEPS";

#[test]
fn random_calls_have_the_results_of_another_file_system() {
    let test = "file_operations::random_calls_in_the_recorded_directory";
    let this = std::env::current_exe().expect("a path");
    let mut command = unplug(&["--"]);
    command.arg(this).args(["--exact", test, "--nocapture"]).env(STEPS, "3000");
    let output = command.output().expect("unplug starts");
    let Some((_, answer)) = answer_of(&output) else { return };
    assert!(!answer.contains("the program failed"), "{answer}");
}

/// The program of the test above: does nothing when it runs as a test.
#[test]
fn random_calls_in_the_recorded_directory() {
    let Some(steps) = std::env::var(STEPS).ok().and_then(|steps| steps.parse::<u64>().ok()) else {
        return;
    };
    let recorded = PathBuf::from(std::env::var("UNPLUG_DIR").expect("set by unplug"));
    let plain = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    let mut rng = 0x1234_5678_u64;
    for step in 0..steps {
        let call = Call::draw(&mut rng);
        let expected = call.run(plain.path()).map_err(|error| error.raw_os_error());
        let found = call.run(&recorded).map_err(|error| error.raw_os_error());
        assert_eq!(found, expected, "step {step}: {call:?}");
        let (found, expected) = (listing(&recorded), listing(plain.path()));
        assert_eq!(found, expected, "after step {step}: {call:?}");
    }
}

#[derive(Debug)]
enum Call {
    Write { name: String, offset: u64, bytes: usize, byte: u8 },
    Resize { name: String, bytes: u64 },
    Allocate { name: String, mode: FallocateFlags, offset: u64, bytes: u64 },
    Mkdir(String),
    Symlink { target: String, name: String },
    Link { from: String, to: String },
    Unlink(String),
    Rmdir(String),
    Rename { from: String, to: String, flags: RenameFlags },
    Sync(String),
}

fn draw(rng: &mut u64, bound: u64) -> u64 {
    *rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*rng >> 33) % bound
}

fn name(rng: &mut u64) -> String {
    let names = ["a", "b", "c", "d", "d/a", "d/b", "e", "e/a", "d/e", "d/e/a"];
    names[draw(rng, names.len() as u64) as usize].to_owned()
}

impl Call {
    fn draw(rng: &mut u64) -> Self {
        let (offset, bytes) = (draw(rng, 200_000), 1 + draw(rng, 70_000));
        match draw(rng, 13) {
            0..=2 => {
                let byte = draw(rng, 256) as u8;
                Self::Write { name: name(rng), offset, bytes: bytes as usize, byte }
            }
            3 => Self::Resize { name: name(rng), bytes: offset },
            4 => {
                let keep = FallocateFlags::KEEP_SIZE;
                let modes = [FallocateFlags::empty(), keep, keep | FallocateFlags::PUNCH_HOLE];
                let mode = modes[draw(rng, 3) as usize];
                Self::Allocate { name: name(rng), mode, offset, bytes }
            }
            5 | 6 => Self::Mkdir(name(rng)),
            7 => Self::Symlink { target: name(rng), name: name(rng) },
            8 => Self::Link { from: name(rng), to: name(rng) },
            9 => Self::Unlink(name(rng)),
            10 => Self::Rmdir(name(rng)),
            11 => {
                let all = [RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE];
                let flags = all[draw(rng, 3) as usize];
                Self::Rename { from: name(rng), to: name(rng), flags }
            }
            _ => Self::Sync(name(rng)),
        }
    }

    fn run(&self, dir: &Path) -> io::Result<()> {
        let at = |name: &String| dir.join(name);
        match self {
            Self::Write { name, offset, bytes, byte } => {
                let file =
                    OpenOptions::new().write(true).create(true).truncate(false).open(at(name))?;
                file.write_all_at(&vec![*byte; *bytes], *offset)
            }
            Self::Resize { name, bytes } => {
                OpenOptions::new().write(true).open(at(name))?.set_len(*bytes)
            }
            Self::Allocate { name, mode, offset, bytes } => {
                let file = OpenOptions::new().write(true).open(at(name))?;
                Ok(fallocate(&file, *mode, *offset, *bytes)?)
            }
            Self::Mkdir(name) => fs::create_dir(at(name)),
            Self::Symlink { target, name } => symlink(target, at(name)),
            Self::Link { from, to } => fs::hard_link(at(from), at(to)),
            Self::Unlink(name) => fs::remove_file(at(name)),
            Self::Rmdir(name) => fs::remove_dir(at(name)),
            Self::Rename { from, to, flags } => {
                Ok(renameat_with(CWD, at(from), CWD, at(to), *flags)?)
            }
            Self::Sync(name) => File::open(at(name))?.sync_all(),
        }
    }
}

/// Each path with its type, size, links and bytes.
fn listing(dir: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("is listed") {
            let path = entry.expect("is listed").path();
            let metadata = fs::symlink_metadata(&path).expect("has metadata");
            let text = if metadata.is_dir() {
                folders.push(path.clone());
                format!("directory, {} links", metadata.nlink())
            } else if metadata.is_symlink() {
                format!("link to {}", fs::read_link(&path).expect("has a target").display())
            } else {
                let bytes = fs::read(&path).expect("is read");
                let sum = bytes
                    .iter()
                    .fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
                format!("{} bytes, sum {sum}, {} links", metadata.len(), metadata.nlink())
            };
            found.push((path.strip_prefix(dir).expect("is inside").to_owned(), text));
        }
    }
    found.sort();
    found
}

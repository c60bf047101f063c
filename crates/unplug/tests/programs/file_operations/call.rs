//! Random calls of a program: on paths, and on files that it keeps open.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FallocateFlags, OFlags, RenameFlags, fallocate, renameat_with};

const NAMES: [&str; 10] = ["a", "b", "c", "d", "d/a", "d/b", "e", "e/a", "d/e", "d/e/a"];
/// The files that are open at once.
const OPEN_FILES: u64 = 4;
const OFFSET_MAX: u64 = 100_000;
const BYTES_MAX: u64 = 16_000;

#[derive(Debug)]
pub enum Call {
    Write { name: String, offset: u64, bytes: usize, byte: u8, flags: OFlags },
    Append { name: String, bytes: usize, byte: u8 },
    Truncate { name: String, bytes: u64 },
    Allocate { name: String, mode: FallocateFlags, offset: u64, bytes: u64 },
    CopyRange { from: String, to: String, offset: u64, bytes: usize },
    SetMode { name: String, mode: u32 },
    Mkdir(String),
    Symlink { target: String, name: String },
    Link { from: String, to: String },
    Unlink(String),
    Rmdir(String),
    Rename { from: String, to: String, flags: RenameFlags },
    Sync { name: String, data_only: bool },
    Open { number: usize, name: String },
    WriteOpen { number: usize, offset: u64, bytes: usize, byte: u8 },
    ReadOpen { number: usize, offset: u64, bytes: usize },
    TruncateOpen { number: usize, bytes: u64 },
    Close { number: usize },
}

/// Makes the calls in a directory.
pub struct Caller {
    dir: PathBuf,
    /// May have no name any more.
    open: [Option<File>; OPEN_FILES as usize],
}

fn draw(rng: &mut u64, bound: u64) -> u64 {
    *rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*rng >> 33) % bound
}

fn name(rng: &mut u64) -> String {
    NAMES[draw(rng, NAMES.len() as u64) as usize].to_owned()
}

impl Call {
    pub fn draw(rng: &mut u64) -> Self {
        match draw(rng, 20) {
            14.. => Self::draw_on_open_file(rng),
            6.. => Self::draw_on_names(rng),
            _ => Self::draw_on_data(rng),
        }
    }

    fn draw_on_data(rng: &mut u64) -> Self {
        let (name, offset) = (name(rng), draw(rng, OFFSET_MAX));
        let (bytes, byte) = (1 + draw(rng, BYTES_MAX), draw(rng, 256) as u8);
        match draw(rng, 9) {
            0..=2 => {
                let flags = [OFlags::empty(), OFlags::empty(), OFlags::DSYNC, OFlags::SYNC];
                let flags = flags[draw(rng, 4) as usize];
                Self::Write { name, offset, bytes: bytes as usize, byte, flags }
            }
            3 => Self::Append { name, bytes: bytes as usize, byte },
            4 => Self::Truncate { name, bytes: offset },
            5 | 6 => {
                let keep = FallocateFlags::KEEP_SIZE;
                let (hole, zero) = (FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE);
                // A file system in memory has no ZERO_RANGE; with PUNCH_HOLE all refuse it.
                let modes = [FallocateFlags::empty(), keep, keep | hole, keep | hole, zero | hole];
                let mode = modes[draw(rng, 5) as usize];
                Self::Allocate { name, mode, offset, bytes }
            }
            7 => Self::CopyRange { from: name, to: self::name(rng), offset, bytes: bytes as usize },
            _ => Self::Sync { name, data_only: draw(rng, 2) == 0 },
        }
    }

    fn draw_on_names(rng: &mut u64) -> Self {
        match draw(rng, 9) {
            0 | 1 => Self::Mkdir(name(rng)),
            2 => Self::Symlink { target: name(rng), name: name(rng) },
            3 => Self::Link { from: name(rng), to: name(rng) },
            4 => Self::Unlink(name(rng)),
            5 => Self::Rmdir(name(rng)),
            6 => Self::SetMode { name: name(rng), mode: 0o700 + draw(rng, 0o100) as u32 },
            _ => {
                let all = [RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE];
                let flags = all[draw(rng, 3) as usize];
                Self::Rename { from: name(rng), to: name(rng), flags }
            }
        }
    }

    fn draw_on_open_file(rng: &mut u64) -> Self {
        let number = draw(rng, OPEN_FILES) as usize;
        let (offset, bytes) = (draw(rng, OFFSET_MAX), 1 + draw(rng, BYTES_MAX));
        match draw(rng, 8) {
            0 | 1 => Self::Open { number, name: name(rng) },
            2 | 3 => {
                let byte = draw(rng, 256) as u8;
                Self::WriteOpen { number, offset, bytes: bytes as usize, byte }
            }
            4 | 5 => Self::ReadOpen { number, offset, bytes: bytes as usize },
            6 => Self::TruncateOpen { number, bytes: offset },
            _ => Self::Close { number },
        }
    }
}

impl Caller {
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), open: Default::default() }
    }

    /// Makes a call; what it read.
    pub fn run(&mut self, call: &Call) -> io::Result<Vec<u8>> {
        match call {
            Call::Open { number, name } => {
                let mut options = OpenOptions::new();
                options.read(true).write(true).create(true).truncate(false);
                self.open[*number] = Some(options.open(self.dir.join(name))?);
            }
            Call::WriteOpen { number, offset, bytes, byte } => {
                self.file(*number)?.write_all_at(&vec![*byte; *bytes], *offset)?;
            }
            Call::ReadOpen { number, offset, bytes } => {
                let mut read = vec![0; *bytes];
                let length = self.file(*number)?.read_at(&mut read, *offset)?;
                read.truncate(length);
                return Ok(read);
            }
            Call::TruncateOpen { number, bytes } => self.file(*number)?.set_len(*bytes)?,
            Call::Close { number } => self.open[*number] = None,
            call => self.run_on_paths(call)?,
        }
        Ok(Vec::new())
    }

    fn file(&self, number: usize) -> io::Result<&File> {
        self.open[number].as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn run_on_paths(&self, call: &Call) -> io::Result<()> {
        let at = |name: &String| self.dir.join(name);
        let write = |name| OpenOptions::new().write(true).open(at(name));
        match call {
            Call::Write { name, offset, bytes, byte, flags } => {
                let mut options = OpenOptions::new();
                options.write(true).create(true).truncate(false);
                let file = options.custom_flags(flags.bits().cast_signed()).open(at(name))?;
                file.write_all_at(&vec![*byte; *bytes], *offset)
            }
            Call::Append { name, bytes, byte } => {
                let mut file = OpenOptions::new().append(true).create(true).open(at(name))?;
                io::Write::write_all(&mut file, &vec![*byte; *bytes])
            }
            Call::Truncate { name, bytes } => write(name)?.set_len(*bytes),
            Call::Allocate { name, mode, offset, bytes } => {
                Ok(fallocate(write(name)?, *mode, *offset, *bytes)?)
            }
            Call::CopyRange { from, to, offset, bytes } => {
                copy_range(&File::open(at(from))?, &write(to)?, *offset, *bytes)
            }
            Call::SetMode { name, mode } => {
                fs::set_permissions(at(name), fs::Permissions::from_mode(*mode))
            }
            Call::Mkdir(name) => fs::create_dir(at(name)),
            Call::Symlink { target, name } => symlink(target, at(name)),
            Call::Link { from, to } => fs::hard_link(at(from), at(to)),
            Call::Unlink(name) => fs::remove_file(at(name)),
            Call::Rmdir(name) => fs::remove_dir(at(name)),
            Call::Rename { from, to, flags } => {
                Ok(renameat_with(CWD, at(from), CWD, at(to), *flags)?)
            }
            Call::Sync { name, data_only: true } => File::open(at(name))?.sync_data(),
            Call::Sync { name, data_only: false } => File::open(at(name))?.sync_all(),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Copies from the start of a file: all that it has, whatever one call copies.
fn copy_range(from: &File, to: &File, offset: u64, bytes: usize) -> io::Result<()> {
    let (mut from_offset, mut to_offset) = (0, offset);
    while from_offset < bytes as u64 {
        let left = bytes - from_offset as usize;
        let positions = (Some(&mut from_offset), Some(&mut to_offset));
        if rustix::fs::copy_file_range(from, positions.0, to, positions.1, left)? == 0 {
            break;
        }
    }
    Ok(())
}

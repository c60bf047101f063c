//! Ways to harm the files of a log.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use esker_disk::sim::SimDisk;
use esker_disk::{Disk, OpenMode};

use super::sample::Sample;

/// Bytes of one file that are not what they were.
#[derive(Debug, Clone)]
pub struct Edit {
    pub file: PathBuf,
    /// Everything in here may have changed.
    pub at: Range<u64>,
    what: String,
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.file.file_name().unwrap_or_default().to_string_lossy();
        write!(f, "{} of {name}", self.what)
    }
}

/// A copy of the sample in which one bit is another.
pub fn flip(sample: &Sample, file: &Path, byte: u64, bit: u64) -> (SimDisk, Edit) {
    let disk = sample.disk.fork(byte);
    disk.flip_bit(file, byte * 8 + bit).unwrap();
    let edit =
        Edit { file: file.into(), at: byte..byte + 1, what: format!("bit {bit} of byte {byte}") };
    (disk, edit)
}

/// A copy in which a file ends early.
pub fn cut(sample: &Sample, file: &Path, len: u64) -> (SimDisk, Edit) {
    let disk = sample.disk.fork(len);
    disk.truncate(file, len).unwrap();
    (
        disk,
        Edit { file: file.into(), at: len..u64::MAX, what: format!("everything from byte {len}") },
    )
}

/// A copy in which bytes of a file are others, or follow its end.
pub fn overwrite(sample: &Sample, file: &Path, at: u64, bytes: &[u8]) -> (SimDisk, Edit) {
    let disk = sample.disk.fork(at);
    disk.overwrite(file, at, bytes).unwrap();
    let end = at + bytes.len() as u64;
    (disk, Edit { file: file.into(), at: at..end, what: format!("bytes {at}..{end}") })
}

/// A copy in which a file is missing.
pub fn delete(sample: &Sample, file: &Path) -> (SimDisk, Edit) {
    let disk = sample.disk.fork(1);
    unlink(&disk, file);
    (disk, Edit { file: file.into(), at: 0..u64::MAX, what: "all".into() })
}

/// A copy in which a file holds something else.
pub fn replace(sample: &Sample, file: &Path, content: &[u8]) -> (SimDisk, Edit) {
    let disk = sample.disk.fork(2);
    put(&disk, file, content);
    (disk, Edit { file: file.into(), at: 0..u64::MAX, what: "another content".into() })
}

/// Removes a file.
pub fn unlink(disk: &SimDisk, file: &Path) {
    let dir = disk.open_dir(file.parent().unwrap()).unwrap();
    dir.unlink(file.file_name().unwrap().to_str().unwrap()).unwrap();
}

/// Makes the whole file hold this, durably.
pub fn put(disk: &SimDisk, file: &Path, content: &[u8]) {
    let dir = disk.open_dir(file.parent().unwrap()).unwrap();
    drop(dir.open(file.file_name().unwrap().to_str().unwrap(), OpenMode::create()).unwrap());
    disk.truncate(file, 0).unwrap();
    disk.overwrite(file, 0, content).unwrap();
    dir.sync().unwrap();
}

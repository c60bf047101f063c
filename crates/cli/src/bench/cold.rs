//! Making reads cold: the disk is what shall be measured, not what the system remembers of it.

use std::fs::File;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

/// Asks the system to forget the pages of every file in the directory; whether it took the advice.
pub fn forget_pages(dir: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else { return false };
    entries.flatten().all(|entry| match File::open(entry.path()) {
        Ok(file) => fadvise(&file, 0, None, Advice::DontNeed).is_ok(),
        Err(_) => false,
    })
}

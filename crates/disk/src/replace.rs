//! Replacing a file that other programs read, too.
//!
//! Such a file has a format of its own, and so no checksum of ours. It is replaced as a whole, so
//! that a crash leaves the old one or the new one, and never a part.

use std::io;

use crate::dir::Dir;
use crate::error::Result;
use crate::file::OpenMode;
use crate::io::write_all_at;

/// Replaces the file `name`, or creates it, readable and writable by its owner only. `name` with
/// `.new` at its end is used on the way.
///
/// # Durability
/// Durable when this returns. After a crash the file is the old one or the new one.
///
/// # Errors
/// The error of the first call that fails. The file is the old one or the new one, and which of
/// them survives a crash is unknown.
pub fn replace_file(dir: &dyn Dir, name: &str, bytes: &[u8]) -> Result<()> {
    let new = format!("{name}.new");
    // What an interrupted call left may be longer, or readable by others.
    match dir.unlink(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = dir.open(&new, OpenMode::create_new())?;
    write_all_at(&*file, bytes, 0)?;
    file.sync_data()?;
    dir.rename(&new, name)?;
    dir.sync()
}

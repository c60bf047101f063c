//! Reading a file with secrets.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;

/// The longest file.
const SECRET_FILE_BYTES_MAX: u64 = 64 << 10;

/// Reads a file of tokens that only its owner may read, or only the group of a file that belongs to
/// root: as a secret that is mounted in a container. Opening a FIFO waits for its writer.
///
/// # Errors
/// If the file cannot be read, others may read or change it, or it is no text of at most 64 KiB.
pub fn read_secret_file(path: &Path) -> io::Result<String> {
    let (file, mut text) = (File::open(path)?, String::new());
    // Of the open file: another one may be at the path by now.
    let found = file.metadata()?;
    if !is_secret(found.mode(), found.uid(), geteuid().as_raw()) {
        let mode = found.mode() & 0o777;
        let why = format!("others may read or change it (mode {mode:04o}): run chmod 600");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    file.take(SECRET_FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    match text.len() as u64 > SECRET_FILE_BYTES_MAX {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, "it has more than 64 KiB")),
        false => Ok(text),
    }
}

/// Whether a file with this mode and owner is secret, as far as the reader can know.
fn is_secret(mode: u32, owner: u32, reader: u32) -> bool {
    let is_of_root = owner == 0 && reader != 0;
    let refused = if is_of_root { 0o037 } else { 0o077 };
    mode & refused == 0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;

    #[test]
    fn only_the_owner_or_the_group_of_roots_file_may_read() {
        for (mode, owner, reader, expected) in [
            (0o600, 7, 7, true),
            (0o400, 7, 7, true),
            (0o600, 0, 0, true),
            (0o640, 0, 7, true),
            (0o440, 0, 7, true),
            (0o640, 7, 7, false),
            (0o440, 7, 7, false),
            (0o640, 0, 0, false),
            (0o640, 8, 7, false),
            (0o660, 0, 7, false),
            (0o644, 0, 7, false),
            (0o604, 7, 7, false),
            (0o620, 7, 7, false),
            (0o601, 7, 7, false),
        ] {
            let file_type = 0o100_000;
            assert_eq!(is_secret(file_type | mode, owner, reader), expected, "{mode:o} {owner}");
        }
    }

    /// The mode was that of the file at the path, after another one was read.
    #[test]
    fn mode_is_that_of_the_file_that_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let [secret, open, link, next] =
            ["secret", "open", "link", "next"].map(|name| dir.path().join(name));
        for (file, mode) in [(&secret, 0o600), (&open, 0o644)] {
            fs::write(file, file.file_name().unwrap().as_encoded_bytes()).unwrap();
            fs::set_permissions(file, Permissions::from_mode(mode)).unwrap();
        }
        symlink(&secret, &link).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for file in [&open, &secret].into_iter().cycle() {
                    symlink(file, &next).unwrap();
                    fs::rename(&next, &link).unwrap();
                    if is_over.load(Relaxed) {
                        return;
                    }
                }
            });
            let read = (0..20_000).filter_map(|_| read_secret_file(&link).ok());
            let wrong = read.filter(|text| text != "secret").count();
            is_over.store(true, Relaxed);
            assert_eq!(wrong, 0);
        });
    }
}

//! Extended attributes, owners, names that exist, and the space of the file system.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, XattrFlags, renameat_with};
use rustix::io::Errno;

use super::run_recorded;

const RUN: &str = "UNPLUG_TEST_ATTRIBUTES";

#[test]
fn attributes_and_flags_are_those_of_an_ordinary_file_system() {
    let test = "file_operations::attributes::attributes_in_the_recorded_directory";
    let Some(answer) = run_recorded(test, &[(RUN, "1")]) else { return };
    assert!(!answer.contains("the program failed"), "{answer}");
}

/// The program of the test above: does nothing when it runs as a test.
#[test]
fn attributes_in_the_recorded_directory() {
    if std::env::var_os(RUN).is_none() {
        return;
    }
    let dir = std::env::var("UNPLUG_DIR").expect("set by unplug");
    let dir = Path::new(&dir);
    fs::write(dir.join("a"), "a").expect("is written");
    fs::write(dir.join("b"), "b").expect("is written");
    keeps_extended_attributes(&dir.join("a")).expect("extended attributes");
    keeps_owners(&dir.join("a")).expect("owners");
    renames_by_flags(dir).expect("renames");
    let space = rustix::fs::statvfs(dir).expect("has space");
    assert!(space.f_bavail > 0 && space.f_favail > 0);
    assert_eq!(space.f_namemax, 255);
}

fn keeps_extended_attributes(path: &Path) -> io::Result<()> {
    use rustix::fs::{getxattr, listxattr, removexattr, setxattr};
    let get = |name: &str| {
        let mut value = [0; 100];
        getxattr(path, name, &mut value).map(|length| value[..length].to_vec())
    };
    assert_eq!(get("user.one"), Err(Errno::NODATA));
    setxattr(path, "user.one", b"1", XattrFlags::empty())?;
    setxattr(path, "user.two", b"", XattrFlags::CREATE)?;
    assert_eq!(setxattr(path, "user.two", b"2", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(setxattr(path, "user.three", b"3", XattrFlags::REPLACE), Err(Errno::NODATA));
    setxattr(path, "user.two", b"22", XattrFlags::REPLACE)?;
    assert_eq!((get("user.one"), get("user.two")), (Ok(b"1".to_vec()), Ok(b"22".to_vec())));
    assert_eq!(getxattr(path, "user.two", &mut [0; 1]), Err(Errno::RANGE));
    assert_eq!(rustix::fs::getxattr_query(path, "user.two")?, 2);
    let mut names = [0; 100];
    let length = listxattr(path, &mut names)?;
    assert_eq!(String::from_utf8_lossy(&names[..length]), "user.one\0user.two\0");
    removexattr(path, "user.one")?;
    assert_eq!(removexattr(path, "user.one"), Err(Errno::NODATA));
    assert_eq!((get("user.one"), get("user.two")), (Err(Errno::NODATA), Ok(b"22".to_vec())));
    let list = setxattr(path, "system.posix_acl_access", b"x", XattrFlags::empty());
    assert!(list.is_err());
    Ok(())
}

/// Another user may be one only where this one is root.
fn keeps_owners(path: &Path) -> io::Result<()> {
    let own = fs::metadata(path)?;
    let is_root =
        own.uid() == 0 && fs::read_to_string("/proc/self/uid_map")?.contains("4294967295");
    let (uid, gid) = if is_root { (1234, 5678) } else { (own.uid(), own.gid()) };
    chown(path, Some(uid), Some(gid))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o640))?;
    File::open(path)?.sync_all()?;
    let found = fs::metadata(path)?;
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (uid, gid, 0o640));
    Ok(())
}

fn renames_by_flags(dir: &Path) -> io::Result<()> {
    let rename =
        |from: &str, to: &str, flags| renameat_with(CWD, dir.join(from), CWD, dir.join(to), flags);
    assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    assert_eq!(rename("a", "c", RenameFlags::EXCHANGE), Err(Errno::NOENT));
    rename("a", "b", RenameFlags::EXCHANGE)?;
    assert_eq!(fs::read(dir.join("a"))?, b"b");
    assert_eq!(fs::read(dir.join("b"))?, b"a");
    rename("a", "c", RenameFlags::NOREPLACE)?;
    assert_eq!(fs::read(dir.join("c"))?, b"b");
    assert!(!dir.join("a").exists());
    Ok(())
}

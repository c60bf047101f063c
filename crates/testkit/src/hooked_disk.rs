//! A disk that forwards every call to another disk, with a hook around the call.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use esker_disk::{Dir, Disk, Error, Facts, File, Lock, Op, OpenMode, Result};

/// A call, as a [`Hook`] sees it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Call<'a> {
    /// The operation. [`Op::Size`] is a change of a file's size; asking for it has no hook.
    pub op: Op,
    /// The file or directory; of a rename the old name, of an exchange the first.
    pub path: &'a Path,
    /// The new name of a rename, or the second of an exchange.
    pub other: Option<&'a Path>,
    /// The offset of a read, a write or a reservation.
    pub offset: u64,
    /// The size that a file gets; `None` for a reservation.
    pub new_len: Option<u64>,
    /// The bytes to write.
    pub bytes: &'a [u8],
    /// How the file is opened, or was.
    pub how: Option<OpenMode>,
}

/// A hook around each call.
///
/// A function of the call is a hook: it runs before the call.
pub trait Hook: Send + Sync {
    /// Runs before the call is forwarded. It may block or panic.
    ///
    /// # Errors
    /// The call fails with this error, and is not forwarded.
    fn before(&self, call: &Call<'_>) -> Result<()> {
        let _ = call;
        Ok(())
    }

    /// Runs after a forwarded call. `outcome` has the number of bytes that were read or written,
    /// and 0 for other operations.
    fn after(&self, call: &Call<'_>, outcome: std::result::Result<usize, &Error>) {
        let _ = (call, outcome);
    }
}

impl<F: Fn(&Call<'_>) -> Result<()> + Send + Sync> Hook for F {
    fn before(&self, call: &Call<'_>) -> Result<()> {
        self(call)
    }
}

/// A disk with a hook. Directories and files that are opened through it have the hook, too.
#[derive(Clone)]
pub struct HookedDisk {
    disk: Arc<dyn Disk>,
    hook: Arc<dyn Hook>,
}

struct HookedDir {
    dir: Arc<dyn Dir>,
    hook: Arc<dyn Hook>,
}

struct HookedFile {
    file: Arc<dyn File>,
    how: OpenMode,
    hook: Arc<dyn Hook>,
}

impl HookedDisk {
    /// Puts a hook around the calls to `disk`.
    pub fn new(disk: Arc<dyn Disk>, hook: impl Hook + 'static) -> Self {
        Self { disk, hook: Arc::new(hook) }
    }
}

fn call(op: Op, path: &Path) -> Call<'_> {
    Call { op, path, other: None, offset: 0, new_len: None, bytes: &[], how: None }
}

/// Forwards a call between the two parts of its hook.
fn forward<T>(
    hook: &dyn Hook,
    call: Call<'_>,
    run: impl FnOnce() -> Result<T>,
    count: impl FnOnce(&T) -> usize,
) -> Result<T> {
    hook.before(&call)?;
    let outcome = run();
    hook.after(&call, outcome.as_ref().map(count));
    outcome
}

fn nothing<T>(_: &T) -> usize {
    0
}

fn hooked(dir: Arc<dyn Dir>, hook: &Arc<dyn Hook>) -> Arc<dyn Dir> {
    Arc::new(HookedDir { dir, hook: Arc::clone(hook) })
}

impl Disk for HookedDisk {
    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Dir>> {
        let run = || self.disk.open_dir(path);
        Ok(hooked(forward(&*self.hook, call(Op::OpenDir, path), run, nothing)?, &self.hook))
    }

    fn create_dir(&self, path: &Path) -> Result<Arc<dyn Dir>> {
        let run = || self.disk.create_dir(path);
        Ok(hooked(forward(&*self.hook, call(Op::CreateDir, path), run, nothing)?, &self.hook))
    }
}

impl HookedDir {
    fn forward<T>(&self, call: Call<'_>, run: impl FnOnce(&dyn Dir) -> Result<T>) -> Result<T> {
        forward(&*self.hook, call, || run(&*self.dir), nothing)
    }
}

impl Dir for HookedDir {
    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn open(&self, name: &str, how: OpenMode) -> Result<Arc<dyn File>> {
        let path = self.path_of(name);
        let call = Call { how: Some(how), ..call(Op::Open, &path) };
        let file = self.forward(call, |dir| dir.open(name, how))?;
        Ok(Arc::new(HookedFile { file, how, hook: Arc::clone(&self.hook) }))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (path, other) = (self.path_of(from), self.path_of(to));
        let call = Call { other: Some(&other), ..call(Op::Rename, &path) };
        self.forward(call, |dir| dir.rename(from, to))
    }

    fn exchange(&self, a: &str, b: &str) -> Result<()> {
        let (path, other) = (self.path_of(a), self.path_of(b));
        let call = Call { other: Some(&other), ..call(Op::Exchange, &path) };
        self.forward(call, |dir| dir.exchange(a, b))
    }

    fn unlink(&self, name: &str) -> Result<()> {
        self.forward(call(Op::Unlink, &self.path_of(name)), |dir| dir.unlink(name))
    }

    fn remove_dir(&self, name: &str) -> Result<()> {
        self.forward(call(Op::Unlink, &self.path_of(name)), |dir| dir.remove_dir(name))
    }

    fn sync(&self) -> Result<()> {
        self.forward(call(Op::SyncDir, self.path()), |dir| dir.sync())
    }

    fn list(&self) -> Result<Vec<String>> {
        self.forward(call(Op::List, self.path()), |dir| dir.list())
    }

    fn open_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        let dir = self.forward(call(Op::OpenDir, &self.path_of(name)), |dir| dir.open_dir(name))?;
        Ok(hooked(dir, &self.hook))
    }

    fn create_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        let path = self.path_of(name);
        let dir = self.forward(call(Op::CreateDir, &path), |dir| dir.create_dir(name))?;
        Ok(hooked(dir, &self.hook))
    }

    fn readable_as(&self, name: &str) -> Result<()> {
        self.dir.readable_as(name)
    }

    fn lock(&self) -> Result<Box<dyn Lock>> {
        self.forward(call(Op::Lock, self.path()), |dir| dir.lock())
    }

    fn facts(&self) -> Result<Facts> {
        self.dir.facts()
    }
}

impl HookedFile {
    fn call(&self, op: Op, offset: u64) -> Call<'_> {
        Call { offset, how: Some(self.how), ..call(op, self.path()) }
    }

    fn forward(&self, call: Call<'_>, run: impl FnOnce(&dyn File) -> Result<()>) -> Result<()> {
        forward(&*self.hook, call, || run(&*self.file), nothing)
    }
}

impl File for HookedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let run = || self.file.read_at(buf, offset);
        forward(&*self.hook, self.call(Op::Read, offset), run, |read| *read)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        let call = Call { bytes: buf, ..self.call(Op::Write, offset) };
        forward(&*self.hook, call, || self.file.write_at(buf, offset), |written| *written)
    }

    fn sync_data(&self) -> Result<()> {
        self.forward(self.call(Op::Sync, 0), |file| file.sync_data())
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let call = Call { new_len: Some(len), ..self.call(Op::Size, 0) };
        self.forward(call, |file| file.set_len(len))
    }

    fn preallocate(&self, offset: u64, len: u64) -> Result<()> {
        self.forward(self.call(Op::Size, offset), |file| file.preallocate(offset, len))
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }
}

impl fmt::Debug for HookedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HookedDisk").field(&self.disk).finish()
    }
}

impl fmt::Debug for HookedDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HookedDir").field(&self.dir).finish()
    }
}

impl fmt::Debug for HookedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HookedFile").field(&self.file).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use esker_disk::sim::SimDisk;

    use super::*;

    #[derive(Clone, Default)]
    struct Calls(Arc<Mutex<Vec<(Op, bool)>>>);

    impl Hook for Calls {
        fn before(&self, call: &Call<'_>) -> Result<()> {
            if call.op == Op::Sync {
                return Err(Error::new(Op::Sync, call.path, None, io::Error::other("refused")));
            }
            Ok(())
        }

        fn after(&self, call: &Call<'_>, outcome: std::result::Result<usize, &Error>) {
            let written = call.bytes.len() == *outcome.as_ref().unwrap_or(&0);
            self.0
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .push((call.op, outcome.is_ok() && written));
        }
    }

    #[test]
    fn calls_are_forwarded_and_seen_and_may_be_refused() -> Result<()> {
        let (disk, calls) = (SimDisk::new(1), Calls::default());
        let hooked = HookedDisk::new(Arc::new(disk.clone()), calls.clone());
        let dir = hooked.create_dir(Path::new("/dir"))?.create_dir("inner")?;
        let file = dir.open("file", OpenMode::create())?;
        assert_eq!(file.write_at(b"bytes", 3)?, 5);
        assert!(file.sync_data().is_err_and(|error| error.op() == Op::Sync));
        assert!(dir.rename("none", "other").is_err());
        assert_eq!(disk.contents(Path::new("/dir/inner/file"))?, b"\0\0\0bytes");
        let calls = calls.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let made = (Op::CreateDir, true);
        let renamed = (Op::Rename, false);
        assert_eq!(*calls, [made, made, (Op::Open, true), (Op::Write, true), renamed]);
        Ok(())
    }
}

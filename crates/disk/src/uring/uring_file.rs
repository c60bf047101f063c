//! An open file whose reads, writes and syncs go through a ring.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::pool::Pool;
use crate::aligned::check_direct;
use crate::error::{Error, Op, Result};
use crate::file::File;
use crate::process::refuse_if_forked;
use crate::std_disk::StdFile;

#[derive(Debug)]
pub(super) struct UringFile {
    file: StdFile,
    pool: Arc<Pool>,
}

impl UringFile {
    pub(super) fn new(file: StdFile, pool: Arc<Pool>) -> Self {
        Self { file, pool }
    }

    fn failed(&self, op: Op, offset: Option<u64>, source: io::Error) -> Error {
        Error::new(op, self.file.path(), offset, source)
    }
}

impl File for UringFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        refuse_if_forked(Op::Read, self.file.path())?;
        if self.file.is_direct() {
            check_direct(Op::Read, self.file.path(), buf, offset)?;
        }
        match self.pool.with(|ring| ring.read_at(self.file.fd(), buf, offset)) {
            Some(got) => got.map_err(|why| self.failed(Op::Read, Some(offset), why)),
            None => self.file.read_at(buf, offset),
        }
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        refuse_if_forked(Op::Write, self.file.path())?;
        if self.file.is_direct() {
            check_direct(Op::Write, self.file.path(), buf, offset)?;
        }
        match self.pool.with(|ring| ring.write_at(self.file.fd(), buf, offset)) {
            Some(put) => put.map_err(|why| self.failed(Op::Write, Some(offset), why)),
            None => self.file.write_at(buf, offset),
        }
    }

    fn sync_data(&self) -> Result<()> {
        refuse_if_forked(Op::Sync, self.file.path())?;
        match self.pool.with(|ring| ring.sync_data(self.file.fd())) {
            Some(synced) => synced.map_err(|why| self.failed(Op::Sync, None, why)),
            None => self.file.sync_data(),
        }
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len)
    }

    fn preallocate(&self, offset: u64, len: u64) -> Result<()> {
        self.file.preallocate(offset, len)
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::file::OpenMode;
    use crate::io::{read_full_at, write_all_at};
    use crate::std_disk::StdDisk;
    use crate::uring::RINGS_MAX;
    use crate::uring::faults::Faults;
    use crate::uring::ring::Ring;

    /// Runs `then` while `lent` rings are lent out.
    fn without_rings(pool: &Pool, lent: usize, then: &mut dyn FnMut()) {
        if lent == 0 {
            assert!(pool.with(|_: &mut Ring| Ok(())).is_none(), "a ring is left");
            return then();
        }
        let outcome = pool.with(|_| {
            without_rings(pool, lent - 1, then);
            Ok(())
        });
        outcome.unwrap().unwrap();
    }

    #[test]
    fn without_a_free_ring_the_work_is_done_all_the_same() {
        let Ok(pool) = Pool::new(2, Faults::default()) else {
            println!("skipped, there is no io_uring here");
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        let dir = StdDisk::new().open_std_dir(dir.path()).unwrap();
        let file = dir.open_file("file", OpenMode::create()).unwrap();
        let file = UringFile::new(file, Arc::new(pool));
        without_rings(&file.pool, RINGS_MAX, &mut || {
            write_all_at(&file, b"durable", 0).unwrap();
            file.sync_data().unwrap();
            let mut back = [0; 7];
            assert_eq!(read_full_at(&file, &mut back, 0).unwrap(), 7);
            assert_eq!(&back, b"durable");
        });
        // All rings are available again.
        assert!(file.pool.with(|ring| ring.sync_data(file.file.fd())).is_some());
    }

    #[test]
    fn a_full_device_says_so() {
        let Ok(pool) = Pool::new(2, Faults::default()) else {
            println!("skipped, there is no io_uring here");
            return;
        };
        let path = std::path::PathBuf::from("/dev/full");
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
        let fd = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).unwrap();
        let file = StdFile::new(fd, path, OpenMode::write());
        let file = UringFile::new(file, Arc::new(pool));
        let error = file.write_at(&crate::aligned::AlignedBuf::new(1 << 20), 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}

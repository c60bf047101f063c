//! An open file whose reads, writes and syncs go through a ring.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::pool::Pool;
use crate::aligned::check_direct;
use crate::std_disk::StdFile;
use crate::{Error, File, Op, Result};

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
        if self.file.is_direct() {
            check_direct(Op::Read, self.file.path(), buf, offset)?;
        }
        match self.pool.with(|ring| ring.read_at(self.file.fd(), buf, offset)) {
            Some(got) => got.map_err(|why| self.failed(Op::Read, Some(offset), why)),
            None => self.file.read_at(buf, offset),
        }
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        if self.file.is_direct() {
            check_direct(Op::Write, self.file.path(), buf, offset)?;
        }
        match self.pool.with(|ring| ring.write_at(self.file.fd(), buf, offset)) {
            Some(put) => put.map_err(|why| self.failed(Op::Write, Some(offset), why)),
            None => self.file.write_at(buf, offset),
        }
    }

    fn sync_data(&self) -> Result<()> {
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

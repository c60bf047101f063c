//! A program without a log: frames in one file, a write and an fdatasync for each, behind a mutex.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, PoisonError};

use anyhow::{Result, ensure};
use crc_fast::{CrcAlgorithm, checksum};

use crate::callers::Records;
use crate::job::Job;
use crate::peer::{Caller, Log, Peer, RecordVisitor, Tail};

const BUFFER_BYTES: usize = 1 << 20;

pub const PEER: Peer = Peer {
    package: "crc-fast",
    note: "write and fdatasync for each record on one growing file, behind a mutex; length and CRC-32C \
           before each record",
    pipelining: "a buffer of 1 MiB, one fdatasync at the end",
    open,
    read_all,
};

struct Plain {
    file: Mutex<File>,
    path: PathBuf,
    durable: Mutex<u64>,
    grown: Condvar,
}

fn path(job: &Job) -> PathBuf {
    job.log().join("plain")
}

fn open(job: &Job) -> Result<Box<dyn Log>> {
    std::fs::create_dir_all(job.log())?;
    let file = File::create_new(path(job))?;
    File::open(job.log())?.sync_all()?;
    Ok(Box::new(Plain {
        file: Mutex::new(file),
        path: path(job),
        durable: Mutex::new(0),
        grown: Condvar::new(),
    }))
}

fn put_frame(frames: &mut Vec<u8>, record: &[u8]) {
    let sum = checksum(CrcAlgorithm::Crc32Iscsi, record) as u32;
    frames.extend_from_slice(&(record.len() as u32).to_le_bytes());
    frames.extend_from_slice(&sum.to_le_bytes());
    frames.extend_from_slice(record);
}

/// Reads one frame; false at the end.
fn read_frame(from: &mut impl Read, record: &mut Vec<u8>) -> Result<bool> {
    let mut head = [0; 8];
    match from.read_exact(&mut head) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
        read => read?,
    }
    let [a, b, c, d, sum @ ..] = head;
    record.resize(u32::from_le_bytes([a, b, c, d]) as usize, 0);
    from.read_exact(record)?;
    let found = checksum(CrcAlgorithm::Crc32Iscsi, record) as u32;
    ensure!(found == u32::from_le_bytes(sum), "the checksum of a frame does not match");
    Ok(true)
}

impl Plain {
    fn write(&self, frames: &[u8], sync: bool) -> Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(frames)?;
        if sync {
            file.sync_data()?;
        }
        Ok(())
    }
}

impl Log for Plain {
    fn caller(&self, _writer: u32) -> Result<Box<dyn Caller + '_>> {
        Ok(Box::new(Framing { log: self, frame: Vec::new() }))
    }

    fn pipeline(&self, records: &mut Records<'_>) -> Result<()> {
        let mut frames = Vec::with_capacity(2 * BUFFER_BYTES);
        while let Some(record) = records.next() {
            put_frame(&mut frames, record);
            if frames.len() >= BUFFER_BYTES {
                self.write(&frames, false)?;
                frames.clear();
            }
        }
        self.write(&frames, true)
    }

    fn append_batch(&self, records: &[&[u8]]) -> Result<()> {
        let mut frames = Vec::with_capacity(4 * BUFFER_BYTES);
        for record in records {
            put_frame(&mut frames, record);
        }
        self.write(&frames, true)?;
        *self.durable.lock().unwrap_or_else(PoisonError::into_inner) += frames.len() as u64;
        self.grown.notify_all();
        Ok(())
    }

    fn tail(&self) -> Result<Box<dyn Tail + '_>> {
        let durable = Durable { log: self, file: File::open(&self.path)?, at: 0 };
        let reader = BufReader::with_capacity(BUFFER_BYTES, durable);
        Ok(Box::new(Frames { reader, record: Vec::new() }))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct Framing<'a> {
    log: &'a Plain,
    frame: Vec<u8>,
}

impl Caller for Framing<'_> {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        self.frame.clear();
        put_frame(&mut self.frame, record);
        self.log.write(&self.frame, true)
    }
}

/// The durable bytes of the file; reading waits for more. They end where a frame ends.
struct Durable<'a> {
    log: &'a Plain,
    file: File,
    at: u64,
}

impl Read for Durable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut durable = self.log.durable.lock().unwrap_or_else(PoisonError::into_inner);
        while *durable == self.at {
            durable = self.log.grown.wait(durable).unwrap_or_else(PoisonError::into_inner);
        }
        let room = buffer.len().min((*durable - self.at) as usize);
        drop(durable);
        let read = self.file.read_at(&mut buffer[..room], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

struct Frames<'a> {
    reader: BufReader<Durable<'a>>,
    record: Vec<u8>,
}

impl Tail for Frames<'_> {
    fn next(&mut self, see: &mut RecordVisitor<'_>) -> Result<()> {
        ensure!(read_frame(&mut self.reader, &mut self.record)?, "the file ends early");
        see(&self.record)
    }
}

fn read_all(job: &Job, see: &mut RecordVisitor<'_>) -> Result<()> {
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, File::open(path(job))?);
    let mut record = Vec::new();
    while read_frame(&mut reader, &mut record)? {
        see(&record)?;
    }
    Ok(())
}

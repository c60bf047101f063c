//! Snapshots of an application beside its log: written, read, sent, damaged and crashed.

#![allow(clippy::unwrap_used)]

mod crashes;
mod damage;
mod files;
mod transfer;

use std::io::{Read, Write};

use esker_log::{Log, Result};

/// The most content of a chunk, as the format has it.
const CHUNK: usize = (2 << 20) - 32;

/// Content that differs in every chunk and every snapshot.
fn content(at: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|byte| (byte / 255 + byte * 31 + at * 7) as u8).collect()
}

fn write(log: &Log, at: u64, content: &[u8]) -> Result<u64> {
    let mut writer = log.snapshots().writer(at)?;
    for part in content.chunks(700_000) {
        let written = writer.write_all(part);
        written.map_err(|error| error.downcast::<esker_log::Error>().unwrap())?;
    }
    assert_eq!(writer.len(), content.len() as u64);
    writer.publish(&at.to_be_bytes()).map_err(Into::into)
}

/// The content, after a check of the whole; `None` if there is none.
fn read(log: &Log, at: u64) -> Result<Option<Vec<u8>>> {
    let Some(mut reader) = log.snapshots().reader(at)? else { return Ok(None) };
    reader.verify()?;
    assert_eq!((reader.at(), reader.note()), (at, &at.to_be_bytes()[..]));
    let mut content = Vec::new();
    let read = reader.read_to_end(&mut content);
    read.map_err(|error| error.downcast::<esker_log::Error>().unwrap())?;
    assert_eq!(reader.len(), content.len() as u64);
    Ok(Some(content))
}

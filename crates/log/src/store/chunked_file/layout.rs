//! The bytes of a chunked file: its header and its chunks, encoded and decoded.

use crate::format::{BLOCK_BYTES, FORMAT_VERSION, LogId, crc};

/// The kind of a file: the magic number of its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Checkpoint,
    Snapshot,
}

impl Kind {
    const fn magic(self) -> [u8; 8] {
        match self {
            Kind::Checkpoint => *b"ESKRCKPT",
            Kind::Snapshot => *b"ESKRSNAP",
        }
    }
}

/// Bytes of a chunk in the file.
pub(crate) const CHUNK_BYTES: usize = 2 << 20;
pub(crate) const CHUNK_HEADER: usize = 32;
const HEADER_BYTES: usize = 56;
/// The most samples.
pub(crate) const SAMPLES_MAX: usize = 64;
const NOTE_END: usize = BLOCK_BYTES as usize - 16 - 4 * SAMPLES_MAX;
/// The most bytes of content in a chunk.
pub(crate) const CONTENT_MAX: usize = CHUNK_BYTES - CHUNK_HEADER;
/// The most bytes of a note.
pub(crate) const NOTE_MAX: usize = NOTE_END - HEADER_BYTES;

/// Numbers that make the checksums of a file its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Salt {
    /// The log that wrote it.
    pub(crate) log: LogId,
    /// For a checkpoint, the session and its number in the session, from 1. For a snapshot, two
    /// random numbers.
    pub(crate) numbers: [u64; 2],
}

/// The header of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) salt: Salt,
    pub(crate) chunks: u32,
    pub(crate) note: Vec<u8>,
    pub(crate) samples: Samples,
}

/// Checksums of some records up to the last one that was durable when the file was written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Samples {
    pub(crate) last: u64,
    /// At most [`SAMPLES_MAX`].
    pub(crate) crcs: Vec<u32>,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |field| u32::from_le_bytes(*field))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |field| u64::from_le_bytes(*field))
}

impl Header {
    /// Encodes the header; the note is at most [`NOTE_MAX`] long.
    pub(crate) fn encode(&self, block: &mut [u8]) {
        debug_assert!(self.note.len() <= NOTE_MAX, "the caller limits the note");
        block.fill(0);
        block[..8].copy_from_slice(&self.kind.magic());
        block[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        block[16..32].copy_from_slice(&self.salt.log.0);
        block[32..40].copy_from_slice(&self.salt.numbers[0].to_le_bytes());
        block[40..48].copy_from_slice(&self.salt.numbers[1].to_le_bytes());
        block[48..52].copy_from_slice(&self.chunks.to_le_bytes());
        block[52..56].copy_from_slice(&(self.note.len() as u32).to_le_bytes());
        block[HEADER_BYTES..HEADER_BYTES + self.note.len()].copy_from_slice(&self.note);
        let Samples { last, crcs } = &self.samples;
        let (numbers, places) = block[NOTE_END..].split_at_mut(16);
        numbers[..8].copy_from_slice(&last.to_le_bytes());
        numbers[8..12].copy_from_slice(&(crcs.len() as u32).to_le_bytes());
        for (place, crc) in places.as_chunks_mut::<4>().0.iter_mut().zip(crcs) {
            *place = crc.to_le_bytes();
        }
        let sum = crc(block);
        block[12..16].copy_from_slice(&sum.to_le_bytes());
    }

    /// Decodes the first block of a file of this kind; otherwise says what is wrong with it.
    pub(crate) fn decode(kind: Kind, block: &[u8]) -> std::result::Result<Self, &'static str> {
        if block.len() != BLOCK_BYTES as usize || block[..8] != kind.magic() {
            return Err(match kind {
                Kind::Checkpoint => "this is not a checkpoint",
                Kind::Snapshot => "this is not a snapshot",
            });
        }
        let mut blank = block.to_vec();
        blank[12..16].fill(0);
        if crc(&blank) != u32_at(block, 12) {
            return Err("the checksum of the header does not match");
        }
        if u32_at(block, 8) != FORMAT_VERSION {
            return Err("its version is not supported");
        }
        let len = u32_at(block, 52) as usize;
        let note =
            block[HEADER_BYTES..NOTE_END].get(..len).ok_or("its note exceeds the header")?.to_vec();
        let (numbers, places) = block[NOTE_END..].split_at(16);
        let (last, count) = (u64_at(numbers, 0), u32_at(numbers, 8) as usize);
        let places = places.as_chunks().0.get(..count).ok_or("it has too many samples")?;
        let crcs = places.iter().map(|crc| u32::from_le_bytes(*crc)).collect();
        let samples = Samples { last, crcs };
        let mut log = [0; 16];
        log.copy_from_slice(&block[16..32]);
        let salt = Salt { log: LogId(log), numbers: [u64_at(block, 32), u64_at(block, 40)] };
        Ok(Self { kind, salt, chunks: u32_at(block, 48), note, samples })
    }
}

pub(super) fn seal_chunk(chunk: &mut [u8], salt: Salt, number: u32, len: usize) {
    chunk[4..8].copy_from_slice(&(len as u32).to_le_bytes());
    chunk[8..12].copy_from_slice(&number.to_le_bytes());
    chunk[12..16].fill(0);
    chunk[16..24].copy_from_slice(&salt.numbers[0].to_le_bytes());
    chunk[24..32].copy_from_slice(&salt.numbers[1].to_le_bytes());
    let sum = crc(&chunk[4..CHUNK_HEADER + len]);
    chunk[..4].copy_from_slice(&sum.to_le_bytes());
}

/// The content of a chunk, given its bytes in the file; otherwise says what is wrong with it.
pub(crate) fn check_chunk(
    chunk: &[u8],
    salt: Salt,
    number: u32,
) -> std::result::Result<&[u8], &'static str> {
    let len = u32_at(chunk, 4) as usize;
    let end = len.checked_add(CHUNK_HEADER).filter(|end| *end <= CHUNK_BYTES);
    let Some(sealed) = end.and_then(|end| chunk.get(4..end)) else {
        return Err("a chunk is cut");
    };
    if crc(sealed) != u32_at(chunk, 0) {
        return Err("the checksum of a chunk does not match");
    }
    let own = (number, salt.numbers);
    if (u32_at(chunk, 8), [u64_at(chunk, 16), u64_at(chunk, 24)]) != own {
        return Err("a chunk belongs to another file, or to another place");
    }
    Ok(&sealed[CHUNK_HEADER - 4..])
}

/// Decodes bytes as a header and as a chunk, as they are and with a checksum that matches. Returns
/// how many of these are valid.
pub(crate) fn decode_any(bytes: &[u8]) -> usize {
    let kind = Kind::Checkpoint;
    let own = |chunk: &[u8]| {
        let salt = Salt { log: LogId([0; 16]), numbers: [u64_at(chunk, 16), u64_at(chunk, 24)] };
        check_chunk(chunk, salt, u32_at(chunk, 8)).is_ok()
    };
    let mut valid = usize::from(Header::decode(kind, bytes).is_ok()) + usize::from(own(bytes));
    let mut sealed = bytes.to_vec();
    if let Some(block) = sealed.get_mut(..BLOCK_BYTES as usize) {
        block[..8].copy_from_slice(&kind.magic());
        block[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        block[12..16].fill(0);
        let sum = crc(block);
        block[12..16].copy_from_slice(&sum.to_le_bytes());
        valid += usize::from(Header::decode(kind, block).is_ok());
    }
    sealed.clone_from_slice(bytes);
    let len = u32_at(bytes, 4) as usize;
    if let Some(sum) = sealed.get(4..).and_then(|rest| rest.get(..len.saturating_add(28))).map(crc)
    {
        sealed[..4].copy_from_slice(&sum.to_le_bytes());
        valid += usize::from(own(&sealed));
    }
    valid
}

/// The offset of a chunk in the file.
pub(crate) fn place(number: u32) -> u64 {
    u64::from(BLOCK_BYTES) + u64::from(number) * CHUNK_BYTES as u64
}

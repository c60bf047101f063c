//! Format version 2, read from docs/src/format.md alone.

use std::ops::Range;

pub const BLOCK: usize = 4096;
pub const SEGMENT_HEADER: usize = 104;
pub const UNIT_HEADER: usize = 72;
pub const RECORD_HEADER: usize = 16;
/// One slot of the mark page.
pub const WATERMARK_PAGE: usize = 64;
pub const VERSION: u32 = 2;

const DATA: u32 = 0xE5CE_1D01;
const GAP: u32 = 0xE5CE_1D02;
const FOOTER: u32 = 0xE5CE_F007;

/// CRC-32C, bit by bit from the polynomial, by a table.
pub fn crc(bytes: &[u8]) -> u32 {
    static TABLE: [u32; 256] = table();
    !bytes.iter().fold(!0, |sum: u32, byte| TABLE[usize::from(sum as u8 ^ byte)] ^ (sum >> 8))
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut n = 0;
    while n < 256 {
        let mut sum = n as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ 0x82F6_3B78 } else { sum >> 1 };
            bit += 1;
        }
        table[n] = sum;
        n += 1;
    }
    table
}

pub fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// A number that binds a checksum to one life of one segment.
#[derive(Debug, Clone, Copy)]
pub struct Salt(u32);

impl Salt {
    pub fn new(log: &[u8], segment: u64) -> Self {
        Self(crc(&[log, &segment.to_le_bytes()].concat()))
    }

    pub fn bind(self, offset: usize, bytes: &[u8]) -> u32 {
        let file_part = (offset as u32).to_le_bytes();
        crc(&[&self.0.to_le_bytes(), &file_part, bytes].concat())
    }
}

/// A record and its position in its segment.
#[derive(Debug, Clone)]
pub struct Record {
    pub at: Range<usize>,
    pub seq: u64,
    pub prev: u64,
    pub payload: Range<usize>,
}

#[derive(Debug, Clone)]
pub struct Unit {
    /// Padding included.
    pub at: Range<usize>,
    pub used: usize,
    pub gap: bool,
    pub prev_seq: u64,
    pub last_seq: u64,
    pub claim: u64,
    pub session: u64,
    pub records: Vec<Record>,
}

#[derive(Debug, Clone)]
pub struct Segment {
    pub number: u64,
    pub log: Vec<u8>,
    pub session: u64,
    pub base: u64,
    pub prev_segment: u64,
    pub prev_seq: u64,
    pub claim: u64,
    pub recovered: bool,
    pub units: Vec<Unit>,
    /// The end of the last unit.
    pub end: usize,
    /// Without the zeros that fill its last block.
    pub footer: Option<Range<usize>>,
    /// Headers of units past the end that are valid, when the rest of their units is not: their
    /// offsets and the numbers that they name.
    pub orphan_units: Vec<(usize, u64)>,
}

/// Reads a valid segment file; `None` when it has no header yet.
pub fn segment(bytes: &[u8]) -> Option<Segment> {
    if bytes.len() < BLOCK || &bytes[..8] != b"ESKERSEG" {
        return None;
    }
    assert_eq!(word(bytes, 8), VERSION, "version");
    let log = bytes[16..32].to_vec();
    let number = long(bytes, 32);
    let salt = Salt::new(&log, number);
    let header_sum = word(bytes, 12);
    assert_eq!(header_sum, sum_of(bytes, 8..SEGMENT_HEADER, 12, |bytes| salt.bind(0, bytes)));
    assert_eq!(word(bytes, 92), BLOCK as u32, "block");
    assert!(bytes[SEGMENT_HEADER..BLOCK].iter().all(|&byte| byte == 0), "zeros");
    let first_chain = word(bytes, 100);
    let mut chain = if first_chain == 0 { header_sum } else { first_chain };
    let mut segment = Segment {
        number,
        session: long(bytes, 40),
        base: long(bytes, 48),
        prev_segment: long(bytes, 56),
        prev_seq: long(bytes, 64),
        claim: long(bytes, 72),
        recovered: word(bytes, 96) & 1 == 1,
        log,
        units: Vec::new(),
        end: BLOCK,
        footer: None,
        orphan_units: Vec::new(),
    };
    let mut last = segment.prev_seq;
    while let Some((unit, next)) = unit(bytes, salt, segment.end, chain) {
        assert!(unit.prev_seq == last || last == 0);
        (chain, last) = (next, unit.last_seq);
        segment.end = unit.at.end;
        segment.units.push(unit);
    }
    segment.footer = footer(bytes, salt, segment.end, chain);
    for at in (segment.end..bytes.len()).step_by(BLOCK) {
        let head = bytes.get(at..at + UNIT_HEADER).filter(|head| word(head, 0) == DATA);
        if let Some(head) = head
            && word(head, 4) == sum_of(head, 0..UNIT_HEADER, 4, |head| salt.bind(at, head))
        {
            segment.orphan_units.push((at, long(head, 40)));
        }
    }
    Some(segment)
}

/// A checksum over a range in which the checksum itself, four bytes at `field`, counts as zero.
fn sum_of(bytes: &[u8], range: Range<usize>, field: usize, sum: impl Fn(&[u8]) -> u32) -> u32 {
    let mut copy = bytes[range.clone()].to_vec();
    put(&mut copy, field - range.start, 0);
    sum(&copy)
}

/// The unit at an offset, if it is valid and continues `chain`, and the chain that the next one
/// has to name.
pub fn unit(bytes: &[u8], salt: Salt, at: usize, chain: u32) -> Option<(Unit, u32)> {
    let head = bytes.get(at..at + UNIT_HEADER)?;
    let magic = word(head, 0);
    if magic != DATA && magic != GAP {
        return None;
    }
    let sum = word(head, 4);
    if sum != sum_of(head, 0..UNIT_HEADER, 4, |head| salt.bind(at, head)) {
        return None;
    }
    if word(head, 64) != chain {
        return None;
    }
    let used = word(head, 8) as usize;
    let mut unit = Unit {
        at: at..at + used.next_multiple_of(BLOCK),
        used,
        gap: magic == GAP,
        prev_seq: long(head, 24),
        last_seq: long(head, 32),
        claim: long(head, 40),
        session: long(head, 48),
        records: Vec::new(),
    };
    if unit.gap {
        return Some((unit, long(head, 16) as u32));
    }
    let (mut here, mut prev, mut digest) = (at + UNIT_HEADER, unit.prev_seq, 0u64);
    for _ in 0..word(head, 12) {
        let (record, sum) = record(bytes, salt, here, prev)?;
        (here, prev) = (record.at.end, record.seq);
        digest = digest.wrapping_add(u64::from(sum));
        unit.records.push(record);
    }
    let padding = bytes.get(at + used..unit.at.end)?;
    let verifies = here == at + used
        && prev == unit.last_seq
        && digest == long(head, 16)
        && padding.iter().all(|&byte| byte == 0);
    verifies.then_some((unit, sum))
}

fn record(bytes: &[u8], salt: Salt, at: usize, prev: u64) -> Option<(Record, u32)> {
    let head = bytes.get(at..at + RECORD_HEADER)?;
    let (size, sum, seq) = (word(head, 0) as usize, word(head, 4), long(head, 8));
    let payload = at + RECORD_HEADER..at + size;
    let bound = salt.bind(at, &[&head[..4], &head[8..]].concat());
    let verifies = bound.rotate_left(1) ^ crc(bytes.get(payload.clone())?) == sum;
    let at = at..at + size.next_multiple_of(8);
    verifies.then_some((Record { at, seq, prev, payload }, sum))
}

fn footer(bytes: &[u8], salt: Salt, at: usize, chain: u32) -> Option<Range<usize>> {
    let head = bytes.get(at..at + 64)?;
    if word(head, 0) != FOOTER {
        return None;
    }
    let entries = word(head, 8) as usize * 24;
    let sum = sum_of(head, 0..64, 4, |head| salt.bind(at, head)).rotate_left(1)
        ^ crc(&bytes[at + 64..at + 64 + entries]);
    assert_eq!(word(head, 4), sum, "footer");
    assert_eq!(word(head, 12) as usize, at, "footer's end");
    assert_eq!(word(head, 56), chain, "footer's chain");
    Some(at..at + 64 + entries)
}

/// Gives a segment's first block a version and the checksum that fits.
pub fn set_segment_version(block: &mut [u8], version: u32) {
    put(block, 8, version);
    let salt = Salt::new(&block[16..32], long(block, 32));
    let sum = sum_of(block, 8..SEGMENT_HEADER, 12, |bytes| salt.bind(0, bytes));
    put(block, 12, sum);
}

/// Gives a sealed file a version and the checksum that fits.
pub fn set_sealed_version(file: &mut [u8], version: u32) {
    put(file, 8, version);
    // Bit 31 says that zeros follow the content.
    let end = (20 + (word(file, 16) & !(1 << 31)) as usize).min(file.len());
    let sum = sum_of(file, 0..end, 12, crc);
    put(file, 12, sum);
}

/// Gives the unit header at an offset the checksum that fits.
pub fn seal_unit(bytes: &mut [u8], salt: Salt, at: usize) {
    let sum = sum_of(&bytes[at..at + UNIT_HEADER], 0..UNIT_HEADER, 4, |head| salt.bind(at, head));
    put(bytes, at + 4, sum);
}

/// Gives the record at an offset the checksum that fits, where its length leads to no other place.
pub fn seal_record(bytes: &mut [u8], salt: Salt, at: usize) {
    let size = (word(bytes, at) as usize).clamp(RECORD_HEADER, bytes.len() - at);
    let bound = salt.bind(at, &[&bytes[at..at + 4], &bytes[at + 8..at + 16]].concat());
    let sum = bound.rotate_left(1) ^ crc(&bytes[at + RECORD_HEADER..at + size]);
    put(bytes, at + 4, sum);
}

/// Gives the footer at an offset the checksum that fits.
pub fn seal_footer(bytes: &mut [u8], salt: Salt, at: usize) {
    let entries = (word(bytes, at + 8) as usize).saturating_mul(24).min(bytes.len() - at - 64);
    let sum = sum_of(&bytes[at..at + 64], 0..64, 4, |head| salt.bind(at, head)).rotate_left(1)
        ^ crc(&bytes[at + 64..at + 64 + entries]);
    put(bytes, at + 4, sum);
}

/// Gives the slots of a mark page the checksums that fit.
pub fn seal_mark(page: &mut [u8]) {
    for slot in page.chunks_mut(BLOCK).filter(|slot| slot.len() >= WATERMARK_PAGE) {
        let sum = crc(&slot[8..WATERMARK_PAGE]);
        put(slot, 4, sum);
    }
}

/// A manifest, as a sealed file.
pub fn manifest(log: [u8; 16], session: u64, floor_segment: u64, floor_seq: u64) -> Vec<u8> {
    let mut content = log.to_vec();
    for value in [session, floor_segment, floor_seq] {
        content.extend_from_slice(&value.to_le_bytes());
    }
    content.resize(content.len() + 40, 0);
    let mut file = b"ESKERMAN".to_vec();
    file.extend_from_slice(&VERSION.to_le_bytes());
    file.extend_from_slice(&[0; 4]);
    file.extend_from_slice(&(content.len() as u32).to_le_bytes());
    file.extend_from_slice(&content);
    set_sealed_version(&mut file, VERSION);
    file
}

/// The end of the log, in a manifest that records a clean close: segment, offset, record.
pub fn clean_end(manifest: &[u8]) -> Option<(u64, usize, u64)> {
    let content = &manifest[20..];
    let end = (long(content, 48), word(content, 44) as usize, long(content, 56));
    (word(content, 40) == 1).then_some(end)
}

/// The record up to which a manifest says that the log was durable.
pub fn durable(manifest: &[u8]) -> u64 {
    long(&manifest[20..], 72)
}

/// The byte ranges of the valid slots of a watermark page, with their sessions and records.
pub fn slots(mark: &[u8]) -> Vec<(Range<usize>, u64, u64)> {
    let slots = mark.chunks(BLOCK).take(2).enumerate();
    let verifies = |slot: &[u8]| {
        slot.len() >= WATERMARK_PAGE
            && word(slot, 0) == 0xE5CE_3A4C
            && word(slot, 4) == crc(&slot[8..WATERMARK_PAGE])
    };
    let slots = slots.filter(|(_, slot)| verifies(slot));
    slots
        .map(|(n, slot)| (n * BLOCK..n * BLOCK + WATERMARK_PAGE, long(slot, 24), long(slot, 40)))
        .collect()
}

/// The record of a watermark page: that of its newest valid slot.
pub fn reported(mark: &[u8]) -> Option<u64> {
    slots(mark).into_iter().map(|(_, session, seq)| (session, seq)).max().map(|(_, seq)| seq)
}

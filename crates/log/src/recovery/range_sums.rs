//! The checksum of any range of a file, without reading the whole range.
//!
//! Almost any eight bytes look like the header of a long record. If each such record were read, the
//! time of a search would grow with the square of the bytes. Here the checksum of a range follows
//! from those of the file up to two blocks, and from the bytes before and after these blocks.

use std::sync::Arc;

use esker_disk::File;

use crate::base::error::Result;
use crate::format::{BLOCK_BYTES, crc, crc_of_joined};
use crate::store::segment_reader::SegmentReader;

/// Compares ranges of a file with checksums, in time that is linear in the file.
#[derive(Debug, Default)]
pub(super) struct RangeChecks {
    /// `None` before the first long range without the checksum that it would need.
    sums: Option<RangeSums>,
}

impl RangeChecks {
    /// Whether `len` bytes after a header at `at` have this checksum. Reads them all only if they
    /// do, if they are few, or if they are the first that do not.
    pub(super) fn has_sum(
        &mut self,
        image: &mut SegmentReader<'_>,
        at: u64,
        header: u32,
        len: u32,
        sum: u32,
    ) -> Result<bool> {
        let (from, skip) = (at + u64::from(header), header as usize);
        if from + u64::from(len) > image.len() {
            return Ok(false);
        }
        let is_long = len >= BLOCK_BYTES;
        if is_long && let Some(sums) = &mut self.sums {
            let head = image.at(at, skip + BLOCK_BYTES as usize)?;
            let head = head.get(skip..).unwrap_or_default();
            if sums.sum(from, len, head)? != Some(sum) {
                return Ok(false);
            }
        }
        let bytes = image.at(at, skip + len as usize)?;
        if bytes.get(skip..skip + len as usize).is_some_and(|bytes| crc(bytes) == sum) {
            return Ok(true);
        }
        if is_long && self.sums.is_none() {
            self.sums = Some(RangeSums::new(image.file(), image.len())?);
        }
        Ok(false)
    }
}

/// The checksums of a file up to each of its blocks.
#[derive(Debug)]
pub(super) struct RangeSums {
    up_to: Vec<u32>,
    /// Reads the ends of ranges, so that the reader of the search keeps its place.
    reader: SegmentReader<'static>,
}

impl RangeSums {
    /// Reads the file once, up to an offset.
    pub(super) fn new(file: &Arc<dyn File>, until: u64) -> Result<Self> {
        let mut reader = SegmentReader::new(Arc::clone(file))?;
        reader.end_at(until);
        let (mut at, mut sum, mut up_to) = (0, 0, vec![0]);
        while at + u64::from(BLOCK_BYTES) <= reader.len() {
            let block = reader.at(at, BLOCK_BYTES as usize)?;
            if block.len() < BLOCK_BYTES as usize {
                break;
            }
            sum = crc_of_joined(sum, crc(block), BLOCK_BYTES);
            up_to.push(sum);
            at += u64::from(BLOCK_BYTES);
        }
        Ok(Self { up_to, reader })
    }

    /// The checksum of `len` bytes from an offset on; `None` if the file ends before. `head` is the
    /// bytes at the offset, at least a block of them.
    pub(super) fn sum(&mut self, from: u64, len: u32, head: &[u8]) -> Result<Option<u32>> {
        let to = from + u64::from(len);
        let first = from.next_multiple_of(u64::from(BLOCK_BYTES));
        let last = to - to % u64::from(BLOCK_BYTES);
        let up_to = |at: u64| self.up_to.get((at / u64::from(BLOCK_BYTES)) as usize).copied();
        let (Some(head), Some(before), Some(through), true) =
            (head.get(..(first - from) as usize), up_to(first), up_to(last), first <= last)
        else {
            return Ok(None);
        };
        let tail = (to - last) as usize;
        let tail_sum = match tail {
            0 => 0,
            _ => match self.block(last)?.get(..tail) {
                Some(bytes) => crc(bytes),
                None => return Ok(None),
            },
        };
        // The file up to `first` is the same in both, so it cancels out.
        let sum = crc_of_joined(crc(head) ^ before, through, (last - first) as u32);
        Ok(Some(crc_of_joined(sum, tail_sum, tail as u32)))
    }

    /// A block of the file. One that the device fails to read counts as zeros.
    fn block(&mut self, at: u64) -> Result<&[u8]> {
        match self.reader.block(at) {
            Ok(_) => self.reader.block(at),
            Err(_) => self.reader.at(at, BLOCK_BYTES as usize),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use esker_disk::sim::SimDisk;
    use esker_disk::{Disk, OpenMode, write_all_at};

    use super::*;

    #[test]
    fn the_sum_of_every_range_is_that_of_its_bytes() {
        let disk = SimDisk::new(1);
        let dir = disk.create_dir(Path::new("/d")).unwrap();
        let file = dir.open("f", OpenMode::create()).unwrap();
        let bytes: Vec<u8> =
            (0..50_001u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        write_all_at(&*file, &bytes, 0).unwrap();
        let (end, block) = (50_000, BLOCK_BYTES as usize);
        let mut sums = RangeSums::new(&file, end as u64).unwrap();
        let mut compared = 0;
        for from in (0..end).step_by(1237) {
            let head = &bytes[from..(from + block).min(end)];
            for len in (0..end).step_by(997).chain([4096, 8192, end - from]) {
                let found = sums.sum(from as u64, len as u32, head).unwrap();
                if from + len > end {
                    assert_eq!(found, None, "{len} from {from}");
                } else if let Some(found) = found {
                    assert_eq!(found, crc(&bytes[from..from + len]), "{len} from {from}");
                    compared += 1;
                } else {
                    assert!(len < block, "{len} from {from}");
                }
            }
        }
        assert!(compared > 500, "{compared}");
    }
}

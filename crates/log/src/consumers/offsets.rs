//! The file of the offsets, `consumers/offsets`: a sealed file.
//!
//! ```text
//! 0        16      20
//! | log id | count | offsets in the order of their names ... |
//! each: length of the name (u8), name (UTF-8), offset (u64, little-endian)
//! ```

use std::collections::BTreeMap;
use std::io::ErrorKind;

use esker_disk::Dir;

use crate::base::error::{Error, Result, corruption_at};
use crate::base::position::Seq;
use crate::format::LogId;
use crate::store::chunked_file::u64_at;
use crate::store::sealed_file;

const NAME: &str = "offsets";
const MAGIC: [u8; 8] = *b"ESKROFFS";
/// The most consumers of a log.
pub(super) const CONSUMERS_MAX: usize = 1024;
/// The most bytes of a name.
pub(super) const NAME_MAX: usize = 255;

/// The offsets of all consumers.
pub(crate) type Offsets = BTreeMap<String, Seq>;

/// Reads the file in its directory; no offsets if there is none.
pub(super) fn read(dir: &dyn Dir, log: LogId) -> Result<Offsets> {
    let content = match sealed_file::read(dir, NAME, MAGIC) {
        Err(Error::Io(cause)) if cause.kind() == ErrorKind::NotFound => return Ok(Offsets::new()),
        content => content?,
    };
    let path = dir.path_of(NAME);
    match decode(&content) {
        Some((id, _)) if id != log => Err(Error::ForeignFile { file: path }),
        Some((_, offsets)) => Ok(offsets),
        None => Err(corruption_at(&path, 0, 0, "it is no list of offsets")),
    }
}

/// Replaces the file, durably. The caller holds the lock of its directory.
pub(super) fn write(dir: &dyn Dir, log: LogId, offsets: &Offsets) -> Result<()> {
    debug_assert!(offsets.len() <= CONSUMERS_MAX);
    sealed_file::write_often(dir, NAME, MAGIC, &encode(log, offsets))
}

fn encode(log: LogId, offsets: &Offsets) -> Vec<u8> {
    let mut content = log.0.to_vec();
    content.extend_from_slice(&(offsets.len() as u32).to_le_bytes());
    for (name, offset) in offsets {
        content.push(name.len() as u8);
        content.extend_from_slice(name.as_bytes());
        content.extend_from_slice(&offset.0.to_le_bytes());
    }
    content
}

/// `None` if these are not the bytes of any offsets.
pub(crate) fn decode(content: &[u8]) -> Option<(LogId, Offsets)> {
    let (id, rest) = content.split_first_chunk::<16>()?;
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let mut offsets = Vec::new();
    for _ in 0..u32::from_le_bytes(*count) {
        let (len, after) = rest.split_first()?;
        let (name, after) = after.split_at_checked(usize::from(*len))?;
        let (offset, after) = after.split_at_checked(8)?;
        let name = std::str::from_utf8(name).ok().filter(|name| !name.is_empty())?;
        offsets.push((name.to_owned(), Seq(u64_at(offset, 0))));
        rest = after;
    }
    // A map of names in their order is built at once, without a search for each.
    let offsets: Offsets = offsets.into_iter().collect();
    let whole = rest.is_empty() && offsets.len() <= CONSUMERS_MAX;
    whole.then_some((LogId(*id), offsets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_round_trip_and_other_bytes_are_refused() {
        let all = [("a", 0), ("ü b", u64::MAX), (&*"n".repeat(NAME_MAX), 7)];
        let offsets: Offsets = all.iter().map(|(name, at)| ((*name).into(), Seq(*at))).collect();
        let encoded = encode(LogId([7; 16]), &offsets);
        assert_eq!(decode(&encoded), Some((LogId([7; 16]), offsets)));
        for end in 0..encoded.len() {
            assert_eq!(decode(&encoded[..end]), None, "{end} bytes");
        }
        assert_eq!(decode(&[&encoded[..], b"x"].concat()), None);
    }
}

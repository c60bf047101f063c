//! Reading every byte of a log, past every damage.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_disk::{File, Open};

use crate::error::{Error, Result};
use crate::format::segment::HeaderFlaw;
use crate::format::walk::continues;
use crate::format::{BLOCK, Flaw, Salt, SegmentHeader};
use crate::image::Image;
use crate::layout::{self, Name};
use crate::manifest::Manifest;
use crate::mark::Look;
use crate::options::Options;
use crate::recovery::read_head;
use crate::scan::{SoundUnit, sound_unit};

/// A log, piece by piece.
pub(crate) struct Examination {
    /// The live segments, oldest first.
    pub(crate) segments: Vec<Examined>,
    /// The highest number that something sound says was durable.
    pub(crate) claim: u64,
    /// The last number before the end of the newest segment.
    pub(crate) last: u64,
}

pub(crate) struct Examined {
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    /// `None` when the file is missing.
    pub(crate) file: Option<Arc<dyn File>>,
    /// `None` when the header is damaged.
    pub(crate) header: Option<SegmentHeader>,
    /// What is wrong with the header.
    pub(crate) header_flaw: Option<String>,
    pub(crate) base: u64,
    /// The number before the first record.
    pub(crate) prev_seq: u64,
    /// Where the segment behind says that this one ends; `None` for the newest.
    pub(crate) end: Option<u32>,
    /// What the segment behind says of the end: its chain and number.
    pub(crate) next: Option<(u32, u64)>,
    pub(crate) pieces: Vec<Piece>,
}

/// A part of a segment.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Piece {
    Sound(SoundUnit),
    Bad { from: u32, to: u32, after: u64, flaw: Flaw },
}

impl Examined {
    /// The last number that stands in the segment, or before it.
    pub(crate) fn last(&self) -> u64 {
        self.pieces
            .iter()
            .rev()
            .find_map(|piece| match piece {
                Piece::Sound(unit) => Some(unit.header.last_seq),
                Piece::Bad { .. } => None,
            })
            .unwrap_or(self.prev_seq)
    }

    /// Offset behind the last piece.
    pub(crate) fn pieces_end(&self) -> u32 {
        match self.pieces.last() {
            Some(Piece::Sound(unit)) => unit.end(),
            Some(Piece::Bad { to, .. }) => *to,
            None => BLOCK,
        }
    }
}

/// Examines a log that has this manifest.
pub(crate) fn examine(dir: &Path, options: &Options, manifest: &Manifest) -> Result<Examination> {
    let disk = &*options.disk;
    let mut heads = BTreeMap::new();
    for name in disk.list(dir)? {
        let Name::Segment(number) = layout::classify(&name) else { continue };
        if number < manifest.floor_segment {
            continue;
        }
        let path = layout::segment(dir, number);
        let file = disk.open(&path, Open::read())?;
        let head =
            read_head(&*file, manifest, number).unwrap_or(Err(HeaderFlaw::Flaw(Flaw::NotAUnit)));
        match head {
            Err(HeaderFlaw::Version(version)) => {
                return Err(Error::Version { file: path, version });
            }
            Err(HeaderFlaw::Foreign(_)) => return Err(Error::Foreign { file: path }),
            _ => {}
        }
        heads.insert(number, (file, head));
    }

    let mut claim = manifest.clean.map_or(0, |clean| clean.seq);
    if let Some(look) = Look::open(disk, dir, manifest.log)? {
        claim = claim.max(look.told().map_or(0, |told| told.seq));
    }
    let mut segments = Vec::new();
    for number in live_numbers(&heads, manifest) {
        let head = heads.get(&number);
        segments.push(Examined {
            number,
            path: layout::segment(dir, number),
            file: head.map(|(file, _)| Arc::clone(file)),
            header: head.and_then(|(_, head)| head.ok()).map(|(header, _)| header),
            header_flaw: match head {
                None => Some("the segment is missing".into()),
                Some((_, Err(HeaderFlaw::Flaw(flaw)))) => Some(flaw.to_string()),
                Some(_) => None,
            },
            base: 0,
            prev_seq: 0,
            end: None,
            next: None,
            pieces: Vec::new(),
        });
    }
    let mut reached = (0, 0, 0);
    for n in 0..segments.len() {
        let next = segments.get(n + 1).and_then(|next| next.header);
        let first = n == 0;
        let segment = &mut segments[n];
        let start = match (&segment.header, first) {
            (Some(header), _) => {
                claim = claim.max(header.claim);
                (header.base, header.prev_seq)
            }
            (None, true) => (0, manifest.floor_seq),
            (None, false) => (reached.0, reached.1),
        };
        (segment.base, segment.prev_seq) = start;
        if let Some(next) = next {
            segment.end = Some(next.base.saturating_sub(segment.base).min(1 << 31) as u32);
            segment.next = Some((next.chain, next.prev_seq));
        }
        claim = claim.max(take_apart(segment, manifest)?);
        let last = segment.last();
        reached = (segment.base + u64::from(segment.pieces_end()), last, 0);
    }
    let last = segments.last().map_or(0, Examined::last);
    Ok(Examination { segments, claim, last })
}

type Heads = BTreeMap<u64, (Arc<dyn File>, std::result::Result<(SegmentHeader, u32), HeaderFlaw>)>;

/// The numbers of the live segments. A link that is damaged or missing is passed by its number.
fn live_numbers(heads: &Heads, manifest: &Manifest) -> Vec<u64> {
    let sound = |number: &u64| heads.get(number).and_then(|(_, head)| head.ok());
    let newest = heads.keys().rev().find(|number| sound(number).is_some());
    let mut numbers: Vec<u64> = newest.copied().into_iter().collect();
    // The newest segment may have lost its header: the clean end knows its number.
    if let Some(clean) = &manifest.clean
        && newest.is_none_or(|newest| clean.segment > *newest)
        && heads.contains_key(&clean.segment)
    {
        numbers.insert(0, clean.segment);
        if let Some(newest) = newest.copied() {
            numbers = vec![clean.segment, newest];
        }
    }
    let floor = manifest.floor_segment.max(1);
    while let Some(number) = numbers.last() {
        let before = match sound(number) {
            Some((header, _)) => header.prev_segment,
            None => match heads.range(..number).next_back() {
                Some((before, _)) => *before,
                None => break,
            },
        };
        if before < floor {
            break;
        }
        numbers.push(before);
    }
    numbers.reverse();
    numbers
}

/// Goes through a segment and returns the highest claim in it.
fn take_apart(segment: &mut Examined, manifest: &Manifest) -> Result<u64> {
    let salt = Salt::new(manifest.log, segment.number);
    let Some(file) = &segment.file else {
        if let Some(end) = segment.end.filter(|end| *end > BLOCK) {
            let (after, flaw) = (segment.prev_seq, Flaw::Blank);
            segment.pieces.push(Piece::Bad { from: BLOCK, to: end, after, flaw });
        }
        return Ok(0);
    };
    let mut image = Image::new(Arc::clone(file))?;
    let end = segment.end.map_or(image.len(), u64::from);
    let mut chain = segment.header.map(|header| header.to_block().1);
    let (mut seq, mut session) = (segment.prev_seq, 0);
    let mut bad: Option<(u32, Flaw)> = None;
    let mut claim = 0;
    let mut at = u64::from(BLOCK);
    while at < end {
        let offset = at as u32;
        let flaw = match sound_unit(&mut image, salt, offset, |_| {})? {
            Ok((header, crc)) => {
                let continues = match chain {
                    Some(chain) => continues(&header, chain, seq, session),
                    None => header.prev_seq >= seq && header.session >= session,
                };
                if continues && at + u64::from(header.span()) <= end {
                    if let Some((from, flaw)) = bad.take() {
                        segment.pieces.push(Piece::Bad { from, to: offset, after: seq, flaw });
                    }
                    claim = claim.max(header.claim);
                    let next = header.next_chain(crc);
                    segment.pieces.push(Piece::Sound(SoundUnit { offset, header, chain: next }));
                    (chain, seq, session) = (Some(next), header.last_seq, header.session);
                    at += u64::from(header.span());
                    continue;
                }
                Flaw::Chain
            }
            Err(flaw) => flaw,
        };
        chain = None;
        bad.get_or_insert((offset, flaw));
        at += u64::from(BLOCK);
    }
    let last_good = segment.pieces_end();
    if let Some((from, flaw)) = bad {
        match segment.end {
            Some(to) => segment.pieces.push(Piece::Bad { from, to, after: seq, flaw }),
            // Behind the last unit of the newest segment: whether that is damage, a claim tells.
            None => debug_assert!(from >= last_good),
        }
    } else if at == end
        && let (Some((chain_behind, seq_behind)), Some(chain), Some(end)) =
            (segment.next, chain, segment.end)
        && (chain != chain_behind || seq != seq_behind)
        && end > BLOCK
    {
        tracing::warn!(file = %segment.path.display(), "the segment behind does not follow");
    }
    Ok(claim)
}

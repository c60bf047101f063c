//! Reading every byte of a log, past every damage.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_disk::{File, Open};

use crate::error::{Error, Result};
use crate::format::segment::HeaderFlaw;
use crate::format::walk::continues;
use crate::format::{BLOCK, Flaw, Footer, SEGMENT_MAX, Salt, SegmentHeader, UnitHeader};
use crate::image::{Image, Trouble};
use crate::layout::{self, Name};
use crate::manifest::{End, Manifest};
use crate::mark::Look;
use crate::options::Options;
use crate::recovery::read_head;
use crate::scan::{SoundUnit, sound_unit, strays};

/// A log, piece by piece.
pub(crate) struct Examination {
    /// The live segments, oldest first.
    pub(crate) segments: Vec<Examined>,
    /// The highest number that something sound says was durable.
    pub(crate) claim: u64,
    /// The last number before the end of the newest segment.
    pub(crate) last: u64,
    /// The log goes on behind the clean end that the manifest tells of.
    pub(crate) clean_lies: bool,
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
    /// Behind the last block, after the pieces, that has anything in it.
    pub(crate) written_to: u32,
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

    fn beheaded(dir: &Path, number: u64, file: Option<Arc<dyn File>>, flaw: String) -> Self {
        Self {
            number,
            path: layout::segment(dir, number),
            file,
            header: None,
            header_flaw: Some(flaw),
            base: 0,
            prev_seq: 0,
            end: None,
            next: None,
            pieces: Vec::new(),
            written_to: 0,
        }
    }

    pub(crate) fn is_damaged(&self) -> bool {
        let bad = |piece: &Piece| matches!(piece, Piece::Bad { .. });
        self.header.is_none() || self.pieces.iter().any(bad)
    }

    /// What the segment behind this one must chain to, where nothing is damaged.
    pub(crate) fn chain_behind(&self, header: &SegmentHeader) -> u32 {
        match self.pieces.last() {
            Some(Piece::Sound(unit)) => unit.chain,
            _ => header.to_block().1,
        }
    }

    /// Whether the log was closed where this segment ends.
    pub(crate) fn ends_at(&self, end: &End) -> bool {
        let chain = self.header.map(|header| self.chain_behind(&header));
        (self.number, self.pieces_end(), self.last(), chain)
            == (end.segment, end.offset, end.seq, Some(end.chain))
    }

    /// The units before the first damage.
    pub(crate) fn sound_start(&self) -> impl Iterator<Item = SoundUnit> {
        let pieces = if self.header.is_some() { &self.pieces[..] } else { &[] };
        pieces.iter().map_while(|piece| match piece {
            Piece::Sound(unit) => Some(*unit),
            Piece::Bad { .. } => None,
        })
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
    let mut told = None;
    if let Some(look) = Look::open(disk, dir, manifest.log)? {
        told = look.told().ok().flatten();
        claim = claim.max(told.map_or(0, |told| told.seq));
    }
    let mut segments = Vec::new();
    for number in live_numbers(&heads, manifest)? {
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
            written_to: 0,
        });
    }
    let mut reached = (0, manifest.floor_seq);
    let mut clean_lies = manifest.clean.is_some_and(|end| claim > end.seq);
    for n in 0..segments.len() {
        let next = segments.get(n + 1).and_then(|next| next.header);
        let is_last = n + 1 == segments.len();
        let segment = &mut segments[n];
        let footer = match (segment.header.is_none(), next.is_none() && !is_last) {
            (false, false) => None,
            _ => find_footer(segment, manifest)?,
        };
        (segment.base, segment.prev_seq) = match &segment.header {
            Some(header) => {
                claim = claim.max(header.claim);
                (header.base, header.prev_seq)
            }
            None if n == 0 => first_place(segment, footer.as_ref(), next.as_ref(), manifest)?,
            None => reached,
        };
        if let Some(next) = next {
            let end = next.base.saturating_sub(segment.base);
            segment.end = Some(end.clamp(u64::from(BLOCK), u64::from(SEGMENT_MAX / 2)) as u32);
            segment.next = Some((next.chain, next.prev_seq));
        } else if let Some(footer) = footer.filter(|_| !is_last) {
            segment.end = Some(footer.end);
            segment.next = Some((footer.chain, footer.last_seq));
        }
        let clean = manifest.clean.filter(|end| end.segment == segment.number && claim <= end.seq);
        let part = take_apart(segment, manifest, clean)?;
        clean_lies |= part.goes_on;
        claim = claim.max(part.claim);
        let last = segment.next.map_or(segment.last(), |(_, last)| last);
        reached = (segment.base.saturating_add(u64::from(segment.pieces_end())), last);
    }
    let last = segments.last().map_or(manifest.floor_seq, Examined::last);
    // Durable records are missing behind the last segment: one that lost its header and all its
    // units, or that is gone, is what became of them.
    let newest = segments.last().map(|newest: &Examined| newest.number);
    if claim > last {
        let told = told.map(|told| told.segment);
        for number in lost_segments(&heads, manifest, told, newest) {
            let file = heads.get(&number).map(|(file, _)| Arc::clone(file));
            let written_to = file.as_ref().map_or(Ok(0), written_to)?;
            let flaw = match heads.get(&number) {
                Some((_, Err(HeaderFlaw::Flaw(flaw)))) => flaw.to_string(),
                _ => "the segment is missing".into(),
            };
            segments.push(Examined {
                base: reached.0,
                prev_seq: last,
                written_to,
                ..Examined::beheaded(dir, number, file, flaw)
            });
            reached.0 += u64::from(BLOCK);
        }
    }
    Ok(Examination { segments, claim, last, clean_lies })
}

type Head = std::result::Result<(SegmentHeader, u32), HeaderFlaw>;
type Heads = BTreeMap<u64, (Arc<dyn File>, Head)>;

/// The numbers of the live segments. A link that is damaged or missing is passed by its number.
fn live_numbers(heads: &Heads, manifest: &Manifest) -> Result<Vec<u64>> {
    let sound = |number: u64| heads.get(&number).and_then(|(_, head)| head.ok());
    // The newest may have lost its header: then it has units, or the clean end knows its number.
    let mut newest = None;
    for (&number, (file, head)) in heads.iter().rev() {
        let mut counts = head.is_ok() || manifest.clean.is_some_and(|end| end.segment == number);
        if !counts {
            let salt = Salt::new(manifest.log, number);
            strays(file, salt, BLOCK, None, &Trouble::default(), |_, _| counts = true)?;
        }
        if counts {
            newest = Some(number);
            break;
        }
    }
    let mut numbers: Vec<u64> = newest.into_iter().collect();
    while let Some(&number) = numbers.last() {
        let before = match sound(number) {
            Some((header, _)) => Some(header.prev_segment),
            None => heads.range(..number).next_back().map(|(before, _)| *before),
        };
        match before {
            Some(before) if before >= manifest.floor_segment.max(1) => numbers.push(before),
            _ => break,
        }
    }
    numbers.reverse();
    Ok(numbers)
}

/// The segments behind the newest that has anything sound.
fn lost_segments(
    heads: &Heads,
    manifest: &Manifest,
    told: Option<u64>,
    newest: Option<u64>,
) -> Vec<u64> {
    let is_later = |number: &u64| newest.is_none_or(|newest| *number > newest);
    let lost = |head: &Head| matches!(head, Err(HeaderFlaw::Flaw(flaw)) if *flaw != Flaw::Blank);
    let damaged = heads.iter().filter(|(_, (_, head))| lost(head)).map(|(number, _)| *number);
    let closed = manifest.clean.map(|clean| clean.segment);
    let mut numbers: Vec<u64> = damaged.chain(closed).chain(told).filter(is_later).collect();
    if numbers.is_empty() && newest.is_none() {
        numbers.push(manifest.floor_segment.max(1));
    }
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Behind the last block of a file that has anything in it.
fn written_to(file: &Arc<dyn File>) -> Result<u32> {
    let mut image = Image::new(Arc::clone(file))?;
    let (mut at, mut end) = (0, 0);
    while at < image.len() {
        let block = image.at(at, BLOCK as usize)?;
        at += u64::from(BLOCK);
        if block.iter().any(|&byte| byte != 0) {
            end = at as u32;
        }
    }
    Ok(end)
}

/// What came of going through a segment.
#[derive(Default)]
struct Part {
    /// The highest claim in it.
    claim: u64,
    /// It goes on behind the clean end, in a session that the manifest does not know.
    goes_on: bool,
}

/// Goes through a segment, piece by piece. `clean` is where the log was closed, if in this segment.
fn take_apart(segment: &mut Examined, manifest: &Manifest, clean: Option<End>) -> Result<Part> {
    let salt = Salt::new(manifest.log, segment.number);
    let Some(file) = &segment.file else {
        if let Some(end) = segment.end.filter(|end| *end > BLOCK) {
            let (after, flaw) = (segment.prev_seq, Flaw::Blank);
            segment.pieces.push(Piece::Bad { from: BLOCK, to: end, after, flaw });
        }
        return Ok(Part::default());
    };
    let mut image = Image::new(Arc::clone(file))?;
    let behind = |end: End, image: &mut Image<'_>| -> Result<bool> {
        let unit = sound_unit(image, salt, end.offset, |_| {})?;
        Ok(unit.is_ok_and(|(header, _)| {
            header.chain == end.chain && header.session > manifest.session
        }))
    };
    let goes_on = match clean {
        Some(end) => behind(end, &mut image)?,
        None => false,
    };
    let clean = clean.filter(|_| !goes_on).map(|end| end.offset);
    let end = segment.end.or(clean).map_or(image.len(), u64::from);
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
        // A header may be whole where its records are not, and what it claims holds.
        let head = image.at(at, BLOCK as usize)?;
        if let Ok((header, _)) = UnitHeader::parse(head, salt, offset)
            && header.session >= session
        {
            claim = claim.max(header.claim);
        }
        at += u64::from(BLOCK);
        if image.at(at - u64::from(BLOCK), BLOCK as usize)?.iter().any(|&byte| byte != 0) {
            segment.written_to = at as u32;
        }
    }
    // What stands behind the last unit of the newest segment is damage only if a claim says so.
    if let (Some((from, flaw)), Some(to)) = (bad, segment.end) {
        segment.pieces.push(Piece::Bad { from, to, after: seq, flaw });
    }
    drop_what_does_not_lead_on(segment);
    Ok(Part { claim, goes_on })
}

/// Units at the end of a segment that are sound, but not what the segment behind continues, are
/// those of another history: they count as bad.
fn drop_what_does_not_lead_on(segment: &mut Examined) {
    let (Some((chain, seq)), Some(to)) = (segment.next, segment.end) else {
        return;
    };
    let leads = |unit: &SoundUnit| unit.chain == chain && unit.header.last_seq == seq;
    let mut from = to;
    while let Some(Piece::Sound(unit)) = segment.pieces.last() {
        let over = unit.header.last_seq > seq;
        if (from == to && leads(unit)) || (from < to && !over) {
            break;
        }
        from = unit.offset;
        segment.pieces.pop();
    }
    if from < to {
        let (after, flaw) = (segment.last(), Flaw::Chain);
        segment.pieces.push(Piece::Bad { from, to, after, flaw });
    }
}

/// The footer of a segment, wherever in the file it stands: what a segment that lost its header, or
/// its successor, is known by.
fn find_footer(segment: &Examined, manifest: &Manifest) -> Result<Option<Footer>> {
    let Some(file) = &segment.file else {
        return Ok(None);
    };
    let salt = Salt::new(manifest.log, segment.number);
    let mut image = Image::new(Arc::clone(file))?;
    let mut at = BLOCK;
    while u64::from(at) < image.len() {
        let head = image.at(u64::from(at), BLOCK as usize)?;
        if let Ok(length) = Footer::length(head, at) {
            let bytes = image.at(u64::from(at), length as usize)?;
            if let Ok(footer) = Footer::parse(bytes, salt, at) {
                return Ok(Some(footer));
            }
        }
        at += BLOCK;
    }
    Ok(None)
}

/// Where the oldest segment begins, when its header is damaged: its footer tells, or what stands
/// behind it, or its own units.
fn first_place(
    segment: &Examined,
    footer: Option<&Footer>,
    next: Option<&SegmentHeader>,
    manifest: &Manifest,
) -> Result<(u64, u64)> {
    let base = |end: u32| next.map_or(0, |next| next.base.saturating_sub(u64::from(end)));
    if let Some(footer) = footer {
        return Ok((base(footer.end), footer.prev_seq));
    }
    let Some(file) = &segment.file else {
        return Ok((0, manifest.floor_seq));
    };
    let salt = Salt::new(manifest.log, segment.number);
    let (mut first, mut end) = (None, BLOCK);
    strays(file, salt, BLOCK, None, &Trouble::default(), |stray, whole| {
        if whole {
            first.get_or_insert((stray.offset, stray.header.prev_seq));
            end = stray.offset + stray.header.span();
        }
    })?;
    let prev_seq = match first {
        Some((BLOCK, prev_seq)) => prev_seq,
        // What stood before the first sound unit is lost, as far as the floor.
        Some((_, prev_seq)) => prev_seq.min(manifest.floor_seq),
        None => {
            // Nothing is sound: the file's length is what is left to go by.
            let most = u64::from(SEGMENT_MAX / 2);
            end = file.len()?.clamp(u64::from(BLOCK), most) as u32 / BLOCK * BLOCK;
            manifest.floor_seq
        }
    };
    Ok((base(end), prev_seq))
}

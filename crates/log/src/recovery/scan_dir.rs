//! Scans the directory of a log. Reads only.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use esker_disk::{AlignedBuf, Dir, File, Open, read_full_at};
use parking_lot::RwLock;

use super::classify::{Break, MISSING, begins_with, is_front_missing};
use super::findings::{DirScan, DirScanner, Live, ParsedHeader};
use super::reach;
use crate::base::error::{Corruption, Error, Result};
use crate::base::error::{corruption_at, corruption_of};
use crate::base::options::OpenCheck;
use crate::base::position::Seq;
use crate::base::read_options::ReadOptions;
use crate::format::footer::FOOTER_HEADER;
use crate::format::segment::HeaderError;
use crate::format::{BLOCK, DecodeError, Footer, SEGMENT_MAX, SegmentHeader};
use crate::store::manifest::Manifest;
use crate::store::paths::{self, Name};
use crate::store::segment_reader::ReadErrors;
use crate::store::segment_scan::{Density, From, Scan, scan};
use crate::store::segment_table::{Segment, State};
use crate::store::watermark_page::{PageReader, refuse_foreign_page};

/// Reads the first block of a segment file.
pub(crate) fn read_segment_header(
    file: &dyn File,
    manifest: &Manifest,
    number: u64,
) -> Result<ParsedHeader> {
    let mut block = AlignedBuf::new(BLOCK as usize);
    let got = read_full_at(file, &mut block, 0)?;
    Ok(SegmentHeader::parse(&block[..got], manifest.log, number))
}

/// Scans the directory of a log with this manifest.
///
/// # Errors
/// `UnsupportedVersion` or `ForeignFile` for files that are not this log's, and disk errors.
/// Corruption is reported in the result.
pub(crate) fn scan_dir(
    dir: &dyn Dir,
    options: &ReadOptions,
    manifest: Manifest,
    direct: bool,
) -> Result<DirScan> {
    let mut scanner = DirScanner {
        dir,
        options,
        direct,
        manifest,
        headers: BTreeMap::new(),
        read_errors: ReadErrors::default(),
        stored: None,
    };
    let mut scan = DirScan {
        manifest,
        live: Vec::new(),
        dead: Vec::new(),
        blank: Vec::new(),
        spares: Vec::new(),
        temporary: Vec::new(),
        highest_number: 0,
        durable_bound: manifest.durable_bound(),
        cut: None,
        corruption: None,
    };
    for name in dir.list()? {
        match paths::classify(&name) {
            Name::Segment(number) if number < manifest.trim_segment => {
                // Opening removes this file, so it must belong to this log.
                if scanner.may_be_removed(number)? {
                    scan.dead.push(number);
                }
            }
            Name::Segment(number) => scanner.open(number)?,
            Name::Spare(number) => scan.spares.push(number),
            Name::Temporary => scan.temporary.push(name),
            Name::Known | Name::Unknown => continue,
        }
    }
    let reader = PageReader::of_any_log(dir)?;
    // Retry once, then ignore the page: a crash may have torn a slot for good.
    let page =
        reader.and_then(|reader| reader.stored().or_else(|_| reader.stored()).ok().flatten());
    if let Some(stored) = page.filter(|stored| stored.log == manifest.log) {
        scan.durable_bound = scan.durable_bound.max(stored.seq);
        scanner.stored = Some(stored.segment);
    }
    let reached = reach::retain(&mut scanner.headers, &manifest, |(_, parsed)| parsed.is_ok());
    scan.spares.retain(|number| reach::is_within(reached, *number));
    let named = scanner.headers.keys().chain(&scan.spares).chain(&scan.dead);
    scan.highest_number = named.copied().fold(reached, u64::max);
    scanner.follow_chain(&mut scan)?;
    if scan.live.is_empty() {
        refuse_foreign_page(dir, page, manifest.log)?;
    }
    // A crash may leave one unreadable block in the tail that it tore. More blocks, a block where
    // records are missing, or one after a clean close is a device error, which may be transient.
    let (blocks, cause) = scanner.read_errors.seen();
    let torn = blocks == 1 && scan.corruption.is_none() && manifest.clean.is_none();
    match cause {
        Some(cause) if !torn => Err(cause.into()),
        _ => Ok(scan),
    }
}

impl DirScanner<'_> {
    /// The path of a segment, for messages.
    pub(super) fn path(&self, number: u64) -> PathBuf {
        self.dir.path_of(&paths::segment(number))
    }

    /// Whether opening may remove the file of a dead segment. Refuses one that another log wrote,
    /// and passes over what is no regular file.
    fn may_be_removed(&self, number: u64) -> Result<bool> {
        let name = paths::segment(number);
        let file = match self.dir.open(&name, Open::read().direct(self.direct)) {
            Ok(file) => file,
            // A missing or unreadable file cannot be attributed to any log.
            Err(cause) => {
                let is_file = cause.refusal().is_none() && cause.kind() != ErrorKind::IsADirectory;
                return Ok(is_file);
            }
        };
        match read_segment_header(&*file, &self.manifest, number) {
            Ok(Err(HeaderError::Foreign(_))) => Err(Error::ForeignFile { file: self.path(number) }),
            _ => Ok(true),
        }
    }

    fn open(&mut self, number: u64) -> Result<()> {
        let name = paths::segment(number);
        let file = self.dir.open(&name, Open::read().direct(self.direct))?;
        let read = || read_segment_header(&*file, &self.manifest, number);
        let parsed = match read().or_else(|_| read()) {
            Ok(parsed) => parsed,
            Err(Error::Io(cause)) => {
                self.read_errors.note(0, &cause);
                Err(HeaderError::Invalid(DecodeError::Unreadable))
            }
            Err(error) => return Err(error),
        };
        match parsed {
            Err(HeaderError::Version(version)) => {
                return Err(Error::UnsupportedVersion { file: self.dir.path_of(&name), version });
            }
            Err(HeaderError::Foreign(_)) => {
                return Err(Error::ForeignFile { file: self.dir.path_of(&name) });
            }
            _ => {}
        }
        self.headers.insert(number, (file, parsed));
        Ok(())
    }

    /// The chain of headers that ends with the newest valid one, oldest first. If a link is missing
    /// or corrupt, returns the chain before it and the corruption to report if a durable lower
    /// bound covers what follows.
    fn chain(&self) -> (Vec<(SegmentHeader, u32)>, Option<Corruption>) {
        let newest = self.headers.values().rev().find_map(|(_, parsed)| parsed.ok());
        let mut chain: Vec<_> = newest.into_iter().collect();
        while let Some((header, _)) = chain.last() {
            if self.begins_with(header) {
                break;
            }
            match self.link(header) {
                Ok(before) => chain.push(before),
                Err(what) => return self.chain_up_to(header, what),
            }
        }
        chain.reverse();
        (chain, None)
    }

    /// The chain from the oldest segment up to the first broken link: the link below this header or
    /// an earlier one.
    fn chain_up_to(
        &self,
        above: &SegmentHeader,
        what: String,
    ) -> (Vec<(SegmentHeader, u32)>, Option<Corruption>) {
        let (mut above, mut what) = (*above, what);
        loop {
            let number = above.prev_segment;
            let chain = self.chain_before(number);
            match chain.first() {
                Some((first, _)) if !self.begins_with(first) => {
                    what = self.link(first).err().unwrap_or(what);
                    above = *first;
                }
                _ => {
                    // A valid segment between the two may follow another segment that is lost.
                    let last = chain.last().map_or(0, |(last, _)| last.segment);
                    let between = self.headers.range(last + 1..number);
                    let cut_off = between
                        .filter_map(|(_, (_, parsed))| parsed.ok())
                        .find_map(|(header, _)| Some((header, self.link(&header).err()?)));
                    let (above, what) = cut_off.unwrap_or((above, what));
                    let path = self.path(above.prev_segment);
                    return (chain, Some(corruption_of(&path, 0, above.prev_seq, what)));
                }
            }
        }
    }

    fn begins_with(&self, header: &SegmentHeader) -> bool {
        begins_with(&self.manifest, header, |number| {
            self.headers.get(&number).is_some_and(|(_, parsed)| parsed.is_ok())
        })
    }

    /// The header of the segment that this header names as its predecessor.
    fn link(&self, header: &SegmentHeader) -> std::result::Result<(SegmentHeader, u32), String> {
        match self.headers.get(&header.prev_segment) {
            None => Err(MISSING.into()),
            Some((_, Err(HeaderError::Invalid(decode_error)))) => Err(decode_error.to_string()),
            Some((_, Err(_))) => Err(DecodeError::NotAUnit.to_string()),
            Some((_, Ok(before))) => {
                let length = header.base.checked_sub(before.0.base);
                let fits = length.is_some_and(|n| (4096..=u64::from(SEGMENT_MAX)).contains(&n));
                if before.0.prev_seq > header.prev_seq || !fits {
                    return Err(DecodeError::Nonsense.to_string());
                }
                Ok(*before)
            }
        }
    }

    /// The chain that starts with the oldest segment and stays below a number.
    fn chain_before(&self, number: u64) -> Vec<(SegmentHeader, u32)> {
        let valid = || self.headers.range(..number).filter_map(|(_, (_, parsed))| parsed.ok());
        let mut chain: Vec<_> = valid().next().into_iter().collect();
        while let Some((header, _)) = chain.last() {
            let next = valid().rfind(|(next, _)| next.prev_segment == header.segment);
            match next {
                Some(next) => chain.push(next),
                None => break,
            }
        }
        chain
    }

    fn follow_chain(&self, scan: &mut DirScan) -> Result<()> {
        let (chain, broken_link) = self.chain();
        let front = chain
            .first()
            .filter(|(first, _)| is_front_missing(&self.manifest, first.segment, first.prev_seq));
        let front_is_missing = front.is_some();
        for (n, (header, header_crc)) in chain.iter().enumerate() {
            scan.durable_bound = scan.durable_bound.max(header.durable_bound);
            let next = chain.get(n + 1).map(|(next, _)| next);
            let (live, decode_error) = self.live(header, *header_crc, next)?;
            let units = live.units.iter().flatten();
            scan.durable_bound =
                units.map(|unit| unit.header.durable_bound).fold(scan.durable_bound, u64::max);
            if live.units.is_none() {
                scan.durable_bound = scan.durable_bound.max(live.segment.state.read().last_seq);
            }
            scan.live.push(live);
            if let Some(decode_error) = decode_error {
                scan.dead.extend(chain[n + 1..].iter().map(|(header, _)| header.segment));
                self.classify_break(scan, &Break { at: n, decode_error })?;
                if n + 1 == chain.len() && scan.corruption.is_some() && broken_link.is_some() {
                    // The missing link is the more precise cause.
                    let after =
                        scan.corruption.as_ref().map_or(Seq::ZERO, |corruption| corruption.after);
                    scan.corruption =
                        broken_link.clone().map(|corruption| Corruption { after, ..corruption });
                }
                break;
            }
        }
        if chain.is_empty() {
            match broken_link {
                Some(link) => {
                    let after = Seq(self.manifest.trim_seq);
                    scan.corruption = Some(Corruption { after, ..link });
                }
                None => self.classify_empty(scan),
            }
        }
        let live: Vec<u64> = scan.live.iter().map(|live| live.segment.number()).collect();
        let dead = self.headers.keys().filter(|number| !live.contains(number));
        scan.dead.extend(dead);
        scan.dead.sort_unstable();
        scan.dead.dedup();
        let blank = |number: &u64| {
            matches!(
                self.headers.get(number),
                Some((_, Err(HeaderError::Invalid(DecodeError::Blank))))
            )
        };
        scan.blank = scan.dead.iter().copied().filter(blank).collect();
        scan.dead.retain(|number| !blank(number));
        if front_is_missing {
            let path = self.path(self.manifest.trim_segment);
            let after = self.manifest.trim_seq;
            scan.corruption = Some(corruption_of(&path, 0, after, MISSING));
        }
        if scan.corruption.is_none() {
            scan.corruption = self.check_clean_end(scan);
        }
        Ok(())
    }

    /// Reads one live segment, by its footer or by a scan. Also returns the decode error that ends
    /// it before `next`.
    fn live(
        &self,
        header: &SegmentHeader,
        header_crc: u32,
        next: Option<&SegmentHeader>,
    ) -> Result<(Live, Option<DecodeError>)> {
        let number = header.segment;
        let Some((file, _)) = self.headers.get(&number) else {
            return Err(corruption_at(&self.path(number), 0, 0, DecodeError::NotAUnit));
        };
        let file_len = file.len()?;
        let end = next.map(|next| (next.base - header.base) as u32);
        let footed = next.and_then(|next| footed(file, header, next));
        let matches = footed.is_some();
        let segment = |state: State| {
            Arc::new(Segment {
                header: *header,
                salt: header.salt(),
                path: self.path(number),
                reader: Arc::clone(file),
                state: RwLock::new(state),
            })
        };
        if let Some(state) = footed.filter(|_| self.options.check == OpenCheck::Quick) {
            return Ok((Live { segment: segment(state), units: None, file_len }, None));
        }

        let until = end.or_else(|| {
            let clean = self.manifest.clean.filter(|clean| clean.segment == number)?;
            Some(clean.offset)
        });
        let from = From {
            salt: header.salt(),
            offset: BLOCK,
            chain: header_crc,
            seq: header.prev_seq,
            session: header.session,
        };
        let found = scan(file, from, until, density(self.options), &self.read_errors)?;
        let decode_error = found.decode_error.or_else(|| {
            let next = next?;
            (found.chain != next.chain || found.seq != next.prev_seq).then_some(DecodeError::Chain)
        });
        let Scan { end, seq, chain, records, time_ms, index, units, .. } = found;
        let state = State {
            end,
            last_seq: seq,
            chain,
            records,
            time_ms: if time_ms == 0 { header.time_ms } else { time_ms },
            full: next.is_some() && decode_error.is_none(),
            footed: matches,
            index,
        };
        Ok((Live { segment: segment(state), units: Some(units), file_len }, decode_error))
    }
}

pub(crate) fn density(options: &ReadOptions) -> Density {
    Density { bytes: options.index_bytes, records: options.index_records }
}

/// The state from a segment's footer, if there is one and the next segment's header agrees.
fn footed(file: &Arc<dyn File>, header: &SegmentHeader, next: &SegmentHeader) -> Option<State> {
    let end = next.base.checked_sub(header.base)?;
    let footer = read_footer(file, header, end as u32)?;
    let agrees = footer.last_seq == next.prev_seq
        && footer.chain == next.chain
        && footer.prev_seq == header.prev_seq;
    agrees.then_some(State {
        end: footer.end,
        last_seq: footer.last_seq,
        chain: footer.chain,
        records: footer.records,
        time_ms: footer.time_ms,
        full: true,
        footed: true,
        index: footer.index,
    })
}

/// As [`footed`], for a segment that is being read.
pub(crate) fn read_footed(segment: &Segment, next: &SegmentHeader) -> Option<State> {
    footed(&segment.reader, &segment.header, next)
}

/// The footer at `end`, if there is a valid one.
fn read_footer(file: &Arc<dyn File>, header: &SegmentHeader, end: u32) -> Option<Footer> {
    let mut first = AlignedBuf::new(BLOCK as usize);
    let got = read_full_at(&**file, &mut first, u64::from(end)).ok()?;
    if got < FOOTER_HEADER {
        return None;
    }
    let length = Footer::length(&first[..got], end).ok()?;
    if length <= BLOCK {
        return Footer::parse(&first[..got], header.salt(), end).ok();
    }
    let mut bytes = AlignedBuf::new(length as usize);
    let got = read_full_at(&**file, &mut bytes, u64::from(end)).ok()?;
    Footer::parse(&bytes[..got], header.salt(), end).ok()
}

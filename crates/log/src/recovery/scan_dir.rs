//! Scans the directory of a log. Reads only.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use esker_disk::{AlignedBuf, Dir, File, Open, Read, read_full_at};
use parking_lot::RwLock;

use super::classify::{Break, MISSING, begins_with, is_front_missing};
use super::findings::{DirScan, DirScanner, Live, ParsedHeader};
use super::reach;
use crate::base::error::{Corruption, Error, Result};
use crate::base::error::{corruption_at, corruption_of};
use crate::base::options::OpenCheck;
use crate::base::position::Seq;
use crate::base::read_options::ReadOptions;
use crate::format::segment::HeaderError;
use crate::format::{BLOCK, DecodeError, SEGMENT_MAX, SegmentHeader};
use crate::store::manifest::Manifest;
use crate::store::paths::{self, Name};
use crate::store::segment_reader::ReadErrors;
use crate::store::segment_scan::{Density, From, Scan, scan};
use crate::store::segment_table::{Segment, State};
use crate::store::watermark_page::{PageReader, refuse_foreign_page};

/// Segments of which headers or footers are read together.
pub(super) const TOGETHER: usize = 64;

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
    let mut numbers = Vec::new();
    for name in dir.list()? {
        match paths::classify(&name) {
            Name::Segment(number) if number < manifest.trim_segment => {
                // Opening removes this file, so it must belong to this log.
                if scanner.may_be_removed(number)? {
                    scan.dead.push(number);
                }
            }
            Name::Segment(number) => numbers.push(number),
            Name::Spare(number) => scan.spares.push(number),
            Name::Temporary => scan.temporary.push(name),
            Name::Known | Name::Unknown => continue,
        }
    }
    for numbers in numbers.chunks(TOGETHER) {
        scanner.open(numbers)?;
    }
    let reader = PageReader::of_any_log(dir)?;
    // Retry once, then ignore the page: a crash may have torn a slot for good.
    let page =
        reader.and_then(|reader| reader.stored().or_else(|_| reader.stored()).ok().flatten());
    if let Some(stored) = page.filter(|stored| stored.log == manifest.log) {
        scan.durable_bound = scan.durable_bound.max(stored.seq);
        // Each truncation is in both. An older manifest that was put back does not undo it.
        scan.manifest.trim_seq = manifest.trim_seq.max(stored.trim);
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

    /// Opens some segments and reads their headers.
    fn open(&mut self, numbers: &[u64]) -> Result<()> {
        let how = Open::read().direct(self.direct);
        let open = |number: &u64| self.dir.open(&paths::segment(*number), how);
        let files = numbers.iter().map(open).collect::<esker_disk::Result<Vec<_>>>()?;
        let mut blocks: Vec<_> = files.iter().map(|_| AlignedBuf::new(BLOCK as usize)).collect();
        let mut reads: Vec<_> = files
            .iter()
            .zip(&mut blocks)
            .map(|(file, buf)| Read { file: &**file, buf, offset: 0 })
            .collect();
        let read = self.dir.read_each(&mut reads);
        for (((number, file), block), read) in numbers.iter().zip(files).zip(blocks).zip(read) {
            let parse =
                |got: usize| SegmentHeader::parse(&block[..got], self.manifest.log, *number);
            let again = || read_segment_header(&*file, &self.manifest, *number);
            let parsed = match read.map(parse).or_else(|_| again()) {
                Ok(parsed) => parsed,
                Err(Error::Io(cause)) => {
                    self.read_errors.note(0, &cause);
                    Err(HeaderError::Invalid(DecodeError::Unreadable))
                }
                Err(error) => return Err(error),
            };
            match parsed {
                Err(HeaderError::Version(version)) => {
                    return Err(Error::UnsupportedVersion { file: self.path(*number), version });
                }
                Err(HeaderError::Foreign(_)) => {
                    return Err(Error::ForeignFile { file: self.path(*number) });
                }
                _ => {}
            }
            self.headers.insert(*number, (file, parsed));
        }
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
        let mut footers = self.footers(&chain).into_iter();
        for (n, (header, header_crc)) in chain.iter().enumerate() {
            scan.durable_bound = scan.durable_bound.max(header.durable_bound);
            let next = chain.get(n + 1).map(|(next, _)| next);
            let footer = footers.next().flatten();
            let (live, decode_error) = self.live(header, *header_crc, next, footer)?;
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
        footed: Option<State>,
    ) -> Result<(Live, Option<DecodeError>)> {
        let number = header.segment;
        let Some((file, _)) = self.headers.get(&number) else {
            return Err(corruption_at(&self.path(number), 0, 0, DecodeError::NotAUnit));
        };
        let file_len = file.len()?;
        let end = next.map(|next| (next.base - header.base) as u32);
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
        if self.options.check == OpenCheck::Quick
            && let Some(state) = footed.or_else(|| self.closed(header, file, file_len))
        {
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
        let Scan { end, seq, chain, records, payload, has_gap, time_ms, index, units, .. } = found;
        let state = State {
            end,
            last_seq: seq,
            chain,
            records,
            payload: Some(payload),
            has_gap,
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

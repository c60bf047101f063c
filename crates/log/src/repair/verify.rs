//! Reading everything and telling what is wrong. Changes nothing and needs no lock.

use std::path::Path;

use super::examine::examine;
use super::examined::{Examined, Piece};
use crate::directory;
use crate::error::{Damage, Result};
use crate::format::unit::UnitKind;
use crate::manifest::Manifest;
use crate::options::Options;
use crate::position::Seq;

/// What [`verify`] found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Report {
    /// Live segments.
    pub segments: u64,
    /// Sound commit units.
    pub units: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes in them, headers and padding included.
    pub bytes: u64,
    /// The number before the first record.
    pub after: Seq,
    /// The last sound record.
    pub last: Seq,
    /// The highest number that something sound says was durable.
    pub claimed: Seq,
    /// Damage, in order. Empty in a sound log.
    pub damage: Vec<Damage>,
    /// Gaps that an earlier repair left: the last number before, the last number gone.
    pub quarantined: Vec<(Seq, Seq)>,
}

/// Reads every byte of the log in `dir` that counts, and tells all damage.
///
/// With a writer at work, commits that go on meanwhile are not looked at.
///
/// # Errors
/// [`Error::NotALog`], [`Error::Version`], [`Error::Foreign`], [`Error::Io`]. Damage is no error
/// here but part of the report; only a damaged or lost manifest is [`Error::Damaged`].
///
/// [`Error::NotALog`]: crate::Error::NotALog
/// [`Error::Version`]: crate::Error::Version
/// [`Error::Foreign`]: crate::Error::Foreign
/// [`Error::Io`]: crate::Error::Io
/// [`Error::Damaged`]: crate::Error::Damaged
pub fn verify(dir: impl AsRef<Path>, options: &Options) -> Result<Report> {
    let dir = &*directory::open(dir.as_ref(), options)?;
    let manifest = Manifest::of_log(dir)?;
    let found = examine(dir, &manifest)?;
    let mut report = Report {
        segments: found.segments.len() as u64,
        after: Seq(found.segments.first().map_or(0, |first| first.prev_seq)),
        last: Seq(found.segments.last().map_or(found.last, Examined::last)),
        claimed: Seq(found.claim),
        ..Report::default()
    };
    for segment in &found.segments {
        let damage = |offset: u64, after: u64, what: String| Damage {
            file: segment.path.clone(),
            offset,
            after: Seq(after),
            what,
        };
        if let Some(flaw) = &segment.header_flaw {
            report.damage.push(damage(0, segment.prev_seq, flaw.clone()));
        }
        for piece in &segment.pieces {
            match piece {
                Piece::Sound(unit) => {
                    report.units += 1;
                    report.records += u64::from(unit.header.records);
                    report.bytes += u64::from(unit.header.span());
                    let (from, to) = (unit.header.prev_seq, unit.header.last_seq);
                    if unit.header.kind == UnitKind::Gap && from < to {
                        report.quarantined.push((Seq(from), Seq(to)));
                    }
                }
                Piece::Bad { from, after, flaw, .. } => {
                    report.damage.push(damage(u64::from(*from), *after, flaw.to_string()));
                }
            }
        }
    }
    if found.clean_lies {
        report.damage.push(Damage {
            file: dir.path_of(crate::layout::MANIFEST),
            offset: 0,
            after: Seq(manifest.clean.map_or(0, |end| end.seq)),
            what: "the log goes on behind the end that the manifest tells of".into(),
        });
    }
    if found.claim > found.last
        && let Some(newest) = found.segments.last()
    {
        report.damage.push(Damage {
            file: newest.path.clone(),
            offset: u64::from(newest.pieces_end()),
            after: Seq(found.last),
            what: format!("records up to {} were durable and are missing", found.claim),
        });
    }
    Ok(report)
}

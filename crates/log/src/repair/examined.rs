//! A segment piece by piece, as far as it could be made out.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_disk::File;

use crate::format::{BLOCK, Flaw, SegmentHeader};
use crate::layout;
use crate::manifest::End;
use crate::scan::SoundUnit;

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

    pub(crate) fn beheaded(
        dir: &Path,
        number: u64,
        file: Option<Arc<dyn File>>,
        flaw: String,
    ) -> Self {
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

//! The report of a repair.

use std::path::PathBuf;

use crate::base::position::{Seq, SeqRange};

/// A range of a segment file that was quarantined.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuarantinedRange {
    /// The segment file.
    pub file: PathBuf,
    /// The offset of the first corrupt byte.
    pub offset: u64,
    /// The number of bytes quarantined.
    pub bytes: u64,
    /// The file with the quarantined bytes; `None` if no bytes were left to keep.
    pub kept_in: Option<PathBuf>,
    /// The last valid record before the range.
    pub from: Seq,
    /// The last record that is lost.
    pub to: Seq,
}

/// The result of `repair`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Repaired {
    /// The quarantined ranges, in order. Empty when nothing was corrupt.
    pub quarantined: Vec<QuarantinedRange>,
    /// Whether the manifest was missing or corrupt, and was rebuilt from the segments.
    pub manifest_rebuilt: bool,
    /// Whether the manifest alone was wrong: it was of an earlier time and named another end of the
    /// log than the segments have.
    pub manifest_corrected: bool,
    /// Set with a rebuilt manifest: these records are readable
    /// and may have been truncated before. Nothing that is left proves the trim point. `None` if
    /// the watermark page proves it.
    pub may_be_truncated: Option<SeqRange>,
}

//! What a repair reports.

use std::path::PathBuf;

use crate::base::position::Seq;

/// A range of a segment file that was put aside.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuarantinedRange {
    /// The segment file.
    pub file: PathBuf,
    /// The first damaged byte in it.
    pub offset: u64,
    /// How many bytes were put aside.
    pub bytes: u64,
    /// Where they are now.
    pub kept_in: Option<PathBuf>,
    /// The last sound record before.
    pub from: Seq,
    /// The last record that is gone.
    pub to: Seq,
}

/// What `repair` did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Repaired {
    /// The ranges put aside, in order. Empty when nothing was damaged.
    pub aside: Vec<QuarantinedRange>,
    /// The manifest was missing or damaged, and was made anew from the segments.
    pub manifest: bool,
    /// With a manifest made anew: records above the first number, up to the second, are readable and
    /// may have been truncated before, because nothing that is left proves the trim point. `None`
    /// where the watermark page proves it.
    pub may_be_truncated: Option<(Seq, Seq)>,
}

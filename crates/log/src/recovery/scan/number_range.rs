//! Which names of segment files can be those of a log.
//!
//! New segments continue above every file of the log, so that no number is used twice. A file that
//! is not the log's may have any name. If such a name counted, one of them would bring the log near
//! [`NUMBER_MAX`](crate::format::NUMBER_MAX), where its next headers and manifests are invalid. So
//! a name counts only within [`REACH_NUMBERS`] of the numbers that the log is known to have used. A
//! file further up is not read, not removed and not reported.

use std::collections::BTreeMap;

use crate::store::manifest::Manifest;

/// How far a name may be above the highest number that the log is known to have used. A log does
/// not create so many segments between two records of its progress.
const REACH_NUMBERS: u64 = 1 << 32;

pub(super) fn is_within(reached: u64, number: u64) -> bool {
    number.saturating_sub(reached) < REACH_NUMBERS
}

/// Removes the files that are out of reach. Returns the highest number known to be used: by the
/// manifest and the valid headers.
pub(super) fn retain<V>(
    files: &mut BTreeMap<u64, V>,
    manifest: &Manifest,
    is_valid: impl Fn(&V) -> bool,
) -> u64 {
    let valid = files.iter().filter(|(_, file)| is_valid(file)).map(|(number, _)| *number);
    let clean = manifest.clean.map_or(0, |end| end.segment);
    let reached = valid.fold(manifest.trim_segment.max(clean), u64::max);
    files.retain(|number, _| is_within(reached, *number));
    reached
}

//! The names in a log's directory.
//!
//! ```text
//! lock                    the process id of the last writer (the lock is on the directory)
//! manifest                the log id, session, trim point and clean end (a sealed file)
//! mark                    the watermark page: how far the log is durable, for other processes
//! 00000000000000000001.seg  segments, by number
//! 3.spare                 a segment that left the log and waits to be used again
//! manifest.next, note.next  the temporary files of the two, which keep their blocks
//! reserve                 space for recovery and internal appends
//! note                    app metadata: component of the log, and its small data (a sealed file)
//! checkpoint              what a component opens faster with (a chunked file)
//! snapshot-00000000000000000007  the state of an application at 7 (a chunked file)
//! incoming                a snapshot of which another node has sent a part
//! quarantine/             what `repair` quarantined
//! ```

use crate::format::NUMBER_MAX;

pub(crate) const MANIFEST: &str = "manifest";
pub(crate) const MARK: &str = "mark";
pub(crate) const LOCK: &str = "lock";
pub(crate) const APP_METADATA: &str = "note";
pub(crate) const RESERVE: &str = "reserve";
pub(crate) const CHECKPOINT: &str = "checkpoint";
pub(crate) const QUARANTINE: &str = "quarantine";
/// A snapshot that is being received. It is kept until it is complete, or another one begins.
pub(crate) const INCOMING: &str = "incoming";
/// The directory of the offsets of consumers.
pub(crate) const CONSUMERS: &str = "consumers";
/// The suffix of a temporary file that is renamed once it is complete.
pub(crate) const ASIDE: &str = ".new";

const SNAPSHOT: &str = "snapshot-";
/// The suffix of a sealed file's temporary file.
const NEXT: &str = ".next";

pub(crate) fn segment(number: u64) -> String {
    format!("{number:020}.seg")
}

pub(crate) fn spare(number: u64) -> String {
    format!("{number}.spare")
}

pub(crate) fn temporary(name: &str) -> String {
    format!("{name}{ASIDE}")
}

/// The temporary file of a sealed file. It is kept after each replacement.
pub(crate) fn next(name: &str) -> String {
    format!("{name}{NEXT}")
}

pub(crate) fn snapshot(at: u64) -> String {
    format!("{SNAPSHOT}{at:020}")
}

/// A temporary name of a snapshot. Several may be written at a time, each with a number of its own.
pub(crate) fn snapshot_aside(at: u64, number: u64) -> String {
    format!("{}.{number:016x}{ASIDE}", snapshot(at))
}

/// Parses the name of a snapshot exactly as it is formatted.
pub(crate) fn snapshot_at(name: &str) -> Option<u64> {
    let at = name.strip_prefix(SNAPSHOT)?.parse().ok()?;
    (snapshot(at) == name).then_some(at)
}

/// The kind of file that a name in the directory refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name {
    Segment(u64),
    Spare(u64),
    /// A temporary file that did not get its final name, or a probe of what the disk supports.
    Temporary,
    /// One of the log's other files.
    Known,
    Unknown,
}

pub(crate) fn classify(name: &str) -> Name {
    let files = [MANIFEST, MARK, LOCK, APP_METADATA, RESERVE, CHECKPOINT, INCOMING];
    let directories = [QUARANTINE, CONSUMERS];
    if files.contains(&name) || directories.contains(&name) || snapshot_at(name).is_some() {
        return Name::Known;
    }
    if let Some(MANIFEST | APP_METADATA) = name.strip_suffix(NEXT) {
        return Name::Known;
    }
    if name.starts_with(".esker-probe-") {
        return Name::Temporary;
    }
    if let Some(name) = name.strip_suffix(ASIDE) {
        let ours = [MANIFEST, APP_METADATA, CHECKPOINT, RESERVE].contains(&name)
            || matches!(classify(name), Name::Segment(_))
            || is_snapshot_aside(name);
        return if ours { Name::Temporary } else { Name::Unknown };
    }
    if let Some(number) = numbered(name, ".seg") {
        return Name::Segment(number);
    }
    if let Some(number) = numbered(name, ".spare") {
        return Name::Spare(number);
    }
    Name::Unknown
}

/// Whether a name is the temporary one of a snapshot, without its suffix.
fn is_snapshot_aside(name: &str) -> bool {
    let Some((snapshot, number)) = name.split_once('.') else { return false };
    let is_number = u64::from_str_radix(number, 16).is_ok_and(|at| format!("{at:016x}") == number);
    is_number && snapshot_at(snapshot).is_some()
}

/// Whether a directory with these names is a log, or the remains of one. Only app metadata become
/// durable before the manifest, so each of the other files implies that there was a manifest.
pub(crate) fn is_a_log(names: &[String]) -> bool {
    let first = [MANIFEST, MARK, QUARANTINE];
    let is_evidence = |name: &String| {
        first.contains(&name.as_str()) || matches!(classify(name), Name::Segment(_))
    };
    names.iter().any(is_evidence)
}

/// Parses the number in a name exactly as a log formats it. No segment has a higher number than a
/// header can hold.
fn numbered(name: &str, suffix: &str) -> Option<u64> {
    let number = name.strip_suffix(suffix)?.parse().ok()?;
    let given = match suffix {
        ".seg" => segment(number),
        _ => spare(number),
    };
    (given == name && (1..NUMBER_MAX).contains(&number)).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        assert_eq!(classify(&segment(7)), Name::Segment(7));
        assert_eq!(classify(&segment(u64::MAX)), Name::Unknown);
        assert_eq!(classify(&spare(7)), Name::Spare(7));
        assert_eq!(classify(&temporary(&segment(7))), Name::Temporary);
        assert_eq!(classify("manifest"), Name::Known);
        assert_eq!(classify("7.seg"), Name::Unknown);
        assert_eq!(classify("notes.txt"), Name::Unknown);
        assert_eq!(classify("thesis.new"), Name::Unknown);
        assert_eq!(classify("+5.spare"), Name::Unknown);
        assert_eq!(classify("manifest.new"), Name::Temporary);
        assert_eq!(classify("note"), Name::Known);
        assert_eq!(classify("note.new"), Name::Temporary);
        assert_eq!(classify("checkpoint"), Name::Known);
        assert_eq!(classify("checkpoint.new"), Name::Temporary);
        assert_eq!(snapshot_at(&snapshot(u64::MAX)), Some(u64::MAX));
        assert_eq!(classify(&snapshot(7)), Name::Known);
        assert_eq!(classify(&snapshot_aside(7, 3)), Name::Temporary);
        assert_eq!(classify("snapshot-7"), Name::Unknown);
        assert_eq!(classify("snapshot-00000000000000000007.new"), Name::Unknown);
        assert_eq!(classify("incoming"), Name::Known);
    }
}

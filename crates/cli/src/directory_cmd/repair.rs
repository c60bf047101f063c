//! `esker repair`: quarantines corrupt units and keeps the rest.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use esker_log::{
    Corruption, Error, QuarantinedRange, ReadOnlyLog, ReadOptions, Repaired, Salvaged, Seq,
    SeqRange,
};
use serde_json::{Value, json};

use super::component::{Component, DirectoryArguments};
use super::log_verify::{corrupt_beside, corruption_json};
use crate::consensus_dir;
use esker_command::exit::{Failure, Outcome};
use esker_command::output;
use esker_command::progress;

const EXAMPLES: &str = "\
Examples:
  # Check first
  esker verify ./esker-data

  # Quarantine the corrupt units; their bytes are kept in
  # ./esker-data/quarantine
  esker repair ./esker-data

It takes the lock. At most the corrupt commit unit is lost: records that were committed together, at most \
1 MiB unless one record or atomic batch is larger. The quarantined bytes are kept in a file. \
`esker log cat` then prints the remaining records, with one line on standard error for each \
quarantined range. With --json, `from` is the last record before a range, and `to` the last in it. \
A valid log is not changed. Of many consensus logs it repairs the one with --key.

A consensus log that was repaired is read-only, because it may have lost votes. Do not repair the log of a node: \
remove the node from its cluster, and let one join under a new number.";

/// Arguments of `esker repair`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RepairArguments {
    #[command(flatten)]
    directory: DirectoryArguments,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Repairs the log, and reports what was quarantined.
pub fn run(arguments: &RepairArguments) -> Outcome {
    let RepairArguments { directory, json } = arguments;
    let found = directory.find_whole("repair")?;
    let dir = match found.component {
        Component::Manager => &consensus_dir::target(&found.path, directory.key.as_deref())?.dir,
        _ => &found.path,
    };
    let bar = progress::bytes_bar(*json);
    let repaired = esker_log::repair_with(dir, ReadOptions::default(), progress::follow(&bar))
        .map_err(|e| Failure::from_log(&e.into(), dir))?;
    bar.finish_and_clear();
    // No repair changes offsets or snapshots, and `verify` would report them again.
    let (left, unread) = corrupt_beside(dir);
    if *json {
        output::print_json(&repaired_json(found.component, &repaired, &left))?;
    } else {
        let first = first_kept(dir, &repaired)?;
        let is_sound_beside = left.is_empty() && unread.is_none();
        output::print(&repaired_text(dir, &repaired, first, is_sound_beside))?;
    }
    match left.into_iter().next().map(Error::Corrupted).or(unread) {
        Some(error) => Err(Failure::from_log(&error, dir)),
        None => Ok(()),
    }
}

/// Returns the first record kept when the manifest was rebuilt. Then only the segments determine
/// with which record the log begins.
fn first_kept(dir: &Path, repaired: &Repaired) -> Outcome<Option<Seq>> {
    if !repaired.manifest_rebuilt {
        return Ok(None);
    }
    let reader = ReadOnlyLog::open(dir).map_err(|e| Failure::from_log(&e.into(), dir))?;
    Ok(Some(reader.oldest()).filter(|oldest| *oldest > Seq(1)))
}

fn repaired_json(component: Component, repaired: &Repaired, left: &[Corruption]) -> Value {
    let range_json = |range: &QuarantinedRange| {
        json!({
            "file": range.file.to_string_lossy(),
            "offset": range.offset,
            "bytes": range.bytes,
            "kept_in": range.kept_in.as_ref().map(|path| path.to_string_lossy()),
            "from": range.from.0,
            "to": range.to.0,
        })
    };
    json!({
        "component": component,
        "repaired": repaired.manifest_rebuilt
            || repaired.manifest_corrected
            || !repaired.quarantined.is_empty(),
        "manifest": repaired.manifest_rebuilt || repaired.manifest_corrected,
        "may_be_truncated": repaired.may_be_truncated.map(|range| [range.from.0, range.to.0]),
        "aside": repaired.quarantined.iter().map(range_json).collect::<Vec<_>>(),
        "damage": left.iter().map(corruption_json).collect::<Vec<_>>(),
    })
}

/// Whether a range was quarantined with the header of its segment, and has no valid record under
/// the number of that segment, as where two segments were exchanged.
fn is_exchanged(range: &QuarantinedRange, all: &[QuarantinedRange]) -> bool {
    let is_record = |found| matches!(found, Ok(Salvaged::Record(_)));
    let has_record = |file: &PathBuf| {
        let salvage = esker_log::salvage(file, ReadOptions::default());
        salvage.is_ok_and(|mut found| found.any(is_record))
    };
    let is_header = |other: &QuarantinedRange| other.file == range.file && other.offset == 0;
    all.iter().any(is_header) && range.kept_in.as_ref().is_some_and(|file| !has_record(file))
}

fn repaired_text(
    dir: &Path,
    repaired: &Repaired,
    first: Option<Seq>,
    is_sound_beside: bool,
) -> String {
    let mut text = String::new();
    if repaired.manifest_rebuilt {
        text += "the manifest was rebuilt from the segments\n";
        if let Some(first) = first {
            text += &format!(
                "the log begins with record {first}; earlier records were truncated or are lost\n"
            );
        }
        if let Some(SeqRange { from, to }) = repaired.may_be_truncated {
            text += &format!(
                "records above {from} up to {to} may have been truncated before and are readable again\n"
            );
        }
    }
    let ranges = &repaired.quarantined;
    if repaired.manifest_corrected && ranges.is_empty() {
        text += "the manifest was of an earlier time, and was corrected\n";
    }
    for range in ranges {
        let QuarantinedRange { file, offset, bytes, kept_in, from, to, .. } = range;
        // Of a file that is missing, both its header and its records: one loss.
        let loses = |other: &QuarantinedRange| other.file == *file && other.from < other.to;
        if from == to && kept_in.is_none() && ranges.iter().any(loses) {
            continue;
        }
        let is_missing = ranges
            .iter()
            .any(|other| other.file == *file && other.offset == 0 && other.kept_in.is_none());
        let file = file.display();
        let _ = match kept_in {
            Some(_) => write!(text, "quarantined {bytes} bytes of {file} from byte {offset} on: "),
            None if is_missing => write!(text, "{file} is missing or empty: "),
            None => write!(text, "nothing is left of {file} from byte {offset} on: "),
        };
        let records = format_args!("the records above {from} up to {to}");
        let _ = match kept_in.as_ref().map(|file| file.display()) {
            None if from < to => write!(text, "{records} are lost"),
            None => write!(text, "no record is known to be lost"),
            Some(kept) if from < to && is_exchanged(range, ranges) => write!(
                text,
                "{records} are no longer in the log; kept in {kept}, which has no valid record of this segment: if \
                 segments were exchanged, rename it to the number of its own, and `esker log salvage` prints its \
                 records"
            ),
            Some(kept) if from < to => write!(
                text,
                "{records} are no longer in the log; `esker log salvage {kept}` prints the valid ones"
            ),
            Some(kept) => write!(text, "no record is known to be lost; kept in {kept}"),
        };
        text.push('\n');
    }
    if text.is_empty() {
        let dir = dir.display();
        text = match is_sound_beside {
            true => format!("{dir} has no corruption; nothing was changed\n"),
            false => format!("the records of {dir} have no corruption; nothing was changed\n"),
        };
    }
    text
}

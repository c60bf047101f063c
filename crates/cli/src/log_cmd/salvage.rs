//! `esker log salvage`: prints the valid records of a corrupt file.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use esker_log::{ReadOptions, RepairError, Salvage, Salvaged, SeqRange};

use super::range::{Range, Take};
use esker_command::exit::{Failure, Outcome, complain};
use esker_command::framing::Framing;
use esker_command::output;
use esker_command::record_text::RecordText;

const EXAMPLES: &str = "\
Examples:
  # The records that `esker repair` quarantined together with a corrupt
  # one
  esker log salvage ./esker-data/quarantine/00000000000000000003-4096.bytes

  # To another log
  esker log salvage ./old/00000000000000000003.seg \\
    | esker log append ./new --framing json

FILE is one that `esker repair` quarantined, or a segment. Each record whose own checksum matches \
is printed as `esker log cat --json` does; prev, position and time only where they are known. What \
is skipped or missing is reported on standard error, and the exit status is 0. `esker log cat \
--skip-corrupt` reads a whole log so.";

/// Arguments of `esker log salvage`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SalvageArguments {
    /// The file, in the directory of its log
    file: PathBuf,
}

/// Prints what is valid.
pub fn run(arguments: &SalvageArguments) -> Outcome {
    let file = &arguments.file;
    match std::fs::metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Failure::failed(format!("there is no file {}", file.display())));
        }
        Ok(metadata) if metadata.is_dir() => {
            return Err(Failure::failed(format!(
                "{} is a directory; `esker log cat --skip-corrupt` reads a whole log",
                file.display()
            )));
        }
        Ok(_) | Err(_) => {}
    }
    let failed = |error: RepairError| match error {
        // The checksums of records depend on the log, the segment and the offset.
        RepairError::NotALog { .. } => Failure::failed(format!(
            "{} has not the place and the name of a file of a log: rename what a repair quarantined \
             to LOG/quarantine/SEGMENT-OFFSET.bytes, as 00000000000000000003-4096.bytes for what was \
             in segment 3 from byte 4096 on, and a segment to LOG/00000000000000000003.seg",
            file.display()
        )),
        error => Failure::from_log(&error.into(), file.parent().unwrap_or(file)),
    };
    let salvage = esker_log::salvage(file, ReadOptions::default()).map_err(failed)?;
    let printed = print(salvage, Framing::Json, Range::from(None), file)?;
    match printed.records {
        0 => Err(Failure::failed(format!("{} has no valid record", file.display()))),
        _ => Ok(()),
    }
}

/// Counts of the records that were printed.
#[derive(Debug, Default)]
pub struct PrintCounts {
    pub records: u64,
    /// Whether bytes were skipped, or records are missing.
    pub is_partial: bool,
}

/// Prints the records in a range, and reports what is skipped and missing between them.
pub fn print(
    salvage: Salvage,
    framing: Framing,
    mut range: Range,
    path: &Path,
) -> Outcome<PrintCounts> {
    let mut out = output::buffered()?;
    let mut printed = PrintCounts::default();
    for found in salvage {
        match found.map_err(|error| Failure::from_log(&error.into(), path))? {
            Salvaged::Record(record) if range.is_before(record.seq) => {}
            Salvaged::Record(record) => {
                match range.take(record.seq) {
                    Take::Print => {}
                    Take::Skip => continue,
                    Take::End => break,
                }
                let time = record.time.map_or_else(String::new, output::time);
                let shown = RecordText {
                    seq: record.seq,
                    prev: record.prev,
                    position: record.position,
                    time: &time,
                    payload: &record.payload,
                };
                if !output::unless_closed(shown.write(framing, &mut out))? {
                    return Ok(printed);
                }
                printed.records += 1;
            }
            Salvaged::Skipped { file, offset, bytes } => {
                output::unless_closed(out.flush())?;
                let file = file.display();
                complain(&format!("note: skipped {bytes} bytes of {file} from byte {offset} on"));
                printed.is_partial = true;
            }
            // That is known, and no corruption that is left.
            Salvaged::Quarantined { to, .. } if range.is_before(to) => {}
            Salvaged::Quarantined { from, .. } if range.is_over(Some(from)) => break,
            Salvaged::Quarantined { from, to } => {
                output::unless_closed(out.flush())?;
                complain(&format!(
                    "note: {}",
                    esker_log::Error::Quarantined(SeqRange { from, to })
                ));
            }
            Salvaged::Missing { from, to } => {
                output::unless_closed(out.flush())?;
                complain(&format!("note: records above {from} up to {to} are missing"));
                printed.is_partial = true;
            }
            _ => {}
        }
    }
    output::unless_closed(out.flush())?;
    Ok(printed)
}

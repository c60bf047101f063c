//! Checks every byte and every record of a key-value store.

use std::path::Path;

use esker_log::ReadOptions;

use super::component::Component;
use super::log_verify;
use crate::kv_cmd::open;
use esker_command::exit::{Failure, Outcome};
use esker_command::output;
use esker_command::progress;

/// Checks every byte of the store's log, and every record.
pub fn run(dir: &Path, as_json: bool) -> Outcome {
    let bar = progress::bytes_bar(as_json);
    let report = esker_log::verify_with(dir, ReadOptions::default(), progress::follow(&bar))
        .map_err(|error| Failure::from_kv(esker_log::Error::from(error), dir))?;
    if report.corruption.is_empty() {
        let log = open::log(dir)?;
        esker_kv::check_records(&log).map_err(|error| Failure::from_kv(error, dir))?;
    }
    bar.finish_and_clear();
    if as_json {
        output::print_json(&log_verify::report_json(Component::Kv, &report))?;
    } else {
        output::print(&log_verify::report_text(&report))?;
    }
    log_verify::refuse_corruption(&report, dir)
}

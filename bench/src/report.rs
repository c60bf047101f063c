//! The report: a row for each system and work, as JSON and as tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use esker_bench::measure::figure::rounded;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::floor::Floor;
use crate::job::Set;
use crate::job_result::JobResult;
use crate::systems::System;
use crate::work::{Workload, works};

/// A line of `peers.json`. The first nine keys are interface.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    pub system: String,
    pub work: String,
    pub durable: bool,
    pub writers: u32,
    pub size: Value,
    pub ops_per_s: f64,
    pub mb_per_s: f64,
    pub p50_us: f64,
    pub verified: bool,
    pub p99_us: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p999_us: Option<f64>,
    pub batch: u32,
    pub version: String,
    pub note: String,
    /// The rate of every run, in the order of the runs.
    pub ops_per_s_of_runs: Vec<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reader_mb_per_s: Option<f64>,
    /// Samples taken before and after this work in every run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<Floor>,
    /// Why there is no figure, or what failed beside the runs that there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl Row {
    /// Takes the figures of the run with the median rate. A failed run adds its reason.
    pub fn from_runs(
        system: &System,
        work: &Workload,
        runs: &[Result<JobResult, String>],
        floor: Option<Floor>,
    ) -> Self {
        let rate = |run: &JobResult| run.ops as f64 / run.seconds.max(1e-9);
        let mut good: Vec<&JobResult> = runs.iter().flatten().collect();
        let rates = good.iter().map(|run| round(rate(run))).collect();
        good.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
        let median = good.get((good.len().max(1) - 1) / 2);
        let verified = !good.is_empty() && good.iter().all(|run| run.verified);
        let failures = runs.iter().filter(|run| run.is_err()).count();
        let failed =
            runs.iter().find_map(|run| run.as_ref().err()).map(|reason| match good.len() {
                0 => reason.clone(),
                _ => format!("{failures} of {} runs: {reason}", runs.len()),
            });
        Self {
            system: system.name.into(),
            work: work.name.into(),
            durable: median.is_some_and(|run| run.durable),
            writers: work.writers,
            size: work.size(),
            ops_per_s: median.map_or(0.0, |run| round(rate(run))),
            mb_per_s: median.map_or(0.0, |run| round(run.bytes as f64 / run.seconds / 1e6)),
            p50_us: median.map_or(0.0, |run| run.p50_us),
            verified,
            p99_us: median.map_or(0.0, |run| run.p99_us),
            p999_us: median.and_then(|run| run.p999_us),
            batch: work.batch,
            version: median.map_or_else(String::new, |run| run.version.clone()),
            note: median.map_or_else(String::new, |run| run.note.clone()),
            ops_per_s_of_runs: rates,
            reader_mb_per_s: median.and_then(|run| run.reader_mb_per_s).map(round),
            floor,
            failed,
        }
    }

    /// The figure that counts for its work; none where it failed.
    pub fn figure(&self, work: &Workload) -> Option<f64> {
        let figure = if work.in_bytes { self.mb_per_s } else { self.ops_per_s };
        (figure > 0.0).then_some(figure)
    }
}

/// The rows of a set of works: the new ones, and the old ones of works that were not run again.
pub fn together(set: Set, new: Vec<Row>, old: Vec<Row>) -> Vec<Row> {
    let again: BTreeSet<String> = new.iter().map(|row| row.work.clone()).collect();
    let mut rows = new;
    rows.extend(old.into_iter().filter(|row| !again.contains(&row.work)));
    let place = |row: &Row| works(set).position(|work| work.name == row.work);
    rows.sort_by_key(place);
    rows
}

/// The rows of a work, the fastest first.
pub fn rows_of_work<'a>(rows: &'a [Row], work: &Workload) -> Vec<&'a Row> {
    let mut rows: Vec<&Row> = rows.iter().filter(|row| row.work == work.name).collect();
    let figure = |row: &Row| row.figure(work).unwrap_or(0.0);
    rows.sort_by(|a, b| figure(b).total_cmp(&figure(a)));
    rows
}

const OTHER_DESIGNS: &str = "\
Neither scans of cold data nor keys that do not fit in memory are among the works. There another design must win: LSM \
trees and B-trees store neighbours next to each other, and have no index of all keys in memory. Esker stores values in \
the order of their writes, so that a cold scan of keys that were put in another order reads a block for each, and its \
index has every key. For the same reason redb opens at once: a B-tree reads its pages when they are needed.";

/// All tables, as Markdown.
pub fn markdown(set: Set, rows: &[Row], circumstances: &str) -> String {
    let title = match set {
        Set::Log => "Esker and its peers",
        Set::Consensus => "The consensus log and its peers",
        Set::Kv => "The key-value store and its peers",
    };
    let mut text = format!("# {title}\n\n{circumstances}\n");
    if set == Set::Kv {
        let _ = writeln!(text, "\n{OTHER_DESIGNS}");
    }
    for work in works(set) {
        let rows = rows_of_work(rows, work);
        if !rows.is_empty() {
            table(&mut text, work, &rows);
        }
    }
    notes(&mut text, rows);
    text
}

fn table(text: &mut String, work: &Workload, rows: &[&Row]) {
    let _ = writeln!(text, "\n## {}: {}\n", work.name, work.title);
    let floor = rows.iter().find_map(|row| row.floor);
    if let Some(floor) = floor {
        let _ = writeln!(
            text,
            "Floor: overwrite 4 KiB + fdatasync p50 {:.0} µs, append 4 KiB + fdatasync p50 {:.0} µs, \
             direct write {} MB/s, direct read {} MB/s.\n",
            floor.sync_p50_us,
            floor.append_sync_p50_us,
            grouped(floor.seq_mb_per_s),
            grouped(floor.read_mb_per_s),
        );
    }
    let esker = rows.iter().find(|row| row.system == "esker").and_then(|row| row.figure(work));
    let streams = rows.iter().any(|row| row.reader_mb_per_s.is_some());
    let (reader, line) = if streams { (" reader MB/s |", "--:|") } else { ("", "") };
    let tails = rows.iter().any(|row| row.p999_us.is_some());
    let (tail, tail_line) = if tails { (" p99.9 µs |", "--:|") } else { ("", "") };
    let _ = writeln!(
        text,
        "| system | {} | of the runs | MB/s |{reader} p50 µs | p99 µs |{tail} beside Esker | durable | read back |",
        work.set.unit(),
    );
    let _ = writeln!(text, "|---|--:|--:|--:|{line}--:|--:|{tail_line}--:|---|---|");
    for row in rows {
        let Some(figure) = row.figure(work) else {
            let reason = row.failed.as_deref().unwrap_or("failed");
            let _ = writeln!(text, "| {} | {} |", row.system, reason.replace('|', "/"));
            continue;
        };
        let beside = esker.map_or_else(String::new, |esker| format!("{:.2} x", figure / esker));
        let extremes = |pick: fn(f64, f64) -> f64| {
            row.ops_per_s_of_runs.iter().copied().reduce(pick).map_or_else(String::new, grouped)
        };
        let reader = match row.reader_mb_per_s {
            Some(rate) => format!(" {} |", grouped(rate)),
            None if streams => " |".into(),
            None => String::new(),
        };
        let tail = match row.p999_us {
            Some(time) => format!(" {} |", grouped(time)),
            None if tails => " |".into(),
            None => String::new(),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} to {} | {} |{reader} {} | {} |{tail} {beside} | {} | {} |",
            row.system,
            grouped(row.ops_per_s),
            extremes(f64::min),
            extremes(f64::max),
            grouped(row.mb_per_s),
            grouped(row.p50_us),
            grouped(row.p99_us),
            yes(row.durable),
            yes(row.verified),
        );
    }
}

/// The notes beside the figures: once for each system, and for a work that differs.
fn notes(text: &mut String, rows: &[Row]) {
    let mut notes: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut failures = String::new();
    for row in rows {
        if let Some(reason) = &row.failed {
            let _ = writeln!(failures, "- {}, {}: {reason}", row.system, row.work);
        }
        if !row.note.is_empty() {
            let note = format!("{} {}: {}", row.system, row.version, row.note);
            notes.entry(note).or_default().push(&row.work);
        }
    }
    text.push_str("\n## Notes\n\n");
    // In order, a note comes before those that only add to it.
    let mut base = String::new();
    for (note, works) in notes {
        match note.strip_prefix(&base).and_then(|more| more.strip_prefix("; ")) {
            Some(more) if !base.is_empty() => {
                let _ = writeln!(text, "  - {}: {more}", works.join(", "));
            }
            _ => {
                let _ = writeln!(text, "- {note} ({})", works.join(", "));
                base = note;
            }
        }
    }
    if !failures.is_empty() {
        let _ = write!(text, "\n## What failed\n\n{failures}");
    }
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

/// Three digits that count, and commas; small figures keep a fraction.
pub fn grouped(figure: f64) -> String {
    if figure < 0.1 {
        return format!("{figure:.3}");
    }
    if figure < 10.0 {
        return format!("{figure:.2}");
    }
    let unit = 10f64.powi((figure.log10().floor() as i32 - 2).max(0));
    let whole = format!("{:.0}", (figure / unit).round() * unit);
    let mut text = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn round(figure: f64) -> f64 {
    rounded(figure, 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::SYSTEMS;
    use crate::work::WORKS;

    fn result(ops: u64) -> JobResult {
        JobResult {
            work: None,
            ops,
            bytes: ops * 900,
            seconds: 1.0,
            p50_us: 10.0,
            p99_us: 20.0,
            p999_us: None,
            verified: true,
            durable: true,
            version: "1".into(),
            note: String::new(),
            reader_mb_per_s: None,
        }
    }

    #[test]
    fn the_row_has_the_median_run_and_the_failures() {
        let runs = [Ok(result(30)), Err("crashed".into()), Ok(result(10)), Ok(result(20))];
        let row = Row::from_runs(&SYSTEMS[0], &WORKS[0], &runs, None);
        assert_eq!(row.ops_per_s, 20.0);
        assert_eq!(row.ops_per_s_of_runs, [30.0, 10.0, 20.0]);
        assert_eq!(row.failed.as_deref(), Some("1 of 4 runs: crashed"));
        assert!(row.verified && row.durable);
    }

    #[test]
    fn what_never_ran_is_neither_durable_nor_verified() {
        let row = Row::from_runs(&SYSTEMS[0], &WORKS[0], &[Err("does not build".into())], None);
        assert!(!row.durable && !row.verified && row.ops_per_s == 0.0);
        let text = markdown(Set::Log, &[row], "");
        assert!(text.contains("| esker | does not build |"), "{text}");
    }

    #[test]
    fn old_rows_stay_where_the_work_was_not_run_again() {
        let row =
            |work: usize, ops| Row::from_runs(&SYSTEMS[0], &WORKS[work], &[Ok(result(ops))], None);
        let rows = together(Set::Log, vec![row(1, 30)], vec![row(0, 10), row(1, 20)]);
        let figures: Vec<_> = rows.iter().map(|row| (row.work.as_str(), row.ops_per_s)).collect();
        assert_eq!(figures, [("append-1", 10.0), ("append-20", 30.0)]);
    }

    #[test]
    fn figures_are_easy_to_read() {
        let shown = [0.0123, 1.234, 45.6, 1234.0, 1_012_345.0].map(grouped);
        assert_eq!(shown, ["0.012", "1.23", "46", "1,230", "1,010,000"]);
    }
}

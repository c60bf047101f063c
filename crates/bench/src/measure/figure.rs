//! A measured figure, printed as a JSON object or as text.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::measure::floor_figures::FloorFigures;
use crate::measure::latency::Latencies;
use crate::measure::resources::ResourceUse;
use esker_command::exit::Outcome;
use esker_command::output;

/// A measured figure.
#[derive(Debug)]
pub struct Figure {
    pub bench: &'static str,
    /// Totals of the timed part.
    pub ops: u64,
    pub bytes: u64,
    pub time: Duration,
    pub params: Value,
    pub latencies: Latencies,
    pub used: ResourceUse,
    pub floor: FloorFigures,
    pub verdict: Verdict,
    /// The median time of an opening, for `log/open`.
    pub open_ms: Option<f64>,
    /// Keys of this figure only.
    pub more: Map<String, Value>,
    /// Additional text beside the rate.
    pub summary: Option<Summary>,
}

/// The result of checking a run: of the data that it wrote, read back and compared, or of the
/// history of its callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The data was not checked, or not all of it.
    Unchecked,
    Right,
    Wrong,
}

impl Verdict {
    /// The verdict of a check that ends the command where it finds something.
    pub fn right_if(checked: bool) -> Self {
        if checked { Self::Right } else { Self::Unchecked }
    }

    /// The key `checked`.
    pub fn is_checked(self) -> bool {
        self != Self::Unchecked
    }

    /// The key `verified`.
    pub fn is_right(self) -> bool {
        self == Self::Right
    }
}

/// The text lines around the rate of a writer.
#[derive(Debug)]
pub struct Summary {
    pub bench: String,
    pub worker: String,
    pub readers: String,
}

/// The layout of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Rate,
    /// The rate of readers.
    Reading,
    Opening,
    Floor,
}

/// The JSON object. The keys are part of the stable interface.
#[derive(Serialize)]
struct FigureLine<'a> {
    bench: &'a str,
    params: &'a Value,
    ops: u64,
    bytes: u64,
    seconds: f64,
    ops_per_s: f64,
    mb_per_s: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
    ns_per_op: f64,
    cpu_seconds: f64,
    rss_mb: f64,
    allocs_per_op: f64,
    floor: FloorFigures,
    /// The figure as a multiple of the floor.
    ratio: Value,
    /// Whether everything was checked; and, if so, whether it was right.
    checked: bool,
    verified: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_ms: Option<f64>,
    #[serde(flatten)]
    more: &'a Map<String, Value>,
}

impl Figure {
    /// Creates a figure without parameters, latencies and floor.
    pub fn new(bench: &'static str, ops: u64, bytes: u64, time: Duration) -> Self {
        Self {
            bench,
            ops,
            bytes,
            time,
            params: Value::Null,
            latencies: Latencies::new(),
            used: ResourceUse::default(),
            floor: FloorFigures::default(),
            verdict: Verdict::Unchecked,
            open_ms: None,
            more: Map::new(),
            summary: None,
        }
    }

    /// Prints the figure to standard output.
    pub fn print(&self, as_json: bool, shape: Shape) -> Outcome {
        let reported = self.reported(shape);
        if as_json {
            output::print_json(&reported)
        } else {
            output::print(&text(&reported, shape, self.summary.as_ref()))
        }
    }

    fn reported(&self, shape: Shape) -> FigureLine<'_> {
        let seconds = self.time.as_secs_f64().max(1e-9);
        let ops = self.ops.max(1) as f64;
        let mb_per_s = self.bytes as f64 / seconds / 1e6;
        let p50_us = self.latencies.quantile_us(0.5);
        FigureLine {
            bench: self.bench,
            params: &self.params,
            ops: self.ops,
            bytes: self.bytes,
            seconds: rounded(seconds, 6),
            ops_per_s: rounded(self.ops as f64 / seconds, 1),
            mb_per_s: rounded(mb_per_s, 2),
            p50_us,
            p99_us: self.latencies.quantile_us(0.99),
            p999_us: self.latencies.quantile_us(0.999),
            max_us: self.latencies.max_us(),
            ns_per_op: rounded(seconds * 1e9 / ops, 1),
            cpu_seconds: rounded(self.used.cpu.as_secs_f64(), 3),
            rss_mb: rounded(self.used.resident as f64 / 1e6, 1),
            allocs_per_op: rounded(self.used.allocations as f64 / ops, 4),
            floor: self.floor,
            ratio: match shape {
                Shape::Reading => json!({
                    "mb_per_s_to_read": ratio(mb_per_s, self.floor.read_mb_per_s),
                    "mb_per_s_to_memcpy": ratio(mb_per_s, self.floor.memcpy_gb_per_s * 1e3),
                }),
                _ if self.floor.random_read_per_s.is_some() => json!({
                    "ops_to_random_read":
                        ratio(self.ops as f64 / seconds, self.floor.random_read_per_s.unwrap_or(0.0)),
                }),
                _ => json!({
                    "p50_to_sync": ratio(p50_us, self.floor.sync_p50_us),
                    "mb_per_s_to_seq": ratio(mb_per_s, self.floor.seq_mb_per_s),
                }),
            },
            checked: self.verdict.is_checked(),
            verified: self.verdict.is_right(),
            open_ms: self.open_ms.map(|ms| rounded(ms, 3)),
            more: &self.more,
        }
    }
}

fn text(reported: &FigureLine<'_>, shape: Shape, summary: Option<&Summary>) -> String {
    let mut text = String::new();
    // Present where `ops` counts recovered entries, not openings.
    let openings = reported.params.get("openings").and_then(Value::as_u64);
    if shape != Shape::Floor {
        let _ = writeln!(text, "{}  {}", reported.bench, main_params(reported.params));
    }
    match shape {
        Shape::Rate => write_rate(&mut text, reported, summary),
        Shape::Reading => {
            let (records, mb) = (reported.ops_per_s, reported.mb_per_s);
            let _ = writeln!(text, "  {records:.0} records/s, {mb:.1} MB/s read");
            for (name, value) in reported.more {
                let _ = writeln!(text, "  {name}: {value}");
            }
        }
        Shape::Opening => {
            let _ = writeln!(
                text,
                "  {:.1} ms to open, the median of {}; the slowest {:.1} ms",
                reported.open_ms.unwrap_or_default(),
                openings.unwrap_or(reported.ops),
                reported.max_us / 1e3
            );
        }
        Shape::Floor => {}
    }
    write_floor(&mut text, reported, shape);
    let counted = match shape {
        Shape::Floor => return text,
        Shape::Opening if openings.is_some() => "entry",
        Shape::Opening => "opening",
        Shape::Rate | Shape::Reading => "record",
    };
    let verified = match (reported.verified, shape) {
        (false, _) => "not verified",
        (true, Shape::Reading) => "verified while reading",
        (true, _) => "read back and compared",
    };
    let _ = writeln!(
        text,
        "  {:.2} s CPU, {:.0} MB resident, {} allocations per {counted}; {verified}",
        reported.cpu_seconds, reported.rss_mb, reported.allocs_per_op
    );
    text
}

/// Writes the rate and the latencies of callers.
fn write_rate(text: &mut String, reported: &FigureLine<'_>, summary: Option<&Summary>) {
    if let Some(Summary { bench, worker, .. }) = summary {
        let _ = writeln!(text, "  Bench:   {bench}\n  Worker:  {worker}");
    }
    let _ = writeln!(
        text,
        "  {}{:.3} s, {:.0} records/s, {:.1} MB/s; latency p50 {}, p99 {}, p99.9 {}, max {}",
        if summary.is_some() { "Writer:  " } else { "" },
        reported.seconds,
        reported.ops_per_s,
        reported.mb_per_s,
        time(reported.p50_us),
        time(reported.p99_us),
        time(reported.p999_us),
        time(reported.max_us)
    );
    if let Some(Summary { readers, .. }) = summary {
        let _ = writeln!(text, "  Readers: {readers}");
    }
}

/// Writes the hardware floor, and the figure as a multiple of it.
fn write_floor(text: &mut String, reported: &FigureLine<'_>, shape: Shape) {
    let floor = &reported.floor;
    let _ = writeln!(
        text,
        "  floor: overwrite + sync {:.0} us, append + sync {:.0} us, write {:.0} MB/s, read {:.0} MB/s, \
         memcpy {:.1} GB/s ({} samples)",
        floor.sync_p50_us,
        floor.append_sync_p50_us,
        floor.seq_mb_per_s,
        floor.read_mb_per_s,
        floor.memcpy_gb_per_s,
        floor.samples
    );
    if let Some(reads) = floor.random_read_per_s {
        let to_reads = &reported.ratio["ops_to_random_read"];
        let _ = writeln!(text, "  relative to the floor: {to_reads} x {reads:.0} random reads/s");
    } else if shape == Shape::Rate {
        let _ = writeln!(
            text,
            "  relative to the floor: p50 {} x overwrite + sync, {} x the write rate",
            reported.ratio["p50_to_sync"], reported.ratio["mb_per_s_to_seq"]
        );
    }
    if shape == Shape::Reading {
        let _ = writeln!(
            text,
            "  relative to the floor: {} x the read rate, {} x memcpy",
            reported.ratio["mb_per_s_to_read"], reported.ratio["mb_per_s_to_memcpy"]
        );
    }
}

/// Returns the most important parameters on one line.
fn main_params(params: &Value) -> String {
    const FIRST: [&str; 18] = [
        "readers",
        "writers",
        "mode",
        "threads",
        "callers",
        "size",
        "batch",
        "rate",
        "verify",
        "policy",
        "count",
        "seconds",
        "after",
        "bytes",
        "segments",
        "direct",
        "cold",
        "slow_disk",
    ];
    let given = FIRST.iter().filter_map(|name| Some((name, params.get(*name)?)));
    given
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| match value {
            Value::String(text) => format!("{name}={text}"),
            other => format!("{name}={other}"),
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// Formats microseconds with their significant digits.
pub fn time(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.2} us"),
        us if us < 10_000.0 => format!("{us:.0} us"),
        us => format!("{:.1} ms", us / 1e3),
    }
}

/// Returns a figure as a multiple of the floor; `None` without a floor.
pub fn ratio(value: f64, floor: f64) -> Option<f64> {
    (floor > 0.0).then(|| rounded(value / floor, 3))
}

/// Rounds to this many decimal places.
pub fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}
